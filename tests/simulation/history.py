"""A history: what happens in a world, all drawn from one seed, as it is told and judged."""

import asyncio
import contextlib
import gc
import itertools
import warnings
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final

import headgate
from tests.simulation.applications import FROM, GATE, ORDER_BY, QUEUE, TO, Application
from tests.simulation.crowd import Crowd, comes
from tests.simulation.deployments import THERE
from tests.simulation.drawing import FAULTS, OF_SERVERS, PROCESSES, SCENES, SITE_CUT, SPAN, Event, drawn
from tests.simulation.holders import Holder
from tests.simulation.judge.alone import Alone
from tests.simulation.judge.holdings import Holdings
from tests.simulation.judge.lease import TTL
from tests.simulation.judge.levels import LEVEL, Levels
from tests.simulation.judge.oracle import Oracle
from tests.simulation.judge.rates import RATE, Rates
from tests.simulation.judge.stores import MOST_MESSAGES, STORE, Stores
from tests.simulation.judge.tickets import Tickets
from tests.simulation.loop import Process, Stuck
from tests.simulation.nodes import NODE_FAULTS, Nodes, doors
from tests.simulation.server import Backing, Rewrite
from tests.simulation.sites import POOL, Letters, least_of
from tests.simulation.world import World

SETTLES: Final = 30.0
"""Seconds that it may take for that."""
DESTINATIONS: Final = {QUEUE: ("queue", "90"), GATE: ("gate", "40")}
RULES: Final[dict[str, dict[str, Any]]] = {
    "rate": {"send_rate": f"{RATE.rate:g}/s", "send_burst": RATE.burst},
    "large": {"oversize": "allow-one"},
    "level": {"resume_at": f"{100 * LEVEL:g}%"},
    "ticket": {"deadlock": "ticket"},
    "store": {"when_full": "spool", "store": STORE},
    "turns": {"order_by": ORDER_BY, "fair_by": ORDER_BY},
}
JUDGES: Final[dict[str, type[Oracle]]] = {
    "rate": Rates,
    "large": Alone,
    "level": Levels,
    "ticket": Tickets,
    "store": Stores,
}
"""What a queue may have beside its limit, and who judges that."""
BRIDGED: Final = {FROM: ("queue", "80"), TO: ("queue", "60")}
"""With nodes: what is sent to the one queue comes out of the other."""


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
            self.slices[QUEUE] |= RULES.get(self.scene.rule, {})
            if self.scene.rule == "store" and seed % 3 == 0 and not comes(self.scene, seed):
                self.slices[QUEUE]["limit_messages"] = MOST_MESSAGES
        self.letters = Letters(self.world) if self.scene.servers == "sites" else None
        self.destinations = DESTINATIONS | (BRIDGED if self.nodes else {})
        if self.letters:
            del self.destinations[QUEUE]  # which is as the policy says
        self._kind = Holder if self.scene.holds else Application
        loop = self.world.loop
        self.oracle = Holdings(loop, seed) if self.scene.holds else JUDGES.get(self.scene.rule, Oracle)(loop)
        self.world.deployment.oracle = self.oracle
        self.world.deployment.later = self._later
        loop.set_exception_handler(self._failed)
        for server in self.world.deployment.servers:
            server.watch = self._saw
        if self.letters:
            self.oracle.shared = dict.fromkeys((QUEUE, THERE), POOL)
            self.oracle.own = {QUEUE: POOL - least_of(seed)}
        self.made = asyncio.Event()
        self.more = itertools.count(len(self.events))
        """Numbers of messages that others make."""
        self.takes = 1.5 if self.letters else 0.3
        """Seconds that those who consume take for a message, at most."""
        self.ends = False
        self._applications: list[Application] = []
        self._chance = Random(f"faults {seed}")
        self._sites = itertools.cycle(self.world.deployment.sites)
        """Whose clocks are set next."""

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

    def _failed(self, _: Any, context: dict[str, Any]) -> None:
        """Note that a callback failed, and not a task: nobody would hear of it."""
        if "handle" in context:
            self.oracle.breaks("error", f"{context['exception']!r} in {context['handle']}")

    async def _story(self) -> None:
        loop = self.world.loop
        self._applications = [self._kind(self, number, 0) for number in range(PROCESSES)]
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
        self.ends = True
        self.world.network.heal()
        deadline = loop.now + SETTLES
        while any(one.jobs for one in self._living()) or self._left():
            if loop.now > deadline:
                jobs = [job for one in self._living() for job in one.jobs]
                self.oracle.breaks("P6", f"{self._left()} messages and {len(jobs)} calls are left, and nothing fails")
                return
            await asyncio.sleep(0.25)
        if comes(self.scene, self.seed):
            await Crowd(self, QUEUE).fill(self._living()[0])
        if self.scene.holds:
            await self.world.spawn((one := self._living()[0]).process, one.finish())
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
        self.oracle.idling.happens(event.what, event.much)
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
        self._applications.append(self._kind(self, number, generation))

    def _cut(self, one: Application | None, seconds: float) -> None:
        if one is not None:
            for server in self.world.deployment.servers:
                self.world.network.cut(one.process, server.process, self.world.loop.now + seconds)
            one.frozen_until = max(one.frozen_until, self.world.loop.now + seconds)
            self.oracle.hindered = max(self.oracle.hindered, one.frozen_until)

    def _reset(self, one: Application | None, _: float) -> None:
        if one is not None:
            self.world.network.reset(one.process)

    def _slow(self, _: Application | None, seconds: float) -> None:
        self.world.network.slow = 1 + 40 * seconds
        self._later(seconds, self.world.network.heal_speed)

    def _jump(self, _: Application | None, seconds: float) -> None:
        """Have the clocks of all servers of a site be set: those of others stay."""
        times = self._chance.choice((-2, 1, 3600))
        if times < 0 and round(seconds * 100) % 3 == 0:
            times = -3600  # by hours: drawn from what is there, so that seeds which found something stay what they are
        ahead = seconds * times
        self.oracle.clock_set(ahead)
        for server in next(self._sites):
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
        self.oracle.hindered = max(self.oracle.hindered, self.world.loop.now + seconds)
        for one in self._living():
            one.frozen_until = max(one.frozen_until, self.world.loop.now + seconds)
