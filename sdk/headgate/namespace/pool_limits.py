"""A pool has settings: limits absolute or in percent, and reserves. This module also reads how much of it is used."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from headgate.core.limits.pool_sites import why_no_room
from headgate.core.names import decode_name, given_name, messages_pool, slices_pool, whole_name
from headgate.core.policy import Policy, origin_text, origins
from headgate.errors import AccessDenied, CoordinatorUnavailable, InvalidValue, PolicyError
from headgate.namespace.pool_sites import PoolPart, SitePart, pool_part, site_parts
from headgate.namespace.pool_slices import ASK_AT_ONCE, Pools
from headgate.redis.backend import Backend
from headgate.redis.keys import Address, PoolAddress, parse_pool_key
from headgate.redis.stores.pools import UNLIMITED, PoolStore, limit_of, shown_member
from headgate.units import parse_limit, parse_size

TOP: Final = 5
"""How many destinations that hold most of a pool its state names."""
FIELDS: Final = ("limit_bytes", "percent", "total_bytes", "reserve_bytes", "part_of", "sites", "leasts")
NEWER: Final = frozenset({"leasts", "resume_bytes"})
"""Fields whose names older nodes refuse: a call names them only where they are set, or to be taken away."""


class NewerPolicyError(PolicyError):
    """A newer policy has set the pool."""


@dataclass(frozen=True, slots=True)
class PoolState:
    """A pool as it stands.

    Attributes:
        name: its name.
        limit: bytes; None when it has no limit.
        reserve: bytes of it that only reserved destinations may use.
        granted: bytes that destinations hold as slices, used or not; never above ``limit`` but after that was lowered.
        used: bytes pending and leased at those destinations, added up while they change.
        members: destinations that hold a part of it; one with ``slices`` is one.
        holders: those that hold most, at most five, each with its bytes.
        waiting: destinations in line for more.
        percent: where the limit comes from, as ``70 % of 1000 bytes`` or ``70 % of maxmemory``; empty when absolute.
        learning: its state may have been lost; nothing is granted until all destinations have claimed what they hold.
        origins: for each field that a policy set, ``<file>:<line>``; empty when it was set by hand.
        sites: parts that other sites have of it; these are among ``granted`` and ``members``.
        part_of: the pool at another site that it is a part of; None where it is none, and has its limit to itself.
    """

    name: str
    limit: int | None
    reserve: int
    granted: int
    used: int
    members: int
    waiting: int
    percent: str
    learning: bool
    origins: Mapping[str, str]
    holders: tuple[tuple[str, int], ...] = ()
    sites: tuple[SitePart, ...] = ()
    part_of: PoolPart | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data, for JSON; a holder as ``{"destination": ..., "held": ...}``."""
        return asdict(self) | {"holders": [{"destination": name, "held": held} for name, held in self.holders]}


def pool_fields(
    limit: int | str | None, percent: float | str | None, total: int | str | None, reserve: int | str
) -> dict[str, str]:
    """Return a pool's settings as the state's fields, before a percentage is resolved.

    Raises:
        InvalidValue: a value cannot be read.
        PolicyError: a combination that means nothing.
    """
    if (limit is None) == (percent is None):
        raise PolicyError("a pool needs a limit or a percent, and not both")
    if total is not None and percent is None:
        raise PolicyError("total without percent; a percent is of the total")
    fields = {"reserve_bytes": str(parse_size(reserve, "reserve"))}
    if limit is not None:
        fields["limit_bytes"] = str(parse_limit(limit, "limit"))
    if percent is not None:
        fields["percent"] = f"{_percent(percent):g}"
    if total is not None:
        fields["total_bytes"] = str(parse_size(total, "total"))
    return fields


def _percent(value: float | str) -> float:
    text = value.strip().removesuffix("%") if isinstance(value, str) else value
    number = 0.0
    if not isinstance(value, bool):
        with contextlib.suppress(ValueError):
            number = float(text)
    if not 0 < number <= 100:
        raise InvalidValue(f"{value!r}; use a number above 0 up to 100, such as 70 or '70%'", setting="percent")
    return number


