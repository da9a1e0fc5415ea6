"""Routes: the same topic or queue at another site, within the limits of both, in meshes, at a rate."""

import asyncio
import contextlib
from functools import partial

import pytest

import headgate
from headgate.policy import loads
from headgate_coordinator.links.listing import list_links
from headgate_coordinator.links.removal import give_up
from tests.demo.command import run
from tests.links.sites import SiteOf, next_of, route, stalls
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server
BODIES = [b"%04d" % number for number in range(100)]
STORED = 7
"""Bytes that each takes: it, and what says what it is."""
LIMIT = 20 * STORED


async def test_a_mesh_of_one_hop_gives_each_site_each_message_once(three_sites: list[SiteOf]) -> None:
    """Each of three routes to both others. A mutant that forgets the zone doubles all of them."""
    for site in three_sites:
        others = [one for one in three_sites if one is not site]
        zone = "[[zone]]\nname = 'mesh'\nhops = 'one'\n"
        routes = "".join(route(one.name, "topics = 'news'", "zone = 'mesh'") for one in others)
        await site.govern(zone + routes, *others)
    await _each_has_each_once(three_sites)


async def test_a_chain_of_sites_passes_on_and_nothing_comes_back(three_sites: list[SiteOf]) -> None:
    """paris - berlin - rome, both ways. A mutant that forgets where a message was has it go to and fro."""
    paris, berlin, rome = three_sites
    await paris.govern(route("berlin", "topics = 'news'"), berlin)
    await berlin.govern(route("paris", "topics = 'news'") + route("rome", "topics = 'news'"), paris, rome)
    await rome.govern(route("berlin", "topics = 'news'"), berlin)
    await _each_has_each_once(three_sites)


async def _each_has_each_once(sites: list[SiteOf]) -> None:
    bodies = {site.name: [b"%s %d" % (site.name.encode(), number) for number in range(5)] for site in sites}
    async with sites[0].working(), sites[1].working(), sites[2].working():
        for site in sites:
            await site.routed("news")
        async with sites[0].client.session() as a, sites[1].client.session() as b, sites[2].client.session() as c:
            consumers = [await session.consumer("news") for session in (a, b, c)]
            for site in sites:
                count = 1 + len(await list_links(site.client))
                await wait_until(partial(_subscriptions, site, count), description="all links are there")
            for site in sites:
                await site.send("news", *bodies[site.name])
            for consumer in consumers:
                got = [(await next_of(consumer)).body for _ in range(15)]
                assert sorted(map(str, got)) == sorted(str(body) for told in bodies.values() for body in told)
                for told in bodies.values():
                    assert [body for body in got if body in told] == told
            await wait_until(lambda: _quiet(sites), timeout=60, description="all links are done")
            for consumer in consumers:
                assert await consumer.receive(timeout=0.05) is None


async def _subscriptions(site: SiteOf, count: int) -> bool:
    return await site.field("news", "subscriptions") == str(count)


async def _quiet(sites: list[SiteOf]) -> bool:
    """Whether no link has anything left that it would have to look at."""
    return not sum([link.backlog or 0 for site in sites for link in await list_links(site.client)])


async def test_a_routed_topic_is_a_topic_there_although_no_rule_there_says_so(three_sites: list[SiteOf]) -> None:
    """The link is there before any consumer. Two durable subscribers each get all."""
    paris, berlin, _ = three_sites
    await paris.govern(route("berlin", "topics = ['news', 'prices']", "byte_rate = '10MB/s'"), berlin)
    async with paris.working(), berlin.client.session() as session:
        await paris.routed("news", "prices")
        for name in ("news", "prices"):
            await wait_until(partial(_is, berlin, name, "topic"), timeout=60, description="it is a topic")
            readers = [await session.consumer(name, subscription=who, durable=True) for who in ("one", "two")]
            await paris.send(name, b"first", b"second")
            for reader in readers:
                assert [(await next_of(reader)).body for _ in range(2)] == [b"first", b"second"]


async def test_a_routed_queue_is_a_queue_there_although_topics_are_the_rule_of_names_like_it(
    three_sites: list[SiteOf],
) -> None:
    paris, berlin, _ = three_sites
    await paris.govern(route("berlin", "queues = 'orders'"), berlin)
    await berlin.govern("[[destination]]\nmatch = '#'\nkind = 'queue'\n[[destination]]\nmatch = '#'\nkind = 'topic'\n")
    async with paris.working():
        await wait_until(lambda: _is(berlin, "orders", "queue"), timeout=60, description="it is a queue")


