"""Holds of callers that have no session: every node knows them by their ids, and nobody else renews them."""

import asyncio
import hashlib
import secrets
from collections import deque
from collections.abc import Mapping
from typing import Final

from headgate import Client, DestinationFull, HeadgateError, PolicyError
from headgate.limiting.hold import Hold
from headgate.limiting.limiter import Limiter
from headgate.redis.keys import Address
from headgate.redis.stores.limiters import HoldCall, LimiterStore
from headgate.session.session import Session
from headgate_coordinator.admin.problems import Refused

WORD: Final = "http"
"""The ids of all these holds begin with it, so that each node hears when one that waits there is admitted."""
MOST_LIMITERS: Final = 1000
"""Limiters that one node has open for such callers."""
MOST_CALLS: Final = 128
"""Operations in one call of the script."""


class Desk:
    """Admits, renews, settles and releases for callers without a session.

    Args:
        client: connected; it stays the caller's.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._session: Session | None = None
        self._opening = asyncio.Lock()
        self._lines: dict[str, _Line] = {}
        self._asked: set[str] = set()

    async def close(self) -> None:
        """Stop; what is held stays held, for as long as its leases last."""
        for line in self._lines.values():
            line.close()
        if self._session is not None:
            await self._session.close()

    async def admit(
        self, name: str, amounts: Mapping[str, int | str], *, key: str | None, wait: float, ttl: float,
        again: tuple[str, str] | None,
    ) -> tuple[Limiter, str]:  # fmt: skip
        """Admit, and return the limiter and the hold's id.

        Args:
            name: of the limiter.
            amounts: by the names of limits.
            key: for whom; None for no key.
            wait: seconds in line at the most.
            ttl: seconds of the lease.
            again: user and idempotency key: a hold that was admitted with them, and is held still, is returned.

        Raises:
            Refused: the same is being asked for at this moment.
            HeadgateError: as :meth:`Limiter.admit`.
        """
        line = await self._line(name)
        hold = f"{WORD}.{_number(name, again)}"
        if hold in self._asked:
            raise Refused(
                409, "in-progress", "a request with this Idempotency-Key is being answered; repeat it later",
                headers={"Retry-After": "1"},
            )  # fmt: skip
        self._asked.add(hold)
        try:
            got: Hold = await line.limiter.admit_under(hold, amounts, key=key, timeout=wait, ttl=ttl)
            hold = got.leave()
            if again is not None:  # it may have been held for a while
                await line.ask(HoldCall("renew", hold, ttl_ms=int(ttl * 1000)))
        finally:
            self._asked.discard(hold)
        return line.limiter, hold

    async def ask(self, name: str, call: HoldCall) -> str:
        """Make one operation on one hold, and return the script's answer.

        Raises:
            PolicyError: there is no such limiter.
            CoordinatorUnavailable: no answer; it may be repeated.
        """
        return await (await self._line(name)).ask(call)

    async def limiter(self, name: str) -> Limiter:
        """Return a limiter by its name.

        Raises:
            PolicyError: there is no such limiter.
        """
        return (await self._line(name)).limiter

    async def _line(self, name: str) -> "_Line":
        line = self._lines.get(name)
        if line is None:
            async with self._opening:
                if self._session is None:
                    self._session = await self._client.session().__aenter__()
            if len(self._lines) >= MOST_LIMITERS:
                raise DestinationFull(name, 1, f"this node has {MOST_LIMITERS} limiters open", gate=True)
            limiter = await self._session.limiter(name, in_hand=False)
            line = self._lines.setdefault(name, _Line(self._client, limiter))
        return line


class _Line:
    """Operations on the holds of one limiter, many in a call, one call at a time."""

    def __init__(self, client: Client, limiter: Limiter) -> None:
        self.limiter = limiter
        self._store = LimiterStore(client.store.server)
        self._address = Address.of(client.namespace, limiter.name)
        self._session = f"{WORD}~{secrets.token_hex(8)}"
        self._seq = 0
        self._waiting: deque[tuple[HoldCall, asyncio.Future[str]]] = deque()
        self._task: asyncio.Task[None] | None = None

    async def ask(self, call: HoldCall) -> str:
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiting.append((call, answer))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._work(), name=f"headgate holds of {self.limiter.name}")
        return await answer

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _work(self) -> None:
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(MOST_CALLS, len(self._waiting)))]
            self._seq += 1
            try:
                answers = await self._store.admit(
                    self._address, self._session, seq=self._seq, epoch=0, calls=[call for call, _ in batch]
                )
                if answers.code != "OK":
                    raise PolicyError(f"{self.limiter.name!r} is not a limiter, or is gone")
            except HeadgateError as error:  # each says so; what was done may be done again
                for _, answer in batch:
                    if not answer.done():
                        answer.set_exception(error)
                continue
            for (_, answer), text in zip(batch, answers.answers, strict=True):
                if not answer.done():
                    answer.set_result(text)


def _number(name: str, again: tuple[str, str] | None) -> int:
    """Return the number of a hold: of the same request the same, else one that nobody guesses."""
    if again is None:
        return 1 + secrets.randbits(62)
    text = b"".join(b"%d:%s" % (len(part.encode()), part.encode()) for part in (name, *again))
    return 1 + (int.from_bytes(hashlib.sha256(text).digest()[:8]) >> 2)
