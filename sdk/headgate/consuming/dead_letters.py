"""A dead letter failed too often or was rejected: it is stored at another destination, and only then settled here.

A crash in between leaves the message here, so it is dead again at its next delivery. It is published as a session whose
name is made of where it lies and which message it is, as that session's first message: the second time Redis answers
that it has it. That holds for an hour, as long as receipts last.
"""

import asyncio
import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from headgate._util.reconnect import until_answered
from headgate._util.tasks import stop
from headgate.credit.calls import Ensure
from headgate.errors import CoordinatorUnavailable, HeadgateError, MessageFormatError, PolicyError
from headgate.message import Message, encode, with_headers
from headgate.redis.keys import Address, session_id
from headgate.redis.replies import Account
from headgate.redis.store import Store

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
        store: the scripts.
        source: the consumer's destination.
        subscription: of it, encoded.
        ttl_ms: lease of what is granted at the other destination.
        ensure_at: makes a destination exist.
        stored: called with each message that is stored there now.
    """

    __slots__ = (
        "_ensure_at", "_epoch", "_line", "_source", "_store", "_stored", "_subscription", "_task", "_ttl_ms",
        "max_attempts", "target", "trouble",
    )  # fmt: skip

    def __init__(
        self,
        store: Store,
        source: Address,
        subscription: str,
        ttl_ms: int,
        ensure_at: Callable[[Address], Ensure],
        stored: Callable[[DeadLetter], None],
    ) -> None:
        self._store = store
        self._source = source
        self._subscription = subscription
        self._ttl_ms = ttl_ms
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
        self.target = Address.of(self._source.namespace, name) if name and name != self._source.name else None

    def is_dead(self, attempts: int) -> bool:
        """Return whether that many failed attempts are too many."""
        return self.max_attempts is not None and attempts >= self.max_attempts

    def put(self, dead: DeadLetter) -> None:
        """Put a message in line."""
        self._line.append(dead)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._work(), name=f"headgate dead letters of {self._source.name}")

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
            _log.error("message %s of %r is held: %s", dead.message.id, self._source.name, error)
        if dead.caller is not None and not dead.caller.done():
            dead.caller.set_exception(error)
            dead.caller.exception()  # whoever waits may have gone

    def _missing(self, error: BaseException) -> None:
        self.trouble = str(error)

    async def _publish(self, dead: DeadLetter) -> None:
        target = self.target
        if target is None:
            return  # the setting was taken away meanwhile
        message = dead.message
        stored = _labelled(dead, self._source.name)
        identity = f"{self._source.key} {self._epoch} {self._subscription} {message.id}"
        account = Account(self._session(identity), inc=1, epoch=0, weight=0,
                          need=len(stored), need_m=1, want=len(stored), want_m=1)  # fmt: skip
        while True:
            answer = await self._store.publish(target, account, seq=1, bodies=[stored], ttl_ms=self._ttl_ms)
            if answer.code == "OK" and not answer.stored:  # the target's rate
                await asyncio.sleep(answer.again_ms / 1000)
                continue
            if answer.code in ("OK", "DUPLICATE"):
                _log.warning(
                    "message %s of %r is dead (%s); it is message %d of %r now",
                    message.id, self._source.name, dead.reason, answer.first, target.name,
                )  # fmt: skip
                return
            if answer.code == "UNKNOWN":
                await self._ensure_at(target)(False)
            elif answer.code in ("STOPPED", "ABOVE"):
                state = "stopped" if answer.code == "STOPPED" else "full"
                self.trouble = f"the dead-letter destination {target.name!r} is {state}"
                await asyncio.sleep(POLL)
            paid = await self._pay(target, account)
            if paid is None:
                _log.warning("message %s of %r is dead (%s), and dropped: %r is full", message.id, self._source.name,
                             dead.reason, target.name)  # fmt: skip
                return
            account = paid

    def _session(self, identity: str) -> str:
        """Return the id of a message's own session: the same wherever it dies, over a node one of the node's user."""
        if prefix := self._store.server.session_prefix:
            return session_id("dead", prefix, identity)
        return f"dead~{hashlib.sha256(identity.encode()).hexdigest()[:40]}"

    async def _drop(self, target: Address, account: Account) -> bool:
        """Drop it, and count it, if that is what the target does when it is full."""
        snapshot = await self._store.snapshot(target, waiters=0, consumers=1)
        if snapshot is None or snapshot.fields.get("when_full") != "drop":
            return False
        await self._store.drop(target, account.session, messages=1, size=account.need)
        await self._store.acquire(target, account, ttl_ms=self._ttl_ms, leave=True)
        return True

    async def _pay(self, target: Address, account: Account) -> Account | None:
        """Wait for the credit, and return the account that has it; None: it was dropped for want of that."""
        values: dict[str, Any] = {
            name: getattr(account, name) for name in ("session", "inc", "weight", "need", "need_m")
        }
        asked = Account(**values, epoch=0, want=account.need, want_m=1, size=account.need)
        while True:
            credit = await self._store.acquire(target, asked, ttl_ms=self._ttl_ms)
            if credit.code == "OK" and credit.granted >= account.need:
                return Account(**values, epoch=credit.epoch, want=account.need, want_m=1,
                               granted=credit.granted, granted_m=credit.granted_m)  # fmt: skip
            if credit.code == "UNKNOWN":
                await self._ensure_at(target)(False)
            elif credit.code == "TOO_LARGE":
                raise PolicyError(
                    f"it takes {account.need} bytes and can never fit {target.name!r}; raise that destination's limit"
                )
            elif await self._drop(target, account):
                return None
            else:
                self.trouble = f"the dead-letter destination {target.name!r} has no room"
                await asyncio.sleep(POLL)
