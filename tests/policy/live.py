"""Policies for tests, and a look at what came of them."""

from typing import Any

import headgate
from headgate.core.policy import Policy, Rule
from headgate.redis.keys import Address
from tests.support.waiting import wait_until


def policy(*rules: tuple[str, dict[str, Any]], source: str = "test.toml") -> Policy:
    """Return a policy of (pattern, settings by name); rule n is on line n."""
    compiled = []
    for line, (match, values) in enumerate(rules, 1):
        fields = headgate.Settings(**values).fields()
        kind = fields.pop("kind", None)
        compiled.append(Rule(match, kind, fields, dict.fromkeys(fields, f"{source}:{line}")))
    return Policy(0, compiled, (), source)


async def state(client: headgate.Client, destination: str) -> dict[str, str]:
    """Return the fields of a destination as they lie in Redis; nothing when there is none."""
    snapshot = await client.store.snapshot(Address.of(client.namespace, destination))
    return snapshot.fields if snapshot else {}


async def settles(client: headgate.Client, destination: str, **fields: str | None) -> None:
    """Wait until a destination has these fields; None: it has not that one."""

    async def there() -> bool:
        now = await state(client, destination)
        return all(now.get(name) == value for name, value in fields.items())

    await wait_until(there, description=f"{destination} with {fields}")


def deaf(client: headgate.Client) -> None:
    """Let a client hear no hint any more."""
    wake_ups: Any = client.parts.wake_ups
    wake_ups._dispatch = lambda channel, text: None
