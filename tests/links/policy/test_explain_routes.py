"""What explain tells of links to another site, whose destinations cannot be seen from here: what their nodes say."""

import pytest

import headgate
from headgate_coordinator.fleet.registry import NodeRegistry
from tests.admin.standin import StandIn
from tests.links.sites import SiteOf, route
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server


async def test_what_a_node_says_of_a_full_target_at_another_site_is_told_here(three_sites: list[SiteOf]) -> None:
    """Mutant: what nodes say is not asked for."""
    paris, berlin, _ = three_sites
    await berlin.client.apply("news", kind="topic", limit=100)
    await paris.govern("[[destination]]\nmatch = 'news'\nlimit = 100\n" + route("berlin", "topics = 'news'"), berlin)
    registry = NodeRegistry(paris.client)
    async with berlin.client.session() as there, paris.working() as (supervisor,):
        consumer = await there.consumer("news", window=headgate.Window.paused)
        await paris.routed("news")
        with pytest.raises(headgate.CreditTimeout):
            await paris.send("news", *[b"1234567"] * 30, timeout=1)

        async def held_up() -> headgate.Explanation | None:
            await registry.beat(StandIn(id="paris-0~00000000", bridges=supervisor.facts()).facts(), 1.0)
            told = await paris.client.explain("news")
            return told if told.chain else None

        told = await wait_until(held_up)
        assert told is not None
        (hop,) = told.chain
        assert (hop.kind, hop.name, hop.target, hop.site, hop.side) == (
            "route",
            "to berlin",
            "news",
            "berlin",
            "target",
        )
        assert told.reason == (
            "the limit of 100 bytes is reached: route news>berlin:news waits: berlin:news: the target has no room"
        )
        view = (await paris.client.explain(link="news>berlin:news")).link
        assert view is not None
        assert (view.owner, view.mark, view.side) == ("paris-0~00000000", 10, "target")
        assert "forwarded by route news>berlin:news: 10 to settle" in str(told)
        await consumer.configure(window=10)
    await registry.leave("paris-0~00000000")
