"""Destinations as this client knows them: made to exist, and made again as they were if Redis lost them."""

from collections.abc import Mapping
from typing import Final

from headgate.errors import PolicyError
from headgate.index import Index
from headgate.redis.keys import Address
from headgate.redis.store import Store
from headgate.settings import Settings

REMEMBERED: Final = (
    "kind", "limit_bytes", "limit_messages", "rate", "burst", "ledger", "ledger_keep", "policy_version",
    "pools", "reserved",
)  # fmt: skip


class Registry:
    """Settings in force, remembered so that a lost destination does not come back without its limits."""

    def __init__(self, store: Store, ttl_ms: int) -> None:
        self._store = store
        self._ttl_ms = ttl_ms
        self._known: dict[str, dict[str, str]] = {}
        self.index = Index(store)

    async def ensure(self, address: Address, kinds: tuple[str, ...], *, recover: bool) -> str:
        """Make a destination exist, with its remembered settings if it was lost; returns its kind.

        Args:
            address: the destination.
            kinds: that will do; the first is the one to create.
            recover: whether the caller knew it before: then it learns for one TTL before it grants anything new.

        Raises:
            PolicyError: it exists, and is of another kind.
            CoordinatorUnavailable: Redis does not answer.
        """
        settings: Mapping[str, str] = self._known.get(address.key) or {"kind": kinds[0]}
        _, kind = await self._store.apply(
            address, settings, mode="recover" if recover else "ensure", ttl_ms=self._ttl_ms
        )
        if kind not in kinds:
            raise PolicyError(f"{address.name!r} is a {kind}; this takes a {' or '.join(kinds)}")
        if kind == "topic":
            await self.index.enter(address)
        await self.refresh(address)
        return kind

    async def refresh(self, address: Address) -> None:
        """Remember the settings that are in force now."""
        snapshot = await self._store.snapshot(address, waiters=0, consumers=1)
        if snapshot:
            self._known[address.key] = {name: snapshot.fields[name] for name in REMEMBERED if name in snapshot.fields}

    async def apply(self, address: Address, settings: Settings) -> None:
        """Create or change a destination.

        Raises:
            PolicyError: a kind cannot change, or a newer policy is in force.
        """
        fields = settings.fields()
        if "kind" not in fields and not await self._store.snapshot(address, waiters=0, consumers=1):
            fields["kind"] = "bucket" if "rate" in fields else "queue"
        if fields.get("kind") == "bucket" and "rate" not in fields and address.key not in self._known:
            raise PolicyError(f"{address.name!r}: a bucket needs a rate")
        code, kind = await self._store.apply(address, fields, mode="change", ttl_ms=self._ttl_ms)
        if code == "KIND":
            raise PolicyError(f"{address.name!r} is a {kind}, and a kind does not change; remove it first")
        if code == "UNKNOWN":
            raise PolicyError(f"{address.name!r} was removed meanwhile; apply again, with its kind")
        if code == "OLD":
            raise PolicyError(f"{address.name!r} has a newer policy version")
        if kind == "topic":
            await self.index.enter(address)
        await self.refresh(address)

    def pools(self, address: Address) -> str:
        """Return the encoded names of a destination's pools, separated by blanks, as far as is known here."""
        return self._known.get(address.key, {}).get("pools", "")

    def forget(self, address: Address) -> None:
        """Forget a destination that was removed on purpose."""
        self._known.pop(address.key, None)
