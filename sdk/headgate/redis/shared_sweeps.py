"""A client makes the calls of many accounts together: those of one turn of the loop go to Redis in one write."""

import asyncio
import random
from collections.abc import Sequence
from typing import Any, Final

from headgate.errors import HeadgateError
from headgate.redis.backend import Backend
from headgate.redis.scripts import Script

BEAT: Final = 0.25
"""Seconds between the moments at which accounts ask again together."""
MOST: Final = 64
"""Calls in one write: Redis serves nobody else meanwhile."""
MOST_TURNS: Final = 1024
"""Destinations of which it is known when somebody looks there next."""
_PHASE: Final = random.random()  # noqa: S311 -- not all processes of a host are to ask at the same moment


def beat(when: float) -> float:
    """Return the moment nearest to that, on the loop's clock, at which all accounts of this process ask again."""
    return round((when - _PHASE) / BEAT) * BEAT + _PHASE


class SweepRounds:
    """A round makes the calls of all accounts of one client that ask again in one turn of the loop.

    The first that calls in a turn of the loop makes the round. A call that fails there, for its script is not loaded
    or another run served the state, is made by itself.
    """

    def __init__(self, server: Backend) -> None:
        self._server = server
        self._due: list[tuple[tuple[Any, ...], asyncio.Future[Any]]] = []
        self._turns: dict[bytes, float] = {}
        """The key of a destination -> when one of those who wait there looks for all of them."""

    def takes_turn(self, place: bytes, when: float) -> bool:
        """Return whether whoever asks again at that time looks for all who wait there; if not, another does before."""
        if self._turns.get(place, 0.0) > asyncio.get_running_loop().time():
            return False
        if len(self._turns) >= MOST_TURNS:
            self._turns.clear()
        self._turns[place] = when
        return True

    async def call(self, op: Script, keys: Sequence[bytes], argv: Sequence[Any]) -> Any:
        """Call a script as :meth:`Backend.call` does, with the same errors."""
        reply = asyncio.get_running_loop().create_future()
        self._due.append(((b"EVALSHA", op.sha, len(keys), *keys, *argv), reply))
        if len(self._due) == 1:
            await self._make()
        answer = await reply
        if isinstance(answer, HeadgateError):
            raise answer
        return await self._server.call(op, keys, argv) if answer is None or isinstance(answer, Exception) else answer

    async def _make(self) -> None:
        due: list[tuple[tuple[Any, ...], asyncio.Future[Any]]] = []
        try:
            await asyncio.sleep(0)  # until all of this turn are here
            due, self._due = self._due, []
            for at in range(0, len(due) if len(due) > 1 else 0, MOST):
                part = due[at : at + MOST]
                try:
                    replies = await self._server.burst([(words[3], words) for words, _ in part])
                except HeadgateError as error:
                    replies = [error] * len(part)
                for (_, future), reply in zip(part, replies, strict=True):
                    if not future.done():  # its account gave up meanwhile
                        future.set_result(reply)
        finally:
            if not due:
                due, self._due = self._due, []
            for _, future in due:
                if not future.done():
                    future.set_result(None)
