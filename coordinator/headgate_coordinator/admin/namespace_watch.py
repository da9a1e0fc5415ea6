"""A watch reads all that the admin's answers are made of: all destinations, at most once a second, however many ask.

The figures of a destination are one small read, sent in bursts, so that a thousand of them cost little. Why they are as
they are costs more; it is asked only for those that somebody would want to know about, and only while somebody looks.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Generic, TypeVar

from headgate import Client, Explanation, HeadgateError, PolicyError, PoolState, StoreState
from headgate.explain.limiter_view import LimiterView
from headgate.explain.limiters import explain_limiter
from headgate.namespace.pool_limits import pool_names, pool_states
from headgate.redis.keys import Address
from headgate.redis.stores.limiters import LimiterStore
from headgate.redis.stores.sliced_reads import read_whole
from headgate.spool.states import store_states
from headgate_coordinator.admin.destination_state import FIELDS, DestinationState, from_fields, named

_log = logging.getLogger("headgate")
FRESH: Final = 1.0
"""Seconds for which an answer is given again."""
PATIENCE: Final = 1.5
"""Seconds that Redis may take, all reads of one answer together."""
MOST_READ: Final = 10_000
"""Destinations that are read; the others are counted."""
MOST_EXPLAINED: Final = 60
"""Destinations that are explained at a time."""
MOST_POOLS: Final = 50
"""Pools that are read, the first by name; each takes a read of all its members."""
MOST_LIMITERS: Final = 200
"""Limiters whose levels are read, the first by name; each takes a script call."""
MOST_LIMITERS_EXPLAINED: Final = 20
"""Of these, how many are looked into: who holds them, and who waits."""
LOOKED_AT: Final = 100
"""Keys and holds of a limiter that are looked at each time."""
BURST: Final = 200
AT_ONCE: Final = 8
LISTING: Final = 20
"""Names are listed anew once this many times what that took has passed: a large Redis is not scanned all the time."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Flow:
    """A flow counts messages a second into and out of a destination; both are None until it was seen twice."""

    into: float | None = None
    out_of: float | None = None


@dataclass(frozen=True, slots=True)
class NamespaceSnapshot:
    """A snapshot shows all destinations of the namespace at one instant.

    Attributes:
        destinations: by name, as far as they were read.
        total: how many there are.
        flows: by name.
        taken: when, in seconds of the monotonic clock.
        seconds: that it took.
        stores: spool stores of the namespace, by name.
        limiters: levels of its limiters by name, without their keys.
        trouble: why Redis could not be asked since; empty when it could.
    """

    destinations: dict[str, DestinationState] = field(default_factory=dict)
    total: int = 0
    flows: dict[str, Flow] = field(default_factory=dict)
    taken: float | None = None
    seconds: float = 0.0
    trouble: str = ""
    stores: tuple[StoreState, ...] = ()
    pools: tuple[PoolState, ...] = ()
    limiters: dict[str, LimiterView] = field(default_factory=dict)

    @property
    def age(self) -> float | None:
        """Seconds since it was taken; None when none ever was."""
        return None if self.taken is None else max(0.0, time.monotonic() - self.taken)

    def is_spent(self, name: str) -> bool:
        """Return whether a limiter of that name is held off, or nothing is left of one of its limits."""
        view = self.limiters.get(name)
        return view is not None and (view.held_off > 0 or view.used >= 1)


