"""An administrator works on a namespace: its destinations, pools and policy."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from headgate._util.keywords import explains
from headgate.core.limits.slices import POOLS
from headgate.core.names import is_slice
from headgate.core.policy import Policy, Resolved
from headgate.errors import InvalidValue, PolicyError, UnknownDestination
from headgate.namespace.deadlocks import FoundDeadlock, read_deadlocks
from headgate.namespace.moving import Moves, located
from headgate.namespace.pool_limits import PoolState, apply_pools, pool_states, remove_pool, set_pool
from headgate.namespace.pool_slices import Pools
from headgate.namespace.registry import Registry
from headgate.namespace.topics import is_pattern
from headgate.redis.keys import Address
from headgate.redis.replies import Recount
from headgate.redis.store import Store
from headgate.redis.stores.notes import NoteStore
from headgate.redis.stores.sliced_reads import added, every_slice
from headgate.settings import DEFAULT, Settings, settings_of
from headgate.spool.states import StoreState, store_states
from headgate.spool.stores import store_fields


class Administration(ABC):
    """The calls of a :class:`Client` that change settings or look at the whole namespace.

    Attributes:
        namespace: the tenant whose destinations it sees.
    """

    namespace: str
    _pools: Pools
    _registry: Registry

    @property
    @abstractmethod
    def store(self) -> Store:
        """The scripts themselves, for tools."""

    @abstractmethod
    def _check_connected(self) -> None:
        """Raise :class:`Closed` unless calls can be made."""

    async def apply(self, destination: str, settings: Settings | None = None, **values: Any) -> None:
        """Create a destination or change its settings, effective at once, waiting senders included.

        Args:
            destination: its name.
            settings: what to set, or
            **values: the fields of :class:`Settings` by name, e.g. ``limit="10MiB", kind="gate"``.

        Raises:
            InvalidName, InvalidValue, PolicyError: nothing was changed.
            CoordinatorUnavailable: Redis does not answer.
        """
        if settings is None:
            settings = settings_of(values)
        elif values:
            raise PolicyError("give Settings or values by name, not both")
        address = Address.given(self.namespace, destination)
        self._check_connected()
        await self._registry.apply(address, settings)
        if settings.pools is not None:
            await self._pools.leave(address, self._registry.pools(address))

    @explains("pool")
    async def set_pool(
        self,
        name: str,
        *,
        limit: int | str | None = None,
        percent: float | str | None = None,
        total: int | str | None = None,
        reserve: int | str = 0,
    ) -> None:
        """Create or change a pool: a limit in bytes that all destinations whose setting ``pools`` names it share.

        Args:
            name: its name.
            limit: bytes or ``"unlimited"``; or
            percent: of ``total``, or, without one, of Redis' ``maxmemory`` as it is now, over all masters of a cluster.
            total: bytes; not compared with what there really is.
            reserve: bytes of the limit that only destinations set ``reserved="yes"`` may use.

        Raises:
            InvalidName, InvalidValue, PolicyError: nothing was changed.
            CoordinatorUnavailable: Redis does not answer.
        """
        self._check_connected()
        await set_pool(self._pools, name, limit=limit, percent=percent, total=total, reserve=reserve)

    async def pools(self) -> list[PoolState]:
        """Return the pools of the namespace and what is used of each; asks every member, so it takes a moment."""
        self._check_connected()
        return await pool_states(self._pools)

    async def apply_pools(self, entries: Sequence[Mapping[str, Any]], *, version: int, prune: bool = False) -> None:
        """Set the pools of a compiled policy, all of them checked before the first is set.

        Args:
            entries: ``{"name": ..., "fields": {"limit_bytes" | "percent", "total_bytes", "reserve_bytes"}}``, and
                ``"origins"`` where it is known: for each field, where it was written.
            version: of the policy; older ones are refused.
            prune: remove pools of earlier policies that are not among them; only when no destination names them any
                more, for a destination whose pool is gone is served nothing.

        Raises:
            InvalidName, InvalidValue, PolicyError: nothing was changed.
            PolicyError: a newer policy is in force.
        """
        self._check_connected()
        await apply_pools(self._pools, entries, version=version, prune=prune)

    async def remove_pool(self, name: str) -> None:
        """Delete a pool; destinations that name it still are served nothing until it is set again."""
        self._check_connected()
        await remove_pool(self._pools, name)

    @explains("pool")
    async def set_store(
        self,
        name: str,
        url: str,
        *,
        limit: int | str | None = None,
        percent: float | None = None,
        total: int | str | None = None,
        segment: int | str | None = None,
        when_full: str = "block",
    ) -> None:
        """Create or change a spool store: where payloads go of destinations with ``when_full="spool"`` that name it.

        Args:
            name: its name.
            url: where its segments are, as fsspec reads it; without user, password and options.
            limit: bytes of segments or ``"unlimited"``; or
            percent: of ``total``.
            total: bytes; stated, not compared with any disk.
            segment: bytes of payload in one segment, 4 KiB to 64 MiB; else 1 MiB.
            when_full: what sends do that find neither memory nor room here: ``block``, ``fail``, ``fail-after 3s`` or
                ``drop``.

        Raises:
            InvalidName, InvalidValue, PolicyError: nothing was changed.
            CoordinatorUnavailable: Redis does not answer.
        """
        self._check_connected()
        fields = store_fields(url, limit=limit, percent=percent, total=total, segment=segment, when_full=when_full)
        await self._registry.stores.set_by_hand(name, fields)

    async def stores(self) -> list[StoreState]:
        """Return the spool stores of the namespace and what they hold."""
        self._check_connected()
        return await store_states(self._registry.spooling.spools, self.store)

    async def remove_store(self, name: str) -> None:
        """Forget a spool store that holds nothing.

        Raises:
            PolicyError: it holds segments still; their messages would be lost.
        """
        self._check_connected()
        await self._registry.spooling.spools.remove(name)

    async def apply_policy(self, policy: Policy, *, expected: int | None = None) -> int:
        """Put a policy in force for the namespace, whole, and bring every destination under it; returns its version.

        It is in force at once: new destinations are made as it says, and every client applies it to those that it uses,
        waiting senders included. This call applies it to all there are; when it fails half-way, a repeated call, or
        whoever uses a destination, does the rest. A policy that is in force already keeps its version.

        Args:
            policy: its version does not matter; a policy without rules ends all that policies set.
            expected: the version that this one is to replace, 0 for none; whatever is in force when None.

        Raises:
            PolicyConflict: another version is in force than was expected; nothing was changed.
            InvalidValue: it is no policy; :func:`headgate.policy.load` reads one.
            CoordinatorUnavailable: Redis does not answer; repeat the call.
        """
        self._check_connected()
        return await self._registry.apply_policy(_checked(policy), expected)

    async def check_policy(self, policy: Policy) -> None:
        """See whether a policy could be applied here; nothing is changed.

        Raises:
            PolicyError: a pool cannot be set, such as a percent of a ``maxmemory`` that Redis does not have.
            CoordinatorUnavailable: Redis does not answer.
        """
        self._check_connected()
        await self._registry.check(_checked(policy))

    async def policy(self) -> Policy:
        """Return the policy in force; version 0, without rules, where there is none.

        Raises:
            CoordinatorUnavailable: Redis does not answer.
        """
        self._check_connected()
        return await self._registry.policies.look()

    async def effective(self, destination: str) -> Resolved:
        """Return what the policy says about a destination, each value with its origin; it need not exist.

        Raises:
            InvalidName: the name cannot be used.
            CoordinatorUnavailable: Redis does not answer.
        """
        address = Address.given(self.namespace, destination)
        self._check_connected()
        return await self._registry.effective(address)

    async def block(self, destination: str, reason: str) -> None:
        """Block a destination: nobody can send to it until :meth:`unblock`; waiters learn the reason.

        Raises:
            UnknownDestination: there is no such destination.
            InvalidValue: the reason is empty, longer than 200 characters or not printable.
        """
        await self._change(destination, Settings(stopped=f" {reason}" if reason == DEFAULT else reason))  # not lifted

    async def unblock(self, destination: str) -> None:
        """Take a :meth:`block` away; one that is not there does not matter.

        Raises:
            UnknownDestination: there is no such destination.
        """
        await self._change(destination, Settings(stopped=DEFAULT))

    async def _change(self, destination: str, settings: Settings) -> None:
        address = Address.given(self.namespace, destination)
        if await self.store.snapshot(address, waiters=0, consumers=1) is None:
            raise self._unknown(destination)  # as a new one it would be made
        await self._registry.apply(address, settings)

    async def destinations(self) -> list[str]:
        """Return the names of all destinations of the namespace."""
        return [name for name in await every_slice(self.store.server, self.namespace) if not is_slice(name)]

    async def deadlocks(self) -> list[FoundDeadlock]:
        """Return the deadlocks that nodes saw in the last minute; those that are there still first, the oldest first.

        Raises:
            CoordinatorUnavailable: Redis does not answer.
            AccessDenied: over a node, without the right to manage the namespace.
        """
        return await read_deadlocks(NoteStore(self.store.server, self.namespace))

    async def recount(self, destination: str, *, repair: bool = False) -> Recount:
        """Count a destination's pending and leased from the ground truth, and repair its counters on request."""
        found = [await self.store.recount(part, repair=repair) for part in await self._slices(destination)]
        return found[0] if len(found) == 1 or found[0].code == "UNKNOWN" else added(found)

    async def purge(self, destination: str) -> int:
        """Remove all messages of a destination, delivered or not; returns how many."""
        return sum([(await self.store.remove(one, everything=False))[0] for one in await self._slices(destination)])

    async def _slices(self, destination: str) -> list[Address]:
        address = Address.given(self.namespace, destination)
        await self._registry.refresh(address)
        return self._registry.slices(address)

    async def delete_message(self, destination: str, message: str) -> None:
        """Delete one message of a queue, or of a topic for all subscriptions, unless somebody holds it.

        Args:
            destination: where it is.
            message: its id, as :meth:`Client.browse` shows it.

        Raises:
            InvalidValue: that is no id of a message.
            MessageUnavailable: it is gone, or a consumer or a link has it.
            UnknownDestination, PolicyError: there is no such destination, or it stores no messages.
            CoordinatorUnavailable: Redis does not answer; look whether it was done.
        """
        address, id_ = located(Address.given(self.namespace, destination), message)
        self._check_connected()
        await self._moves.discard(address, id_)

    async def move_message(self, source: str, message: str, target: str) -> None:
        """Move one message of a queue to another queue or topic: once, and with what it has left to live.

        It goes to the end there. Should the process die on the way, nobody gets it until a node, or the next move
        between the two, sees where it got to; then it is at the target, or the last of the source.

        Args:
            source: a queue.
            message: its id there, as :meth:`Client.browse` shows it.
            target: another queue, or a topic that has subscriptions; with room for it now.

        Raises:
            InvalidValue: that is no id of a message, or source and target are the same.
            MessageUnavailable: it is gone, somebody has it, links copy it, or its payload is in a spool store.
            UnknownDestination, PolicyError: there is no such destination, or it is of a kind that this cannot be for.
            DestinationFull, MessageTooLarge: the target does not take it; it is where it was, perhaps as the last.
            AccessDenied: over a node: it is for who reaches Redis itself, or over admin HTTP.
            CoordinatorUnavailable: Redis does not answer; look where it is.
        """
        here, id_ = located(Address.given(self.namespace, source), message)
        there = Address.given(self.namespace, target)
        self._check_connected()
        await self._moves.move(here, id_, there)

    async def end_moves(self, source: str, *, older_than_ms: int = 10_000) -> int:
        """End what :meth:`move_message` of processes that died began; nodes do so by themselves.

        Args:
            source: the queue.
            older_than_ms: so long ago the messages were taken out; who took out a later one may be at work still.

        Returns:
            How many messages: each is at its target, or the last of the source again.
        """
        self._check_connected()
        return sum([await self._moves.finish(one, older_than_ms=older_than_ms) for one in await self._slices(source)])

    async def remove(self, destination: str) -> None:
        """Delete a destination with all that it holds; sessions that use it find it new and empty.

        Raises:
            InvalidName: it is no name, or that of a slice, which is not deleted alone.
            AccessDenied: nothing was deleted.
            CoordinatorUnavailable: Redis does not answer; call again.
        """
        address = Address.given(self.namespace, destination)
        self._check_connected()
        slices = await self._slices(destination)
        for part in slices:
            await self._release(part, *(await self._account(part))[1:], epoch=0)  # nothing yet, if that is allowed
        await self._registry.index.withdraw(address)  # first: wildcard consumers then see that it was removed, not lost
        for part in reversed(slices):  # the first says which others there are, to who goes on with it
            await self._remove(part)
        if len(slices) > 1:
            await self._registry.unshare(address)

    async def _remove(self, address: Address) -> None:
        epoch, *pools = await self._account(address)
        await self.store.remove(address, everything=True)
        self._registry.forget(address)
        if epoch:
            await self._release(address, *pools, epoch=int(epoch))

    async def _account(self, address: Address) -> list[bytes | None]:
        return list(await self.store.server.command(address.shared[0], "HMGET", address.key, "epoch", *POOLS))

    async def _release(self, address: Address, *pools: bytes | None, epoch: int) -> None:
        if names := b" ".join(filter(None, pools)).decode():
            await self._pools.release(address, names, epoch)

    async def unsubscribe(self, destination: str, subscription: str) -> None:
        """Remove a durable subscription with all that it has not settled.

        Args:
            destination: a topic, or the pattern of a wildcard subscription: then it goes from every topic, unless
                another pattern has a subscription of the same name there.
            subscription: its name; one that does not exist is not an error.

        Raises:
            InvalidName: a name that cannot be used.
            PolicyError: it has consumers; close them first. Or the destination is a queue, which has none.
            CoordinatorUnavailable: Redis does not answer; call again.
        """
        self._check_connected()
        index = self._registry.index
        if is_pattern(destination):
            removed = await index.unsubscribe_pattern(self.namespace, destination, subscription)
        else:
            address = Address.given(self.namespace, destination)
            if await self._registry.kind(address) == "queue":
                raise PolicyError(f"{destination!r} is a queue, which has no subscriptions; purge removes its messages")
            removed = await index.unsubscribe(address, subscription)
        if not removed:
            raise PolicyError(f"subscription {subscription!r} of {destination!r} has consumers; close them first")

    @property
    def _moves(self) -> Moves:
        return Moves(self.store, self._pools, self._registry)

    def _unknown(self, destination: str) -> UnknownDestination:
        return UnknownDestination(destination, self.namespace)


def _checked(policy: object) -> Policy:
    """Return it, if it is a policy."""
    if not isinstance(policy, Policy):
        raise InvalidValue(
            f"{policy!r:.80} is not a policy; headgate.policy.loads(text) and headgate.policy.load(file) return one",
            setting="policy",
        )
    return policy
