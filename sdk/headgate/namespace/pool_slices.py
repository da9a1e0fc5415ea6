"""A slice moves from its pool to a blocked destination, and back from one that does not use it.

A pool and the destinations that share it lie in different slots, so nothing moves in one step. It moves by totals:
*look* at the destination, *draw* from the pool, *deliver* to the destination; and to take back, *ask* a destination and
*draw* for it, which tells the pool. Any process may take any of these steps, twice or late, and may die between two of
them: the next one reads again and goes on from there. See docs/pools.md.
"""

import asyncio
import contextlib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from headgate._util.tasks import stop
from headgate.core.account.ports import Waiting
from headgate.core.names import MOST_SLICES, decode_name, encode_name, is_slice, slice_name, whole_name
from headgate.errors import HeadgateError
from headgate.namespace.pool_refills import ALL, Refills, Tell, first
from headgate.namespace.pool_reports import ask_all
from headgate.redis.backend import WakeUps
from headgate.redis.keys import Address, PoolAddress, parse_key
from headgate.redis.stores.pools import Debt, PoolDraw, PoolStore, Share, Slice, is_odd, limit_of

ASK_AT_ONCE: Final = 16
"""Members that are asked to give back before those who wait look again."""
IDLE: Final = 2.0
"""Seconds after which what was drawn and is not used goes back."""
_CLOSE_WITHIN: Final = 0.5
_REMEMBERED: Final = (
    *("limit_bytes", "reserve_bytes", "resume_bytes", "percent", "total_bytes", "part_of", "sites", "leasts"),
    *("policy_version", "policy"),
)
"""Fields of a pool that say how it is set."""


