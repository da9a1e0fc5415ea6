"""A caller without a session has holds: every node knows them by their ids, and nobody else renews them."""

import asyncio
import contextlib
import hashlib
import os
import secrets
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Final, Self

from headgate import Client, CoordinatorUnavailable, DestinationFull, HeadgateError, PolicyError
from headgate._util.tasks import stop
from headgate.core.limiting.calls import PARTS
from headgate.core.limiting.pins import numbered, part_of_hold, slice_of_hold
from headgate.core.limits.user_limit import IN_FLIGHT
from headgate.core.names import is_slice, slice_name
from headgate.limiting.asking import longer
from headgate.limiting.hold import Hold
from headgate.limiting.limiter import Limiter
from headgate.redis.keys import Address
from headgate.redis.stores.limiters import HoldAnswers, HoldCall, LimiterStore
from headgate.session.session import Session
from headgate_coordinator.security.access import Access
from headgate_coordinator.security.creation_quota import CreationQuota

MOST_LIMITERS: Final = 1000
"""Limiters that one node has open for such callers."""
MOST_CALLS: Final = 128
"""Operations in one call of the script."""
DRAWN: Final = 64
"""Random numbers that are drawn at a time."""
ONE: Final = {IN_FLIGHT: 1}
"""The part of its user's quota that a hold is."""


class InProgress(HeadgateError):
    """Another request asks for the same at this moment."""


class HoldOver(HeadgateError):
    """A hold is held no more.

    Attributes:
        limiter: where it was.
        hold: its id.
    """

    def __init__(self, limiter: str, hold: str) -> None:
        self.limiter, self.hold = limiter, hold
        super().__init__(f"limiter {limiter!r} has no hold {hold}: it was released, or its lease is over; admit again")


