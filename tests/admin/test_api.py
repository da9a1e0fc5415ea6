"""The JSON API on a real Redis: what is there, what can be changed, and what is refused, as RFC 9457 problems."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import httpx
import pytest

import headgate
from headgate.policy import loads
from headgate.redis.keys import Address, link_at, link_id
from headgate.redis.replies import Account
from headgate_coordinator.fleet.leases import LeaseStore
from headgate_coordinator.fleet.node_facts import BridgeFacts
from headgate_coordinator.fleet.registry import NodeRegistry
from tests.admin.standin import StandIn, link
from tests.links.policy.test_explain_links import worker
from tests.links.site import work
from tests.policy.documents.test_resolve import PARTS
from tests.support.waiting import wait_until

Http = httpx.AsyncClient
OpenHttp = Callable[..., Awaitable[Http]]


def at(name: str, what: str = "") -> str:
    return f"/api/v1/destinations/{quote(name, safe='')}{what}"


async def told(http: Http, path: str, **params: Any) -> Any:
    answer = await http.get(path, params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


def refused(answer: httpx.Response, status: int, word: str) -> Any:
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    problem = answer.json()
    assert (answer.status_code, problem["status"]) == (status, status), problem
    assert problem["type"] == f"urn:headgate:problem:{word}"
    assert problem["detail"]
    return problem


async def wait_at(client: headgate.Client, name: str, session: str) -> None:
    """Have a session stand in line, as a lane of a link."""
    account = Account(session, 1, 0, 0, 0, 0, 0, 0, 0, 10, 1, 10, 1, 1, 10)
    assert (await client.store.acquire(Address.of(client.namespace, name), account, ttl_ms=60_000)).code == "OK"


@asynccontextmanager
async def blocked(client: headgate.Client, name: str) -> AsyncIterator[headgate.Session]:
    """A destination with a limit that one message fills, and a session that waits to send the next."""
    await client.apply(name, limit=1000)
    session = client.session("ann")
    producer = await session.producer(name)
    await producer.send(b"x" * 900)
    waiting = asyncio.create_task(producer.send(b"x" * 900, timeout=60))
    try:
        await wait_until(lambda: _waits(client, name))
        yield session
    finally:
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


async def _waits(client: headgate.Client, name: str) -> bool:
    return (await client.explain(name)).blocked == 1


class TestWhatIsThere:
    async def test_a_destination(self, http: Http, client: headgate.Client) -> None:
        await client.apply("orders", limit="10KiB", limit_messages=2000)
        producer = await client.session("ann").producer("orders", window="1KiB")
        await producer.send(b"x" * 100)
        one = await told(http, at("orders"))
        assert (one["name"], one["kind"], one["state"]) == ("orders", "queue", "open")
        assert (one["limit_bytes"], one["limit_messages"]) == (10240, 2000)
        assert one["pending_messages"] == 1
        assert one["pending_bytes"] > 100
        assert 0 < one["used"] <= 1

    @pytest.mark.parametrize(
        "name", ["a/b", "a%2Fb", "50% off", "ünï", "a/explain", "x/block/", " ", "q&a=1;2", "a+b", "a..b"]
    )
    async def test_every_name_that_a_destination_can_have(self, http: Http, client: headgate.Client, name: str) -> None:
        await client.apply(name, limit=1000)
        assert (await told(http, at(name)))["name"] == name
        assert (await told(http, at(name, "/explain")))["explanation"]["destination"] == name
        assert [one["name"] for one in (await told(http, "/api/v1/destinations"))["destinations"]] == [name]

    async def test_an_unknown_one_is_not_found(self, http: Http) -> None:
        for answer in (
            await http.get(at("nothing")),
            await http.get(at("nothing", "/explain")),
            await http.post(at("nothing", "/block"), json={"reason": "x"}),
            await http.post(at("nothing", "/unblock")),
            await http.post(at("nothing", "/purge")),
        ):
            assert refused(answer, 404, "unknown-destination")["destination"] == "nothing"

    async def test_a_name_that_cannot_be_is_refused(self, http: Http) -> None:
        assert "cannot be part of a name" in refused(await http.get(at("a*b")), 400, "invalid-name")["detail"]
        refused(await http.get("/api/v1/destinations/%ff"), 400, "invalid-name")
        refused(await http.post(at("n" * 256, "/purge")), 400, "invalid-name")

    async def test_a_slash_that_is_not_encoded_is_pointed_out(self, http: Http) -> None:
        assert "%2F" in refused(await http.get("/api/v1/destinations/a/b"), 404, "not-found")["detail"]

    async def test_search_sort_and_pages(self, http: Http, client: headgate.Client) -> None:
        for name, limit in (("shop.b", 3000), ("shop.a", 1000), ("mail", 2000), ("SHOP.c", 500)):
            await client.apply(name, limit=limit)

        async def names(**params: Any) -> list[str]:
            return [one["name"] for one in (await told(http, "/api/v1/destinations", **params))["destinations"]]

        assert await names() == ["SHOP.c", "mail", "shop.a", "shop.b"]
        assert await names(search="shop", sort="limit", descending=True) == ["shop.b", "shop.a", "SHOP.c"]
        assert await names(search="shop", sort="limit") == ["SHOP.c", "shop.a", "shop.b"]
        page = await told(http, "/api/v1/destinations", search="shop", limit=1, offset=1)
        assert [one["name"] for one in page["destinations"]] == ["shop.a"]
        assert (page["total"], page["matched"], page["offset"]) == (4, 3, 1)
        assert await names(search="nothing") == []
        assert await names(offset=10) == []

    async def test_equal_ones_are_by_name_whichever_way(self, http: Http, client: headgate.Client) -> None:
        for name in ("b", "a", "c"):
            await client.apply(name, limit=1000)
        for descending in (True, False):
            page = await told(http, "/api/v1/destinations", sort="blocked", descending=descending)
            assert [one["name"] for one in page["destinations"]] == ["a", "b", "c"]

    @pytest.mark.parametrize(
        ("params", "place"),
        [({"sort": "colour"}, "sort"), ({"limit": "0"}, "limit"), ({"limit": "x"}, "limit"),
         ({"colour": "1"}, "colour"),
         ({"offset": "-1"}, "offset"), ({"only": "some"}, "only"), ({"search": "x" * 256}, "search")],
    )  # fmt: skip
    async def test_a_parameter_that_cannot_be_used_is_named(
        self, http: Http, params: dict[str, str], place: str
    ) -> None:
        problem = refused(await http.get("/api/v1/destinations", params=params), 400, "invalid-value")
        assert problem["errors"][0]["place"] == place

    async def test_why_a_sender_waits_for_all_and_for_itself(self, http: Http, client: headgate.Client) -> None:
        async with blocked(client, "orders") as session:
            why = await told(http, at("orders", "/explain"))
            assert why["explanation"]["state"] == "blocked"
            assert why["text"].startswith("orders (queue): blocked: ")
            assert session.id in why["text"]
            own = await told(http, at("orders", "/explain"), producer=session.id)
            assert (own["explanation"]["session"], own["explanation"]["place"]) == (session.id, 1)
            answer = await http.get(at("orders", "/explain"), params={"producer": "nobody~1"})
            assert "neither sends" in refused(answer, 400, "invalid-value")["detail"]
            answer = await http.get(at("orders", "/explain"), params={"consumer": "nobody~1.1"})
            refused(answer, 400, "invalid-value")

    async def test_the_overview_has_what_the_page_shows(
        self, http: Http, client: headgate.Client, node: StandIn
    ) -> None:
        node.links = (link(1), link(2, waiting_seconds=3.5, reason="it is full"))
        registry = NodeRegistry(client)
        await registry.beat(node.facts(), 1.0)
        async with blocked(client, "orders") as session:
            await client.apply("mail", kind="gate", limit=5000)
            await client.apply("sms", kind="bucket", rate="10/s")

            async def seen() -> Any:
                found = await told(http, "/api/v1/overview")
                return found if found["waiting"] and len(found["page"]["destinations"]) == 3 else None

            overview = await wait_until(seen)
            assert overview["namespace"] == client.namespace
            assert overview["trouble"] == ""
            assert overview["totals"]["destinations"] == 3
            assert (overview["totals"]["blocked"], overview["totals"]["held_up"]) == (1, 1)
            (waiting,) = overview["waiting"]
            assert (waiting["session"], waiting["place"], waiting["destination"]) == (session.id, 1, "orders")
            assert "no consumer" in waiting["reason"].lower()
            by_name = {one["name"]: one for one in overview["page"]["destinations"]}
            assert by_name["orders"]["reason"] == waiting["reason"]
            assert by_name["sms"]["rate"] == 10
            assert [one["id"] for one in overview["links"]] == ["l2", "l1"], "those that wait first"
            assert overview["nodes"]["this"] == "node~1"
            assert [one["address"] for one in overview["nodes"]["nodes"]] == ["node-1.example:5672"]
            only = await told(http, "/api/v1/overview", only="blocked")
            assert [one["name"] for one in only["page"]["destinations"]] == ["orders"]
        await registry.leave("node~1")

    async def test_consumers_at_capacity(self, http: Http, client: headgate.Client) -> None:
        await client.apply("orders", limit="1MiB")
        producer = await client.session("ann").producer("orders")
        consumer = await client.session("bob").consumer("orders", window=2)
        for _ in range(5):
            await producer.send(b"x")
        held = [await anext(consumer) for _ in range(2)]

        async def seen() -> Any:
            return (await told(http, "/api/v1/overview"))["consumers"]

        (full,) = await wait_until(seen)
        assert (full["consumer"], full["messages"], full["at_capacity"]) == (consumer.id, 2, True)
        assert len(held) == 2

    async def test_messages_a_second_are_told_once_they_are_known(self, http: Http, client: headgate.Client) -> None:
        await client.apply("orders", limit="1MiB")
        assert (await told(http, "/api/v1/destinations"))["destinations"][0]["in_per_second"] is None
        producer = await client.session("ann").producer("orders")
        for _ in range(10):
            await producer.send(b"x")

        async def seen() -> Any:
            one = (await told(http, "/api/v1/destinations"))["destinations"][0]
            return one if one["in_per_second"] else None

        one = await wait_until(seen)
        assert one["pending_messages"] == 10
        assert one["out_per_second"] == 0

    async def test_nodes(self, http: Http, client: headgate.Client, node: StandIn) -> None:
        registry = NodeRegistry(client)
        node.connections = 3
        await registry.beat(node.facts(), 1.0)
        found = await told(http, "/api/v1/nodes")
        (one,) = found["nodes"]
        assert found["this"] == one["id"] == "node~1"
        assert (one["connections"], one["state"], one["admin"]) == (3, "ready", "http://node-1.example:8161")
        await registry.leave("node~1")


class TestLinks:
    POLICY = """
        [[bridge]]
        name = "to billing"
        from = "orders/eu"
        to = "billing"
    """

    async def test_each_with_the_side_that_holds_it_up(
        self, http: Http, client: headgate.Client, node: StandIn
    ) -> None:
        """Mutant: `stalled` is left to the nodes to say."""
        assert await told(http, "/api/v1/links") == {"total": 0, "links": []}
        await client.apply_policy(loads(self.POLICY, "shop.toml"))
        for name in ("orders/eu", "billing"):
            await client.apply(name, kind="queue", limit=100)

        link, registry = "orders%2Feu>billing", NodeRegistry(client)

        async def beat(now: float, forwarded: int) -> None:
            node.bridges = (BridgeFacts(link, "orders/eu", "billing", works=True, messages=forwarded),)
            await registry.beat(node.facts(), now)

        async def seen(**facts: Any) -> Any:
            if facts["state"] == "stalled":
                await beat(3.0, 50)
            (one,) = (await told(http, "/api/v1/links"))["links"] or [{}]
            return one if facts.items() <= one.items() else None

        one = await wait_until(lambda: seen(state="nobody"))
        assert (one["side"], one["source"], one["target"], one["site"]) == ("nobody", "orders/eu", "billing", "")
        assert (one["kind"], one["name"], one["origin"]) == ("bridge", "to billing", "shop.toml:2")
        assert "start a node" in one["remedy"]
        leases = LeaseStore(client.store.server, client.namespace)
        await leases.call(node.id, [link], mode="hold", ttl_ms=60_000, total=1)
        await work(worker(client, "orders/eu", "billing"))
        await beat(1.0, 0)
        await beat(2.0, 25)
        one = await wait_until(lambda: seen(state="works"))
        assert (one["side"], one["rate"], one["owner"]) == ("moves", 25.0, node.id)
        for name in ("orders/eu", "billing"):
            async with client.session() as session:
                producer = await session.producer(name, window=10)
                for _ in range(10):
                    await producer.send(b"1234567")
        await work(worker(client, "orders/eu", "billing"))
        one = await wait_until(lambda: seen(state="stalled"))
        assert (one["side"], one["backlog"]) == ("target", 10)
        assert "billing is blocked: the limit of 100 bytes is reached: no consumer is attached" in one["reason"]
        overview = await told(http, "/api/v1/overview")
        assert overview["policy_links"]["links"][0]["link"] == link
        by_name = {one["name"]: one["reason"] for one in overview["page"]["destinations"]}
        assert "bridge orders/eu>billing waits" in by_name["orders/eu"]
        (lane,) = overview["waiting"]
        assert (lane["link"], lane["session"]) == ("bridge orders/eu>billing", link_id(link))
        await wait_at(client, "billing", link_at(lane["session"], 3))

        async def both_lanes() -> Any:
            overview = await told(http, "/api/v1/overview")
            (billing,) = (one for one in overview["page"]["destinations"] if one["name"] == "billing")
            return overview["waiting"] if billing["blocked"] == 2 else None

        (found,) = await wait_until(both_lanes)
        assert (found["link"], found["place"]) == ("bridge orders/eu>billing", 1)
        await registry.leave(node.id)

    async def test_one_is_explained_and_another_is_not_found(self, http: Http, client: headgate.Client) -> None:
        await client.apply_policy(loads(self.POLICY))
        for name in ("to billing", "orders%2Feu>billing", "orders/eu>billing"):
            why = await told(http, f"/api/v1/links/{quote(name, safe='')}/explain")
            assert why["text"].startswith("orders%2Feu>billing (bridge): blocked: no node that is alive works on it")
            assert why["explanation"]["link"]["side"] == "nobody"
        answer = await http.get("/api/v1/links/none/explain")
        assert refused(answer, 404, "unknown-link")["link"] == "none"


async def test_a_gate_that_is_held_off_is_stopped(http: Http, client: headgate.Client) -> None:
    await client.apply("db", kind="gate", limit=8)
    async with client.session("s") as session:
        await (await session.gate("db")).hold_off(60)

    async def shown() -> bool:
        (one,) = (await told(http, "/api/v1/destinations"))["destinations"]
        return (one["name"], one["state"]) == ("db", "stopped")

    await wait_until(shown, timeout=60)


class TestChanges:
    async def test_block_and_unblock(self, http: Http, client: headgate.Client) -> None:
        await client.apply("orders", limit=1000)
        answer = await http.post(at("orders", "/block"), json={"reason": "disk <b>full</b>"})
        assert answer.json()["state"] == "stopped"
        assert "disk <b>full</b>" in (await client.explain("orders")).reason
        page = await told(http, "/api/v1/destinations")
        assert page["destinations"][0]["stopped"] == "disk <b>full</b>", "at once, though it was read just now"
        answer = await http.post(at("orders", "/unblock"))
        assert answer.json()["state"] == "open"
        assert (await http.post(at("orders", "/unblock"))).status_code == 200, "again does not matter"

    @pytest.mark.parametrize(
        "body", [b"", b"{", b"[]", b'{"reason": ""}', b'{"reason": 7}', b'{"why": "x"}', b'{"reason": "\\u0007"}']
    )
    async def test_a_block_without_a_reason_is_refused(self, http: Http, client: headgate.Client, body: bytes) -> None:
        await client.apply("orders", limit=1000)
        answer = await http.post(at("orders", "/block"), content=body, headers={"Content-Type": "application/json"})
        refused(answer, 400, "invalid-value")
        assert (await client.explain("orders")).state == "open"

    async def test_purge(self, http: Http, client: headgate.Client) -> None:
        await client.apply("orders", limit=10_000)
        producer = await client.session("ann").producer("orders")
        for _ in range(3):
            await producer.send(b"x")
        answer = await http.post(at("orders", "/purge"))
        assert answer.json() == {"destination": "orders", "messages": 3}
        assert (await told(http, at("orders")))["pending_messages"] == 0

    async def test_a_change_asked_for_by_a_page_of_another_site_is_refused(
        self, http: Http, client: headgate.Client
    ) -> None:
        await client.apply("orders", limit=10_000)
        for headers in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "null"}):
            refused(await http.post(at("orders", "/purge"), headers=headers), 403, "cross-site")
        same = {"Origin": "http://node.example", "Sec-Fetch-Site": "same-origin"}
        assert (await http.post(at("orders", "/purge"), headers=same)).status_code == 200

    async def test_only_the_declared_methods(self, http: Http, client: headgate.Client) -> None:
        await client.apply("orders", limit=1000)
        answer = await http.get(at("orders", "/purge"))
        refused(answer, 405, "method-not-allowed")
        assert "POST" in answer.headers["allow"]
        refused(await http.delete(at("orders")), 405, "method-not-allowed")


TOML = b"""
[[destination]]
match = "orders.*"
limit.bytes = "5KiB"
"""


class TestPolicy:
    async def put(self, http: Http, body: bytes, kind: str = "application/toml", **params: Any) -> httpx.Response:
        return await http.put("/api/v1/policy", content=body, headers={"Content-Type": kind}, params=params)

    async def test_there_is_none_at_first(self, http: Http) -> None:
        none = {
            "version": 0,
            "source": "",
            "rules": [],
            "pools": [],
            "stores": [],
            "links": [],
            "channels": [],
            "site": "",
            "sites": [],
            "strict": False,
            "include_parent": False,
            "descriptors": [],
            "user_limits": [],
        }
        assert await told(http, "/api/v1/policy") == none

    async def test_each_part_of_one_is_told(self, http: Http, client: headgate.Client) -> None:
        """Mutant: the answer knows no such part, and is an internal error."""
        for part, text in PARTS.items():
            policy = loads(text)
            await client.apply_policy(policy)
            assert (await told(http, "/api/v1/policy"))[part] == json.loads(policy.to_json())[part]

    async def test_a_dry_run_says_what_would_change_and_changes_nothing(
        self, http: Http, client: headgate.Client
    ) -> None:
        await client.apply("orders.eu", limit=1000)
        plan = (await self.put(http, TOML, dry_run="true")).json()
        assert (plan["version"], plan["same"], plan["destinations"]) == (0, False, 1)
        assert plan["changes"][0]["destination"] == "orders.eu"
        assert (await client.policy()).version == 0
        problem = refused(await self.put(http, TOML, dry_run="true", expect=3), 409, "policy-conflict")
        assert (problem["version"], problem["expected"]) == (0, 3)

    async def test_put_in_force(self, http: Http, client: headgate.Client) -> None:
        await client.apply("orders.eu", limit=1000)
        answer = (await self.put(http, TOML, source="shop.toml", expect=0)).json()
        assert answer == {"version": 1, "destinations": 1, "source": "shop.toml"}
        assert (await told(http, at("orders.eu")))["limit_bytes"] == 5 * 1024
        policy = await told(http, "/api/v1/policy")
        assert (policy["version"], policy["rules"][0]["match"]) == (1, "orders.*")
        problem = refused(await self.put(http, TOML.replace(b"5", b"6"), expect=0), 409, "policy-conflict")
        assert (problem["version"], problem["expected"]) == (1, 0)

    async def test_json_too(self, http: Http, client: headgate.Client) -> None:
        document = {"destination": [{"match": "a", "limit": {"messages": 3}}]}
        answer = await self.put(http, json.dumps(document).encode(), "application/json; charset=utf-8")
        assert answer.json()["version"] == 1
        assert (await client.effective("a")).fields["limit_messages"] == "3"

    async def test_everything_that_is_wrong_with_a_document_is_told(self, http: Http) -> None:
        bad = b'[[destination]]\nmatch = "a"\nlimit.bytes = "5 apples"\ncolour = "red"\n'
        problem = refused(await self.put(http, bad), 422, "bad-document")
        assert [one["place"] for one in problem["problems"]] == ["admin.toml:3", "admin.toml:4"]
        refused(await self.put(http, b"{"), 422, "bad-document")
        refused(await self.put(http, b""), 422, "bad-document")
        assert (await told(http, "/api/v1/policy"))["version"] == 0

    async def test_what_is_no_document(self, http: Http) -> None:
        refused(await self.put(http, TOML, "text/html"), 415, "media-type")
        refused(await self.put(http, b"\xff"), 400, "invalid-value")
        refused(await self.put(http, b"#" * ((1 << 20) + 1)), 413, "too-large")
