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
CALM: Final = 0.5
"""Seconds that a consumer looks later where hints are certain, and nobody else holds what may come back to it. A lease
is doubted 0.6 of its length after its last call at the soonest, and none is shorter than a second: so what another one
fetches meanwhile, and dies with, comes back no later for that."""
MOST: Final = 64
"""Calls in one write: Redis serves nobody else meanwhile."""
MOST_TURNS: Final = 1024
"""Destinations of which it is known when somebody looks there next."""
Due = tuple[tuple[Any, ...], asyncio.Future[Any]]
"""A call that is due, and who waits for its reply."""
_PHASE: Final = random.random()  # noqa: S311 -- not all processes of a host are to ask at the same moment


def beat(when: float) -> float:
    """Return the moment nearest to that, on the loop's clock, at which all accounts of this process ask again."""
    return round((when - _PHASE) / BEAT) * BEAT + _PHASE


class SweepRounds:
    """A round makes the calls of all accounts of one client that ask again in one turn of the loop.

    Each server gets a write of its own, and one that does not answer keeps nobody waiting elsewhere. A call that fails
    there, for its script is not loaded or another run served the state, is made by itself.
    """

    def __init__(self, server: Backend) -> None:
        self._server = server
        self._due: list[Due] = []
        self._sending = set[asyncio.Task[None]]()
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
            asyncio.get_running_loop().call_soon(self._begin)  # when all of this turn are here
        answer = await reply
        if isinstance(answer, HeadgateError):
            raise answer
        return await self._server.call(op, keys, argv) if answer is None or isinstance(answer, Exception) else answer

    def _begin(self) -> None:
        due, self._due = self._due, []
        places: dict[str, list[Due]] = {}
        for one in due:
            if not one[1].done():  # its account gave up meanwhile
                places.setdefault(self._server.place(one[0][3]), []).append(one)
        for there in places.values():
            task = asyncio.create_task(self._send(there), name="headgate round")
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def _send(self, due: list[Due]) -> None:
        try:
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
            for _, future in due:
                if not future.done():
                    future.set_result(None)
