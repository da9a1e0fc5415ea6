"""Probes and metrics: with a Redis that answers, that is frozen, and that is gone; and with many destinations."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

import headgate
from headgate.core.links.trouble import NO_ROOM
from headgate.redis.keys import Address, PoolAddress
from headgate.redis.stores.pool_sites import Letter, PoolSiteStore
from headgate_coordinator.admin import namespace_watch
from headgate_coordinator.admin.metrics import METRICS
from headgate_coordinator.fleet.node_facts import BridgeFacts, Counters, DeadlockFacts
from tests.admin.standin import StandIn, link
from tests.support.servers import RedisServer
from tests.support.waiting import wait_until

Http = httpx.AsyncClient
OpenHttp = Callable[..., Awaitable[Http]]
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]
PAGE = Path(__file__).resolve().parents[2] / "docs" / "admin.md"


async def scrape(http: Http) -> Samples:
    answer = await http.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, tuple(sorted(labels.items()))]


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with RedisServer.start() as server:
        yield server


async def test_every_destination_has_its_figures(http: Http, client: headgate.Client) -> None:
    await client.apply('odd "name"\\'.replace("\\", ""), limit=1000)
    await client.apply("orders", limit="10KiB")
    await client.apply("sms", kind="bucket", rate="10/s", burst=5)
    session = client.session("ann")
    producer = await session.producer("orders", window="1KiB")
    consumer = await client.session("bob").consumer("orders")
    for _ in range(3):
        await producer.send(b"x" * 100)
    await (await anext(consumer)).accept(confirm=True)
    samples = await scrape(http)
    one = {"namespace": client.namespace, "destination": "orders"}
    assert value(samples, "headgate_published_messages_total", **one) == 3
    assert value(samples, "headgate_settled_messages_total", **one) == 1
    assert value(samples, "headgate_pending_messages", **one) == 2
    assert value(samples, "headgate_pending_bytes", **one) > 200
    assert value(samples, "headgate_limit_bytes", **one) == 10240
    assert ("headgate_limit_messages", tuple(sorted(one.items()))) not in samples, "unlimited is no number"
    assert value(samples, "headgate_consumers", **one) == 1
    assert value(samples, "headgate_stopped", **one) == 0
    assert value(samples, "headgate_limit_bytes", namespace=client.namespace, destination='odd "name"') == 1000
    assert value(samples, "headgate_taken_tokens_total", namespace=client.namespace, destination="sms") == 0
    assert value(samples, "headgate_redis_up") == 1
    assert value(samples, "headgate_destinations", namespace=client.namespace) == 3
    assert value(samples, "headgate_build_info", version=headgate.__version__) == 1


async def test_epochs_and_what_is_lost_are_counted(http: Http, client: headgate.Client) -> None:
    """Mutants: `epochs` is not read; `lost_messages` is not."""
    await client.apply("orders")
    one = {"namespace": client.namespace, "destination": "orders"}
    samples = await scrape(http)
    assert value(samples, "headgate_epochs_total", **one) == 0
    assert value(samples, "headgate_lost_messages_total", **one) == 0
    session = client.session("ann")
    producer = await session.producer("orders")
    for _ in range(3):
        await producer.send(b"x")
    address = Address.of(client.namespace, "orders")
    receipt = address.keys(session.id)[-1]
    await client.store.server.command(receipt, "DEL", receipt)
    await client.store.server.command(receipt, "HSET", address.key, "run_id", "of-before")
    told: list[headgate.StateLoss] = []
    client.on_state_loss(told.append)
    sending = asyncio.create_task(producer.send(b"x", timeout=60))
    await wait_until(lambda: bool(told), timeout=60, description="the loss is told")

    async def counted() -> bool:
        samples = await scrape(http)
        names = ("headgate_epochs_total", "headgate_lost_messages_total")
        return [value(samples, name, **one) for name in names] == [1, 3]

    await wait_until(counted, timeout=60, description="the loss is counted")
    (loss,) = (await http.get("/api/v1/overview")).json()["losses"]
    assert (loss["destination"], loss["epoch"], loss["messages"]) == ("orders", told[0].epoch, told[0].lost)
    assert loss["age_seconds"] < 600
    sending.cancel()


async def test_stores_and_what_is_spooled_are_apart_from_memory(http: Http, client: headgate.Client) -> None:
    """Mutants: what is spooled is not read; stores are not."""
    await client.set_store("disk", "s3://bucket/spool", limit="1MiB")
    await client.set_store("temp", "memory://metrics", limit="unlimited")
    await client.apply("orders", limit="2KB", when_full="spool", store="temp")
    producer = await client.session("ann").producer("orders")
    for _ in range(5):
        await producer.send(b"x" * 1000)
    samples = await scrape(http)
    one, store = {"namespace": client.namespace, "destination": "orders"}, {"namespace": client.namespace}
    assert value(samples, "headgate_spooled_bytes", **one) >= 4000
    assert 4 * 30 <= value(samples, "headgate_reference_bytes", **one) <= 5 * 64
    assert value(samples, "headgate_limit_reference_bytes", **one) == 64 << 20
    assert value(samples, "headgate_pending_bytes", **one) < 2000
    assert value(samples, "headgate_store_held_bytes", store="temp", **store) >= 4000
    assert value(samples, "headgate_store_segments", store="temp", **store) >= 1
    assert value(samples, "headgate_store_held_bytes", store="disk", **store) == 0
    assert value(samples, "headgate_store_limit_bytes", store="disk", **store) == 1 << 20
    assert not [labels for name, labels in samples if name == "headgate_store_limit_bytes" and "temp" in str(labels)]
    told = (await http.get("/api/v1/stores")).json()["stores"]
    assert [(one["name"], one["url"], one["waiting"]) for one in told] == [
        ("disk", "s3://bucket/spool", 0), ("temp", "memory://metrics", 0),
    ]  # fmt: skip
    shown = (await http.get("/api/v1/destinations/orders")).json()
    assert shown["spooled_bytes"] >= 4000
    assert 4 * 30 <= shown["reference_bytes"] <= 5 * 64 < shown["limit_reference_bytes"] == 64 << 20
    assert (await http.get("/api/v1/overview")).json()["totals"]["spooled_bytes"] >= 4000


async def test_pools_and_who_holds_them(http: Http, client: headgate.Client) -> None:
    """Mutants: pools are not read; an unlimited one has a limit."""
    await client.set_pool("memory", limit=4000)
    await client.set_pool("wide", limit="unlimited")
    await client.apply("orders", pools="memory wide")
    producer = await client.session("ann").producer("orders", window=10)
    await producer.send(b"x" * 996)
    samples = await scrape(http)
    pool = {"namespace": client.namespace, "pool": "memory"}
    assert value(samples, "headgate_pool_used_bytes", **pool) == 1000
    assert value(samples, "headgate_pool_limit_bytes", **pool) == 4000
    assert value(samples, "headgate_pool_members", **pool) == 1
    assert value(samples, "headgate_pool_waiting_destinations", **pool) == 0
    assert value(samples, "headgate_pool_granted_bytes", **pool) >= 1000
    assert not [labels for name, labels in samples if name == "headgate_pool_limit_bytes" and "wide" in str(labels)]
    memory, wide = (await http.get("/api/v1/pools")).json()["pools"]
    assert (memory["full"], wide["full"], wide["limit"]) == (0.25, None, None)
    assert [one["destination"] for one in memory["holders"]] == ["orders"]
    assert (await http.get("/api/v1/overview")).json()["pools"] == [memory, wide]


async def test_the_node_has_its_figures(http: Http, node: StandIn) -> None:
    node.connections = 4
    node.links = (link(1), link(2, waiting_seconds=1.0), link(3, direction="to client", unsettled=9))
    node.counters = Counters({"from client": 10, "to client": 5}, {"from client": 1000}, {"too-large": 2})
    node.bridges = (
        BridgeFacts("a>b", "a", "b", works=True, trouble=NO_ROOM, messages=7, bytes=70),
        BridgeFacts("a>c", "a", "c", works=False, messages=2, bytes=20),
        BridgeFacts("a>>q", "a", "239.1.2.3:7000", works=True, messages=2, bytes=20, packets=5, backlog=9),
    )
    samples = await scrape(http)
    assert value(samples, "headgate_node_bridges") == 2
    assert value(samples, "headgate_node_stalled_bridges") == 1
    assert value(samples, "headgate_node_channel_packets_total", source="a", target="239.1.2.3:7000") == 5
    assert value(samples, "headgate_node_channel_backlog", source="a", target="239.1.2.3:7000") == 9
    assert value(samples, "headgate_node_forwarded_messages_total", source="a", target="b") == 7
    assert value(samples, "headgate_node_forwarded_bytes_total", source="a", target="c") == 20
    assert value(samples, "headgate_node_connections") == 4
    assert value(samples, "headgate_node_links", direction="in") == 2
    assert value(samples, "headgate_node_waiting_links", direction="in") == 1
    assert value(samples, "headgate_node_unsettled_messages", direction="out") == 9
    assert value(samples, "headgate_node_messages_total", direction="in") == 10
    assert value(samples, "headgate_node_bytes_total", direction="in") == 1000
    assert value(samples, "headgate_node_rejected_total", reason="too-large") == 2
    assert value(samples, "headgate_node_ready") == 1
    assert value(samples, "headgate_node_info", node="node~1", address="node-1.example:5672") == 1


async def over_sites(client: headgate.Client) -> None:
    """Have a pool of which berlin has a part, and one that is a part of paris'."""
    server = client.store.server
    fields = ({"limit_bytes": "1000", "sites": "berlin=500"}, {"limit_bytes": "unlimited", "part_of": "paris/all"})
    await client.apply_pools(
        [{"name": name, "fields": each} for name, each in zip("ab", fields, strict=True)], version=1
    )
    home, part = (PoolAddress.of(client.namespace, name) for name in "ab")
    letters = home.site_key("berlin")
    await server.command(letters, "HSET", letters, "report", "epoch=1 pool=0 granted=0 returned=0 need=9 at=1")
    await PoolSiteStore(server).account(home, "berlin")
    await server.command(letters, "DEL", letters)
    epoch = (await PoolSiteStore(server).share(part)).epoch
    await PoolSiteStore(server).share(part, Letter("x", "OK", epoch, 1, 100, 0, 500), of="paris/all")


