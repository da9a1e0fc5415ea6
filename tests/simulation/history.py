"""A history: what happens in a world, all drawn from one seed, as it is told and judged."""

import asyncio
import contextlib
import gc
import warnings
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from random import Random
from typing import Any, Final

import headgate
from headgate.errors import HeadgateError
from headgate.policy import loads
from tests.simulation.deployments import HOME, PART, THERE
from tests.simulation.drawing import FAULTS, OF_SERVERS, PROCESSES, SCENES, SITE_CUT, SPAN, Event, drawn
from tests.simulation.loop import Process, Stuck
from tests.simulation.nodes import NODE_FAULTS, Nodes, doors
from tests.simulation.oracle import TTL, Oracle, body_of, token_in, value_of
from tests.simulation.server import Backing, Rewrite
from tests.simulation.sites import POOL, Letters, govern
from tests.simulation.world import World

SETTLES: Final = 30.0
"""Seconds that it may take for that."""
QUEUE, GATE = "q", "g"
FROM, TO = "from", "to"
DESTINATIONS: Final = {QUEUE: ("queue", "90"), GATE: ("gate", "40")}
ORDER_BY: Final = "header:v"
"""What slices may keep the order of; messages have one of a few values."""
BRIDGED: Final = {FROM: ("queue", "80"), TO: ("queue", "60")}
"""With nodes: what is sent to the one queue comes out of the other."""
BRIDGE: Final = f"""
[[bridge]]
name = "b"
from = "{FROM}"
to = "{TO}"
"""