async def resolve(server: Backend, name: str, fields: Mapping[str, str]) -> dict[str, str]:
    """Return a pool's fields with its limit in bytes, and the unused ones empty so that they are taken away.

    Raises:
        PolicyError: percent of a maxmemory that is not set, an unknown field, or a reserve as large as the limit.
    """
    if unknown := set(fields) - set(FIELDS):
        raise PolicyError(f"pool {name!r}: field {sorted(unknown)[0]!r} is unknown; there are {', '.join(FIELDS)}")
    resolved = dict.fromkeys(FIELDS, "") | dict(fields)
    if resolved["percent"]:
        total = int(resolved["total_bytes"]) if resolved["total_bytes"] else await max_memory(server, name)
        resolved["limit_bytes"] = str(int(total * float(resolved["percent"]) / 100))
    resolved["reserve_bytes"] = resolved["reserve_bytes"] or "0"
    if not resolved["limit_bytes"] or limit_of(resolved["limit_bytes"]) == 0:
        raise PolicyError(f"pool {name!r} has no limit; give it one, 'unlimited' included, or a percent of something")
    if int(resolved["reserve_bytes"]) >= limit_of(resolved["limit_bytes"]):
        raise PolicyError(
            f"pool {name!r}: its reserve of {resolved['reserve_bytes']} bytes leaves nothing of its limit of "
            f"{resolved['limit_bytes']} bytes to others"
        )
    if why := why_no_room(resolved, limit_of(resolved["limit_bytes"]), int(resolved["reserve_bytes"])):
        raise PolicyError(f"pool {name!r}: {why}")
    return resolved


async def max_memory(server: Backend, name: str) -> int:
    """Return the bytes that Redis may use, over all masters: a pool's destinations are spread over them.

    Raises:
        PolicyError: a master has no maxmemory.
    """
    try:
        found = [int(reply[1]) for reply in await server.everywhere("CONFIG", "GET", "maxmemory")]
    except (AccessDenied, CoordinatorUnavailable) as error:  # many hosted servers forbid CONFIG, and some hide it
        if isinstance(error, CoordinatorUnavailable) and not error.answered:
            raise
        found = []
        for text in await server.everywhere("INFO", "memory"):
            facts = dict(line.split(":", 1) for line in text.decode().splitlines() if ":" in line)
            found.append(int(facts.get("maxmemory", 0)))
    if not all(found):
        raise PolicyError(
            f"pool {name!r}: a percent of Redis' maxmemory, and there is none; set maxmemory, give the pool a total, "
            f"or a limit in bytes"
        )
    return sum(found)


async def set_pool(
    pools: Pools,
    name: str,
    *,
    limit: int | str | None,
    percent: float | str | None,
    total: int | str | None,
    reserve: int | str,
) -> None:
    """Create or change a pool; see :meth:`headgate.Client.set_pool`."""
    pool = _given(pools, name)
    fields = await resolve(pools.store.server, name, pool_fields(limit, percent, total, reserve))
    await _set(pools, pool, {**fields, "policy": ""})


def _given(pools: Pools, name: str) -> PoolAddress:
    """Return the address of a pool that a user names: one that slices have for themselves is nobody's to set."""
    given_name(name, "pool")
    return PoolAddress.of(pools.namespace, name)


async def _set(pools: Pools, pool: PoolAddress, fields: Mapping[str, str]) -> None:
    known = await pools.store.fields(pool)
    named = {field: value for field, value in fields.items() if value or field not in NEWER or field in known}
    code, epoch, learning, served = await pools.store.set(pool, named)
    if code == "OLD":
        raise NewerPolicyError(f"pool {pool.name!r} has a newer policy version")
    await pools.remember(pool)
    if learning:
        with contextlib.suppress(CoordinatorUnavailable):  # it is set; whoever lacks some of it asks again
            await pools.rebuild(pool, epoch)
    await pools.deliver(pool, served, epoch)
    with contextlib.suppress(CoordinatorUnavailable, AccessDenied):  # likewise
        await pools.take_beyond(pool)


