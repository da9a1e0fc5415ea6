"""Links one behind the other: what the last target lacks is felt at the head, and each place keeps to its own limit."""

import asyncio
import itertools
from collections.abc import AsyncIterator

import pytest

import headgate
from headgate.policy import loads
from tests.amqp.node_processes import NodeProcess, nodes
from tests.links.policy.test_bridges import TTL, bridges, consume, fields, rule, send, settled
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server
PLACES = "abcde"
LIMIT = 400
BODIES = [b"%04d" % number for number in range(600)]


@pytest.fixture
async def client(redis_url: str, cleanup_namespace: str) -> AsyncIterator[headgate.Client]:
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
        yield client


@pytest.fixture
async def node(redis_url: str, cleanup_namespace: str) -> AsyncIterator[NodeProcess]:
    with nodes(redis_url, cleanup_namespace, 1, "--ttl", TTL) as (started,):
        yield started


@pytest.mark.whole
async def test_four_links_throttle_the_head_and_explain_names_the_one_that_binds(
    client: headgate.Client, node: NodeProcess
) -> None:
    """Mutant: `holder` finds no link."""
    rules = "".join(rule(name, f"limit = {LIMIT}") for name in PLACES)
    await client.apply_policy(loads(bridges(*itertools.pairwise(PLACES), more=rules)))
    most = dict.fromkeys(PLACES, 0)

    async def sample() -> None:
        while True:
            for name in PLACES:
                now = await fields(client, name)
                most[name] = max(most[name], int(now.get("pending_bytes", 0)) + int(now.get("leased_bytes", 0)))
            await asyncio.sleep(0)

    sampling = asyncio.create_task(sample())
    sending = asyncio.create_task(send(client, "a", *BODIES))

    await wait_until(lambda: fields(client, "a"), timeout=80)

    async def stuck() -> headgate.Explanation | None:
        told = await client.explain("a")
        return told if len(told.chain) == 4 and told.blocked else None

    told = await wait_until(stuck, timeout=80)
    assert told is not None
    assert not sending.done()
    assert [(hop.link, hop.source, hop.target, hop.state) for hop in told.chain] == [
        (f"{one}>{to}", one, to, "blocked") for one, to in itertools.pairwise(PLACES)
    ]
    assert (told.state, told.cause, told.chain[-1].cause) == ("blocked", "link", "no-consumer")
    assert "4 links wait one for the next, and the last binds: bridge d>e waits: e is blocked: " in told.reason
    assert told.reason.endswith("the limit of 400 bytes is reached: no consumer is attached")
    assert told.remedy.startswith("at e: attach a consumer, settle ")
    assert told.rule is not None
    assert told.rule.startswith("e (")
    assert "  4. bridge d>e waits: e is blocked: " in str(told)
    assert await consume(client, "e", len(BODIES)) == BODIES
    await sending
    sampling.cancel()
    await settled(client, *PLACES)
    for name in PLACES:
        assert 0 < most[name] <= LIMIT
        assert int((await fields(client, name))["peak_bytes"]) <= LIMIT
    assert (await client.explain("a")).chain == ()