async def test_a_route_by_pattern_is_a_link_of_each_topic_that_it_matches_also_of_new_ones(
    three_sites: list[SiteOf],
) -> None:
    paris, berlin, rome = three_sites
    for name, kind in (("news.eu", "topic"), ("news.jobs", "queue"), ("news", "topic"), ("prices", "topic")):
        await paris.client.apply(name, kind=kind)
    both = route("berlin", "topics = ['news.>', 'prices']") + route("rome", "topics = 'news.*'")
    await paris.govern(both, berlin, rome)
    async with paris.working(2), berlin.client.session() as session:
        await wait_until(partial(_linked, paris, "news.eu", "prices", "news.eu"), timeout=60, description="old ones")
        await paris.client.apply("news.us", kind="topic")
        await wait_until(
            partial(_linked, paris, "news.eu", "news.us", "prices", "news.eu", "news.us"), timeout=60, description="new"
        )
        for name in ("news.eu", "news.us"):
            await wait_until(partial(_has_subscriptions, paris, name, 2), timeout=60, description="both listen")
            await wait_until(partial(_is, berlin, name, "topic"), timeout=60, description="it is a topic there")
            readers = [await session.consumer(name, subscription=who, durable=True) for who in ("one", "two")]
            await paris.send(name, b"first")
            for reader in readers:
                assert (await next_of(reader)).body == b"first"
        assert (await paris.client.explain(link="paris:news.us>berlin:news.us")).cause.startswith("link-")
        assert len((await paris.client.explain("news.us")).downstream) == 2
        await paris.govern("destination = []\n", berlin, rome)
        await wait_until(lambda: _none(paris), timeout=60, description="the links have ended")
        for name in ("news.eu", "news.us"):
            assert await paris.field(name, "subscriptions") == "0"


async def _linked(site: SiteOf, *names: str) -> bool:
    return sorted(one.source for one in await list_links(site.client) if one.state != "ending") == sorted(names)


async def _has_subscriptions(site: SiteOf, name: str, count: int) -> bool:
    return await site.field(name, "subscriptions") == str(count)


async def test_a_routed_topic_that_is_a_queue_there_is_told(three_sites: list[SiteOf]) -> None:
    """Its subscribers would each get a part of the messages, and nobody would know."""
    paris, berlin, _ = three_sites
    await berlin.client.apply("news", kind="queue")
    await paris.govern(route("berlin", "topics = 'news'"), berlin)
    async with paris.working():
        await wait_until(lambda: stalls(paris, "'news' is a queue; this takes a topic"), description="it is told")


async def _is(site: SiteOf, name: str, kind: str) -> bool:
    return await site.field(name, "kind") == kind


@pytest.mark.parametrize(("unit", "rate", "burst"), [("rate = 60", 60, 6), ("byte_rate = 420", 420, 42)])
async def test_a_rate_is_shared_by_all_links_of_a_route_and_all_nodes(
    three_sites: list[SiteOf], unit: str, rate: int, burst: int
) -> None:
    """Two topics, two nodes, one rate: by Redis' clock, no more than it allows. A mutant that takes none is at once."""
    paris, berlin, _ = three_sites
    for name in ("a", "b"):
        await berlin.client.apply(name, kind="queue")
    await paris.govern(route("berlin", "queues = ['a', 'b']", unit), berlin)
    async with paris.working(2):
        await wait_until(lambda: _busy(paris, 2), timeout=60, description="each node works on a link")
        begun = await _now(paris)
        await asyncio.gather(*(paris.send(name, *BODIES[:60]) for name in ("a", "b")))
        await berlin.has("a", 60)
        await berlin.has("b", 60)
        took = await _now(paris) - begun
    amount = 120 * (STORED if "byte" in unit else 1)
    assert amount <= rate * took + burst


async def _busy(site: SiteOf, count: int) -> bool:
    return sum(bool([fact for fact in one.facts() if fact.works]) for one in site.supervisors) == count


async def _now(site: SiteOf) -> float:
    seconds, microseconds = await site.client.store.server.command(b"x", "TIME")
    return int(seconds) + int(microseconds) / 1e6


async def test_a_site_that_is_not_known_or_calls_itself_otherwise_is_told(
    three_sites: list[SiteOf], monkeypatch: pytest.MonkeyPatch
) -> None:
    paris, berlin, _ = three_sites
    await berlin.client.apply_policy(loads("site_name = 'bonn'\n", "there"))
    berlin_url, berlin.url = berlin.url, "env:HEADGATE_SITE_BERLIN"
    monkeypatch.delenv("HEADGATE_SITE_BERLIN", raising=False)
    await paris.govern(route("berlin", "topics = 'news'"), berlin)
    async with paris.working():
        await wait_until(lambda: stalls(paris, "no HEADGATE_SITE_BERLIN"), timeout=60, description="it misses the URL")
        monkeypatch.setenv("HEADGATE_SITE_BERLIN", berlin_url)
        await wait_until(lambda: stalls(paris, "calls itself 'bonn'"), timeout=60, description="it tells the names")
        await berlin.client.apply_policy(loads("site_name = 'berlin'\n", "there"))
        await paris.routed("news")
    berlin.url = berlin_url