async def apply_pools(pools: Pools, entries: Sequence[Mapping[str, Any]], *, version: int, prune: bool = False) -> None:
    """Set the pools of a compiled policy; see :meth:`headgate.Client.apply_pools`."""
    resolved = [
        (
            _given(pools, entry["name"]),
            {
                **await resolve(pools.store.server, entry["name"], entry["fields"]),
                "policy": origin_text(entry.get("origins", {})),
            },
        )
        for entry in entries
    ]
    for pool, fields in resolved:
        await _set(pools, pool, {**fields, "policy_version": str(version)})
    if prune:
        await prune_pools(pools, {pool.name for pool, _ in resolved}, version)


async def prune_pools(pools: Pools, kept: Collection[str], version: int) -> None:
    """Remove the pools of policies older than ``version`` that are not among those kept."""
    for name in await pool_names(pools):
        fields = await pools.store.fields(PoolAddress.of(pools.namespace, name))
        if name not in kept and "policy_version" in fields and int(fields["policy_version"]) < version:
            await remove_pool(pools, name)


class PolicyPools:
    """`PolicyPools` checks a policy's pools before it is in force, and sets them with it.

    Those of earlier policies are removed after it.
    """

    def __init__(self, pools: Pools) -> None:
        self._pools = pools
        self._shared: dict[str, str] = {}

    async def share(self, whole: Address, fields: Mapping[str, str]) -> None:
        """Let the slices of a destination have its limits together, given its settings, unless they have.

        While none is enforced there is no pool, for it would not count what they use. The next one asks them for that.
        """
        if fields.get("enforce") == "off":
            return await self.unshare(whole)
        in_bytes, in_messages = _of_slices(whole)
        await self._share(in_bytes, fields["limit_bytes"], fields.get("resume_bytes", ""))
        if (limit := fields.get("limit_messages", "unlimited")) != "unlimited":
            return await self._share(in_messages, limit, fields.get("resume_messages", ""))
        if self._shared.get(in_messages.key) != limit:
            key = whole.shared[0]
            # The pool first: whoever makes one has set the limit before.
            if await self._pools.store.fields(in_messages) and limit.encode() == await self._pools.store.server.command(
                key, "HGET", key, "limit_messages"
            ):
                await _remove(self._pools, in_messages)
            self._shared[in_messages.key] = limit
        return None

    async def _share(self, pool: PoolAddress, limit: str, resume: str) -> None:
        if self._shared.get(pool.key) == f"{limit} {resume}":
            return  # what Redis loses of a pool, those who draw from it put back
        known = await self._pools.store.fields(pool)
        if (known.get("limit_bytes"), known.get("resume_bytes", "")) == (limit, resume):
            await self._pools.remember(pool)
        else:
            await _set(self._pools, pool, {"limit_bytes": limit, "resume_bytes": resume})
        self._shared[pool.key] = f"{limit} {resume}"

    async def unshare(self, whole: Address) -> None:
        """Delete the pools of the slices of a destination that was removed on purpose."""
        for pool in _of_slices(whole):
            self._shared.pop(pool.key, None)
            await _remove(self._pools, pool)

    async def check(self, policy: Policy) -> None:
        """Raise PolicyError if a pool cannot be set, e.g. a percent of a maxmemory that Redis does not have."""
        for pool in policy.pools:
            try:
                await resolve(self._pools.store.server, pool.name, pool.fields)
            except PolicyError as error:
                where = pool.origins.get("percent") or next(iter(pool.origins.values()), policy.source)
                raise PolicyError(f"{where}: {error}") from None

    async def set(self, policy: Policy) -> None:
        """Set them, unless a newer policy has."""
        if policy.pools:
            entries = [{"name": pool.name, "fields": pool.fields, "origins": pool.origins} for pool in policy.pools]
            with contextlib.suppress(NewerPolicyError):
                await apply_pools(self._pools, entries, version=policy.version)

    async def prune(self, policy: Policy) -> None:
        """Remove those of earlier policies that it has not; what a newer policy has set stays."""
        await prune_pools(self._pools, {pool.name for pool in policy.pools}, policy.version)


