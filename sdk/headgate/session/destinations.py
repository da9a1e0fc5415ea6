"""A session knows the destinations that it uses, and the accounts that it opens at them."""

import asyncio
import contextlib
import functools
import secrets
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Final

from headgate.context import Context
from headgate.core.account.calls import Totals
from headgate.core.account.spread_credit import SpreadCredit
from headgate.core.credit import CreditLine
from headgate.core.limits.spread import is_spread
from headgate.core.names import is_slice, slice_name, slice_number
from headgate.credit.account import CLOSE_WITHIN, CreditAccount
from headgate.credit.calls import Ensure
from headgate.credit.notices import Listeners
from headgate.credit.observer import Observer
from headgate.credit.requested_terms import RequestedTerms
from headgate.credit.spool_quota import SpoolQuota
from headgate.credit.spread_account import Part, SpreadAccount
from headgate.errors import CoordinatorUnavailable, HeadgateError, InvalidValue, PolicyError
from headgate.limiting.limiter import Limiter
from headgate.redis.call_line import PlaceInLine
from headgate.redis.keys import Address
from headgate.redis.stores.notes import NoteStore
from headgate.redis.stores.rates import Sender
from headgate.redis.stores.spreads import SpreadStore
from headgate.session.destination import SessionDestination
from headgate.session.live_settings import SettingsFollower
from headgate.session.ties import Ties
from headgate.spool.node_writer import NodeWriter
from headgate.spool.stores import Spool
from headgate.spool.writer import Writer
from headgate.waits import Waits

ELSEWHERE: Final = 2
"""How often a session is placed anew that opens at a slice whose master does not answer."""
OPEN_WITHIN: Final = 10.0
"""Seconds that opening a producer, a consumer, a gate or a bucket may take, the wait for its turn included; more while
others of the client are opened."""
OPEN_AT_LAST: Final = 60.0
"""The same, however many others are opened meanwhile: thousands may be at a time."""


def kinds_from(first: str) -> tuple[str, str]:
    """Return the kinds that hold messages, the one first that an unknown destination is made as.

    Raises:
        InvalidValue: it is none of them.
    """
    if first not in ("queue", "topic"):
        raise InvalidValue(f"kind: {first!r}; use 'queue' or 'topic'")
    return ("queue", "topic") if first == "queue" else ("topic", "queue")