async def test_only_declared_metrics_with_declared_labels(http: Http, client: headgate.Client, node: StandIn) -> None:
    adapts = {"calls": {"at_once": {"min": 1, "max": 9, "adapt": "aimd"}}}
    await client.apply("search", kind="limiter", limits=adapts)
    await client.apply("orders", limit=1000, limit_messages=5, shadow={"messages": 1})
    await client.apply("sms", kind="bucket", rate="10/s")
    limits = {"slots": {"at_once": 1}}
    await client.apply("llm", kind="limiter", enforce="shadow", limits=limits)
    await client.set_store("disk", "memory://metrics", limit="1MiB")
    await client.set_pool("memory", limit="1MiB")
    await over_sites(client)
    node.counters = Counters({"from client": 1}, {"from client": 1}, {"too-large": 1})
    node.bridges = (BridgeFacts("a>>q", "a", "239.1.2.3:7000", works=True, backlog=0),)
    node.deadlocks = DeadlockFacts(1, {"alert": 2})
    await (await client.session("ann").limiter("llm", in_hand=False)).admit(slots=2, band=0)
    found: dict[str, set[str]] = {}
    for name, labels in await scrape(http):  # the parts of a histogram are one
        found.setdefault(re.sub("(wait_seconds)_(bucket|count|sum)$", r"\1", name), set()).update(
            label for label, _ in labels if label != "le"
        )
    assert found == {declared.exposed: set(declared.labels) for declared in METRICS}