def _of_slices(whole: Address) -> tuple[PoolAddress, PoolAddress]:
    """Return the pools in which the slices of a destination share its limits in bytes and in messages."""
    names = slices_pool(whole.name), messages_pool(whole.name)
    in_bytes, in_messages = (PoolAddress.of(whole.namespace, name) for name in names)
    return in_bytes, in_messages


async def remove_pool(pools: Pools, name: str) -> None:
    """Delete a pool on purpose; see :meth:`headgate.Client.remove_pool`."""
    await _remove(pools, _given(pools, name))


async def _remove(pools: Pools, pool: PoolAddress) -> None:
    pools.forget(pool)
    await pools.store.set(pool, {}, mode="remove")


async def pool_names(pools: Pools) -> list[str]:
    """Return the names of all pools of the namespace."""
    keys = await pools.store.server.scan(f"hg:{{{pools.namespace}}}:pool:*")
    return sorted(parsed[1] for key in keys if (parsed := parse_pool_key(key)))


async def pool_states(pools: Pools, names: Sequence[str] | None = None) -> list[PoolState]:
    """Return the pools of these names, or all of the namespace; see :meth:`headgate.Client.pools`."""
    return [
        await _state(pools, PoolAddress.of(pools.namespace, name), fields)
        for name in (await pool_names(pools) if names is None else names)
        if (fields := await pools.store.fields(PoolAddress.of(pools.namespace, name))) and "limit_bytes" in fields
    ]


async def _state(pools: Pools, pool: PoolAddress, fields: Mapping[str, str]) -> PoolState:
    everyone = await pools.store.members(pool, most=1 << 31)
    members = [share for share in everyone if share.held > 0]
    used = sum(share.held for share in members if share.site)  # what sites use of that, they know
    near = [share for share in members if not share.site]
    for at in range(0, len(near), ASK_AT_ONCE):
        used += sum(
            await asyncio.gather(
                *(_used(pools.store, pools.namespace, share.member) for share in near[at : at + ASK_AT_ONCE])
            )
        )
    holders = Counter[str]()
    for share in members:
        holders[whole_name(shown_member(share.member))] += share.held
    server, limit = pools.store.server, limit_of(fields["limit_bytes"])
    part_of = await pool_part(server, pool, fields)
    if part_of is not None:
        limit = min(limit, part_of.held)
    of = f"{fields['total_bytes']} bytes" if "total_bytes" in fields else "maxmemory"
    return PoolState(
        name=pool.name,
        limit=None if limit == UNLIMITED else limit,
        reserve=int(fields["reserve_bytes"]),
        granted=int(fields["granted_bytes"]),
        used=used,
        members=len(holders),
        waiting=int(await pools.store.server.command(pool.keys[0], "ZCARD", pool.keys[2])),
        percent=f"{fields['percent']} % of {of}" if "percent" in fields else "",
        learning=int(fields["learning"]) > 0,
        origins=origins(fields.get("policy", "")),
        holders=tuple(holders.most_common(TOP)),
        sites=await site_parts(server, pool, fields, everyone),
        part_of=part_of,
    )


async def _used(store: PoolStore, namespace: str, member: str) -> int:
    address = Address.of(namespace, decode_name(member))
    counters = await store.server.command(address.shared[0], "HMGET", address.key, "pending_bytes", "leased_bytes")
    return sum(int(n or 0) for n in counters)
