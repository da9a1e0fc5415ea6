"""What explain tells of links, and through them. Workers are played call by call: nothing else happens."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import headgate
from headgate.core.links.link import Link
from headgate.core.links.trouble import NO_ROOM, PACED, SPOOLS, Trouble
from headgate.explain.link_chain import LinkLoad, LinkWork, TargetView, judge_link
from headgate.explain.link_view import LinkEnds, Side
from headgate.explain.links import MOST_HOPS
from headgate.explain.model import Cause, Explanation
from headgate.policy import loads
from headgate.redis.keys import Address, forwarder_id
from headgate.redis.stores.links import LinkStore
from headgate_coordinator.fleet.leases import LeaseStore
from headgate_coordinator.fleet.node_facts import BridgeFacts
from headgate_coordinator.fleet.registry import NodeRegistry
from headgate_coordinator.links.listing import list_links
from headgate_coordinator.links.rules import Forwarding
from headgate_coordinator.links.worker import LinkSide, LinkWorker
from tests.admin.standin import StandIn
from tests.demo.command import run
from tests.links.policy.test_bridges import bridges, rule
from tests.links.site import work

pytestmark = pytest.mark.one_server
LINK = "orders>billing"
LIMIT = "limit = 100"


@pytest.fixture
async def client(redis_url: str, cleanup_namespace: str) -> AsyncIterator[headgate.Client]:
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
        yield client


def end(client: headgate.Client, name: str) -> LinkSide:
    return LinkSide(LinkStore(client.store.server), Address.of(client.namespace, name))


def worker(client: headgate.Client, source: str, target: str) -> LinkWorker:
    one, other = (f"{client.namespace}/{name}" for name in (source, target))
    how = Forwarding(one, other, has_dead_letters=False)
    return LinkWorker(
        forwarder_id(client.namespace, Link("", source, target).link),
        end(client, source),
        end(client, target),
        how,
        fence=1,
    )


async def fill(client: headgate.Client, name: str, count: int = 20, kind: str = "queue", timeout: float = 60) -> None:
    async with client.session() as session:
        producer = await session.producer(name, kind=kind, window=10)
        for _ in range(count):
            await producer.send(b"1234567", timeout=timeout)
        await producer.close()


async def overfill(client: headgate.Client, name: str) -> None:
    """Send until there is no room."""
    with pytest.raises(headgate.CreditTimeout):
        await fill(client, name, 1000, timeout=0.5)


async def scene(
    client: headgate.Client, *ends: tuple[str, str], limited: str = "", more: str = "", kind: str = "queue"
) -> None:
    """A policy of bridges between destinations that there are, some of which have a limit of 100 bytes."""
    rules = "".join(rule(name, LIMIT) for name in limited.split())
    await client.apply_policy(loads(bridges(*ends, more=rules + more)))
    for name in {name for pair in ends for name in pair}:
        await client.apply(name, kind=kind if name == ends[0][0] else "queue")


async def registered(client: headgate.Client, *, trouble: Trouble | None = None) -> str:
    """Have a node that is there work on the link; returns its id."""
    node = StandIn(bridges=(BridgeFacts(LINK, "orders", "billing", works=True, trouble=trouble),))
    await LeaseStore(client.store.server, client.namespace).call(node.id, [LINK], mode="hold", ttl_ms=60_000, total=1)
    await NodeRegistry(client).beat(node.facts(), 1.0)
    return node.id


async def test_a_destination_behind_a_link_is_told_what_its_target_lacks(client: headgate.Client) -> None:
    """Mutant: FOLLOWED is empty."""
    await scene(client, ("orders", "billing"), limited="orders billing")
    await fill(client, "orders", 10)
    await work(worker(client, "orders", "billing"))
    await overfill(client, "orders")
    await work(worker(client, "orders", "billing"))
    told = await client.explain("orders")
    (hop,) = told.chain
    assert (told.cause, hop.side, hop.cause, hop.name) == ("link", "target", "no-consumer", "orders to billing")
    assert told.reason == (
        "the limit of 100 bytes is reached: bridge orders>billing waits: billing is blocked: the limit of 100 bytes is "
        "reached: no consumer is attached"
    )
    assert told.remedy.startswith("at billing: attach a consumer, ")
    assert (told.rule, hop.rule) == (hop.rule, "billing (policy.toml:10)")
    assert told.binding is not None
    assert told.binding.rule == "orders (policy.toml:7)", "its own limit stays told"
    assert [cause.cause for cause in told.causes][:1] == ["link"]


async def test_who_waits_before_a_link_is_told_the_same(client: headgate.Client) -> None:
    """Mutant: `Outlook.why` leaves the links out."""
    await scene(client, ("orders", "billing"), limited="orders billing")
    await asyncio.gather(*(overfill(client, name) for name in ("orders", "billing")))
    await work(worker(client, "orders", "billing"))
    with pytest.raises(headgate.CreditTimeout, match="bridge orders>billing waits: billing is blocked: ") as caught:
        await fill(client, "orders", 1, timeout=2.5)  # time to learn why, on a busy machine too
    assert caught.value.explanation is not None
    assert [hop.link for hop in caught.value.explanation.chain] == [LINK]


async def test_ends_tell_of_their_links(client: headgate.Client) -> None:
    await scene(client, ("orders", "billing"), ("billing", "archive"), limited="billing")
    await fill(client, "orders")
    await work(worker(client, "orders", "billing"))
    told = await client.explain("billing")
    (up,), (down,) = told.upstream, told.downstream
    assert (up.link, up.source, up.place) == (LINK, "orders", 1)
    assert (down.link, down.target, down.holds, down.backlog) == ("billing>archive", "archive", 0, 10)
    assert "fed by bridge orders>billing, place 1 in line" in str(told)
    assert "forwarded by bridge billing>archive: 10 to settle, 0 in hand" in str(told)
    assert (await client.explain("archive")).downstream == (await client.explain("orders")).upstream == ()
    (down,) = (await client.explain("orders")).downstream
    assert (down.holds, down.backlog) == (1, 10)


async def test_who_holds_more_than_the_link_is_named_and_not_the_link(client: headgate.Client) -> None:
    """Mutant: any consumer that is a link is followed."""
    await scene(client, ("orders", "billing"), limited="orders billing")
    async with client.session("app") as session:
        consumer = await session.consumer("orders", window=6)
        await overfill(client, "orders")
        for _ in range(6):  # what nobody has begun would be given back to the link
            assert await consumer.receive(timeout=60) is not None
        await overfill(client, "billing")
        await work(worker(client, "orders", "billing"))
        told = await client.explain("orders")
        assert (told.cause, told.chain) == ("slow-consumers", ())
        assert [(one.session, one.messages) for one in told.consumers] == [
            (session.id, 6),
            (forwarder_id(client.namespace, LINK), 1),
        ]


async def test_a_topic_is_told_of_the_subscription_that_is_a_link(client: headgate.Client) -> None:
    await scene(client, ("events", "audit"), ("events", "reports"), limited="audit",
                more=rule("events", 'kind = "topic"\nlimit = 200'), kind="topic")  # fmt: skip
    slow, quick = worker(client, "events", "audit"), worker(client, "events", "reports")
    for link in (slow, quick):
        await work(link)
    for _ in range(3):
        await fill(client, "events", 10, kind="topic")
        for link in (slow, quick):
            await work(link)
    await overfill(client, "events")
    for link in (slow, quick):
        await work(link)
    told = await client.explain("events")
    assert [hop.link for hop in told.chain] == ["events>audit"]
    assert {down.link: down.backlog == 0 for down in told.downstream} == {"events>audit": False, "events>reports": True}


async def test_links_in_a_circle_are_followed_once(client: headgate.Client) -> None:
    """Mutant: `been` is not looked at."""
    circle = "".join(
        f'[[bridge]]\nname = "{name}"\nfrom = "{one}"\nto = "{to}"\nmax_hops = 3\n'
        for name, one, to in (("there", "a", "b"), ("back", "b", "a"))
    )  # fmt: skip
    await client.apply_policy(loads(rule("a", LIMIT) + rule("b", LIMIT) + circle))
    for name in "ab":
        await client.apply(name, kind="queue")
        await overfill(client, name)
    for one, to in (("a", "b"), ("b", "a")):
        await work(worker(client, one, to))
    assert [hop.link for hop in (await client.explain("a")).chain] == ["a>b", "b>a"]


async def test_a_chain_is_followed_only_so_far(client: headgate.Client) -> None:
    places = [f"p{number}" for number in range(MOST_HOPS + 3)]
    await scene(client, *itertools.pairwise(places), limited=" ".join(places))
    await asyncio.gather(*(overfill(client, name) for name in places))
    for one, to in itertools.pairwise(places):
        await work(worker(client, one, to))
    assert [hop.source for hop in (await client.explain("p0")).chain] == places[:MOST_HOPS]
    assert len((await client.explain("p5")).chain) == len(places) - 6


async def why(client: headgate.Client, side: Side, cause: Cause, words: str) -> Explanation:
    told = await client.explain(link=LINK)
    assert told.link is not None
    assert (told.link.side, told.cause) == (side, cause), told
    assert words in told.reason
    return told


async def test_the_view_of_a_link_names_the_side_that_binds(client: headgate.Client) -> None:
    await scene(client, ("orders", "billing"), more=rule("orders", 'kind = "queue"'))
    await why(client, "nobody", "link-nobody", "no node that is alive works on it")
    owner = await registered(client)
    link = worker(client, "orders", "billing")
    await work(link)
    told = await why(client, "source", "link-empty", "orders has nothing for it")
    assert (told.state, told.kind, told.destination) == ("open", "bridge", LINK)
    await client.apply("billing", limit=100)
    await fill(client, "orders")
    await work(link)
    told = await why(
        client, "target", "link-waits", "billing is blocked: the limit of 100 bytes is reached: no consumer"
    )
    assert told.link is not None
    assert (told.link.owner, told.link.mark, told.link.backlog, told.link.in_hand) == (owner, 10, 10, 1)
    assert told.binding is not None
    assert told.binding.limit == 100
    assert f"10 to settle at its source, 1 in hand; the target's mark is 10; node {owner}" in str(told)
    for name in ("orders to billing", forwarder_id(client.namespace, LINK)):
        assert (await client.explain(link=name)).link == told.link
    await client.block("billing", "audit")
    await why(client, "target", "link-waits", "audit")
    await client.unblock("billing")
    await client.apply("billing", limit="unlimited", send_rate=0.001, send_burst=1)
    await work(link)
    await why(client, "rate", "link-rate", "its rate of 0.001 messages/s is used up")
    await registered(client, trouble=Trouble.of("undeliverable", "7 cannot be delivered (too-large)"))
    await client.apply("billing", send_rate=headgate.settings.DEFAULT)
    await why(client, "stuck", "link-stuck", "message 7 cannot be delivered")
    await registered(client)
    await why(client, "moves", "open", "billing takes what comes")
    await NodeRegistry(client).leave(owner)
    await why(client, "nobody", "link-nobody", "no node that is alive works on it")


async def test_a_link_that_spools_moves_and_says_so(client: headgate.Client, tmp_path: Path) -> None:
    """Mutants: it is told as a link that moves from memory to memory; as one that its target holds up; as stalled."""
    await scene(client, ("orders", "billing"), more=rule("orders", 'kind = "queue"'))
    owner = await registered(client)
    link = worker(client, "orders", "billing")
    await work(link)
    await client.set_store("disk", f"file://{tmp_path}", limit="1MiB")
    await client.apply("billing", limit=100, when_full="spool", store="disk")
    await fill(client, "orders")
    await work(link)
    await registered(client, trouble=SPOOLS)
    told = await why(
        client, "moves", "open", "billing: the target has no room in memory, so what it brings goes to its"
    )
    assert told.link is not None
    assert (told.link.owner, told.link.trouble) == (owner, SPOOLS.text)
    (state,) = await list_links(client)
    assert (state.state, state.trouble) == ("works", SPOOLS.text)


@pytest.mark.parametrize("copies", [True, False], ids=["copies", "moves"])
async def test_a_link_that_has_not_begun_at_its_source_does_not_work(client: headgate.Client, copies: bool) -> None:
    """Its node has the lease and has not beaten since. Who sends then loses the copies, and was told that it works.

    Mutants: what no node complains of works; the backlog of one that copies is the queue's.
    """
    name = LINK.replace(">", ">>") if copies else LINK
    policy = bridges(("orders", "billing"), more=rule("orders", 'kind = "queue"'))
    await client.apply_policy(loads(policy.replace("to = ", "copies = true\nto = ") if copies else policy))
    async with client.session() as session:
        await session.consumer("orders", window=1)
    await fill(client, "orders", 3)
    node = StandIn()
    await LeaseStore(client.store.server, client.namespace).call(node.id, [name], mode="hold", ttl_ms=60_000, total=1)
    await NodeRegistry(client).beat(node.facts(), 1.0)
    (state,) = await list_links(client)
    backlog = None if copies else 3
    assert (state.owner, state.state, state.trouble, state.backlog) == (node.id, "stalled", "it begins", backlog)
    told = await client.explain(link=name)
    assert told.link is not None
    assert told.link.backlog == backlog
    link = forwarder_id(client.namespace, name)
    await LinkStore(client.store.server).open(
        Address.of(client.namespace, "orders"), link, fence=1, window="1/1", copies=copies
    )
    await fill(client, "orders", 2)
    (state,) = await list_links(client)
    assert (state.state, state.trouble, state.backlog) == ("works", "", 2 if copies else 5)


async def test_what_is_no_link_is_said(client: headgate.Client) -> None:
    await scene(client, ("orders", "billing"), more=rule("orders", LIMIT))
    with pytest.raises(headgate.PolicyError, match="there is no link 'orders>mail'"):
        await client.explain(link="orders>mail")
    for wrong in ({"link": LINK, "destination": "orders"}, {"link": LINK, "producer": "x"}):
        with pytest.raises(headgate.InvalidValue, match="or a link"):
            await client.explain(**wrong)


async def test_the_command_line_tells_of_a_link(client: headgate.Client, redis_url: str) -> None:
    await scene(client, ("orders", "billing"), more=rule("orders", LIMIT))

    async def told(*words: str) -> tuple[int, str, str]:
        done = await asyncio.to_thread(run, "explain", *words, "--redis", redis_url, "--namespace", client.namespace)
        return done.returncode, done.stdout, done.stderr

    code, out, _ = await told("--link", LINK)
    assert (code, out.partition("\n")[0]) == (
        0, "orders>billing (bridge): blocked: no node that is alive works on it"
    )  # fmt: skip
    code, out, _ = await told("--link", "orders to billing", "--json")
    assert (code, json.loads(out)["link"]["side"]) == (0, "nobody")
    code, out, error = await told("--link", "none")
    assert (code, out) == (2, "")
    assert "there is no link 'none'" in error
    code, _, error = await told()
    assert (code, "give a destination or --link" in error) == (2, True)


GONE, GATE = Trouble.of("error", "york is gone"), Trouble.of("error", "a gate cannot be an end")
HERE = LinkEnds("link~x~0", "orders>billing", "orders", "billing")
THERE = LinkEnds("link~x~0", "orders>orders", "orders", "orders", kind="route", site="york")
FULL = LinkWork("n~1", NO_ROOM)
OPEN = Explanation("billing", "queue", "open", "open", "")


@pytest.mark.parametrize(
    ("ends", "due", "behind", "said", "side", "words"),
    [
        (THERE, LinkLoad(5, 5), TargetView(unseen="there"), FULL, "target", "york:orders: the target has no"),
        (THERE, LinkLoad(5, 5), TargetView(unseen="there"), LinkWork("n~1", GONE), "stuck", "york is gone"),
        (THERE, LinkLoad(5, 5), TargetView(unseen="it is at site york"), LinkWork("n~1"), "moves", "at site york"),
        (THERE, LinkLoad(5, 5), TargetView(unseen="there"), LinkWork(""), "nobody", "no node"),
        (HERE, LinkLoad(5, 5), TargetView(OPEN), None, "nobody", "no account"),
        (HERE, LinkLoad(5, 5), TargetView(OPEN, known=True), None, "moves", ""),
        (HERE, LinkLoad(5, 5), TargetView(), LinkWork("n~1", PACED), "rate", "its rate is used up"),
        (HERE, LinkLoad(5, 5), TargetView(), LinkWork("", GONE), "nobody", "york is gone"),
        (HERE, LinkLoad(), TargetView(), LinkWork("n~1"), "source", "nothing at orders yet"),
        (HERE, LinkLoad(), TargetView(), LinkWork("n~1", GATE), "stuck", "a gate cannot be an end"),
        (HERE, LinkLoad(5, 0, 2.0), TargetView(), None, "rate", "delivery of orders is limited"),
    ],
)  # fmt: skip
def test_a_link_is_judged_by_what_can_be_seen(
    ends: LinkEnds, due: LinkLoad, behind: TargetView, said: LinkWork | None, side: Side, words: str
) -> None:
    hop = judge_link(ends, due, behind, said)
    assert hop.side == side
    assert words in hop.reason
