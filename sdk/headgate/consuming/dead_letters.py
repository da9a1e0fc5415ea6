"""A dead letter failed too often or was rejected: it is stored at another destination, and only then settled here.

A crash in between leaves the message here, so it is dead again at its next delivery. It is published as a session whose
name is made of where it lies and which message it is, as that session's first message: the second time Redis answers
that it has it. That holds for an hour, as long as receipts last.

Where values say the slice, it goes to the slice of its own; and, since another may have been that when it came there
first, all of them are asked. Those that send it hold credit at a slice of the queue as it is spread in one way only,
and another is in force once nobody has any: so none can bring it to a slice that was asked before.
"""

import asyncio
import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from headgate._util.reconnect import until_answered
from headgate._util.tasks import stop
from headgate.context import Context
from headgate.core.account.waiters import RATE_POLL
from headgate.core.limits.spread import UNPLACED
from headgate.credit.calls import Ensure
from headgate.errors import CoordinatorUnavailable, HeadgateError, MessageFormatError, PolicyError
from headgate.message import Message, encode, with_headers
from headgate.namespace.spreads import Place
from headgate.redis.keys import Address, session_id
from headgate.redis.replies import Account
from headgate.redis.stores.rates import Sender

_log = logging.getLogger("headgate")
POLL: Final = 0.25
"""Seconds between looks while the dead-letter destination has no room: consumers hear no hints of that place."""
REFUSED: Final = 2.0
"""Seconds until it is tried again where the dead-letter destination cannot take it as it is."""


@dataclass(slots=True)
class DeadLetter:
    """A dead letter is a message on its way out.

    Attributes:
        message: as it was delivered; it stays held until it is stored at the other destination.
        reason: why, in words.
        attempts: that failed, the last included.
        caller: future of the caller that waits for its settlement.
        trouble: why it could not get out, as last reported.
    """

    message: Message
    reason: str
    attempts: int
    caller: asyncio.Future[None] | None
    trouble: str = ""


def _labelled(dead: DeadLetter, source: str) -> bytes:
    """Return the message as it is stored at the other destination: in the form it has, with what befell it."""
    message = dead.message
    befell: dict[str, Any] = {
        "headgate-dead-reason": dead.reason,
        "headgate-dead-from": source,
        "headgate-dead-attempts": dead.attempts,
        "headgate-dead-id": message.id,
    }
    try:
        return with_headers(message.stored, befell)
    except MessageFormatError as error:  # its bytes are the body of one that can be read
        return encode(message.stored, befell | {"headgate-dead-unreadable": error.problem})