class Holds:
    """Admits, renews, settles and releases for callers without a session.

    Args:
        client: connected; it stays the caller's.
        word: that the ids of all these holds begin with, so that each node hears when one that waits there is admitted.
        quota: returns the limiter under which a user's holds count as in flight; empty for none.
    """

    def __init__(self, client: Client, word: str, quota: Callable[[str], str] = lambda _: "") -> None:
        self._client = client
        self._word, self._quota = word, quota
        self._creations = CreationQuota(client)
        self._opening = asyncio.Lock()
        self._lines: OrderedDict[str, _BatchedCalls] = OrderedDict()
        self._asked: set[str] = set()
        self._random = b""

    async def close(self) -> None:
        """Stop; what is held stays held, for as long as its leases last."""
        for line in self._lines.values():
            await line.close()

    async def admit(
        self, access: Access, name: str, amounts: Mapping[str, int | str], *, key: str | None, wait: float, ttl: float,
        idempotency: str, band: int | None = None, fail_if_late: bool = False,
    ) -> tuple[Limiter, Hold]:  # fmt: skip
        """Admit, and return the limiter and the hold, which nobody here renews.

        Args:
            access: the caller's.
            name: of the limiter.
            amounts: by the names of limits.
            key: for whom; None for no key.
            wait: most seconds to wait in line.
            ttl: seconds of the lease.
            band: 0 goes first of those who wait, 7 last; that of the key, or 3, when None.
            fail_if_late: refuse at once what would not be admitted in time.
            idempotency: a hold that this user got with the same word, and holds still, is returned; empty for none.

        Raises:
            InProgress: the same is being asked for at this moment.
            HoldOver: the same was asked for, and its hold ended just now.
            HeadgateError: as :meth:`Limiter.admit`.
        """
        with await self._line(access, name) as line:
            hold = self._id(access, name, idempotency, line.limiter.slice_of(key))
        if hold in self._asked:
            raise InProgress("a request with this Idempotency-Key is being answered; repeat it later")
        self._asked.add(hold)
        quota = self._quota(access.user)
        renewed = HoldCall("renew", hold, ttl_ms=int(ttl * 1000))
        try:
            if quota:
                with await self._line(None, quota) as line:
                    one = await line.limiter.admit_under(hold, ONE, key=access.user, timeout=wait, ttl=longer(ttl))
                    one.leave()
            with await self._line(access, name) as line:
                got = await line.limiter.admit_under(
                    hold, amounts, key=key, timeout=wait, ttl=ttl, band=band, fail_if_late=fail_if_late
                )
                got.leave()
                if idempotency:  # it may have been held for a while
                    see_held(name, hold, await line.ask(renewed))
                if quota and (wait or idempotency):
                    await self._ask_quota(quota, renewed)
                return line.limiter, got
        except BaseException:
            if quota:
                await self._take_back(access, name, quota, hold, perhaps_held=bool(idempotency))
            raise
        finally:
            self._asked.discard(hold)

    async def end(self, access: Access, name: str, idempotency: str) -> bool:
        """End a hold that :meth:`admit` gave for the same word, at any node; returns whether it was held.

        Raises:
            PolicyError: there is no such limiter.
            CoordinatorUnavailable: no answer; it may be repeated.
        """
        return await self.ask(access, name, HoldCall("release", self._id(access, name, idempotency))) == "ok"

    async def ask(self, access: Access, name: str, *calls: HoldCall) -> str:
        """Make operations on one hold, one after the other, and return the script's answer to the last.

        Raises:
            PolicyError: there is no such limiter.
            CoordinatorUnavailable: no answer; it may be repeated.
        """
        with await self._line(access, name) as line:
            answer = (await asyncio.gather(*map(line.ask, calls)))[-1]
        if answer == "ok" and (quota := self._quota(access.user)):  # else it is held elsewhere, or its lease is over
            await self._ask_quota(quota, *(call for call in calls if call.op in ("renew", "release")))
        return answer

    async def _take_back(self, access: Access, name: str, quota: str, hold: str, *, perhaps_held: bool) -> None:
        """End what counts for a hold that was not given: together with the hold, if a request before this one got it.

        Where Redis does not answer, their leases end both.
        """
        try:
            if perhaps_held:
                with await self._line(access, name) as line:
                    await line.ask(HoldCall("release", hold))
        except CoordinatorUnavailable:
            return
        except HeadgateError:
            pass  # there is no such limiter
        await self._ask_quota(quota, HoldCall("release", hold))

    async def _ask_quota(self, quota: str, *calls: HoldCall) -> None:
        """Renew or end what counts for a hold in its user's quota; where that cannot be, its lease ends it."""
        parts = [replace(call, ttl_ms=int(1000 * longer(call.ttl_ms / 1000))) for call in calls]
        with contextlib.suppress(HeadgateError), await self._line(None, quota) as line:
            await asyncio.gather(*map(line.ask, parts))

    async def limiter(self, access: Access, name: str) -> Limiter:
        """Return a limiter by its name.

        Raises:
            PolicyError: there is no such limiter.
            TooManyDestinations: the first use would make it, and its user has made as many as it may.
        """
        with await self._line(access, name) as line:
            return line.limiter

    def _id(self, access: Access, name: str, idempotency: str, slice_: int = 0) -> str:
        """Return the id of a hold: of the same request the same, else one that nobody guesses."""
        if idempotency:
            text = b"".join(b"%d:%s" % (len(one.encode()), one.encode()) for one in (name, access.user, idempotency))
            drawn = hashlib.sha256(text).digest()[:8]
        else:
            if not self._random:  # of the system a few at a time: each time it takes longer than all the rest of this
                self._random = os.urandom(8 * DRAWN)
            drawn, self._random = self._random[:8], self._random[8:]
        number = 1 + (int.from_bytes(drawn) >> 2)
        return f"{self._word}.{numbered(slice_, number) if slice_ and not idempotency else number}"

    async def _line(self, access: Access | None, name: str) -> "_BatchedCalls":
        line = self._lines.get(name) or await self._open(access, name)
        self._lines.move_to_end(name)
        return line

    async def _open(self, access: Access | None, name: str) -> "_BatchedCalls":
        async with self._opening, AsyncExitStack() as stack:
            if name in self._lines:
                return self._lines[name]
            if len(self._lines) >= MOST_LIMITERS:
                await self._close_one(name)
            session = await stack.enter_async_context(self._client.session())
            async with contextlib.nullcontext() if access is None else self._creations.by(access, name):
                limiter = await session.limiter(name, in_hand=False)
            line = self._lines[name] = _BatchedCalls(self._client, session, limiter, self._word)
            stack.pop_all()
            return line

    async def _close_one(self, wanted: str) -> None:
        """Close the limiter that was used the longest ago, of those that nobody uses now."""
        idle = next((name for name, line in self._lines.items() if not line.users), None)
        if idle is None:
            raise DestinationFull(wanted, 1, f"{MOST_LIMITERS} limiters are in use at this node", gate=True)
        await self._lines.pop(idle).close()


