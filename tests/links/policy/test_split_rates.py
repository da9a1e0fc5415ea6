"""A link between slices, whose values say where each message goes, shares the rates of both ends with others."""

import pytest

import headgate
from headgate.policy import loads
from tests.links.policy.test_bridges import settled
from tests.links.policy.test_sliced_sources import working
from tests.links.policy.test_split_targets import BY_VALUE, LINK, VALUES, came, client, send
from tests.sdk.namespace.test_shared_deliveries import delivered
from tests.sdk.namespace.test_shared_rates import stored, within

__all__ = ["client"]
pytestmark = pytest.mark.one_server


async def test_a_link_between_slices_keeps_to_the_rates_of_both_ends(client: headgate.Client) -> None:
    """Mutants: nobody lends what a slice of the source may deliver, or what one of the target may take."""
    await client.apply("orders", kind="queue", slices=3, delivery_rate="200/s", delivery_burst=5)
    await client.apply("billing", **BY_VALUE, send_rate="150/s", send_burst=5)
    await client.apply_policy(loads(LINK))
    for value in range(VALUES):  # each over a session, and so a slice
        await send(client, "orders", range(value, 40, VALUES))
    async with working(client):
        linked = await came(client, "billing", 40)
        await settled(client, "orders")
    for value, at in linked.items():
        assert list(at.values()) == [list(range(value, 40, VALUES))]
    out, into = await delivered(client, 3), await stored(client, 4, "billing")
    assert sum(count for _, count in out) == sum(count for _, count in into) == 40
    assert within(out, 200, 5)
    assert within(into, 150, 5)