class DeadLetters:
    """One consumer's dead letters are published one at a time, in order; other messages go on meanwhile.

    Args:
        context: of the consumer's session, as whose lease lasts what is granted at the other destination.
        source: the consumer's destination.
        subscription: of it, encoded.
        ensure_at: makes a destination exist.
        stored: called with each message that is stored there now.
    """

    __slots__ = (
        "_context", "_ensure_at", "_epoch", "_line", "_source", "_stored", "_subscription", "_task", "max_attempts",
        "target", "trouble",
    )  # fmt: skip

    def __init__(
        self,
        context: Context,
        source: Address,
        subscription: str,
        ensure_at: Callable[[Address], Ensure],
        stored: Callable[[DeadLetter], None],
    ) -> None:
        self._context = context
        self._source = source
        self._subscription = subscription
        self._ensure_at = ensure_at
        self._stored = stored
        self._line: list[DeadLetter] = []  # no deque, which takes 0.7 KiB of each consumer when it is empty
        self._task: asyncio.Task[None] | None = None
        self._epoch = ""
        self.trouble = ""
        """Why the first in line is not stored yet; empty where nothing is known to be in its way."""
        self.max_attempts: int | None = None
        self.target: Address | None = None
        """Where they go; None when there is no such destination, or it is the consumer's own."""

    def __len__(self) -> int:
        return len(self._line)

    def configure(self, fields: dict[str, str]) -> None:
        """Take in the destination's settings."""
        attempts, name = fields.get("max_attempts"), fields.get("dead_letter")
        self._epoch = fields.get("epoch", "")
        self.max_attempts = int(attempts) if attempts else None
        self.target = Address.of(self._source.namespace, name) if name and name != self._source.shown else None

    def is_dead(self, attempts: int) -> bool:
        """Return whether that many failed attempts are too many."""
        return self.max_attempts is not None and attempts >= self.max_attempts

    def put(self, dead: DeadLetter) -> None:
        """Put a message in line."""
        self._line.append(dead)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._work(), name=f"headgate dead letters of {self._source.shown}")

    async def close(self) -> None:
        """Stop; what is still in line stays where it was delivered."""
        await stop(self._task)

    def clear(self) -> list[DeadLetter]:
        """Empty the line, and return what was in it: it was given to other consumers."""
        line = list(self._line)
        self._line.clear()
        return line

    async def _work(self) -> None:
        while self._line:
            dead = self._line[0]
            try:
                self.trouble = ""
                await until_answered(self._missing, away=(CoordinatorUnavailable,))(self._publish, dead)
            except HeadgateError as error:
                self.trouble = str(error)
                self._tell(dead, error)
                self._line[:] = self._line[1:] + self._line[:1]  # let the others pass; it may be empty by now
                await asyncio.sleep(REFUSED)
            else:
                if self._line and self._line[0] is dead:
                    del self._line[0]
                    self._stored(dead)

    def _tell(self, dead: DeadLetter, error: HeadgateError) -> None:
        """Say once why a message cannot get out; it is tried again, for an operator may see to it."""
        if dead.trouble != str(error):
            dead.trouble = str(error)
            _log.error("message %s of %r is held: %s", dead.message.id, self._source.shown, error)
        if dead.caller is not None and not dead.caller.done():
            dead.caller.set_exception(error)
            dead.caller.exception()  # whoever waits may have gone

    def _missing(self, error: BaseException) -> None:
        self.trouble = str(error)

    async def _publish(self, dead: DeadLetter) -> None:
        target = self.target
        if target is None:
            return  # the setting was taken away meanwhile
        stored = _labelled(dead, self._source.shown)
        identity = f"{self._source.key} {self._epoch} {self._subscription} {dead.message.id}"
        account = Account(self._session(identity), inc=1, epoch=0, weight=0,
                          need=len(stored), need_m=1, want=len(stored), want_m=1)  # fmt: skip
        while True:
            place = await self._context.spreads.place(target, stored, self._source.whole.key)
            if place is None:
                self.trouble = f"the dead-letter destination {target.name!r} takes nothing now: {UNPLACED}"
                await asyncio.sleep(POLL)
            elif await self._is_elsewhere(place, account) or await self._publish_at(place, dead, stored, account):
                return

    async def _is_elsewhere(self, place: Place, account: Account) -> bool:
        """Return whether it was stored at another slice before; a call without credit stores nothing."""
        store, ttl_ms = self._context.store, self._context.ttl_ms
        for part in self._context.spreads.others(place):
            answer = await store.publish(part, account, seq=1, bodies=[b"?"], ttl_ms=ttl_ms)
            if answer.code == "DUPLICATE":
                return True
        return False

    async def _publish_at(self, place: Place, dead: DeadLetter, stored: bytes, account: Account) -> bool:
        """Store it, or drop it; returns False where it has another place by now."""
        at, name, message, ttl_ms = place.at, place.at.shown, dead.message, self._context.ttl_ms
        while True:
            answer = await self._context.store.publish(at, account, seq=1, bodies=[stored], ttl_ms=ttl_ms)
            if answer.code == "OK" and not answer.stored:  # the target's rate
                again_ms = await self._context.rates.fetch(at, [len(stored)], Sender(account.session))
                again_ms = answer.again_ms if again_ms is None else again_ms
                await asyncio.sleep(min(again_ms / 1000, RATE_POLL))
                continue
            if answer.code in ("OK", "DUPLICATE"):
                _log.warning(
                    "message %s of %r is dead (%s); it is message %d of %r now",
                    message.id, self._source.shown, dead.reason, answer.first, name,
                )  # fmt: skip
                return True
            if answer.code == "UNKNOWN":
                await self._ensure_at(at)(False)
            elif answer.code in ("STOPPED", "ABOVE"):
                state = "stopped" if answer.code == "STOPPED" else "full"
                self.trouble = f"the dead-letter destination {name!r} is {state}"
                await asyncio.sleep(POLL)
            paid = await self._pay(place, account)
            if paid == "dropped":
                _log.warning("message %s of %r is dead (%s), and dropped: %r is full", message.id, self._source.shown,
                             dead.reason, name)  # fmt: skip
                return True
            if paid == "elsewhere":
                await self._leave(at, account)
                return False
            account = paid

    def _session(self, identity: str) -> str:
        """Return the id of a message's own session: the same wherever it dies, over a node one of the node's user."""
        if prefix := self._context.store.server.session_prefix:
            return session_id("dead", prefix, identity)
        return f"dead~{hashlib.sha256(identity.encode()).hexdigest()[:40]}"

    async def _drop(self, target: Address, account: Account) -> bool:
        """Drop it, and count it, if that is what the target does when it is full."""
        snapshot = await self._context.store.glance(target)
        if snapshot is None or snapshot.fields.get("when_full") != "drop":
            return False
        await self._context.store.drop(target, account.session, messages=1, size=account.need)
        await self._leave(target, account)
        return True

    async def _leave(self, at: Address, account: Account) -> None:
        """Give back what it has there, and its place in line."""
        await self._context.store.acquire(at, account, ttl_ms=self._context.ttl_ms, leave=True)

    async def _pay(self, place: Place, account: Account) -> Account | Literal["dropped", "elsewhere"]:
        """Wait for the credit, and return the account that has it, unless something else came of it meanwhile."""
        at, name, spreads = place.at, place.at.shown, self._context.spreads
        values: dict[str, Any] = {one: getattr(account, one) for one in ("session", "inc", "weight", "need", "need_m")}
        asked = Account(**values, epoch=0, want=account.need, want_m=1, size=account.need)
        while True:
            credit = await self._context.store.acquire(at, asked, ttl_ms=self._context.ttl_ms)
            if not await spreads.is_in_force(place):
                return "elsewhere"
            if credit.code == "OK" and credit.granted >= account.need:
                return Account(**values, epoch=credit.epoch, want=account.need, want_m=1,
                               granted=credit.granted, granted_m=credit.granted_m)  # fmt: skip
            if credit.code == "UNKNOWN":
                await self._ensure_at(at)(False)
            elif credit.code == "TOO_LARGE":
                raise PolicyError(
                    f"it takes {account.need} bytes and can never fit {name!r}; raise that destination's limit"
                )
            elif place.number and await spreads.release(at):
                continue
            elif await self._drop(at, account):
                return "dropped"
            else:
                self.trouble = f"the dead-letter destination {name!r} has no room"
                await self._refill(at)
                await asyncio.sleep(POLL)

    async def _refill(self, at: Address) -> None:
        """Have what it lacks fetched from its pools, and a slice is in one: perhaps nobody else sends there."""
        registry = self._context.registry
        await registry.refresh(at)
        self._context.pools.refill(at, registry.pools(at), lambda _name, _limit: None)
