"""A crowd fills a queue once nothing fails any more: each of its senders gets its part, whatever happened before."""

import asyncio
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.drawing import Event
from tests.simulation.judge.tokens import body_of, value_of

if TYPE_CHECKING:
    from tests.simulation.applications import Application
    from tests.simulation.drawing import Scene
    from tests.simulation.history import History

ONE_IN: Final = 50
"""Of so many histories one ends with a crowd, for it takes as long as several without."""
FIRST: Final = 2
"""Seed of the first of them."""
RULES: Final = frozenset({"", "large", "level", "ticket", "turns"})
"""Rules under which parts are even over a few seconds: a rate lets too few messages through for that."""
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


def comes(scene: "Scene", seed: int) -> bool:
    """Return whether a crowd comes at the end of a history."""
    return scene.rule in RULES and not scene.holds and scene.servers != "sites" and seed % ONE_IN == FIRST


class Crowd:
    """Processes that begin once all is calm, send to one queue as fast as it takes messages, and then go.

    Attributes:
        stored: messages of each that were stored while it was watched.
    """

    def __init__(self, history: "History", place: str) -> None:
        self._history, self._place = history, place
        self.stored = [0] * SENDERS
        self._weights = (1,) * SENDERS if history.seed % (2 * ONE_IN) == FIRST else WEIGHTS
        self._at_once = AT_ONCE[history.seed // ONE_IN % len(AT_ONCE)]
        self._watched = self._over = False

    async def fill(self, other: "Application") -> None:
        """Fill the queue, for which another application sets a limit, until it is seen who gets what."""
        history = self._history
        await history.world.spawn(other.process, other.job(Event(0.0, "limit", much=LIMIT), next(history.more)))
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
        parts = [count / weight for count, weight in zip(self.stored, self._weights, strict=True)]
        even = sum(parts) ** 2 / (SENDERS * sum(part**2 for part in parts))
        if even < EVEN:
            history.oracle.breaks(
                "P7", f"of senders of weights {self._weights} that all wait, {self.stored} were stored"
            )

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
            await producer.send(body_of(token, SIZE), headers={"v": value_of(token)}, timeout=30)
            history.oracle.has_receipt(self._place, token, process)
            self.stored[number] += self._watched
