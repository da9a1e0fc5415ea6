"""A spread account stands before a session's accounts at all slices of a queue whose values say the slice.

As another spread is to come, nobody may send to any slice until what was sent by the one before is settled: messages
wait at their slices as for any room. Then each goes to the slice that is its own now, in the order in which they came.
A session may not have heard of that, so credit that it is granted when it has none counts only once it has looked.
"""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from headgate._util.reconnect import until_answered
from headgate._util.tasks import THREAD, Running, StepCallbacks, carried_through, in_background, stop
from headgate.core.account.spread_credit import SpreadCredit
from headgate.core.limits.spread import Spread
from headgate.core.names import slice_name
from headgate.core.outbox import Outgoing
from headgate.credit.account import CreditAccount
from headgate.credit.requested_terms import RequestedTerms
from headgate.credit.unplaced import UnplacedMessages
from headgate.errors import Closed
from headgate.namespace.registry import Registry
from headgate.namespace.spreads import Spreads
from headgate.redis.keys import Address
from headgate.redis.stores.spreads import HELD, SpreadStore

LOOK: Final = 5.0
"""Seconds between looks at how the queue is spread: a hint may be lost."""
SOON: Final = 0.1
"""Seconds between steps of a change, about."""
_NEVER: Final = Spread(-1, 1, "-")
Part = tuple[CreditAccount, RequestedTerms, int]
"""The account at a slice, the terms that are asked for there, and the window where none is."""
Open = Callable[[Address], Awaitable[Part]]