async def test_a_route_that_leaves_the_policy_gives_back_what_it_held_at_both_sites(three_sites: list[SiteOf]) -> None:
    paris, berlin, _ = three_sites
    await berlin.client.apply("orders", limit=LIMIT)
    await paris.govern(route("berlin", "queues = 'orders'"), berlin)
    async with paris.working():
        await paris.send("orders", *BODIES)
        await berlin.has("orders", 20)
        await paris.govern("destination = []\n", berlin)
        await wait_until(lambda: _none(paris), timeout=60, description="the link has ended")
        assert await berlin.field("orders", "leased_bytes") == "0"
        assert await berlin.field("orders", "blocked") == "0"
        assert await paris.field("orders", "consumers") == "0"
        assert [*await berlin.stored("orders"), *await paris.stored("orders")] == BODIES


async def _none(site: SiteOf) -> bool:
    return not await list_links(site.client)


@pytest.mark.parametrize("working", [True, False], ids=["a node works", "no node works"])
async def test_a_link_whose_site_left_the_policy_says_how_to_end_it_and_is_ended(
    three_sites: list[SiteOf], working: bool
) -> None:
    """Without it a link stays for ever whose site is gone for good."""
    paris, berlin, _ = three_sites
    await berlin.client.apply("orders", kind="queue", limit=LIMIT)
    await paris.govern(route("berlin", "queues = 'orders'\ntopics = 'news'"), berlin)
    links = [f"paris:{name}>berlin:{name}" for name in ("news", "orders")]
    async with paris.working():
        await paris.routed("news")
        await paris.send("orders", *BODIES)
        await berlin.has("orders", 20)
        with pytest.raises(headgate.PolicyError, match="the policy names the link"):
            await give_up(paris.client, links[1])
    async with contextlib.AsyncExitStack() as stack:
        if working:
            await stack.enter_async_context(paris.working())
        await paris.govern("destination = []\n", berlin)
        if not working:
            with pytest.raises(headgate.PolicyError, match="ends by itself"):
                await give_up(paris.client, links[1])
        await paris.govern(route("rome", "topics = 'other'"), three_sites[2])
        if working:  # the one that could be ended meanwhile is
            await paris.govern(route("berlin", "queues = 'orders'\ntopics = 'news'"), berlin)
            await wait_until(partial(_all_work, paris, links), timeout=60, description="the links work again")
            await paris.govern("destination = []\n")
        found = {one.link: one for one in await list_links(paris.client) if one.link in links}
        assert {one.state for one in found.values()} == {"ending"}
        for link in links:
            assert f"headgate links --end '{link}'" in found[link].trouble
            where = ("--redis", paris.url, "--namespace", paris.client.namespace)
            done = await asyncio.to_thread(run, "links", "--end", link, *where)
            assert (done.returncode, "has ended" in done.stderr) == (0, True)
        assert not [one for one in await list_links(paris.client) if one.link in links]
        for name in ("orders", "news"):
            assert await paris.field(name, "consumers") == "0"
        assert await paris.field("news", "subscriptions") == "0"
        rest = await paris.stored("orders")
        assert rest == BODIES[-len(rest) :]
        with pytest.raises(headgate.PolicyError, match=r"there is no link|no link ends"):
            await give_up(paris.client, links[0])


async def _all_work(site: SiteOf, links: list[str]) -> bool:
    """Whether a node works on each: what no node has a lease of when the policy drops it is forgotten at once."""
    return {fact.link for one in site.supervisors for fact in one.facts() if fact.works} >= set(links)


async def test_a_selector_lets_pass_what_it_is_true_of(three_sites: list[SiteOf]) -> None:
    """A mutant whose worker has no judge forwards all."""
    paris, _, _ = three_sites
    bridge = "[[bridge]]\nname = 'b'\nfrom = 'in'\nto = 'out'\nselector = \"region = 'eu' AND size > 4\"\n"
    await paris.govern(bridge)
    async with paris.working():
        for number in range(10):
            await paris.send("in", b"%d" % number, region="eu" if number % 2 else "us", size=number)
        await paris.has("in", 0)
        assert await paris.stored("out") == [b"5", b"7", b"9"]