def test_names_and_units_are_conventional() -> None:
    assert len({declared.name for declared in METRICS}) == len(METRICS)
    for declared in METRICS:
        assert re.fullmatch(r"headgate(_[a-z]+)+", declared.name)
        assert not declared.name.endswith("_total"), "a counter gets it when it is exposed"
        assert not re.search(r"_(ms|kb|mb|kib|mib|percent)(_|$)", declared.name), "base units"
        assert declared.help.endswith(".")


def test_the_page_lists_every_metric_with_its_type_and_labels() -> None:
    rows = re.findall(r"^\| `(headgate_\w+)` \| (\w+) \|([^|]*)\| [^|]+ \|$", PAGE.read_text(), re.MULTILINE)
    said = {name: (kind, tuple(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}
    assert said == {declared.exposed: (declared.type, declared.labels) for declared in METRICS}


async def test_no_more_destinations_than_the_bound_have_metrics(client: headgate.Client, open_http: OpenHttp) -> None:
    for number in range(5):
        await client.apply(f"d{number}", limit=1000)
    samples = await scrape(await open_http(client, destinations=2))
    named = {dict(labels)["destination"] for name, labels in samples if name == "headgate_pending_bytes"}
    assert named == {"d0", "d1"}
    assert value(samples, "headgate_destinations", namespace=client.namespace) == 5
    assert value(samples, "headgate_destinations_omitted", namespace=client.namespace) == 3


async def test_hundreds_of_destinations_cost_few_calls_and_are_not_read_again_at_once(
    http: Http, client: headgate.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for start in range(0, 300, 50):
        await _apply(client, range(start, start + 50))
    before = client.store.server.calls
    samples = await scrape(http)
    assert sum(name == "headgate_pending_bytes" for name, _ in samples) == 300
    assert client.store.server.calls == before, "plain reads in bursts, not a script for each"
    monkeypatch.setattr(namespace_watch, "FRESH", 60.0)
    seen = (await http.get("/metrics")).text
    assert (await http.get("/metrics")).text == seen, "the same picture while it is fresh"
    for name in await client.destinations():
        await client.remove(name)


async def test_however_many_ask_redis_is_asked_once(
    http: Http, client: headgate.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.apply("orders", limit=1000)
    burst, asked = client.store.server.burst, list[int]()

    async def counted(commands: Any) -> Any:
        asked.append(len(commands))
        return await burst(commands)

    monkeypatch.setattr(client.store.server, "burst", counted)
    answers = await asyncio.gather(*(http.get("/metrics") for _ in range(20)))
    assert {answer.status_code for answer in answers} == {200}
    assert asked == [2], "the time and one destination, once"


async def _apply(client: headgate.Client, numbers: range) -> None:
    for number in numbers:
        await client.apply(f"d{number:04}", limit=1000)


async def test_on_a_cluster_too(cluster_url: str, cleanup_namespace: str, open_http: OpenHttp) -> None:
    async with headgate.connect(cluster_url, namespace=cleanup_namespace) as client:
        for number in range(20):
            await client.apply(f"d{number}", limit=1000 + number)
        http = await open_http(client)
        samples = await scrape(http)
        limits = {
            dict(labels)["destination"]: n for (name, labels), n in samples.items() if name.endswith("limit_bytes")
        }
        assert limits == {f"d{number}": 1000 + number for number in range(20)}
        assert (await http.get("/ready")).status_code == 200


class TestProbes:
    async def test_alive_and_ready(self, http: Http) -> None:
        assert (await http.get("/live")).json() == {"status": "live"}
        answer = await http.get("/ready")
        assert (answer.status_code, answer.json()) == (200, {"status": "ready", "reason": ""})

    async def test_a_node_that_drains_is_alive_and_not_ready(self, http: Http, node: StandIn) -> None:
        node.state, node.why_not = "draining", "it drains: clients go to other nodes"
        answer = await http.get("/ready")
        assert (answer.status_code, answer.json()["reason"]) == (503, "it drains: clients go to other nodes")
        assert (await http.get("/live")).status_code == 200
        assert value(await scrape(http), "headgate_node_ready") == 0

    async def test_without_a_node_redis_decides(self, client: headgate.Client, open_http: OpenHttp) -> None:
        http = await open_http(client)
        assert (await http.get("/ready")).status_code == 200
        assert not [name for name, _ in await scrape(http) if name.startswith("headgate_node")]


@pytest.mark.parametrize("trouble", ["frozen", "dead"])
async def test_without_redis_all_is_answered_in_time_and_comes_back(
    server: RedisServer, open_http: OpenHttp, namespace: str, trouble: str
) -> None:
    async with headgate.connect(server.url, namespace=namespace) as client:
        await client.apply("orders", limit=1000)
        http = await open_http(client, StandIn())
        assert value(await scrape(http), "headgate_redis_up") == 1
        (server.sigstop if trouble == "frozen" else server.kill9)()

        async def down() -> bool:
            return value(await scrape(http), "headgate_redis_up") == 0

        await wait_until(down)
        samples = await scrape(http)
        assert not [name for name, _ in samples if name == "headgate_pending_bytes"], "nothing that may be wrong"
        assert value(samples, "headgate_node_ready") == 1, "of the node all is known"
        answer = await http.get("/ready")
        assert (answer.status_code, answer.json()["status"]) == (503, "not ready")
        assert answer.json()["reason"]
        assert (await http.get("/live")).status_code == 200
        overview = (await http.get("/api/v1/overview")).json()
        assert overview["trouble"]
        assert overview["age_seconds"] > 0
        assert [one["name"] for one in overview["page"]["destinations"]] == ["orders"], "the last that was seen"
        problem = (await http.get("/api/v1/destinations")).json()
        assert (problem["status"], problem["type"]) == (503, "urn:headgate:problem:coordinator-unavailable")
        if trouble == "frozen":
            server.sigcont()
        else:
            server.restart()

        async def ready() -> bool:
            return (await http.get("/ready")).status_code == 200

        async def up() -> bool:
            return not await down()

        await wait_until(ready)
        await wait_until(up)
