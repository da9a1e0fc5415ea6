"""Makes the calls that an account asks for, and hands it the answers: :mod:`headgate.core.account.machine`."""

import asyncio
import math
from collections.abc import Callable
from functools import partial
from typing import Any

from headgate.core.account.calls import Acquire, Call, Credit, Leave, Look, Make, Publish, Reap
from headgate.core.account.machine import Account
from headgate.core.durability import Durability, Held
from headgate.core.outbox import Batch, Outgoing
from headgate.credit.confirmations import Confirming
from headgate.credit.observer import Outlook
from headgate.credit.securing import Nobody, Part, Securing, Written, secured_by
from headgate.message import Receipt
from headgate.redis.keys import Address
from headgate.redis.secured import Waiting
from headgate.redis.store import Store

Ensure = Callable[[bool], Any]
"""Makes a destination exist; its argument says whether it was known before and is gone."""
Refill = Callable[[Callable[[str, int], None]], None]
"""Begins to fetch what is missing from a destination's pools, if it has any."""


class Calls:
    """The calls of one account, and what their answers lead to.

    Args:
        store: the scripts.
        address: the destination.
        session: the session's id.
        outlook: what is known of the destination.
        confirming: receipts that wait for a channel.
        ensure: makes the destination exist.
        forget: drops what is remembered of the destination.
        refill: fetches what is missing from its pools.
        admitted: called when credit came without a call, for it is safe by now.
        holds_messages: False for a gate, whose grants are to be safe before they are used.

    Attributes:
        account: set before anything is called.
        securing: what is stored, or granted, and not as safe yet as the durability asks; None where none is asked for.
        topic: whether subscriptions that are not behind get payloads along with references to them.
    """

    account: Account

    def __init__(
        self,
        store: Store,
        address: Address,
        session: str,
        outlook: Outlook,
        confirming: Confirming,
        ensure: Ensure,
        forget: Callable[[], None],
        refill: Refill,
        admitted: Callable[[], None],
        *,
        holds_messages: bool,
    ) -> None:
        self.store = store
        self.topic = False
        self.securing: Securing | None = None
        self._address, self._session = address, session
        self._outlook = outlook
        self._confirming = confirming
        self._ensure, self._forget, self._refill = ensure, forget, refill
        self._admitted = admitted
        self._holds_messages = holds_messages
        self._waiting: Waiting | None = None
        """The wait for safety of the call that was answered; None where it had none."""
        self._granting: tuple[int, int, int] | None = None
        self._loop = asyncio.get_running_loop()

    async def make(self, call: Call) -> None:
        """Make one call.

        Raises:
            CoordinatorUnavailable, AccessDenied: it was not answered, and will be asked for again.
            SessionExpired: another session goes on under the account's id.
        """
        answer: Credit | None = None
        self._waiting = None
        if isinstance(call, Publish):
            answer = await self._publish(call)
        elif isinstance(call, Acquire):
            answer = await self._acquire(call)
        elif isinstance(call, Make):
            await self._ensure(call.recover)
        elif isinstance(call, Reap):
            await self.store.reap(self._address)
        elif isinstance(call, Look):
            await self._outlook.look()
        elif isinstance(call, Leave):
            await self._leave(call)
        else:
            await self._outlook.report()
        self.account.hear(call, answer, self._loop.time())
        self._waiting = None  # what a hint grants was not waited for

    async def _acquire(self, call: Acquire) -> Credit:
        waiting, store = None, self.store
        if self.securing is not None and not self._holds_messages:
            waiting, store = self.securing.waiting(store)
        asked = store.acquire(
            self._address, call.totals, ttl_ms=self.account.lease.ttl_ms, resume=call.resume, sent=call.sent
        )
        answer = await (self._outlook.look_during(asked) if call.hasty else asked)
        if self.securing is not None and answer.code == "OK" and answer.epoch != call.totals.epoch:
            self.securing.epoch_began(answer.epoch, call.sent - answer.lost)
        self._waiting = waiting
        return answer

    async def _publish(self, call: Publish) -> Credit:
        batch, store, waiting = call.batch, self.store, None
        if self.securing is not None:
            waiting, store = self.securing.waiting(store)
        bodies = [item.payload for item in batch.items]
        # Subscriptions of a topic that are not behind get the payloads at once.
        copies = [item.whole for item in batch.items if item.whole is not None] if batch.segment and self.topic else []
        answer = await store.publish(
            self._address, call.totals, seq=batch.seq, bodies=bodies, ttl_ms=self.account.lease.ttl_ms,
            expires_ms=batch.items[0].ttl_ms or 0,
            beyond="spool" if batch.segment else "hard" if batch.beyond else "refuse",
            segment=f"{batch.segment} {len(bodies)}" if batch.segment else "-", copies=copies,
        )  # fmt: skip
        self._waiting = waiting
        return answer

    async def _leave(self, call: Leave) -> None:
        if self._outlook.unreported:
            await self._outlook.report()
        ttl_ms = self.account.lease.ttl_ms
        if call.closes:
            await self.store.acquire(self._address, call.totals, ttl_ms=ttl_ms, leave=True, resume=call.resume)
        else:
            await self.store.acquire(self._address, call.totals, ttl_ms=ttl_ms)

    # What the answers lead to.

    def secure(self, durability: Durability) -> None:
        """Confirm from now on only what is as safe as that."""
        self.securing = secured_by(durability, self.securing, self.store, self._address, self._session)

    def stored(self, batch: Batch, items: list[Outgoing], answer: Credit) -> None:
        """Give receipts, at once or when what is stored is as safe as asked for."""
        confirm, securing = self._confirming.stored, self.securing
        if securing is None:
            for seq, item in enumerate(items, answer.first):
                confirm(Receipt(seq, item.size), item)
            return
        since, parts = self.account.stored_at, []
        for seq, item in enumerate(items, answer.first):
            receipt = Receipt(seq, item.size)
            until = min(item.deadline, since + item.safe_within)
            parts.append(Part(partial(confirm, receipt, item), item.done, until, receipt))
        # What was stored before may be older than what this connection wrote.
        held = self._held if answer.code == "OK" else None
        securing.wrote(Written(answer.epoch, batch.seq + len(items) - 1, parts, since), held)

    def granted(self, epoch: int, granted: int, granted_m: int) -> bool:
        """Raise the credit to what was granted; that of a gate once it is as safe as asked for."""
        line = self.account.credit
        if self.securing is None or self._holds_messages:
            return line.raise_to(granted, granted_m)
        grant = (line.inc, granted, granted_m)
        grows = granted > line.granted or granted_m > line.granted_m
        if grows and (grant != self._granting or not self.securing.waits):
            self._granting = grant
            part = Part(partial(self._raise, *grant), Nobody())
            self.securing.wrote(Written(epoch, math.inf, [part], self._loop.time()), self._held)
        return grows

    def refill(self) -> None:
        """Fetch what is missing from the destination's pools, or leave their lines."""
        self._refill(self._beyond_pool)

    def forget(self) -> None:
        """Drop what is remembered of a destination that was removed on purpose."""
        self._forget()

    @property
    def _held(self) -> Held | None:
        return None if self._waiting is None else self._waiting.held

    def _raise(self, inc: int, granted: int, granted_m: int) -> None:
        line = self.account.credit
        if inc == line.inc and line.raise_to(granted, granted_m):
            self.account.waiters.admit()
            self._admitted()

    def _beyond_pool(self, pool: str, limit: int) -> None:
        self.account.beyond_pool(pool, limit)
        self._admitted()