def see_held(name: str, hold: str, answer: str) -> None:
    """Raise where the answer to an operation says that the hold is over."""
    if answer == "gone":
        raise HoldOver(name, hold)


class _BatchedCalls:
    """Operations are made on the holds of one limiter: many in a call, one call at a time to each slice."""

    def __init__(self, client: Client, session: Session, limiter: Limiter, word: str) -> None:
        self.limiter = limiter
        self.users = 0
        self._client, self._of, self._word = client, session, word
        self._slices: dict[int, _SliceCalls] = {}

    def __enter__(self) -> Self:
        self.users += 1
        return self

    def __exit__(self, *_: object) -> None:
        self.users -= 1

    async def ask(self, call: HoldCall) -> str:
        """Return the answer of the slice where the hold is: the one that its id names is asked first."""
        count = self.limiter.slices
        first = named if (named := slice_of_hold(call.id)) < count else 0
        found, answer = first, await self._at(first).ask(call)
        if answer == "gone" and count > 1:
            others = [number for number in range(count) if number != first]
            answers = await asyncio.gather(*(self._at(number).ask(call) for number in others))
            asked = zip(others, answers, strict=True)
            found, answer = next((one for one in asked if one[1] != "gone"), (first, "gone"))
        return await self._ask_part(call, answer) if found and (self.limiter.has_parts or answer == PARTS) else answer

    async def _ask_part(self, call: HoldCall, answer: str) -> str:
        """Make the same of what belongs to a hold at the first slice; a hold is over where a part that it needs is."""
        part = replace(call, id=part_of_hold(call.id), ttl_ms=call.ttl_ms and int(1000 * longer(call.ttl_ms / 1000)))
        there = await self._at(0).ask(part)
        if call.op == "settle":
            return "ok" if "ok" in (answer, there) else answer
        if answer == PARTS and there == "gone":
            await self.ask(replace(call, op="release"))
            return "gone"
        return "ok" if answer == PARTS else answer

    def _at(self, number: int) -> "_SliceCalls":
        if number not in self._slices:
            address = Address.of(self._client.namespace, slice_name(self.limiter.name, number))
            self._slices[number] = _SliceCalls(LimiterStore(self._client.store.server), address, self._word)
        return self._slices[number]

    async def close(self) -> None:
        for one in self._slices.values():
            await one.close()
        await self._of.close()


class _SliceCalls:
    """Operations are made on the holds at one slice of a limiter, one call at a time."""

    def __init__(self, store: LimiterStore, address: Address, word: str) -> None:
        self._store, self._address = store, address
        self._session = f"{word}~{secrets.token_hex(8)}"
        self._seq = 0
        self._waiting: deque[tuple[HoldCall, asyncio.Future[str]]] = deque()
        self._task: asyncio.Task[None] | None = None

    async def ask(self, call: HoldCall) -> str:
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiting.append((call, answer))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._work(), name=f"headgate holds of {self._address.name}")
        return await answer

    async def close(self) -> None:
        await stop(self._task)

    async def _work(self) -> None:
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(MOST_CALLS, len(self._waiting)))]
            self._seq += 1
            try:
                answers = await self._store.admit(
                    self._address, self._session, seq=self._seq, epoch=0, calls=[call for call, _ in batch]
                )
                if answers.code == "UNKNOWN" and is_slice(self._address.name):
                    answers = HoldAnswers("OK", 0, ("gone",) * len(batch))
                if answers.code != "OK":
                    raise PolicyError(f"{self._address.shown!r} is not a limiter, or is gone")
            except HeadgateError as error:  # each says so; what was done may be done again
                for _, answer in batch:
                    if not answer.done():
                        answer.set_exception(error)
                continue
            for (_, answer), text in zip(batch, answers.answers, strict=True):
                if not answer.done():
                    answer.set_result(text)
