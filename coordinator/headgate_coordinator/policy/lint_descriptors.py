"""The linter knows traps of descriptors: what proxies ask in vain, or are not held to."""

from collections.abc import Iterator
from typing import Final

from headgate.core.limits.limit import limits_of
from headgate.core.policy import Policy
from headgate_coordinator.policy.finding import Finding

CODES: Final = ("HG130", "HG131", "HG132")


def descriptor_traps(policy: Policy) -> Iterator[Finding]:
    """Yield descriptors that ask a limiter which nothing limits, name no key, or hold what none releases."""
    released = {(one.domain, one.limiter) for one in policy.descriptors if one.release is not None}
    for one in policy.descriptors:
        fields = policy.resolve(one.limiter, "limiter").fields
        if not fields.get("limits"):
            why = (
                f"the policy does not limit {one.limiter!r}: each such request of a proxy fails, if nobody does by hand"
            )
            yield Finding("HG130", one.origin, "descriptor.limiter", why, "add a [[limiter]] for it")
        elif one.key is None and one.amounts.keys() & limits_of(fields.get("key_limits", "")).keys():
            why = f"it names no key, so that what {one.limiter!r} allows each key binds no proxy"
            yield Finding(
                "HG131", one.origin, "descriptor.key", why, "write key = 'tenant', the entry whose value it is"
            )
        if one.hold is not None and (one.domain, one.limiter) not in released:
            why = f"nothing releases what is held: each request keeps its part of {one.limiter!r} for {one.ttl_ms} ms"
            remedy = "add a [[descriptor]] with release, which the proxy sends with apply_on_stream_done"
            yield Finding("HG132", one.origin, "descriptor.hold", why, remedy)
