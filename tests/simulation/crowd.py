"""A crowd fills a queue once nothing fails any more: each of its senders gets its part, whatever happened before."""

import asyncio
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.drawing import Event
from tests.simulation.judge.rates import IN_A_CROWD, Rates
from tests.simulation.judge.stores import Stores
from tests.simulation.judge.tokens import body_of, value_of

if TYPE_CHECKING:
    from tests.simulation.applications import Application
    from tests.simulation.drawing import Scene
    from tests.simulation.history import History

ONE_IN: Final = 50
"""Of so many histories one ends with a crowd, for it takes as long as several without."""
FIRST: Final = 2
"""Seed of the first of them."""
SENDERS: Final = 5
AT_ONCE: Final = (8, 4, 8)
"""Messages that each of them has under way, in one crowd after the other."""
WEIGHTS: Final = (1, 1, 1, 2, 2)
"""Of them, in every other crowd; else all have the same."""
SIZE: Final = 20
LIMIT: Final = 1200
"""Bytes of the queue meanwhile: more than is under way, so who gets which part of it is to be seen."""
WORKS: Final = 0.08
"""Seconds that those who consume take for a message meanwhile, at most."""
SETTLES: Final = 4.0
"""Seconds after which all that wait have their parts."""
WATCHED: Final = 3.0
"""Seconds in which their messages are counted."""
EVEN: Final = 0.95
"""Jain's index of what all get, at the least: 1 where they get the same, a fifth where one gets all."""
EVEN_SPOOLED: Final = 0.9
"""The same where some of it goes to a store, of all together: slices share references out evenly, not by weight."""
ENOUGH: Final = 50
"""Messages that went by memory, from which on their parts are judged alone: fewer are a few for each."""


def comes(scene: "Scene", seed: int) -> bool:
    """Return whether a crowd comes at the end of a history."""
    return not scene.holds and scene.servers != "sites" and seed % ONE_IN == FIRST


class Crowd:
    """Processes that begin once all is calm, send to one queue as fast as it takes messages, and then go.

    Attributes:
        stored: messages of each that were stored while it was watched.
        by_memory: those of them that did not go to a store.
    """

    def __init__(self, history: "History", place: str) -> None:
        self._history, self._place = history, place
        self.stored, self.by_memory = [0] * SENDERS, [0] * SENDERS
        self._weights = (1,) * SENDERS if history.seed % (2 * ONE_IN) == FIRST else WEIGHTS
        self._at_once = AT_ONCE[history.seed // ONE_IN % len(AT_ONCE)]
        self._watched = self._over = False

    async def fill(self, other: "Application") -> None:
        """Fill the queue, for which another application sets a limit, until it is seen who gets what."""
        history = self._history
        await history.world.spawn(other.process, other.job(Event(0.0, "limit", much=LIMIT), next(history.more)))
        if isinstance(history.oracle, Rates):
            faster = {"send_rate": f"{IN_A_CROWD.rate:g}/s", "send_burst": IN_A_CROWD.burst}
            await history.world.spawn(other.process, other.client.apply(self._place, **faster))
            history.oracle.hurries()
        history.takes = WORKS
        processes = [history.world.process(f"crowd{number}") for number in range(SENDERS)]
        senders = [
            history.world.spawn(process, self._send(number, process)) for number, process in enumerate(processes)
        ]
        await asyncio.sleep(SETTLES)
        self._watched = True
        await asyncio.sleep(WATCHED)
        self._watched, self._over = False, True
        await asyncio.wait(senders)
        for one in senders:
            one.result()
        if why := self._uneven():
            history.oracle.breaks("P7", f"of senders that all wait, {self.stored} were stored, {why}")

    def _uneven(self) -> str:
        """Return what is wrong with the parts."""
        spools = isinstance(self._history.oracle, Stores)
        if spools and sum(self.by_memory) >= ENOUGH and self._evenness(self.by_memory) < EVEN:
            return f"{self.by_memory} of them by memory, by weights {self._weights}"
        return f"by weights {self._weights}" if self._evenness(self.stored) < (EVEN_SPOOLED if spools else EVEN) else ""

    def _evenness(self, counts: list[int]) -> float:
        parts = [count / weight for count, weight in zip(counts, self._weights, strict=True)]
        return sum(parts) ** 2 / (SENDERS * sum(part**2 for part in parts))

    async def _send(self, number: int, process: Any) -> None:
        async with self._history.client("") as client:
            session = client.session(f"crowd{number}")
            self._history.oracle.owners[session.id] = process
            producer = await session.producer(self._place, weight=self._weights[number])
            await asyncio.gather(*(self._go_on(number, producer, process) for _ in range(self._at_once)))

    async def _go_on(self, number: int, producer: Any, process: Any) -> None:
        history = self._history
        while not self._over:
            token = f"m{next(history.more)}"
            history.oracle.order.sends(token, process)
            receipt = await producer.send(body_of(token, SIZE), headers={"v": value_of(token)}, timeout=30)
            history.oracle.has_receipt(self._place, token, process)
            self.stored[number] += self._watched
            self.by_memory[number] += self._watched and receipt.size > 0  # a reference counts for nothing