class SessionDestinations:
    """Knows where a session is; what it opens there is opened one at a time, under ``lock``."""

    __slots__ = ("_all", "_listeners", "_placed", "_quotas", "_spreads", "_ties", "context", "limiters", "lock")

    def __init__(self, context: Context, listeners: Listeners) -> None:
        self.context = context
        self.lock = asyncio.Lock()
        self._quotas: dict[str, SpoolQuota] = {}
        self._listeners = listeners
        self._all: dict[str, SessionDestination] = {}
        self._placed: dict[str, Address] = {}
        self._spreads: dict[str, SpreadAccount] = {}
        self.limiters: dict[str, Limiter] = {}
        """Those that are open, by key."""
        self._ties: Ties | None = None

    def at(self, destination: str) -> SessionDestination:
        """Return what the session has at a destination.

        Raises:
            InvalidName: the name cannot be used.
        """
        address = Address.of(self.context.namespace, destination)
        if address.key not in self._all:
            follower = SettingsFollower(self.context.registry, address)
            presence = self._all[address.key] = SessionDestination(
                address, follower, functools.partial(self._tied, address, destination)
            )
            follower.on_spread = functools.partial(self._turn_to_slices, presence)
        return self._all[address.key]

    @property
    def ties(self) -> Ties:
        """Its notes of its waits."""
        if self._ties is None:
            notes = NoteStore(self.context.store.server, self.context.namespace)
            self._ties = Ties(notes, self._all.values, self.limiters.values)
        return self._ties

    def _tied(self, address: Address, destination: str) -> Observer:
        observer = self._observer(address)
        observer.waits, observer.doomed = self.ties.begin, functools.partial(self.ties.doomed, destination)
        return observer

    def _observer(self, address: Address) -> Observer:
        context = self.context
        return Observer(context.store, context.links, address, context.session, self._listeners, context.losses)

    @contextlib.asynccontextmanager
    async def opening(self, destination: str, *, alone: bool = True) -> AsyncIterator[None]:
        """Open one thing at a time, within a bound that holds for who waits for his turn too.

        Not ``alone`` is a feed of a slice: where its master is away, nothing else of the session waits for that.

        Raises:
            CoordinatorUnavailable: it took too long.
        """
        opened, patience = self.context.opened, asyncio.timeout(None)
        place = PlaceInLine(patience, lambda: opened.count, OPEN_AT_LAST, OPEN_WITHIN)
        try:
            async with patience, self.lock if alone else contextlib.nullcontext():
                yield
                opened.count += 1
        except TimeoutError as error:
            if isinstance(error, HeadgateError):
                raise
            within = OPEN_AT_LAST if place.too_long else OPEN_WITHIN
            raise CoordinatorUnavailable(
                f"{destination!r} was not opened within {within:g} s: Redis does not answer, or too slowly for all "
                "that this process opens at a time; open fewer at a time"
            ) from None
        finally:
            place.leave()

    def ensure(self, address: Address, kinds: tuple[str, ...]) -> Ensure:
        """Return what makes a destination exist, as the first of these kinds that will do."""
        return functools.partial(self._ensure, address, kinds)

    async def _ensure(self, address: Address, kinds: tuple[str, ...], recover: bool) -> str:  # noqa: FBT001
        return await self.context.registry.ensure(address, kinds, recover=recover)

    def ensure_messages(self, address: Address) -> Ensure:
        """Return what makes a destination exist that messages can be sent to."""
        return self.ensure(address, ("queue", "topic"))

    async def account(
        self,
        presence: SessionDestination,
        window: int | None,
        weight: int | None,
        kinds: tuple[str, ...],
        credit_line: Callable[[], CreditLine],
    ) -> tuple[CreditAccount | SpreadAccount, RequestedTerms]:
        """Return the account at a destination, opened if there is none, with one user more, and what that user says.

        Args:
            presence: the destination.
            window: bytes to keep in hand, as that user says; None as the settings say.
            weight: its share, likewise.
            kinds: that the destination may have.
            credit_line: makes the line of a gate.

        Raises:
            PolicyError: the destination is of another kind.
            CoordinatorUnavailable: Redis does not answer.
        """
        async with self.opening(presence.address.name):
            await self._meet(presence, kinds)
            if is_spread(self.context.registry.fields(presence.address)) and kinds != ("gate",):
                return await self._spread_account(presence, RequestedTerms(window, weight, lambda: None))
            line = credit_line if kinds == ("gate",) else None
            at = await self._place(presence)
            for _ in range(ELSEWHERE if self._may_move(presence, at) else 0):
                try:
                    return await self._account_at(at, window, weight, kinds, line)
                except CoordinatorUnavailable:  # its master is away, and nothing of the session's is there
                    del self._placed[presence.address.key]
                    at = await self._place(presence, after=slice_number(at.address.name))
            return await self._account_at(at, window, weight, kinds, line)

    async def _account_at(
        self,
        presence: SessionDestination,
        window: int | None,
        weight: int | None,
        kinds: tuple[str, ...],
        credit_line: Callable[[], CreditLine] | None,
        goes_on: Callable[[CreditLine], CreditLine] = lambda line: line,
    ) -> tuple[CreditAccount, RequestedTerms]:
        ensure = self.ensure(presence.address, kinds)
        if is_slice(presence.address.name):
            presence.kind = await ensure(False)
        await presence.follower.begin()
        self.context.store.server.promise(presence.follower.defaults.durability)
        account = presence.account
        if account is None or account.closed:
            before = account if kinds != ("gate",) else None  # a consumer may have kept what Redis knows of it
            line = credit_line() if credit_line is not None else None
            account = CreditAccount(
                self.context.store,
                self.context.wake_ups,
                presence.observer,
                presence.address,
                self.context.session,
                self.context.options,
                ensure,
                lambda: self.context.registry.forget(presence.address),
                lambda *rest: self.context.pools.refill(
                    presence.address, self.context.registry.pools(presence.address), *rest
                ),
                lambda sizes, weight: self.context.rates.draw(
                    presence.address, sizes, Sender(self.context.session, weight)
                ),
                waits=self.context.waits,
                holds_messages=kinds != ("gate",),
                credit=goes_on(before.credit) if before else line,
            )
            if kinds != ("gate",) and (writer := self._writer(account)):  # else it waits for memory
                account.spool(writer, topic=presence.kind == "topic")
            if before:
                account.follow(before)
            account.state.consumers = len(presence.consumers)
            requested = presence.follower.use(account, window, weight)
            await account.start()
            presence.account = account
        else:
            requested = presence.follower.use(account, window, weight)
        account.users += 1
        return account, requested

    async def _spread_account(
        self, whole: SessionDestination, terms: RequestedTerms
    ) -> tuple[SpreadAccount, RequestedTerms]:
        """Return the account of a queue whose values say the slice, opened if there is none, with one user more."""
        if self.context.options.resumes:
            raise PolicyError(
                f"{whole.address.name!r} keeps the order of values over its slices, and a session that is resumed "
                "sends to its first one; leave out resume, or order_by"
            )
        await whole.follower.begin()
        account = self._spreads.get(whole.address.key)
        if account is None:
            account = self._new_spread(whole)
            await account.start()
        return account, account.join(terms)

    def _new_spread(self, whole: SessionDestination) -> SpreadAccount:
        store = SpreadStore(self.context.store.server)

        async def open_at(part: Address) -> Part:
            at = self.at(part.name)
            await at.follower.begin()  # before its settings are read: it may be about to be let go
            account, terms = await self._account_at(at, None, None, ("queue",), SpreadCredit, SpreadCredit.after)
            return account, terms, at.follower.defaults.window

        def gone() -> None:
            self._spreads.pop(whole.address.key, None)

        account = SpreadAccount(whole.address, self.context.session, self.context.registry, store, open_at, gone)
        self._spreads[whole.address.key] = account
        return account

    def _turn_to_slices(self, presence: SessionDestination) -> None:
        """Have what the session sends to a queue go where its values say, from now on."""
        account, whole = presence.account, self.at(presence.address.whole.name)
        if account is None or account.closed or self.context.options.resumes or whole.address.key in self._spreads:
            return
        spread = self._new_spread(whole)
        spread.take_over(account)
        presence.follower.switch(spread)

    async def _meet(self, whole: SessionDestination, kinds: tuple[str, ...]) -> None:
        """See that a destination exists; where its first slice does not answer, a session may use another one."""
        try:
            whole.kind = await self.ensure(whole.address, kinds)(False)
        except CoordinatorUnavailable:
            if whole.address.key not in self._placed and not self._may_move(whole, whole):
                raise

    def _may_move(self, whole: SessionDestination, at: SessionDestination) -> bool:
        """Return whether the session may send to another slice than this one."""
        sliced = "sliced" in self.context.registry.fields(whole.address)
        return sliced and at.account is None and not self.context.options.resumes

    async def _place(self, whole: SessionDestination, *, after: int = 0) -> SessionDestination:
        """Return the session's presence at the one slice of a destination that it always sends to.

        Messages that it sent to another slice would overtake those that wait in this one. A session that is resumed
        finds what it stored in the first slice, however many there are by then.
        """
        address, registry = whole.address, self.context.registry
        if "sliced" not in registry.fields(address):
            return whole
        if address.key not in self._placed:
            stays = whole.account is not None or self.context.options.resumes
            number = 0 if stays else await self._turn(address, after)
            self._placed[address.key] = Address.of(address.namespace, slice_name(address.name, number))
        return self.at(self._placed[address.key].name)

    async def _turn(self, address: Address, after: int) -> int:
        """Return the slice whose turn it is; any where the first, which counts them, is away, or the one after."""
        try:
            return await self.context.store.place(address)
        except CoordinatorUnavailable:
            slices = int(self.context.registry.fields(address).get("slices") or 1)
            if slices == 1:
                raise
            return 1 + (after or secrets.randbelow(slices)) % (slices - 1)

    def _writer(self, account: CreditAccount) -> Writer | NodeWriter | None:
        if not self.context.spooling.reaches:
            there = self.context.store.server.spools
            return NodeWriter(account.address.shown, account.outbox, account.stir) if there else None
        spools, sweeper = self.context.spooling.spools, self.context.spooling.sweeper
        return Writer(
            spools, sweeper, self.quota, account.address, account.outbox, account.stir, account.seek, account.steps,
            account.session,
        )  # fmt: skip

    async def quota(self, spool: Spool) -> SpoolQuota:
        """Return the session's room at a store, opened if it is not."""
        async with self.lock:
            quota = self._quotas.get(spool.name)
            if quota is None or quota.spool is not spool:
                if quota is not None:
                    await quota.close()  # the store has another URL now

                async def ensure(recover: bool) -> None:  # noqa: FBT001
                    await self.context.spooling.spools.ensure(spool.name, recover=recover)

                observer = self._observer(spool.address)
                observer.notices.muted = True  # those who send hear of it, at the destination that they send to
                account = CreditAccount(
                    self.context.store,
                    self.context.wake_ups,
                    observer,
                    spool.address,
                    self.context.session,
                    replace(self.context.options, resumes=False),
                    ensure,
                    lambda: None,
                    lambda _tell, _asked, _waiting: None,
                    lambda _sizes, _weight: None,
                    waits=Waits(),
                    holds_messages=False,
                )
                account.resize(2 * spool.settings.segment, 1)
                try:
                    await account.start()
                except asyncio.CancelledError:
                    await self._leave(spool.address)  # its call may be under way
                    raise
                quota = self._quotas[spool.name] = SpoolQuota(account, self.context.spooling.spools.calls, spool)
        return quota

    async def end_lease(self, presence: SessionDestination) -> None:
        """End the session's lease at a destination where it has nothing any more."""
        await self._leave(presence.address, keep=presence.account is not None)
        presence.start_anew()

    async def _leave(self, address: Address, *, keep: bool = False) -> None:
        with contextlib.suppress(HeadgateError, TimeoutError):
            async with asyncio.timeout(CLOSE_WITHIN):
                totals = Totals(self.context.session, inc=1 << 30, epoch=0)
                await self.context.store.acquire(address, totals, ttl_ms=1000, leave=True, resume=keep, again=True)

    async def close(self) -> None:
        """Close all there is."""
        if self._ties is not None:
            await self._ties.close()
        await asyncio.gather(*(account.close() for account in tuple(self._spreads.values())))
        await asyncio.gather(*(presence.close() for presence in self._all.values()))
        await asyncio.gather(*(quota.close() for quota in self._quotas.values()))
