"""Calls of many accounts of one client that ask again: those of one turn of the loop go to Redis in one write."""

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
_PHASE: Final = random.random()  # noqa: S311 -- not all processes of a host are to ask at the same moment
_Words = tuple[Any, ...]


def beat(when: float) -> float:
    """Return the moment nearest to that, on the loop's clock, at which all accounts of this process ask again."""
    return round((when - _PHASE) / BEAT) * BEAT + _PHASE


class Rounds:
    """The rounds of one client; equal calls of a round are made once.

    The first that calls in a turn of the loop makes the round. A call that fails there, for its script is not loaded
    or another run served the state, is made by itself.
    """

    def __init__(self, server: Backend) -> None:
        self._server = server
        self._due: dict[_Words, asyncio.Future[Any]] = {}

    async def call(self, op: Script, keys: Sequence[bytes], argv: Sequence[Any]) -> Any:
        """Call a script as :meth:`Backend.call` does, with the same errors."""
        words = (b"EVALSHA", op.sha, len(keys), *keys, *argv)
        if words in self._due:
            reply = self._due[words]
        else:
            reply = self._due[words] = asyncio.get_running_loop().create_future()
            if len(self._due) == 1:
                await self._make()
        await asyncio.wait([reply])  # who gives up does not take the others along
        answer = reply.result()
        if isinstance(answer, HeadgateError):
            raise answer
        return await self._server.call(op, keys, argv) if answer is None or isinstance(answer, Exception) else answer

    async def _make(self) -> None:
        due: dict[_Words, asyncio.Future[Any]] = {}
        try:
            await asyncio.sleep(0)  # until all of this turn are here
            due, self._due = self._due, {}
            words = list(due) if len(due) > 1 else []
            for at in range(0, len(words), MOST):
                part = words[at : at + MOST]
                try:
                    replies = await self._server.burst([(one[3], one) for one in part])
                except HeadgateError as error:
                    replies = [error] * len(part)
                for one, reply in zip(part, replies, strict=True):
                    due[one].set_result(reply)
        finally:
            if not due:
                due, self._due = self._due, {}
            for future in due.values():
                if not future.done():
                    future.set_result(None)
