"""The applications of a history: each sends, consumes and is admitted with the real client, in a process of its own."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final

import headgate
from headgate.errors import HeadgateError
from headgate.policy import loads
from headgate.spool.stores import store_fields
from headgate_coordinator.deadlock.detector import Detector
from tests.simulation.deployments import HOME, PART, THERE
from tests.simulation.drawing import PROCESSES, Event
from tests.simulation.judge.lease import TTL
from tests.simulation.judge.stores import LIMIT, ROOT, STORE
from tests.simulation.judge.tokens import body_of, token_in, value_of
from tests.simulation.sites import govern, least_of

if TYPE_CHECKING:
    from tests.simulation.history import History

QUEUE, GATE = "q", "g"
FROM, TO = "from", "to"
FOLLOWS: Final = 0.8
"""How likely a message is to make another one before it is settled, where rings get tickets."""
ORDER_BY: Final = "header:v"
"""What slices may keep the order of; messages have one of a few values."""
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

    async def patiently(self, what: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        while True:
            try:
                return await what()
            except (HeadgateError, TimeoutError) as error:
                self.world.note(self.process.name, "tries again", f"{type(error).__name__}: {error}"[:200])
                await asyncio.sleep(0.2)

    async def _live(self) -> None:
        self.client = await self.patiently(lambda: self.history.client(self.site).__aenter__())
        if self.queue == THERE or (self.site and not self.number):
            await self.patiently(lambda: govern(self.client, self.site, least_of(self.history.seed)))
        if not self.generation and not self.number:
            await self.make()
            self.history.made.set()
        await self.history.made.wait()
        self.client.on_state_loss(self._lost)
        self.session = self.client.session(f"s{self.number}", ttl=TTL)
        self.oracle.owners[self.session.id] = self.process
        await self.work()

    async def make(self) -> None:
        """Make all that there is."""
        if self.history.scene.rule == "store":
            spools, fields = self.client.parts.registry.spooling.spools, store_fields(f"memory:/{ROOT}", limit=LIMIT)
            await self.patiently(partial(spools.set, STORE, fields))
        for name, (kind, limit) in self.history.destinations.items():
            slices = self.history.slices.get(name, {})
            await self.patiently(partial(self.client.apply, name, kind=kind, limit=limit, **slices))
        if self.history.nodes:
            await self.patiently(lambda: self.client.apply_policy(loads(BRIDGE)))

    async def work(self) -> None:
        """Open all that it works with, and consume."""
        if self.queue == QUEUE:
            self.gate = await self.patiently(lambda: self.session.gate(GATE))
        self.producer = await self.patiently(lambda: self.session.producer(self.queue, window=60))
        places = [self.queue]
        if self.history.nodes:
            self.forwards = await self.patiently(lambda: self.session.producer(FROM, window=60))
            places.append(TO)
        if self.history.scene.rule == "ticket":
            await Detector(self.client, self.process.name, ttl=TTL).start()
        await asyncio.gather(*map(self._consume, places))

    async def _consume(self, place: str) -> None:
        consumer = await self.patiently(lambda: self.session.consumer(place, window=2))
        while not self.closing:
            try:
                self.oracle.idling.waits(place, self.process)
                message = await consumer.receive(timeout=1)
                if message is None:
                    continue
                self.oracle.idling.works(place, self.process)
                token = token_in(message.body)
                self.world.note(self.process.name, "receives", token)
                self.oracle.receives(token, self.session.id)
                await asyncio.sleep(self.chance.uniform(0.0, self.history.takes))
                if self.history.scene.rule == "ticket" and not self.history.ends and self.chance.random() < FOLLOWS:
                    await self.job(Event(0.0, "send", much=self.chance.choice((30, 60))), next(self.history.more))
                if self.chance.random() < 0.15:
                    await message.release()
                    continue
                begun = self.world.loop.now
                await message.accept(confirm=True, timeout=2)
                self.oracle.has_accepted(place, token, begun)
            except HeadgateError as error:
                self.oracle.idling.works(place, self.process)
                self.world.note(self.process.name, "consumes not", type(error).__name__)
                await asyncio.sleep(0.05)

    def _lost(self, loss: Any) -> None:
        self.world.note(self.process.name, "hears of a loss", loss.destination, loss.lost)
        self.oracle.losses[self.process.name] += loss.lost

    def do(self, event: Event, number: int) -> None:
        """Make one call, if this process is so far."""
        if self.process.dead or not self.can(event.what):
            return
        job = self.world.spawn(self.process, self.job(event, number))
        self.jobs.add(job)
        job.add_done_callback(self.jobs.discard)

    def can(self, what: str) -> bool:
        """Return whether it has opened what that takes."""
        return self.producer is not None and (what != "admit" or self.gate is not None)

    async def job(self, event: Event, number: int) -> None:
        """Make one call, and tell the oracle how it ended."""
        what, begun, timeout = f"{event.what}{number}", self.world.loop.now, 4.0
        token = f"m{number}"
        self.world.note(self.process.name, what)
        try:
            if event.what in ("send", "forward"):
                producer, place = (self.producer, self.queue) if event.what == "send" else (self.forwards, FROM)
                headers = {"v": value_of(token)} if self.history.slices else None
                if not self.history.nodes:
                    self.oracle.order.sends(token, self.process)
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
            self.oracle.explained(what, begun, (error.explanation, error.paid, error.reason))
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

    async def finish(self) -> None:
        """Look at what is left once nothing fails, and all calls have ended."""

    async def close(self) -> None:
        """Close in time, whatever is under way."""
        self.closing = True
        begun = self.world.loop.now
        self.life.cancel()
        if self.client is not None:
            await self.client.close()
        self.oracle.ended(f"close of {self.process}", self.world.loop.now - begun)
