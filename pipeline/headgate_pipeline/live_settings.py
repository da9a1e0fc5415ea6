"""Settings of destinations, and limits of pools, as they are in a Redis now."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf

import headgate
from headgate.core.names import encode_name
from headgate.redis.keys import Address


@dataclass(frozen=True, slots=True)
class SettingsInForce:
    """`SettingsInForce` holds settings as the state spells them.

    Attributes:
        fields: of each destination, by name, ``kind`` among them.
        pools: limits in bytes, without their reserve, by the names that destinations know pools by.
    """

    fields: dict[str, dict[str, str]] = field(default_factory=dict)
    pools: dict[str, float] = field(default_factory=dict)


async def in_force(url: str, namespace: str, names: Iterable[str]) -> SettingsInForce:
    """Return the settings of those of these destinations that there are, set by a policy or by hand.

    Raises:
        CoordinatorUnavailable: no answer.
    """
    found = SettingsInForce()
    async with headgate.connect(url, namespace=namespace) as client:
        for name in names:
            snapshot = await client.store.snapshot(Address.of(namespace, name), waiters=0, consumers=1)
            if snapshot is not None:
                found.fields[name] = dict(snapshot.fields)
        for pool in await client.pools():
            found.pools[encode_name(pool.name)] = inf if pool.limit is None else float(pool.limit - pool.reserve)
    return found
