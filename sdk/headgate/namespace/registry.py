"""Destinations as this client knows them: made as the policy says, kept to it, and made again as they were if lost."""

import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final
from weakref import WeakValueDictionary

from headgate._util.batches import in_batches
from headgate._util.shared_answer import SharedAnswer
from headgate.core.limits.slices import pools_of
from headgate.core.limits.spread import SPREAD
from headgate.core.names import is_slice, slice_name
from headgate.core.policy import Policy, Resolved
from headgate.errors import AccessDenied, CoordinatorUnavailable, PolicyConflict, PolicyError
from headgate.namespace.checks import LIMITS, check_together, see_that_it_is_limited
from headgate.namespace.defaults import durability_of
from headgate.namespace.losses import LossListeners
from headgate.namespace.pinned_keys import PinnedKeys
from headgate.namespace.policy_follower import GOVERNED, PolicyFollower, due, kind_of, without
from headgate.namespace.pool_limits import PolicyPools
from headgate.namespace.slice_copies import begin_copies
from headgate.namespace.slice_limits import agree, alike
from headgate.namespace.stale_settings import StaleSettings
from headgate.namespace.topics import TopicIndex
from headgate.redis.backend import Listener, WakeUps
from headgate.redis.keys import Address, parse_key
from headgate.redis.store import Store
from headgate.settings import FIELD_OF, KINDS, STORES, Settings
from headgate.spool import Spooling
from headgate.spool.policy import PolicyStores

