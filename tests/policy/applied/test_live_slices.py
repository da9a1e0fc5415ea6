"""Rules of a policy that all slices of a queue keep together come into force at each of them, and go again."""

import headgate
from headgate.core.names import slice_name
from headgate.policy import loads
from tests.policy.live import state

RULE = '[[destination]]\nmatch = "orders"\nkind = "queue"\nslices = 3\n'
CONSUMER = (
    'consumer = { shared_rate = "50/s", shared_burst = 5, slow = { multiple = 2, rate = "10/s", period = "3s" } }\n'
)
FIELDS = ("delivery_rate", "delivery_burst", "slow_multiple", "slow_rate", "slow_period_ms")


async def in_force(client: headgate.Client) -> list[list[str | None]]:
    fields = [await state(client, slice_name("orders", number)) for number in range(3)]
    return [[one.get(name) or None for name in FIELDS] for one in fields]


async def test_rules_for_consumers_are_in_force_at_all_slices(client: headgate.Client) -> None:
    await client.apply_policy(loads(RULE + CONSUMER))
    async with client.session("s") as session:
        await session.producer("orders")
        await session.consumer("orders")
        assert await in_force(client) == [["50.0", "5", "2.0", "10.0", "3000"]] * 3
        await client.apply_policy(loads(RULE))
        assert await in_force(client) == [[None] * 5] * 3
        await client.apply_policy(loads(RULE + CONSUMER.replace('"50/s", shared_burst = 5', "20")))
        assert await in_force(client) == [["20.0", "20", "2.0", "10.0", "3000"]] * 3


async def test_a_preset_with_slow_consumers_goes_beside_slices(client: headgate.Client) -> None:
    await client.apply_policy(loads('preset = "activemq"\n' + RULE))
    async with client.session("s") as session:
        await session.producer("orders")
        assert (await state(client, "orders"))["slow_multiple"] == "2.0"
