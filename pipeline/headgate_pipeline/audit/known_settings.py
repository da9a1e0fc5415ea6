"""An audit reads further input beside the ledgers: settings of the destinations as they are now."""

import headgate
from headgate.redis.keys import Address
from headgate_pipeline.audit.findings import Settings

RATES = ("rate", "send_rate", "send_burst", "send_byte_rate", "send_byte_burst")


async def settings(url: str, namespace: str) -> dict[tuple[str, str], Settings]:
    """Return the settings of all destinations of a namespace, by namespace and name.

    Raises:
        CoordinatorUnavailable: no answer.
    """
    found = {}
    async with headgate.connect(url, namespace=namespace) as client:
        for name in await client.destinations():
            snapshot = await client.store.snapshot(Address.of(namespace, name), waiters=0, consumers=0)
            if snapshot is not None:
                found[namespace, name] = of_fields(snapshot.fields)
    return found


def of_fields(fields: dict[str, str]) -> Settings:
    """Return the settings that a destination's fields say."""
    hard = fields.get("hard_bytes", "")
    return Settings(
        enforce=fields.get("enforce") or "always",
        oversize=fields.get("oversize") or "refuse",
        hard_bytes=int(hard) if hard.isdigit() else None,
        **{name: float(fields[name]) for name in RATES if fields.get(name)},
    )