class Application:
    """A process with a client of its own, which consumes, and sends and is admitted as it is bid."""

    def __init__(self, history: "History", number: int, generation: int) -> None:
        self.history, self.number, self.generation = history, number, generation
        self.world, self.oracle = history.world, history.oracle
        chance = Random(f"application {history.seed} {number} {generation}")
        self.process = self.world.process(f"p{number}.{generation}", rate=1 + chance.uniform(-0.02, 0.02))
        self.process.ahead = chance.uniform(-1000, 1000)
        self.chance = chance
        self.frozen_until = 0.0
        at_part = history.letters is not None and number == PROCESSES - 1
        self.site = (PART if at_part else HOME) if history.letters else ""
        self.queue = THERE if at_part else QUEUE
        self.client: Any = None
        self.session: Any = None
        self.producer: Any = None
        self.gate: Any = None
        self.forwards: Any = None
        self.jobs: set[asyncio.Task[Any]] = set()
        self.closing = False
        self.life = self.world.spawn(self.process, self._live())

    async def _patiently(self, what: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        while True:
            try:
                return await what()
            except (HeadgateError, TimeoutError) as error:
                self.world.note(self.process.name, "tries again", f"{type(error).__name__}: {error}"[:200])
                await asyncio.sleep(0.2)

    async def _live(self) -> None:
        self.client = await self._patiently(lambda: self.history.client(self.site).__aenter__())
        if self.queue == THERE or (self.site and not self.number):
            await self._patiently(lambda: govern(self.client, self.site))
        if not self.generation and not self.number:
            for name, (kind, limit) in self.history.destinations.items():
                slices = self.history.slices.get(name, {})
                await self._patiently(partial(self.client.apply, name, kind=kind, limit=limit, **slices))
            if self.history.nodes:
                await self._patiently(lambda: self.client.apply_policy(loads(BRIDGE)))
            self.history.made.set()
        await self.history.made.wait()
        self.client.on_state_loss(self._lost)
        self.session = self.client.session(f"s{self.number}", ttl=TTL)
        self.oracle.owners[self.session.id] = self.process
        if self.queue == QUEUE:
            self.gate = await self._patiently(lambda: self.session.gate(GATE))
        self.producer = await self._patiently(lambda: self.session.producer(self.queue, window=60))
        places = [self.queue]
        if self.history.nodes:
            self.forwards = await self._patiently(lambda: self.session.producer(FROM, window=60))
            places.append(TO)
        await asyncio.gather(*map(self._consume, places))

    async def _consume(self, place: str) -> None:
        consumer = await self._patiently(lambda: self.session.consumer(place, window=2))
        while not self.closing:
            try:
                message = await consumer.receive(timeout=1)
                if message is None:
                    continue
                token = token_in(message.body)
                self.world.note(self.process.name, "receives", token)
                self.oracle.receives(token)
                await asyncio.sleep(self.chance.uniform(0.0, 1.5 if self.site else 0.3))
                if self.chance.random() < 0.15:
                    await message.release()
                    continue
                begun = self.world.loop.now
                await message.accept(confirm=True, timeout=2)
                self.oracle.has_accepted(place, token, begun)
            except HeadgateError as error:
                self.world.note(self.process.name, "consumes not", type(error).__name__)
                await asyncio.sleep(0.05)

    def _lost(self, loss: Any) -> None:
        self.world.note(self.process.name, "hears of a loss", loss.destination, loss.lost)
        self.oracle.losses[self.process.name] += loss.lost

    def do(self, event: Event, number: int) -> None:
        """Make one call, if this process is so far."""
        if self.producer is None or self.process.dead or (event.what == "admit" and self.gate is None):
            return
        job = self.world.spawn(self.process, self._job(event, number))
        self.jobs.add(job)
        job.add_done_callback(self.jobs.discard)

    async def _job(self, event: Event, number: int) -> None:
        what, begun, timeout = f"{event.what}{number}", self.world.loop.now, 4.0
        token = f"m{number}"
        self.world.note(self.process.name, what)
        try:
            if event.what in ("send", "forward"):
                producer, place = (self.producer, self.queue) if event.what == "send" else (self.forwards, FROM)
                headers = {"v": value_of(token)} if self.history.slices else None
                await producer.send(body_of(token, int(event.much)), headers=headers, timeout=timeout)
                self.oracle.has_receipt(place, token, self.process)
            elif event.what == "admit":
                async with self.gate.admit(int(event.much), timeout=timeout):
                    begun = self.world.loop.now
                    await asyncio.sleep(timeout := 0.5)
            else:
                await self._change(event)
            self.world.note(self.process.name, what, "is done")
        except headgate.CreditTimeout as error:
            self.world.note(self.process.name, what, str(error)[:200])
            self.oracle.explained(what, begun, (error.explanation, error.paid))
        except HeadgateError as error:
            self.world.note(self.process.name, what, f"{type(error).__name__}: {error}"[:200])
        self.oracle.ended(f"{what} of {self.process}", self.world.loop.now - max(begun + timeout, self.frozen_until))

    async def _change(self, event: Event) -> None:
        """Set something of the queue."""
        if event.what == "limit":
            self.oracle.applies(QUEUE, None)
            await self.client.apply(QUEUE, limit=f"{event.much:.0f}")
            self.oracle.applies(QUEUE, event.much)
        elif event.what == "slices":
            await self.client.apply(QUEUE, slices=int(event.much))
        else:
            await self.client.apply(QUEUE, order_by=ORDER_BY if event.much else None)

    async def close(self) -> None:
        """Close in time, whatever is under way."""
        self.closing = True
        begun = self.world.loop.now
        self.life.cancel()
        if self.client is not None:
            await self.client.close()
        self.oracle.ended(f"close of {self.process}", self.world.loop.now - begun)


class History:
    """One history, told once."""

    def __init__(
        self,
        backing: Backing,
        seed: int,
        scene: str = "alone",
        events: Sequence[Event] | None = None,
        *,
        rewrite: Rewrite | None = None,
    ) -> None:
        self.seed, self.scene = seed, SCENES[scene]
        self.events = drawn(seed, self.scene) if events is None else list(events)
        self.world = World(backing, seed, servers=self.scene.servers, rewrite=rewrite)
        self.nodes = Nodes(self.world, self.scene.nodes) if self.scene.nodes else None
        self.slices: dict[str, dict[str, Any]] = {}
        if self.scene.servers == "cluster":
            self.slices[QUEUE] = {"slices": 3, "order_by": ORDER_BY if seed % 2 else None}
        self.letters = Letters(self.world) if self.scene.servers == "sites" else None
        self.destinations = DESTINATIONS | (BRIDGED if self.nodes else {})
        if self.letters:
            del self.destinations[QUEUE]  # which is as the policy says
        self.oracle = self.world.deployment.oracle = Oracle(self.world.loop)
        self.world.deployment.later = self._later
        for server in self.world.deployment.servers:
            server.watch = self._saw
        if self.letters:
            self.oracle.shared = dict.fromkeys((QUEUE, THERE), POOL)
        self.made = asyncio.Event()
        self._applications: list[Application] = []
        self._chance = Random(f"faults {seed}")

    def client(self, site: str) -> headgate.Client:
        """Return a client, through the nodes where there are any."""
        return self.nodes.client() if self.nodes else self.world.client(site)

    def tell(self) -> list[str]:
        """Let all happen; returns what was broken."""
        with warnings.catch_warnings():  # of connections that nobody closed: the dead do not
            warnings.simplefilter("ignore", ResourceWarning)
            try:
                with doors() if self.nodes else contextlib.nullcontext():
                    self.world.run(self._story())
            except Stuck as stuck:
                self.oracle.breaks("P11", str(stuck))
            self._applications.clear()
            gc.collect()
        return self.oracle.broken

    def _saw(self, call: Any) -> None:
        reply = call.reply[0] if isinstance(call.reply, list) and call.reply else call.reply
        self.world.note(call.caller, call.script, call.words[1], str(reply))
        self.oracle.saw(call)

    async def _story(self) -> None:
        loop = self.world.loop
        self._applications = [Application(self, number, 0) for number in range(PROCESSES)]
        begins = loop.now
        nodes = self.nodes or self.letters
        if nodes:
            nodes.begin()
        for number, event in enumerate(self.events):
            loop.at(begins + event.at, self._happen, event, number)
        ending = asyncio.create_task(self._end(begins))
        await asyncio.wait((ending, self.oracle.over), return_when=asyncio.FIRST_COMPLETED)
        if ending.done():
            ending.result()
            if not self.oracle.broken:
                self.oracle.finish()
        else:
            ending.cancel()

    async def _end(self, begins: float) -> None:
        loop = self.world.loop
        await asyncio.sleep(begins + SPAN + 1.5 * TTL - loop.now)
        self.world.network.heal()
        deadline = loop.now + SETTLES
        while any(one.jobs for one in self._living()) or self._left():
            if loop.now > deadline:
                jobs = [job for one in self._living() for job in one.jobs]
                self.oracle.breaks("P6", f"{self._left()} messages and {len(jobs)} calls are left, and nothing fails")
                return
            await asyncio.sleep(0.25)
        closing = [self.world.spawn(one.process, one.close()) for one in self._living()]
        await asyncio.wait(closing)
        for one in closing:
            one.result()

    def _living(self) -> list[Application]:
        return [one for one in self._applications if not one.process.dead]

    def _left(self) -> int:
        return sum(len(sight.stored) for sight in self.oracle.last.values())

    def _happen(self, event: Event, number: int) -> None:
        application = next((one for one in self._living() if one.number == event.who), None)
        nodes = self.nodes or self.letters
        if nodes and event.what in (*NODE_FAULTS, SITE_CUT):
            self.world.note(str(event))
            self.oracle.disturbed = max(self.oracle.disturbed, self.world.loop.now + event.much)
            nodes.befall(event.what, event.who, event.much)
            return
        if event.what not in FAULTS and event.what not in OF_SERVERS:
            if application is not None:
                application.do(event, number)
            return
        self.world.note(str(event))
        if event.what in OF_SERVERS:
            self.world.deployment.befall(event.what, event.who, event.much)
            if event.what == "hang":
                self._silence(event.much)
        else:
            getattr(self, f"_{event.what}")(application, event.much)

    # Faults. Each ends by itself.

    def _later(self, seconds: float, what: Callable[..., None], *args: Any) -> None:
        loop = self.world.loop
        self.oracle.disturbed = max(self.oracle.disturbed, loop.now + seconds)
        loop.at(loop.now + seconds, what, *args)

    def _freeze(self, one: Application | None, seconds: float) -> None:
        if one is not None and not one.process.frozen:
            one.process.frozen = True
            one.frozen_until = self.world.loop.now + seconds
            self._later(seconds, self._thaw, one.process)

    def _thaw(self, process: Process) -> None:
        if not process.dead:
            self.world.loop.thaw(process)

    def _kill(self, one: Application | None, seconds: float) -> None:
        if one is None:
            return
        self.world.kill(one.process)
        if one.session is not None:
            self.oracle.died[one.session.id] = self.world.loop.now
        self._later(seconds, self._begin, one.number, one.generation + 1)

    def _begin(self, number: int, generation: int) -> None:
        self._applications.append(Application(self, number, generation))

    def _cut(self, one: Application | None, seconds: float) -> None:
        if one is not None:
            for server in self.world.deployment.servers:
                self.world.network.cut(one.process, server.process, self.world.loop.now + seconds)
            one.frozen_until = max(one.frozen_until, self.world.loop.now + seconds)

    def _reset(self, one: Application | None, _: float) -> None:
        if one is not None:
            self.world.network.reset(one.process)

    def _slow(self, _: Application | None, seconds: float) -> None:
        self.world.network.slow = 1 + 40 * seconds
        self._later(seconds, self.world.network.heal_speed)

    def _jump(self, _: Application | None, seconds: float) -> None:
        """Have the clocks of all servers be set: those of one deployment agree."""
        ahead = seconds * self._chance.choice((-2, 1, 3600))
        self.oracle.clock_set(ahead)
        for server in self.world.deployment.servers:
            server.process.ahead += ahead

    def _forget(self, _: Application | None, __: float) -> None:
        for server in self.world.deployment.servers:
            server.forget_scripts()

    def _silent(self, _: Application | None, seconds: float) -> None:
        for server in self.world.deployment.servers:
            server.silent_until = self.world.loop.now + seconds
        self._silence(seconds)

    def _repeat(self, _: Application | None, seconds: float) -> None:
        for server in self.world.deployment.servers:
            server.repeats_until = self.world.loop.now + seconds

    def _silence(self, seconds: float) -> None:
        """Note that nobody is answered for a while."""
        for one in self._living():
            one.frozen_until = max(one.frozen_until, self.world.loop.now + seconds)