class Pools:
    """The pools of a namespace, as one client moves their slices; a pool that was lost learns for ``ttl_ms``."""

    def __init__(self, store: PoolStore, namespace: str, ttl_ms: int, wake_ups: WakeUps | None = None) -> None:
        self.store = store
        self.namespace = namespace
        self._ttl_ms = ttl_ms
        self._drawn: dict[str, tuple[Address, str]] = {}
        self._in_line: dict[tuple[str, str], int] = {}  # with its place
        self._answered: dict[tuple[str, str], int] = {}  # the epoch of a destination in which it heard of all
        self._refills = Refills(namespace, wake_ups, self.step, self._in_line)
        self._known: dict[str, dict[str, str]] = {}
        self._claimed_at: dict[str, float] = {}  # of pools that it found learning: when all holders have claimed
        self._trickle: asyncio.Task[None] | None = None

    def refill(
        self, address: Address, names: str, tell: Tell, asked: Callable[[], None] | None = None,
        waiting: Callable[[], Waiting] = first,
    ) -> None:  # fmt: skip
        """Fetch what the first in line of a destination lacks; when that is nothing, leave the lines of its pools.

        Args:
            address: the destination.
            names: its pools, encoded, separated by blanks; none is fine.
            tell: called with each pool that fell short.
            asked: called once each pool was asked for what is lacking, up to the first that falls short.
            waiting: returns who waits there, as far as whoever asks knows.
        """
        if self._refills.begin(address, names, tell, asked, waiting):
            self._drawn[address.key] = (address, names)
            if self._trickle is None:
                self._trickle = asyncio.create_task(self._give_back_idle(), name="headgate pools, idle")

    async def close(self) -> None:
        """Give back what this client drew and nobody uses; never longer than half a second."""
        await self._refills.close()
        await stop(self._trickle)
        with contextlib.suppress(HeadgateError, TimeoutError):
            async with asyncio.timeout(_CLOSE_WITHIN):
                await asyncio.gather(*(self.give_back(*drawn) for drawn in self._drawn.values()))

    async def step(self, address: Address, encoded: str, tell: Tell, asked: set[str]) -> bool:
        """Take every step that may bring a destination what it lacks of one pool; returns whether it lacks nothing."""
        pool = PoolAddress.of(self.namespace, decode_name(encoded))
        member = encode_name(address.name)
        held = await self._bring(pool, address, tell, asked)
        if held is not None and held.code == "OK" and (member, encoded) in self._in_line:
            await self.draw(pool, member, held)  # nobody waits here any more, so nobody needs to wait behind it
        return held is not None

    async def _bring(self, pool: PoolAddress, address: Address, tell: Tell, asked: set[str]) -> Slice | None:
        """Bring a destination what it lacks; returns what it holds then, None where it lacks something still."""
        member = encode_name(address.name)
        held = await self.store.slice(address, encode_name(pool.name))
        if held.code == "UNKNOWN" or (held.lacks <= 0 and not held.is_held_up):
            return held
        drawn, held = await self._obtain(pool, member, held, short=held.waits == "here")
        if drawn.code == "OK" and held.lacks > 0 and held.returned > drawn.returned:
            # It was answered for the first time since a loss of state, and gave back what it does not use.
            drawn, held = await self._obtain(pool, member, held)
        if drawn.code != "OK":
            return None
        if is_odd(drawn.full):
            return await self._resume(pool, address, drawn)
        if held.lacks <= 0:
            return held
        if not is_slice(pool.name):  # of which the destination itself says what is too large
            tell(pool.name, drawn.limit)
        return await self._fetch(pool, address, held, drawn, asked) if drawn.place == 1 else None

    async def _fetch(
        self, pool: PoolAddress, address: Address, held: Slice, drawn: PoolDraw, asked: set[str]
    ) -> Slice | None:
        """Have others give back what whoever is first in line lacks; returns what it holds if it lacks nothing then."""
        member, encoded = encode_name(address.name), encode_name(pool.name)
        level = Share(member, held.epoch, drawn.granted, drawn.returned, held.weight, held.reserved)
        if is_slice(pool.name) and held.held + held.lacks > drawn.limit:  # it needs more than there is
            level = replace(level, granted=level.returned)
            self._refills.goes_on(address.key)  # whoever has some does so until it is asked
        await self._take_back(pool, level, held.lacks, drawn, asked)
        held = await self.store.slice(address, encoded)
        if ALL in asked and held.lacks > 0 and held.pending is not None:  # all were asked, and nothing is to be had
            drawn, held = await self._obtain(pool, member, held, short=True)
            if is_odd(drawn.full):
                return await self._resume(pool, address, drawn)
        return held if held.lacks <= 0 else None

    async def _resume(self, pool: PoolAddress, address: Address, drawn: PoolDraw) -> Slice | None:
        """Have all slices hear that their pool is full, and report; returns what it holds if it lacks nothing then."""
        member = encode_name(address.name)
        if drawn.place > 1:
            return None  # whoever is first in line does so, and whoever waits for nothing else
        for share in [one for one in await self.store.members(pool) if one.held > 0 and one.member != member]:
            await self.ask_back(pool, share, drawn.pool_epoch, share.held, debt="idle", full=drawn.full)
        drawn, held = await self._obtain(pool, member, await self.store.slice(address, encode_name(pool.name)))
        return held if drawn.code == "OK" and not is_odd(drawn.full) and held.lacks <= 0 else None

    async def _obtain(
        self, pool: PoolAddress, member: str, held: Slice, *, short: bool = False
    ) -> tuple[PoolDraw, Slice]:
        """Draw what a destination lacks, and bring it there where it is news; returns what it lacks then."""
        drawn = await self.draw(pool, member, held, short=short)
        if drawn.code == "OK":
            own, first = Share.answered(member, held, drawn), drawn.place == 1
            seen = held.pool_epoch, held.granted, held.returned, held.full
            is_news = seen != (drawn.pool_epoch, drawn.granted, drawn.returned, drawn.full)
            is_new = held.learning_ms > 0 or self._answered.get((member, pool.key)) != held.epoch
            if first or is_news or is_new or own.overdrawn is not None:
                held = await self._deliver(pool, own, drawn.pool_epoch, first=first, full=drawn.full)
                self._answered[member, pool.key] = held.epoch if held.code == "OK" else 0
        return drawn, held

    async def draw(
        self, pool: PoolAddress, member: str, held: Slice, *, with_ticket: bool = False, short: bool = False
    ) -> PoolDraw:
        """Tell the pool what a destination holds and needs, and deliver what others were granted by that."""
        drawn = await self.store.draw(pool, member, held, with_ticket=with_ticket, short=short)
        if drawn.code == "GONE":  # it holds more than the pool knows of, unless the look was an old one: look again
            address = Address.of(self.namespace, decode_name(member))
            held = await self.store.slice(address, encode_name(pool.name))
            drawn = await self.store.draw(pool, member, held)
            if drawn.code == "GONE":
                drawn = await self.store.draw(pool, member, replace(held, pool_epoch=drawn.pool_epoch + 1))
        if drawn.code == "UNKNOWN" and pool.key in self._known and await self._is_missed(pool, member):
            await self.store.set(pool, self._known[pool.key], mode="recover", ttl_ms=self._ttl_ms)
        elif drawn.code == "LEARNING":
            if drawn.place == 1 or asyncio.get_running_loop().time() >= self._claimed_at.get(pool.key, math.inf):
                await self.rebuild(pool, drawn.pool_epoch)
        elif drawn.code == "OK" and pool.key not in self._known:
            await self.remember(pool)
        if drawn.place:
            self._in_line[member, encode_name(pool.name)] = drawn.place
        else:
            self._in_line.pop((member, encode_name(pool.name)), None)
        await self.deliver(pool, drawn.served, drawn.pool_epoch, drawn.full)
        return drawn

    async def _is_missed(self, pool: PoolAddress, member: str) -> bool:
        """Return whether a pool that is not there was lost: who removes one first has no destination name it.

        Only a destination that names it lacks anything of it, and what nobody lacks is not missed yet.
        """
        address = Address.of(self.namespace, decode_name(member))
        return (await self.store.slice(address, encode_name(pool.name))).lacks > 0

    async def remember(self, pool: PoolAddress) -> None:
        """Remember how a pool is set, so that it can be made again if Redis loses it."""
        if not (fields := await self.store.fields(pool)):
            return
        self._known[pool.key] = {name: fields[name] for name in _REMEMBERED if name in fields}

    def forget(self, pool: PoolAddress) -> None:
        """Forget a pool that was removed on purpose."""
        self._known.pop(pool.key, None)

    async def deliver(self, pool: PoolAddress, served: Iterable[Share], epoch: int, full: int | None = None) -> None:
        """Tell destinations what the pool granted them."""
        for share in (one for one in served if not one.site):  # a site hears by letter
            self._in_line.pop((share.member, encode_name(pool.name)), None)
            await self._deliver(pool, share, epoch, full=full)

    async def _deliver(
        self, pool: PoolAddress, share: Share, pool_epoch: int, *, first: bool = False, full: int | None = None
    ) -> Slice:
        address = Address.of(self.namespace, decode_name(share.member))
        return await self.store.slice(
            address, encode_name(pool.name), share=share, pool_epoch=pool_epoch, debt="void" if first else "keep",
            full=full,
        )  # fmt: skip

    async def _take_back(self, pool: PoolAddress, first: Share, lacks: int, drawn: PoolDraw, asked: set[str]) -> None:
        """Ask members for unused bytes for the first in line, those that hold most for their weight first.

        Where that is too little they owe what they use above the level of the first, once it is free; nobody does when
        that would not suffice either, for what they then gave back would serve nobody. Then what is idle in the hands
        of their sessions is asked for: two that wait for what the other has would wait for ever.

        A debt doubles what the first has, or is a sixteenth of what is between them: message by message, whoever filled
        a large pool would keep most of it for minutes.
        """
        pool_epoch = drawn.pool_epoch
        everyone = await self.store.members(pool)
        shares = [share for share in everyone if share.held > 0 and share.member != first.member]
        # Of equals the next after the first: else who is asked is always the same one, and gets less than all others.
        members = sorted(shares, key=lambda one: (-one.held / one.weight, one.member < first.member, one.member))
        near = [share for share in members if not share.site]  # sites read in their letters what is lacking
        # Where more is held than there is, what comes back serves nobody until that is not so any more.
        beyond = _beyond(everyone, drawn.limit)
        got = await self._ask_some(pool, near, pool_epoch, lacks + beyond, asked) - beyond
        if got >= lacks:
            return
        below = sum(share.held - share.above(first) - min(share.held, share.least) for share in members)
        if ALL in asked and below + first.held + lacks > drawn.limit and first.held:
            for share in near:
                await self.ask_back(pool, share, pool_epoch, lacks, debt="idle")
        elif ALL in asked:  # from now on every time, or the debt lapses
            most = max((share.above(first) for share in near), default=0)
            wants = lacks if first.site else max(lacks, first.held, most // 16)
            for share in near:
                above = share.above(first)
                if (owed := min(max(lacks - got, min(wants - got, above // 2)), above)) > 0:
                    await self.ask_back(pool, share, pool_epoch, owed, debt="owe")
                    got += owed
                if got >= wants:
                    return

    async def take_beyond(self, pool: PoolAddress) -> None:
        """Have members give back what they hold above a limit that was lowered: unused at once, the rest they owe."""
        fields, asked = await self.store.fields(pool), set[str]()
        while ALL not in asked and fields.get("learning") == "0":
            members = await self.store.members(pool)
            limit = limit_of(fields["limit_bytes"]) - sum(share.least for share in members)
            if not (beyond := _beyond(members, limit)):
                return
            await self.collect(pool, int(fields["epoch"]), beyond, beyond, asked)

    async def take_back_for(self, pool: PoolAddress, member: str, asked: set[str]) -> None:
        """Ask members for what a site lacks that is first in line; ``asked`` is what earlier calls left there."""
        fields = await self.store.fields(pool)
        members = await self.store.members(pool)
        first = next((share for share in members if share.member == member), None)
        if first is not None and fields and first.need > first.granted:
            others = sum(share.least for share in members) - first.least
            drawn = PoolDraw("OK", int(fields["epoch"]), limit=limit_of(fields["limit_bytes"]) - others)
            await self._take_back(pool, first, first.need - first.granted, drawn, asked)

    async def _ask_some(
        self, pool: PoolAddress, shares: Sequence[Share], pool_epoch: int, lacks: int, asked: set[str]
    ) -> int:
        """Ask the next members for unused bytes, until that is enough; returns how many they gave back."""
        got, fresh = 0, [share for share in shares if share.member not in asked]
        for share in fresh[:ASK_AT_ONCE]:
            asked.add(share.member)
            got += await self.ask_back(pool, share, pool_epoch, lacks - got)
            if got >= lacks:
                asked.discard(share.member)
                return got
        if len(fresh) <= ASK_AT_ONCE:
            asked.clear()
            asked.add(ALL)
        return got

    async def collect(self, pool: PoolAddress, pool_epoch: int, lacks: int, owed: int, asked: set[str]) -> None:
        """Have members give back what is lacking at another site: what is not in use, and of what is owed the rest.

        ``asked`` is what earlier calls left there.
        """
        shares = [share for share in await self.store.members(pool) if share.held > 0 and not share.site]
        owed -= await self._ask_some(pool, shares, pool_epoch, max(lacks, owed), asked)
        total = sum(share.held for share in shares)
        for share in shares if owed > 0 else ():
            await self.ask_back(pool, share, pool_epoch, min(share.held, -(-owed * share.held // total)), debt="owe")

    async def ask_back(
        self, pool: PoolAddress, share: Share, pool_epoch: int, lacks: int, *, debt: Debt = "keep",
        full: int | None = None,
    ) -> int:  # fmt: skip
        """Ask one member for that many bytes of its slice, and tell the pool; returns how many it gave back."""
        address = Address.of(self.namespace, decode_name(share.member))
        # Slices of one queue are all alike: one that has much gives a part of it, and not each message's bytes.
        part = share.held // 4 if is_slice(pool.name) and debt == "keep" else 0
        target = share.returned + min(max(lacks, part), share.held)
        held = await self.store.slice(
            address, encode_name(pool.name), share=share, pool_epoch=pool_epoch, target=target, debt=debt, full=full
        )
        if held.code == "UNKNOWN":
            _, served = await self.store.forget(pool, share.member, share.epoch)
            await self.deliver(pool, served, pool_epoch)
            return share.held
        is_new = held.pending is not None and (held.pending, held.full) != (share.pending, share.full)
        if is_new or held.code == "EPOCH" or held.returned > share.returned or held.weight != share.weight:
            drawn = await self.draw(pool, share.member, held)
            if drawn.code == "OK" and (drawn.granted, drawn.returned) != (held.granted, held.returned):
                own = Share.answered(share.member, held, drawn)
                await self._deliver(pool, own, drawn.pool_epoch, full=drawn.full)
        return max(0, held.returned - share.returned) if held.code == "OK" else 0

    async def give_back(self, address: Address, names: str, *, idle: bool = False) -> bool:
        """Give back what a destination does not use; with ``idle`` only when it uses nothing.

        Returns whether it uses nothing.
        """
        member, unused = encode_name(address.name), True
        for encoded in names.split():
            pool = PoolAddress.of(self.namespace, decode_name(encoded))
            held = await self.store.slice(address, encoded)
            if held.code != "OK":
                continue
            if held.lacks > 0:
                unused = False
                continue
            unused = unused and held.used == 0
            waited = (member, encoded) in self._in_line
            if held.used == 0 or waited or (held.used < held.held and not idle):  # perhaps what was granted never came
                drawn = await self.draw(pool, member, held)
                if drawn.code == "OK":
                    share = Share.answered(member, held, drawn)
                    await self.ask_back(pool, share, drawn.pool_epoch, share.held)
        return unused

    async def leave(self, address: Address, names: str) -> None:
        """Give back what a destination holds of pools that it no longer names."""
        slices = address.key + ":slices"
        held = {name.decode() for name in await self.store.server.command(address.shared[0], "HKEYS", slices)}
        await self.give_back(address, " ".join(sorted(held - set(names.split()))))

    async def release(self, address: Address, names: str, epoch: int) -> None:
        """Give back what a destination held that was removed while its epoch was ``epoch``."""
        self._drawn.pop(address.key, None)
        for encoded in names.split():
            pool = PoolAddress.of(self.namespace, decode_name(encoded))
            _, served = await self.store.forget(pool, encode_name(address.name), epoch)
            await self.deliver(pool, served, 0)

    async def _give_back_idle(self) -> None:
        """Give back the slices of destinations that use nothing for two looks in a row."""
        unused: set[str] = set()
        while True:
            await asyncio.sleep(IDLE)
            self._answered.clear()
            with contextlib.suppress(HeadgateError):
                for encoded in {name for _, names in self._drawn.values() for name in names.split()}:
                    await self.remember(PoolAddress.of(self.namespace, decode_name(encoded)))
                for key, (address, names) in tuple(self._drawn.items()):
                    if key in unused and await self.give_back(address, names, idle=True):
                        self._drawn.pop(key, None)
                await self._refills.hear_only({name for _, names in self._drawn.values() for name in names.split()})
            unused = set(self._drawn)

    async def rebuild(self, pool: PoolAddress, pool_epoch: int) -> bool:
        """Ask every destination of the namespace what it holds of a pool whose state may have been lost.

        Returns whether the pool serves again; it does not while holders somewhere may still claim what they had.
        """
        self._claimed_at.pop(pool.key, None)
        learns = await ask_all(self.store, pool, await self._candidates(pool), pool_epoch)
        if learns:  # whoever asked goes on with that: nobody else does for a while
            self._claimed_at[pool.key] = asyncio.get_running_loop().time() + learns
            return False
        code, epoch, _, served = await self.store.set(pool, {}, mode="ready", pool_epoch=pool_epoch)
        await self.deliver(pool, served, epoch)
        return code == "OK"

    async def _candidates(self, pool: PoolAddress) -> list[str]:
        """Return the names of the destinations that may hold something of a pool."""
        if is_slice(pool.name):
            return [slice_name(whole_name(pool.name), number) for number in range(MOST_SLICES)]
        keys = await self.store.server.scan(f"hg:{{{self.namespace}/*}}")
        return [parsed[1] for key in keys if (parsed := parse_key(key))]


def _beyond(members: Iterable[Share], limit: int) -> int:
    """Return how much is held above a limit, which leaves out leasts of sites.

    The part that a ticket is above it is its slice's to pay back.
    """
    held = (
        share.held - min(share.held, share.least) - max(0, (share.overdrawn or 0) - share.returned) for share in members
    )
    return max(0, sum(held) - limit)