REMEMBERED: Final = (
    *FIELD_OF.values(), "policy_version", "policy", "held_off", "ramp", "off_reason",
    "sliced", "slices_pool", "messages_pool", "of_slices", *SPREAD,
)  # fmt: skip
"""All that somebody set, and nothing that the scripts count: what a lost destination is made again with."""
SELECTORS: Final = "selectors"
_ANEW: Final = frozenset({SELECTORS, "spread_to", "spreading"})  # set anew where a destination is made again
BATCH: Final = 8
"""Destinations that are brought under a policy in one write: few enough that traffic in between hardly waits."""
IN_FLIGHT: Final = 2
"""Batches on their way at a time."""
TRIES: Final = 16
Follower = Callable[[Mapping[str, str]], None]
_GOVERNANCE: Final = ("kind", "policy_version", "policy")
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class Registry:
    """The registry knows the settings in force at the destinations that this client uses."""

    def __init__(
        self, store: Store, wake_ups: WakeUps, pools: PolicyPools, namespace: str, ttl_ms: int, losses: LossListeners
    ) -> None:
        self.policies = PolicyFollower(store.server, wake_ups, namespace, self._follow_policy)
        self.spooling = Spooling(store, wake_ups, namespace, ttl_ms)
        self.stores = PolicyStores(self.spooling.spools)
        self._store = store
        self._wake_ups = wake_ups
        self._namespace = namespace
        self._ttl_ms = ttl_ms
        self._lost = 0
        self.losses = losses
        self._stale = StaleSettings(self._keep)
        losses.met = self._doubt
        self.index = TopicIndex(store)
        self._pools = pools
        self.pinned = PinnedKeys(store.server, self._make_slice)
        self._known: dict[str, tuple[Address, dict[str, str]]] = {}
        self.may_make: Callable[[str], bool] = lambda _: True
        """Whether a destination of that name may be made where there is none; for brokers with names of their own."""
        self._followers: dict[str, tuple[Listener, list[Follower]]] = {}
        self._ensured = WeakValueDictionary[tuple[object, ...], SharedAnswer[str]]()

    def fields(self, address: Address) -> Mapping[str, str]:
        """Return the settings in force, as last read and as the state spells them; nothing when it is not known."""
        return self._known[address.key][1] if address.key in self._known else _NOTHING

    async def ensure(
        self, address: Address, kinds: tuple[str, ...], *, recover: bool, otherwise: Mapping[str, str] = _NOTHING
    ) -> str:
        """Make a destination exist, as it was if it was lost, else as the policy says; returns its kind.

        Args:
            address: the destination.
            kinds: that will do; the first is the one to create where the policy does not say.
            recover: whether the caller knew it before: then it learns for one TTL before it grants anything new.
            otherwise: settings of a new one where the policy says nothing.

        Raises:
            PolicyError: it exists, or is to be, of another kind.
            UnknownDestination: nothing limits it, and so it is not to be made.
            CoordinatorUnavailable: Redis does not answer.
        """
        shared = self._ensured.setdefault((address.key, kinds, recover, *otherwise.items()), SharedAnswer())
        return await shared.ask(partial(self._ensure, address, kinds, otherwise, recover=recover))

    async def _ensure(
        self, address: Address, kinds: tuple[str, ...], otherwise: Mapping[str, str], *, recover: bool
    ) -> str:
        policy = await self.policies.current()
        if not self.may_make(address.shown) and not await self._read(address, "kind"):
            raise PolicyError(f"{address.name!r} is gone, and may not be made again")
        if kinds[0] in LIMITS and not self.fields(address):
            others = {place.name: fields.get("kind") for place, fields in self._known.values()}
            await see_that_it_is_limited(policy, address, kinds[0], self._read, others)
        known = {name: value for name, value in self.fields(address).items() if name not in _ANEW}
        settings = known or await self._of_whole(address) or {**otherwise, **self._new(policy, address, kinds)}
        code, kind = await self._store.apply(
            address, settings, mode="recover" if recover else "ensure", ttl_ms=self._ttl_ms
        )
        if kind not in kinds:
            raise PolicyError(f"{address.name!r} is a {kind}; this takes a {' or '.join(kinds)}")
        if kind == "topic":
            await self.index.enter(address)
        await self.refresh(address)
        fields = self.fields(address)
        if fields and due(self.policies.policy, address.shown, fields) is not None:
            await self.conform([address])
        if is_slice(address.name):
            await self._agree(address, is_new=code == "CREATED")
        await self._share(address)
        return kind

    async def _agree(self, part: Address, *, is_new: bool) -> None:
        """Give a slice what its whole has, if this client made it, or whoever did may have died before that."""
        if is_new or not alike(self.fields(part), self.fields(part.whole)):
            # Who may not change it leaves that to others; and a slice that is there serves while the first is away.
            with contextlib.suppress(*(() if is_new else (AccessDenied, CoordinatorUnavailable))):
                await agree(self._store.server, part)
            await self.refresh(part)

    async def _share(self, address: Address) -> None:
        """See that the slices of a destination share what it has, if it has slices: its limit, or the keys of it."""
        fields = self.fields(address)
        if "sliced" in fields and fields.get("kind") == "limiter":
            await self.pinned.settle(address)
        elif "sliced" in fields:
            with contextlib.suppress(AccessDenied):  # who may not set pools goes by what others set
                await self._pools.share(address, fields)

    async def _make_slice(self, address: Address) -> str:
        return await self.ensure(address, ("limiter",), recover=bool(self.fields(address)))  # else it was never there

    async def _of_whole(self, part: Address) -> Mapping[str, str]:
        """Return the settings of a destination for a slice of it, which has them itself if it is there; else none."""
        for at in (part, part.whole) if is_slice(part.name) else ():
            if not (self.fields(part) or "policy_version" in self.fields(part.whole)):  # else it is as slices say
                await self.refresh(at)
        fields = self.fields(part.whole) or self.fields(part)
        return {name: value for name, value in fields.items() if name not in {"sliced", "spread", *_ANEW}}

    async def refresh(self, address: Address) -> None:
        """Read the settings that are in force now, remember them, and tell those who follow them."""
        if fields := await self._read(address):
            self.remember(address, fields)

    def remember(self, address: Address, fields: dict[str, str]) -> None:
        """Know settings that were read, and tell those who follow them."""
        if changed := fields != self.fields(address):  # else all who follow it share what they have
            self._known[address.key] = address, fields
        self.policies.found(int(fields.get("policy_version") or 0))
        if changed and address.key in self._followers:
            for following in tuple(self._followers[address.key][1]):
                following(fields)

    async def conform(self, addresses: Sequence[Address]) -> None:
        """Bring destinations under the policy in force, as far as they exist."""
        known = [address for address in addresses if address.key in self._known]
        names = (*REMEMBERED, SELECTORS) if known else _GOVERNANCE
        changes = []
        for address, fields in zip(addresses, await self._read_each(addresses, names), strict=True):
            settings = due(self.policies.policy, address.shown, fields) if "kind" in fields else None
            if settings is not None:
                with contextlib.suppress(AccessDenied):  # others may begin links, and change it
                    await begin_copies(self._store, self.policies.policy, address, settings, fields, self._ttl_ms)
                    changes.append((address, settings))
            elif fields and address.key in self._known:
                self.remember(address, fields)
        if not changes:
            return
        for (address, settings), code in zip(
            changes, await self._store.apply_each(changes, ttl_ms=self._ttl_ms), strict=True
        ):
            if code is None:  # e.g. the script is not loaded, or the slot moved: both are healed by a call of its own
                await self._store.apply(address, settings, mode="change", ttl_ms=self._ttl_ms)
        # Any other code: it was removed, or is under a newer version, and whoever did that has seen to it.
        changed = [address for address, _ in changes if address.key in self._known]
        for address, fields in zip(changed, await self._read_each(changed, (*REMEMBERED, SELECTORS)), strict=True):
            if fields:
                self.remember(address, fields)
        for address, settings in changes:
            if "slices" in settings and not is_slice(address.name):
                await self.refresh(address)
                await self._share(address)

    async def apply_policy(self, policy: Policy, expected: int | None) -> int:
        """Switch, and bring every destination of the namespace under the policy; any client may finish what one began.

        Raises:
            PolicyConflict: another version is in force than was expected, or a failover lost this one, and another was
                applied before it could be put back.
            CoordinatorUnavailable: Redis does not answer.
        """
        # A failover on the way may take back the switch, or some of what followed it: then all is done once more.
        await self.check(policy)
        await self.policies.look()
        version = await self.policies.switch(policy, expected, above=await self._newest_version())
        while True:
            lost = self.policies.lost
            with self.policies.following(version):
                await self._pools.set(self.policies.policy)
                await self.stores.set(self.policies.policy)
                await self._each(await self._destinations(), self.conform)
                await self._pools.prune(self.policies.policy)
                await self.stores.prune(self.policies.policy)
            in_force = await self.policies.look()
            if self.policies.displaced == version:
                await self._follow_policy()
                raise PolicyConflict(in_force.version, version)
            if lost == self.policies.lost:
                return version

    async def check(self, policy: Policy) -> None:
        """Raise PolicyError if a pool, a store or a durability of the policy cannot be set here."""
        for rule in policy.rules:
            try:
                self._store.server.promise(durability_of(rule.fields))
            except PolicyError as error:
                raise PolicyError(f"{rule.match} ({rule.origins.get('durability', 'policy')}): {error}") from None
        await self._pools.check(policy)
        await self.stores.check(policy)

    async def _newest_version(self) -> int:
        """Return the highest policy version that any destination has: above that in force, if Redis lost one."""
        newest = 0

        async def look(addresses: Sequence[Address]) -> None:
            nonlocal newest
            for fields in await self._read_each(addresses, _GOVERNANCE):
                newest = max(newest, int(fields.get("policy_version", 0)))

        await self._each(await self._destinations(), look)
        return newest

    async def effective(self, address: Address) -> Resolved:
        """Return what the policy says about a destination of the kind that it has, or would have."""
        policy = await self.policies.current()
        return policy.resolve(address.shown, await self.kind(address))

    async def kind(self, address: Address) -> str | None:
        """Return the kind of a destination; None where there is none.

        Raises:
            CoordinatorUnavailable: Redis does not answer.
        """
        return (await self._read(address, "kind")).get("kind")

    async def apply(self, address: Address, settings: Settings) -> None:
        """Create or change a destination by hand. It stays so until another policy, with a rule for it, is applied.

        Raises:
            PolicyError: a kind cannot change, or what was set before contradicts it.
        """
        policy = await self.policies.current()
        given = settings.fields()
        self._store.server.promise(durability_of(given))
        for _ in range(TRIES):
            stored = await self._read(address)
            if stored:
                fields = given | {"policy_version": stored.get("policy_version", "0")}
                if stored.get("policy"):
                    fields["policy"] = without(stored["policy"], given)
            else:
                kinds = (given["kind"],) if "kind" in given else ("bucket",) if "rate" in given else KINDS
                fields = self._new(policy, address, kinds) | given
                fields["policy"] = without(fields.get("policy", ""), given)
            try:
                check_together({**stored, **fields}, given)
                for setting in STORES:
                    await self.spooling.spools.check(given.get(setting, ""), setting)
            except PolicyError as error:
                raise PolicyError(f"{address.name!r}: {error}") from None
            await begin_copies(self._store, policy, address, given, stored, self._ttl_ms)
            code, kind = await self._store.apply(address, fields, mode="change", ttl_ms=self._ttl_ms)
            if code == "KIND":
                raise PolicyError(f"{address.name!r} is a {kind}, and a kind does not change; remove it first")
            if code not in ("OLD", "UNKNOWN"):  # else a policy was applied or it was removed since it was read
                if kind == "topic":
                    await self.index.enter(address)
                await self.refresh(address)
                for part in self.slices(address)[1:]:
                    own = {name: value for name, value in fields.items() if name != "kind"}
                    await self._store.apply(part, own, mode="change", ttl_ms=self._ttl_ms)
                await self._share(address)
                return
        raise PolicyError(f"{address.name!r} changes all the time; apply again")

    def pools(self, address: Address) -> str:
        """Return the encoded names of a destination's pools, separated by blanks, as far as is known here."""
        return pools_of(self.fields(address))

    def slices(self, address: Address) -> list[Address]:
        """Return the slices that a destination ever had, as far as is known here, the first of them itself."""
        names = (slice_name(address.name, number) for number in range(int(self.fields(address).get("sliced", 1))))
        return [Address.of(address.namespace, name) for name in names]

    async def unshare(self, address: Address) -> None:
        """Delete the pool of the slices of a destination that was removed on purpose."""
        await self._pools.unshare(address)

    def forget(self, address: Address) -> None:
        """Forget a destination that was removed on purpose."""
        self._known.pop(address.key, None)

    async def follow(self, address: Address, following: Follower) -> None:
        """Call ``following`` with the settings whenever they are not what they were."""
        if address.key in self._followers:
            self._followers[address.key][1].append(following)
            return
        listener = partial(self._doubt, address)
        self._followers[address.key] = (listener, [following])
        await self._wake_ups.subscribe((address.channels("")[1],), listener, ("settings",))

    async def unfollow(self, address: Address, following: Follower) -> None:
        """Stop calling ``following``."""
        listener, followers = self._followers[address.key]
        followers.remove(following)
        if not followers:
            del self._followers[address.key]
            await self._wake_ups.unsubscribe((address.channels("")[1],), listener)

    async def close(self) -> None:
        """Stop following."""
        await self.spooling.close()
        await self.policies.close()
        await self._stale.close()

    @staticmethod
    def _new(policy: Policy, address: Address, kinds: tuple[str, ...]) -> dict[str, str]:
        """Return the settings of a destination that does not exist yet."""
        kind = kind_of(policy, address.shown, kinds)
        resolved = policy.resolve(address.shown, kind)
        settings = {"kind": kind}
        if resolved.origins:
            settings |= {field: value for field, value in resolved.fields.items() if value != GOVERNED.get(field)}
            settings |= {"policy_version": str(policy.version), "policy": resolved.origin_text}
        return settings

    async def _read(self, address: Address, *names: str) -> dict[str, str]:
        names = names or (*REMEMBERED, SELECTORS)
        return _named(names, await self._store.server.command(key := address.shared[0], "HMGET", key, *names))

    async def _read_each(self, addresses: Sequence[Address], names: Sequence[str]) -> list[dict[str, str]]:
        keys = [address.shared[0] for address in addresses]
        replies = await self._store.server.burst([(key, (b"HMGET", key, *names)) for key in keys])
        return [
            await self._read(address, *names) if isinstance(reply, Exception) else _named(names, reply)
            for address, reply in zip(addresses, replies, strict=True)
        ]

    async def _destinations(self) -> list[str]:
        return await self._store.server.scan(f"hg:{{{self._namespace}/*}}")

    async def _follow_policy(self) -> None:
        """Bring what this client uses under a policy that came into force."""
        with contextlib.suppress(AccessDenied):  # who may not set pools leaves that to who may
            await self._pools.set(self.policies.policy)  # perhaps it was switched by a process that died then
            await self.stores.set(self.policies.policy)
        lost = self.policies.lost
        # Where Redis lost it, others may be as they were before it too.
        keys = tuple(self._known) if lost == self._lost else await self._destinations()
        await self._each(keys, self.conform)
        self._lost = lost

    async def _each(self, keys: Sequence[str], work: Callable[[Sequence[Address]], Awaitable[None]]) -> None:
        """Do the work for destinations, by key, a batch at a time and a few batches at once."""
        known = [Address.of(*parsed) for key in keys if (parsed := parse_key(key))]
        await in_batches(work, known, BATCH, IN_FLIGHT)

    def _doubt(self, address: Address, _: object = None) -> None:
        """Read a destination's settings again: a hint says so, or a failover may have taken back what was set last."""
        self._stale.add(address)

    async def _keep(self, address: Address) -> None:
        await self.refresh(address)
        fields = self.fields(address)
        with contextlib.suppress(AccessDenied):
            if "kind" in fields and due(self.policies.policy, address.shown, fields) is not None:
                await self.conform([address])
            await self._share(address.whole)


def _named(names: Sequence[str], values: Sequence[bytes | None]) -> dict[str, str]:
    return {name: value.decode() for name, value in zip(names, values, strict=True) if value is not None}