class SpreadAccount:
    """A spread account sends each message of one session to the slice that its value says.

    Args:
        whole: the queue.
        session: the session's id.
        registry: knows how the queue is set.
        store: reads and changes how it is spread.
        open_at: opens the account at a slice.
        gone: called once it is closed.

    Attributes:
        users: producers that share it; it closes with the last.
        steps: called after each step of an account at a slice.
        why_closed: what errors say of it once nothing can be submitted any more.
    """

    def __init__(
        self,
        whole: Address,
        session: str,
        registry: Registry,
        store: SpreadStore,
        open_at: Open,
        gone: Callable[[], None],
    ) -> None:
        self.address, self.session = whole, session
        self.users = 0
        self.steps = StepCallbacks()
        self.why_closed = "is closed"
        self._registry, self._store, self._open_at, self._gone = registry, store, open_at, gone
        self._spreads = Spreads(registry, store)
        self._spread = _NEVER
        self._parts: dict[int, Part] = {}
        self._former: CreditAccount | None = None
        """The account that it goes on for, which has all as long as values do not say the slice."""
        self._last: CreditAccount | None = None
        self._unplaced = UnplacedMessages(whole.shown)
        self._is_placed = False
        """Whether it is known where messages go."""
        self._terms: list[RequestedTerms] = []
        self._closed = False
        self._stirred = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._checks: Running = {}
        self._looking: set[CreditAccount] = set()
        """Accounts for which a look goes on; what comes to one later needs another."""

    # Its life.

    async def start(self) -> None:
        """Open the accounts, and follow how the queue is spread.

        Raises:
            CoordinatorUnavailable: a slice does not answer.
        """
        await self._registry.follow(self.address, self._hear)
        try:
            await self._registry.refresh(self.address)
            await self._turn()
        except BaseException:
            await self.close()
            raise
        self._follow()

    def take_over(self, account: CreditAccount) -> None:
        """Go on for an account of the session that sent all to one slice; what waits there goes where it belongs."""
        self._former, account.users = account, 1
        account.doubt()
        self._parts[0] = account, RequestedTerms(None, None, lambda: None), 0
        self.steps.update(account.steps)
        account.steps.update(dict.fromkeys((self.steps.made, self._stirred.set)))
        self._task = asyncio.create_task(self._begin(), name=f"headgate {self.address.name}")

    async def _begin(self) -> None:
        await self._registry.follow(self.address, self._hear)
        await until_answered(lambda _: None)(self._turn)
        self._follow()

    def _follow(self) -> None:
        self._task = asyncio.create_task(self._keep(), name=f"headgate spread of {self.address.name}")
        self._task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()):  # a defect; nobody may wait for ever because of it
            self.why_closed, self._closed = f"failed: {error!r}", True
            self._unplaced.fail(Closed(f"the producer of {self.address.shown!r} {self.why_closed}"))

    def join(self, terms: RequestedTerms) -> RequestedTerms:
        """Note one more user, and what that one asks for."""
        self.users += 1
        own = RequestedTerms(terms.window, terms.weight, self._size)
        own.durability = terms.durability
        self._terms.append(own)
        self._size()
        return own

    async def part(self) -> None:
        """Note that one of its users is gone."""
        self.users -= 1
        if self.users <= 0:
            await self.close()

    @carried_through
    async def close(self) -> None:
        """Send what is paid, refuse what waits, give everything back; never longer than half a second."""
        if self._closed:
            return
        self._closed = True
        self._gone()
        await stop(self._task)
        for check in tuple(self._checks):
            await stop(check)
        with contextlib.suppress(KeyError, ValueError):
            await self._registry.unfollow(self.address, self._hear)
        self._unplaced.fail(Closed(f"the producer of {self.address.shown!r} was closed before there was credit"))
        await asyncio.gather(*(account.part() for account, *_ in self._parts.values()))

    def _size(self) -> None:
        for _, own, window in self._parts.values():
            windows = [terms.window for terms in self._terms]
            weights = [terms.weight for terms in self._terms if terms.weight is not None]
            if any(size is not None for size in windows):
                own.window = max(window if size is None else size for size in windows)
            own.weight = max(weights, default=None)
            for terms in self._terms:
                own.durability |= terms.durability
            own.change(None, None)

    # What producers ask of it.

    def submit(self, item: Outgoing, *, tells: bool = False) -> bool:
        """Put a message in line at its slice; returns whether it is paid. Its ``done`` hears the rest.

        ``tells``: its sender calls :meth:`left` when it gives up.
        """
        if self.closed:
            raise Closed(f"the producer of {self.address.shown!r} {self.why_closed}")
        if not self._is_placed:
            self._unplaced.add(item)
            return False
        self._last = account = self._parts[self._spread.slice_of(item, self.session)][0]
        if account.waiters.stopped:
            self._stirred.set()  # perhaps whoever stopped it did not come so far as to let it go
        return account.submit(item, tells=tells)

    def submit_all(self, items: Sequence[Outgoing]) -> None:
        """Put messages in line that have no deadline; see :meth:`submit`."""
        for item in items:
            self.submit(item)

    def awaits(self, item: Outgoing) -> None:
        """Note that the thread or task that runs does nothing else until the message is paid that came last."""
        if self._last is not None and self._is_placed:
            self._last.awaits(item)
        else:
            item.who = THREAD.get() or asyncio.current_task(self._loop)

    def left(self, item: Outgoing | None) -> None:
        """Note that somebody gave up who waited with that."""
        for account in self.accounts:  # who times waits is to hear of it once
            account.left(item)
            item = None

    def seek(self) -> None:
        """See whether there is room again, for whoever has no message that waits for it."""
        for account in self.accounts:
            account.seek()

    def let_go(self) -> None:
        """Give at once all receipts that wait for a channel."""
        for account in self.accounts:
            account.let_go()

    @property
    def is_unplaced(self) -> bool:
        """Whether messages wait of which it is not known where they go."""
        return bool(self._unplaced)

    @property
    def accounts(self) -> list[CreditAccount]:
        """The accounts at the slices."""
        return [account for account, *_ in self._parts.values()]

    @property
    def queued(self) -> int:
        """Messages that came and are not known to be stored."""
        return len(self._unplaced) + sum(account.queued for account in self.accounts)

    @property
    def in_hand(self) -> int:
        """Bytes that can be sent without asking, at all slices together."""
        return sum(account.in_hand for account in self.accounts)

    @property
    def resumed(self) -> int:
        """Nothing: a session that resumes sends to one slice."""
        return 0

    @property
    def closed(self) -> bool:
        """Whether nothing can be submitted any more."""
        return self._closed or any(account.closed for account in self.accounts)

    @property
    def wants(self) -> bool:
        """Whether somebody waits for credit here."""
        return bool(self._unplaced) or any(account.wants for account in self.accounts)

    @property
    def is_confirming(self) -> bool:
        """Whether messages are stored whose receipts wait for replicas or for the disk."""
        return any(account.is_confirming for account in self.accounts)

    def explained(self) -> str:
        """Return why sends wait, as last seen."""
        waits = (why for account in self.accounts if account.wants and (why := account.explained()))
        return self._unplaced.reason or next(waits, "")

    # How the queue is spread.

    def _hear(self, fields: Mapping[str, str]) -> None:
        del fields
        self._stirred.set()

    async def _keep(self) -> None:
        """Follow how the queue is spread, and take the steps of a change, until cancelled."""
        repeat = until_answered(lambda _: None)
        while True:
            self._stirred.clear()
            changes = await repeat(self._step)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(random.uniform(SOON, 3 * SOON) if changes else LOOK):  # noqa: S311 -- not all at once
                    await self._stirred.wait()
            if not self._stirred.is_set() and not changes:
                await repeat(self._registry.refresh, self.address)

    async def _step(self) -> bool:
        """Take a step of a change; returns whether there is another one to take soon."""
        if to := self._registry.fields(self.address).get("spread_to"):
            await self._change(to)
            return True
        if self._in_force.number != self._spread.number:
            await self._turn()
        for account in self.accounts:
            if not account.wants:
                continue
            is_released = await self._spreads.release(account.address)
            if not is_released and HELD in self._registry.fields(account.address):  # the hint was lost
                await self._registry.refresh(account.address)
        return any(account.wants for account in self.accounts)

    async def _change(self, to: str) -> None:
        left = await self._spreads.change(self.address, to)
        if left == 0 or not self._stirred.is_set():
            await self._registry.refresh(self.address)

    @property
    def _in_force(self) -> Spread:
        """How the queue is spread, as far as is known: where nothing says it, each producer has a slice."""
        fields = self._registry.fields(self.address)
        known = Spread.read(fields.get("spread", ""))
        return known or Spread(0, int(fields.get("slices") or 1), "-")

    async def _turn(self) -> None:
        """Have each message that waits, and all that come, go to the slice that is its own now."""
        coming = self._in_force
        if coming.number == 0 and self._former is not None:  # it goes on where its messages are
            coming = replace(coming, slices=1)
            self._heed_doubts(self._former)
        else:
            await self._go_elsewhere(coming.slices)
        for account in self.accounts:
            if isinstance(account.credit, SpreadCredit):
                account.credit.doubt()
        self._spread = coming
        self._release()

    async def _go_elsewhere(self, slices: int) -> None:
        self._is_placed = False
        await asyncio.gather(*map(self._empty, self.accounts))
        if self._former is not None:
            self._parts.clear()
            former, self._former = self._former, None
            await former.close()
        opening = [self._open(number) for number in range(slices) if number not in self._parts]
        for error in await asyncio.gather(*opening, return_exceptions=True):
            if error is not None:
                raise error
        self._size()

    async def _empty(self, account: CreditAccount) -> None:
        """Take out what waits at an account, in the moment in which nothing is on its way there."""
        await account.quiet()
        self._unplaced.put_first(account.outbox.take_out())

    async def _open(self, number: int) -> None:
        part = await self._open_at(Address.of(self.address.namespace, slice_name(self.address.name, number)))
        part[0].steps.update(dict.fromkeys((self.steps.made, partial(self._yield_to, part[0]))))
        self._parts[number] = part
        self._heed_doubts(part[0])

    def _yield_to(self, account: CreditAccount) -> None:
        """Have the session give back what it has in hand elsewhere, while it is in line at one slice."""
        if account.wants and account.state.last.place:
            for other in self.accounts:
                if other is not account:
                    other.yields()

    def _heed_doubts(self, account: CreditAccount) -> None:
        credit = account.credit
        if isinstance(credit, SpreadCredit):
            credit.doubted = lambda: self._doubt(account, credit)

    def _release(self) -> None:
        self._is_placed = True
        self._stirred.set()
        for item in self._unplaced.take_out():
            if self.submit(item) and item.credited is not None and not item.credited.done():
                item.credited.set_result(None)
            elif item.who is not None and self._last is not None:
                self._last.observer.waits()

    def _doubt(self, account: CreditAccount, credit: SpreadCredit) -> None:
        if account not in self._looking and not self._closed:
            self._looking.add(account)
            in_background(self._check(account, credit), self._checks, f"headgate look at {account.address.name}")

    async def _check(self, account: CreditAccount, credit: SpreadCredit) -> None:
        """Let an account use what it was granted, if the queue is still spread as the session thinks."""
        ask, spools = until_answered(lambda _: None), account.writer is not None and bool(account.writer.store)
        while True:
            doubts = credit.doubts
            seen = await ask(self._store.seen, account.address) if spools else ""  # before the look: it is to be older
            now, to = await ask(self._store.in_force, self.address)
            if doubts == credit.doubts:
                break
        if not to and (now.number if now else 0) == self._spread.number and self._is_placed:
            self._looking.discard(account)
            credit.sure, credit.seen = True, seen
            account.assured()
            return
        await ask(self._registry.refresh, self.address)
        await asyncio.sleep(SOON)
        self._looking.discard(account)
        account.give_up()
