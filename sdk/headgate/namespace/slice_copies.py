"""A copying link begins at each slice of a queue before anybody sends there: what is stored earlier has no copy."""

from collections.abc import Mapping

from headgate.core.links.link import Link
from headgate.core.names import is_slice, slice_name
from headgate.core.policy import Policy
from headgate.redis.keys import Address, forwarder_id
from headgate.redis.store import Store
from headgate.redis.stores.links import LinkStore


def copying(policy: Policy, address: Address) -> list[Link]:
    """Return the links of a policy that copy what a destination gets."""
    return [link for link in policy.links if link.copies and link.source == address.name]


async def begin_copies(
    store: Store, policy: Policy, address: Address, settings: Mapping[str, str], known: Mapping[str, str], ttl_ms: int
) -> None:
    """Make the slices that a queue is to have, with the links that copy it; call this before it has them.

    A link that has begun there goes on as it is.

    Args:
        store: of the server where they lie.
        policy: in force.
        address: the queue.
        settings: that it is to have; it has slices already where these name none.
        known: the settings that it has.
        ttl_ms: length of leases.

    Raises:
        AccessDenied: the caller may not begin links: others do.
        CoordinatorUnavailable: Redis does not answer; call again.
    """
    links = [] if is_slice(address.name) or known.get("kind", "queue") != "queue" else copying(policy, address)
    fields = {name: value for name, value in {**known, **settings, "kind": "queue"}.items() if name != "sliced"}
    for number in range(1, int(settings.get("slices") or 1) if links else 1):
        part = Address.of(address.namespace, slice_name(address.name, number))
        await store.apply(part, fields, mode="ensure", ttl_ms=ttl_ms)
        for link in links:
            id_ = forwarder_id(address.namespace, link.link)
            await LinkStore(store.server).open(part, id_, fence=0, window="1/1", copies=True)
