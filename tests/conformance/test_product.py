"""The product itself: one state for a whole cluster, in Redis, that an operator can read."""

import asyncio
import contextlib
import shutil
import subprocess
import sys
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

import pytest
import redis
from pyspark.sql import SparkSession
from typer.testing import CliRunner

import headgate
from headgate.policy import loads
from headgate.redis.keys import Address
from headgate.redis.url import parse_url
from headgate_coordinator.links.listing import list_links
from headgate_pipeline.cli.main import app as pipeline
from tests.amqp.node_processes import nodes
from tests.amqp.nodes import NodeProcess
from tests.amqp.rhea_client import Rhea
from tests.conformance.hosts import hosts, redis_on
from tests.conformance.story import body, fill
from tests.sdk.observing import GUARD, counts, drain, field, look
from tests.sdk.workers import Worker
from tests.support.waiting import wait_until


async def test_k01_credit_and_pending_bytes_of_all_clients_are_one(
    client: headgate.Client, other: headgate.Client
) -> None:
    await client.apply("orders", limit=5000)
    async with client.session("a") as a, other.session("b") as b:
        producers = [await a.producer("orders", window=2000), await b.producer("orders", window=2000)]
        assert await counts(client, "orders") == (0, 4000)
        sends = [asyncio.ensure_future(producers[n % 2].send(body(100), timeout=GUARD)) for n in range(200)]

        async def full() -> bool:
            return await field(client, "orders", "pending_bytes") == 5000

        await wait_until(full)
        assert await counts(other, "orders") == (5000, 0)  # as recounted from what is stored
        await drain(await b.consumer("orders", window=4), 200)
        await asyncio.gather(*sends)
    assert await counts(client, "orders") == (0, 0)
    assert await field(client, "orders", "peak_bytes") == 5000


async def test_k01_a_bucket_of_all_clients_is_one(client: headgate.Client, other: headgate.Client) -> None:
    await client.apply("mails", kind="bucket", rate=100, burst=10)
    async with client.session("a") as a, other.session("b") as b:
        buckets = [await a.bucket("mails"), await b.bucket("mails")]
        clock = asyncio.get_running_loop().time
        taken: list[tuple[int, int]] = []

        async def take(bucket: headgate.Bucket) -> None:
            await bucket.take(timeout=GUARD)
            taken.append((int(clock() * 1e6), 1))

        await asyncio.gather(*(take(buckets[n % 2]) for n in range(50)))
    assert len(taken) == 50
    assert taken[-1][0] - taken[0][0] >= (50 - 10) / 100 * 1e6 * 0.9
    assert await field(client, "mails", "taken") == 50


@pytest.mark.longest
async def test_k02_nodes_and_sdk_clients_on_different_hosts_share_one_limit(tmp_path: Path) -> None:
    each, limit = 60, 80 * 1000
    namespace = "shared"
    with hosts(4) as (at, a, b, c), redis_on(at, tmp_path) as (url, local), ExitStack() as undo:
        nodes = []
        for host in (a, b):
            log = tmp_path / f"{host.address}.log"
            nodes.append(NodeProcess(url, namespace, log, "--host", host.address, within=host.within))
            undo.callback(nodes[-1].stop)
        async with headgate.connect(local, namespace=namespace) as client, AsyncExitStack() as later:
            await client.apply("orders", limit=limit)
            clients = []
            for host, node in ((a, nodes[0].ready()), (b, nodes[1].ready()), (c, nodes[0])):
                rhea = await later.enter_async_context(await Rhea.start(within=host.within))
                await rhea.connect(
                    "c",
                    node.port,
                    host=node.url.rpartition(":")[0].removeprefix("amqp://"),
                    container_id=host.address,  # a link of the same name in the same container would be stolen
                )
                await rhea.sender("s", "orders")
                clients.append(rhea)
            workers = [
                undo.enter_context(Worker("numbered", url, namespace, "orders", 5.0, each, within=host.within))
                for host in (b, c)
            ]
            for rhea in clients:
                rhea.do("pump", link="s", total=each, size=2000)

            async def all_wait() -> bool:
                state = await look(client, "orders")
                idle = [(await rhea.look("s"))["credit"] == 0 for rhea in clients]
                return all(idle) and int(state.fields["blocked"]) == len(nodes) + len(workers)

            await wait_until(all_wait, timeout=GUARD, description="everybody waits for the same room")
            assert (
                await field(client, "orders", "pending_bytes") + await field(client, "orders", "leased_bytes") <= limit
            )
            accepted = sum(len(rhea.told("accepted")) for rhea in clients)
            assert accepted < each * len(clients)
            async with client.session("reader") as session:
                await drain(await session.consumer("orders"), each * (len(clients) + len(workers)))
            for rhea in clients:
                await rhea.sees("accepted", each)
            for worker in workers:
                await asyncio.to_thread(worker.ready)
                assert await asyncio.to_thread(worker.next_line) == ["done", str(each)]
            assert await field(client, "orders", "peak_bytes") <= limit
            assert await field(client, "orders", "peak_bytes") > limit - 2100  # a message more would have been too much