class CachedValue(Generic[T]):
    """A cached value is made anew when asked for while older than :data:`FRESH`; once, for all who ask meanwhile."""

    def __init__(self, make: Callable[[], Awaitable[T]]) -> None:
        self._make = make
        self._task: asyncio.Task[T] | None = None
        self._made = 0.0

    async def get(self) -> T:
        """Return it."""
        if self._task is None or (self._task.done() and time.monotonic() - self._made >= FRESH):
            self._task = asyncio.create_task(self._timed(), name="headgate admin")
            self._task.add_done_callback(_heard)  # nobody may be left who asked
        return await asyncio.shield(self._task)

    def forget(self) -> None:
        """Make it anew the next time: something was changed."""
        if self._task is not None and self._task.done():
            self._task = None

    async def close(self) -> None:
        """Stop making it."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _timed(self) -> T:
        try:
            return await self._make()
        finally:
            self._made = time.monotonic()


class NamespaceWatch:
    """A watch keeps a picture of a client's namespace; it asks Redis only when asked, and never raises for Redis."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._picture = CachedValue(self._take)
        self._explained = CachedValue(self._explain)
        self._last = NamespaceSnapshot()
        self._names: list[str] = []
        self._sliced: dict[str, int] = {}  # slices of each destination
        self._stores: list[str] = []
        self._pools: list[str] = []
        self._list_again = 0.0

    async def picture(self) -> NamespaceSnapshot:
        """Return the destinations; the last ones that were read, with the trouble, when Redis does not answer."""
        return await self._picture.get()

    async def explanations(self) -> dict[str, Explanation]:
        """Return why they are as they are: those that are held up or busy, at most :data:`MOST_EXPLAINED`."""
        return await self._explained.get()

    def changed(self) -> None:
        """Read anew: something was changed through here."""
        self._list_again = 0.0
        self._picture.forget()
        self._explained.forget()

    async def close(self) -> None:
        """Stop reading."""
        await self._picture.close()
        await self._explained.close()

    async def _take(self) -> NamespaceSnapshot:
        began = time.monotonic()
        try:
            async with asyncio.timeout(PATIENCE):
                found, stores, pools = await self._read(), await self._read_stores(), await self._read_pools()
                limiters = await self._read_limiters(found)
        except TimeoutError:
            trouble = f"{self.client.redis_url} did not answer within {PATIENCE} s"
        except HeadgateError as error:
            trouble = str(error)
        else:
            now = time.monotonic()
            flows = self._flows(found, now)
            self._last = NamespaceSnapshot(
                found, len(self._names), flows, now, now - began, stores=stores, pools=pools, limiters=limiters
            )
            return self._last
        return replace(self._last, flows={}, seconds=time.monotonic() - began, trouble=trouble)

    async def _read(self) -> dict[str, DestinationState]:
        began = time.monotonic()
        if began >= self._list_again:
            self._names = sorted(await self.client.destinations())
            self._stores = await self.client.parts.registry.spooling.spools.names()
            self._pools = await pool_names(self.client.parts.pools)
            self._list_again = time.monotonic() + LISTING * (time.monotonic() - began)
        found: dict[str, DestinationState] = {}
        names = self._names[:MOST_READ]
        pieces = iter([names[at : at + BURST] for at in range(0, len(names), BURST)])

        async def look() -> None:
            for piece in pieces:
                found.update(await self._burst(piece))

        await together([look() for _ in range(AT_ONCE)])
        return {name: found[name] for name in names if name in found}

    async def _read_stores(self) -> tuple[StoreState, ...]:
        spools = self.client.parts.registry.spooling.spools
        return tuple(await store_states(spools, self.client.store, self._stores))

    async def _read_pools(self) -> tuple[PoolState, ...]:
        return tuple(await pool_states(self.client.parts.pools, self._pools[:MOST_POOLS]))

    async def _read_limiters(self, found: dict[str, DestinationState]) -> dict[str, LimiterView]:
        store = LimiterStore(self.client.store.server)
        limiters = [one.name for one in found.values() if one.kind == "limiter"][:MOST_LIMITERS]
        names, views = iter(limiters), dict[str, LimiterView]()

        async def look() -> None:
            for name in names:
                address, slices = Address.of(self.client.namespace, name), self._sliced.get(name, 1)
                levels = await store.levels(address, slices=slices)
                if levels is not None:  # else it was removed since
                    views[name] = LimiterView.of(levels, None, "")

        await together([look() for _ in range(AT_ONCE)])
        return {name: views[name] for name in limiters if name in views}

    async def _burst(self, names: Sequence[str]) -> dict[str, DestinationState]:
        keys = [Address.of(self.client.namespace, name).key.encode() for name in names]
        commands: list[tuple[bytes, Sequence[Any]]] = [(keys[0], ("TIME",))]
        commands += [(key, ("HMGET", key, *FIELDS)) for key in keys]
        time_there, *replies = await self.client.store.server.burst(commands)
        for reply in (time_there, *replies):
            if isinstance(reply, Exception):
                raise HeadgateError(f"{self.client.redis_url} refused to be read: {reply}")
        now_ms = int(time_there[0]) * 1000
        found = {}
        for name, values in zip(names, replies, strict=True):
            if "kind" in (fields := named(values)):
                self._sliced[name] = int(fields.get("sliced", 1))
                whole = await read_whole(
                    self.client.store.server, Address.of(self.client.namespace, name), FIELDS, fields
                )
                found[name] = from_fields(name, whole, now_ms)
        return found

    def _flows(self, found: dict[str, DestinationState], now: float) -> dict[str, Flow]:
        last = self._last
        if last.taken is None or now <= last.taken:
            return {}
        seconds = now - last.taken
        flows = {}
        for name, one in found.items():
            before = last.destinations.get(name)
            if before is not None and before.published <= one.published:
                into = (one.published - before.published) / seconds
                out = max(0, one.settled - before.settled) / seconds
                flows[name] = Flow(into, out)
        return flows

    async def _explain(self) -> dict[str, Explanation]:
        picture = await self.picture()
        if picture.trouble:
            return {}
        names = iter(_interesting(picture))
        explained: dict[str, Explanation] = {}

        async def look() -> None:
            for name in names:
                try:
                    limiter = picture.destinations[name].kind == "limiter"
                    explained[name] = await (self._look_into(name) if limiter else self.client.explain(name))
                except PolicyError:
                    continue  # removed since it was read

        try:
            async with asyncio.timeout(PATIENCE):
                await together([look() for _ in range(AT_ONCE)])
        except (TimeoutError, HeadgateError) as error:
            _log.debug("destinations could not be explained: %s", error)
        return explained

    async def _look_into(self, name: str) -> Explanation:
        address, store = Address.of(self.client.namespace, name), self.client.store
        snapshot = await store.snapshot(address, waiters=0, consumers=1)
        if snapshot is None:
            raise PolicyError(f"there is no limiter {name!r} any more")
        return await explain_limiter(LimiterStore(store.server), address, snapshot.fields, most=LOOKED_AT)


def _heard(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()


def _interesting(picture: NamespaceSnapshot) -> list[str]:
    """Return the names of limiters, of others that are held up, then of those whose consumers have something to do."""
    limiters = [one for one in picture.destinations.values() if one.kind == "limiter"]
    limiters.sort(key=lambda one: (-one.blocked, -_used(picture, one), one.name))
    held = [one for one in picture.destinations.values() if one.state != "open" and one.kind != "limiter"]
    busy = [
        one for one in picture.destinations.values() if one.state == "open" and one.consumers and one.pending_messages
    ]
    held.sort(key=lambda one: (-one.blocked, one.name))
    busy.sort(key=lambda one: (-one.pending_messages, one.name))
    return [one.name for one in (limiters[:MOST_LIMITERS_EXPLAINED] + held + busy)[:MOST_EXPLAINED]]


def _used(picture: NamespaceSnapshot, one: DestinationState) -> float:
    view = picture.limiters.get(one.name)
    return 0.0 if view is None else view.used + bool(view.held_off)


async def together(work: Sequence[Awaitable[None]]) -> None:
    """Await all; the first error ends the others."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
