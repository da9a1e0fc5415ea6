"""The spool stores of a policy: set before its destinations, and those of earlier ones removed once they are empty."""

import contextlib
import logging
from collections.abc import Mapping
from typing import Final

from headgate.core.policy import Policy, origin_text
from headgate.errors import PolicyError
from headgate.spool.storage import shown
from headgate.spool.stores import FIELDS, NewerStoreError, Spools

_log = logging.getLogger("headgate")
_NOTHING: Final = dict.fromkeys(FIELDS, "")


class PolicyStores:
    """A policy's spool stores, carried out with the stores of one client."""

    def __init__(self, spools: Spools) -> None:
        self._spools = spools

    async def check(self, policy: Policy) -> None:
        """See that no store moves away from its segments.

        Raises:
            PolicyError: a store that is not empty would have another URL: nobody would find its segments.
        """
        for store in policy.stores:
            now = (await self._spools.fields(store.name)).get("url", store.fields["url"])
            if now != store.fields["url"] and (held := await self._spools.segments(store.name)):
                raise PolicyError(f"{store.origins['url']}: {_moved(store.name, held, now)}")

    async def set(self, policy: Policy) -> None:
        """Set them, unless a newer policy has."""
        for store in policy.stores:
            with contextlib.suppress(NewerStoreError):
                governed = {"policy": origin_text(store.origins), "policy_version": str(policy.version)}
                await self._spools.set(store.name, {**_NOTHING, **store.fields, **governed})

    async def set_by_hand(self, name: str, fields: Mapping[str, str]) -> None:
        """Set one store until the next policy that names it.

        Raises:
            PolicyError: it is not empty and would have another URL.
        """
        now = (await self._spools.fields(name)).get("url", fields["url"])
        if now != fields["url"] and (held := await self._spools.segments(name)):
            raise PolicyError(_moved(name, held, now))
        await self._spools.set(name, {**fields, "policy": ""})

    async def prune(self, policy: Policy) -> None:
        """Remove those of earlier policies that it has not; one that holds segments is kept, and the log says so."""
        kept = {store.name for store in policy.stores}
        for name in await self._spools.names():
            fields = await self._spools.fields(name)
            if name in kept or not 0 < int(fields.get("policy_version", 0)) < policy.version:
                continue
            if await self._spools.idle(name):
                await self._spools.remove(name)
            else:
                _log.warning(
                    "spool store %r is named by no policy any more, and is kept while it holds segments or credit; "
                    "apply the policy again once they are gone",
                    name,
                )


def _moved(name: str, held: int, url: str) -> str:
    return (
        f"spool store {name!r} has {held} segment(s) at {shown(url)}, which would not be found under another url; "
        "add a store of another name, and let this one drain"
    )