@pytest.mark.one_server
async def test_k03_the_rate_of_links_is_shared_by_the_nodes_that_work_on_them(
    redis_url: str, cleanup_namespace: str
) -> None:
    """Two nodes, each with one of two links of a bridge. A mutant whose nodes have a rate each takes half as long."""
    topic = "[[destination]]\nmatch = 'in'\nkind = 'topic'\n"
    policy = topic + "[[bridge]]\nname = 'b'\nfrom = 'in'\nto = ['a', 'b']\nrate = 60\n"
    names = ("in>a", "in>b")
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
        await client.apply_policy(loads(policy))
        with nodes(redis_url, cleanup_namespace, 2, "--ttl", 2):

            async def shared() -> bool:
                links = await list_links(client)
                return {one.link for one in links} == {*names} and len({one.owner for one in links} - {""}) == 2

            await wait_until(shared, description="each node has a link")
            await wait_until(lambda: _at_least(client, "in", "subscriptions", 2), description="both subscribe")
            begun = await _seconds(client)
            await fill(client, "in", 60)
            for name in ("a", "b"):
                await wait_until(lambda name=name: _at_least(client, name, "pending_messages", 60), timeout=80)  # type: ignore[misc]
            assert 60 * (await _seconds(client) - begun) + 6 >= 120


async def _at_least(client: headgate.Client, name: str, counter: str, least: int) -> bool:
    return int(await field(client, name, counter)) >= least


async def _seconds(client: headgate.Client) -> float:
    """Return the time of Redis' clock."""
    seconds, microseconds = await client.store.server.command(b"x", "TIME")
    return int(seconds) + int(microseconds) / 1e6


async def test_k04_the_state_is_readable_with_redis_cli(client: headgate.Client, redis_url: str) -> None:
    await client.apply("orders", limit="10MiB")
    await fill(client, "orders", 3, 100)
    async with client.session("reader") as session:
        consumer = await session.consumer("orders", window=2)
        await drain(consumer, 1)

        def read(*command: str) -> list[str]:
            where = ["-s", parse_url(redis_url).path]
            done = subprocess.run([redis_cli(), *where, *command], check=True, capture_output=True, text=True)
            return done.stdout.split("\n")

        address = Address.of(client.namespace, "orders")
        assert address.key == f"hg:{{{client.namespace}/orders}}"
        lines = read("HGETALL", address.key)
        fields = dict(zip(lines[::2], lines[1::2], strict=False))
        told = ("kind", "limit_bytes", "pending_bytes", "pending_messages", "leased_bytes", "consumers")
        assert [fields[name] for name in told] == ["queue", "10485760", "200", "2", "0", "1"]
        assert read("XLEN", f"{address.key}:messages")[0] == "2"
        (record,) = read("HVALS", f"{address.key}:consumers")[:-1]
        assert {"sub=queue", "settled=1", "window=2/unlimited"} <= set(record.split())


def redis_cli() -> str:
    """Return the redis-cli of this machine."""
    beside = Path(sys.executable).with_name("redis-cli")
    found = shutil.which("redis-cli") or (str(beside) if beside.exists() else None)
    if found is None:
        pytest.skip("there is no redis-cli here")
    return found


@pytest.mark.one_server
def test_k05_spark_reads_the_ledger_and_proves_that_limits_held(
    spark: SparkSession, redis_url: str, cleanup_namespace: str
) -> None:
    """A mutant of the ledger, an entry that is missing, is no proof any more."""

    async def live() -> Address:
        async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
            async with client.session("s") as session:
                for name in ("orders", "holed"):
                    await client.apply(name, limit=2000)
                    producer, consumer = await session.producer(name, window=300), await session.consumer(name)
                    for _ in range(5):
                        await producer.send(body(100))
                    await drain(consumer, 5)
            return Address.of(cleanup_namespace, "holed")

    address = asyncio.run(live())
    with contextlib.closing(redis.Redis.from_url(redis_url)) as server:
        server.xdel(f"{address.key}:ledger", "3-0")
    told = CliRunner().invoke(pipeline, ["audit", "--redis", redis_url, "--namespace", cleanup_namespace])
    assert told.exit_code == 0, told.output
    assert "orders: proven (entries 1 to " in told.stdout
    assert "holed: unproven" in told.stdout
