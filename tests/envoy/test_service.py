"""The rate limit service, asked with gRPC's own client: rules, holds, what is refused, and who may ask."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple

import grpc
import httpx
import pytest
from envoy.extensions.common.ratelimit.v3.ratelimit_pb2 import RateLimitDescriptor
from envoy.service.ratelimit.v3.rls_pb2 import RateLimitRequest, RateLimitResponse
from envoy.service.ratelimit.v3.rls_pb2_grpc import RateLimitServiceStub
from google.protobuf.wrappers_pb2 import UInt64Value

import headgate
from headgate import InvalidValue
from headgate.policy import loads
from headgate_coordinator.admin import AdminServer, create_app
from headgate_coordinator.envoy.bounds import MOST_DESCRIPTORS, key_of
from headgate_coordinator.envoy.decisions import Decisions
from headgate_coordinator.envoy.server import RateLimits
from headgate_coordinator.rpc import LARGEST, RpcServer
from tests.support.waiting import wait_until

OK, OVER = RateLimitResponse.OK, RateLimitResponse.OVER_LIMIT
RULES = """
[[descriptor]]
domain = "shop"
entries = ["path=/search", "tenant"]
limiter = "api"
amounts = { requests = 5 }
key = "tenant"

[[descriptor]]
domain = "shop"
entries = ["path", "tenant"]
limiter = "api"
amounts = { requests = 1 }
key = "tenant"

[[descriptor]]
domain = "shop"
entries = ["daily"]
limiter = "daily"
amounts = { calls = 1 }

[[descriptor]]
domain = "shop"
entries = ["enter"]
limiter = "api"
amounts = { slots = 1 }
hold = "enter"
ttl = "10s"

[[descriptor]]
domain = "shop"
entries = ["leave"]
limiter = "api"
release = "leave"

[[descriptor]]
domain = "shop"
entries = ["wrong"]
limiter = "by hand"
amounts = { slots = 1 }
"""
LIMITS = """
[[limiter]]
match = "api"
[[limiter.limit]]
name = "requests"
rate = "60/min"
burst = 1000
[[limiter.limit]]
name = "slots"
at_once = 2
[limiter.per_key]
requests = { rate = "1/min", burst = 100 }

[[limiter]]
match = "daily"
[[limiter.limit]]
name = "calls"
quota = "1000/day"
"""


class Served(NamedTuple):
    service: RateLimits
    server: RpcServer


Open = Callable[..., Awaitable[tuple[Served, RateLimitServiceStub]]]


@pytest.fixture
async def served(client: headgate.Client) -> AsyncIterator[Open]:
    """Opens services, each as that of another node, and clients of them."""
    await client.apply_policy(loads(LIMITS + RULES))
    await client.apply("by hand", kind="limiter", limits={"slots": {"at_once": 1}})
    async with contextlib.AsyncExitStack() as stack:

        async def one(token: str | None = None, **settings: Any) -> tuple[Served, RateLimitServiceStub]:
            service = RateLimits(Decisions(client), token)
            stack.push_async_callback(service.close)
            server = RpcServer([service.handler], token=token, **settings)
            await server.start()
            stack.push_async_callback(server.close)
            channel = await stack.enter_async_context(grpc.aio.insecure_channel(f"127.0.0.1:{server.port}"))
            return Served(service, server), RateLimitServiceStub(channel)

        yield one


def request(*descriptors: dict[str, str], hits: int = 0, domain: str = "shop") -> RateLimitRequest:
    return RateLimitRequest(domain=domain, descriptors=map(descriptor, descriptors), hits_addend=hits)


def descriptor(entries: dict[str, str], hits: int | None = None) -> RateLimitDescriptor:
    items = [RateLimitDescriptor.Entry(key=key, value=value) for key, value in entries.items()]
    return RateLimitDescriptor(entries=items, hits_addend=None if hits is None else UInt64Value(value=hits))


async def taken(client: headgate.Client, limit: str, key: str | None = None, name: str = "api") -> int:
    async with client.session() as session:
        state = await (await session.limiter(name, in_hand=False)).state(key=key)
        return int((state.key_limits if key else state.limits)[limit].taken)


async def test_a_descriptor_asks_the_limiter_of_its_rule_for_its_key(client: headgate.Client, served: Open) -> None:
    """Mutants: keys of entries in any order; values of rules not looked at; hits not counted."""
    _, stub = await served()
    page = {"path": "/", "tenant": "acme"}
    assert (await stub.ShouldRateLimit(request(page, hits=60))).overall_code == OK
    assert (await stub.ShouldRateLimit(request({"path": "/search", "tenant": "acme"}, hits=7))).overall_code == OK
    refused = await stub.ShouldRateLimit(request(page, hits=6))
    assert refused.overall_code == refused.statuses[0].code == OVER
    assert refused.statuses[0].current_limit.name == "requests"
    assert 1 <= refused.statuses[0].duration_until_reset.seconds <= 60
    assert 1 <= int(refused.response_headers_to_add[0].value) <= 60
    for other in (page | {"tenant": "other"}, {"tenant": "acme", "path": "/"}, {"nothing": "x"}):
        assert (await stub.ShouldRateLimit(request(other))).overall_code == OK
    assert (await stub.ShouldRateLimit(request(page, domain="another", hits=1000))).overall_code == OK
    looks = RateLimitRequest(domain="shop", descriptors=[descriptor(page, hits=0)])
    assert (await stub.ShouldRateLimit(looks)).overall_code == OK


async def test_keys_of_all_slices_share_what_all_may_and_hear_when_to_come_again(
    client: headgate.Client, served: Open
) -> None:
    """Mutant: a call that its key's slice admits is not asked for where limits of all keys are."""
    sliced = LIMITS.replace('match = "api"', 'match = "api"\nslices = 3').replace('rate = "60/min"', 'rate = "60/h"')
    await client.apply_policy(loads(sliced + RULES))
    stubs = [(await served())[1] for _ in range(2)]
    for number in range(10):
        page = {"path": "/", "tenant": f"t{number}"}
        assert (await stubs[number % 2].ShouldRateLimit(request(page, hits=100))).overall_code == OK
    for number in range(10, 16):
        refused = await stubs[number % 2].ShouldRateLimit(request({"path": "/", "tenant": f"t{number}"}, hits=5))
        assert refused.overall_code == OVER
        assert refused.statuses[0].current_limit.name == "requests"
        assert 60 < refused.statuses[0].duration_until_reset.seconds <= 300
        assert 60 < int(refused.response_headers_to_add[0].value) <= 300, "as of all keys, not of its own"
    await wait_until(lambda: _is(client, 0, "requests", "t12"), timeout=60, description="it used nothing of its own")
    for name, code in (("a", OK), ("b", OK), ("c", OVER)):
        assert (await stubs[1].ShouldRateLimit(request({"enter": name}))).overall_code == code
    for name in "ab":
        await stubs[0].ShouldRateLimit(request({"leave": name}))


async def test_what_is_refused_takes_nothing_for_its_other_descriptors(client: headgate.Client, served: Open) -> None:
    """Mutant: each descriptor is counted for itself, as other services do."""
    _, stub = await served()
    page, other = {"path": "/", "tenant": "acme"}, {"path": "/", "tenant": "other"}
    assert (await stub.ShouldRateLimit(request({"path": "/", "tenant": "acme"}, hits=100))).overall_code == OK
    for number in range(5):  # each with a name of its own: the hold of the one before may be ending still
        refused = await stub.ShouldRateLimit(request({"daily": ""}, {"enter": f"a{number}"}, other, page, hits=1))
        assert [status.code for status in refused.statuses] == [OK, OK, OK, OVER]
    for limit, key, name in (("calls", None, "daily"), ("slots", None, "api"), ("requests", "other", "api")):
        await wait_until(lambda it=(limit, key, name): _is(client, 0, *it), timeout=60, description=f"{limit} is back")  # type: ignore[misc]


async def _is(client: headgate.Client, count: int, *what: Any) -> bool:
    return await taken(client, *what) == count


async def test_many_are_answered_out_of_what_is_in_hand_and_never_more_than_the_limit(
    client: headgate.Client, served: Open
) -> None:
    """Two nodes; a mutant that answers without asking, or asks each time, fails."""
    stubs = [(await served())[1] for _ in range(2)]

    async def ask(stub: RateLimitServiceStub, count: int) -> int:
        codes = [(await stub.ShouldRateLimit(request({"daily": "x"}))).overall_code for _ in range(count)]
        return codes.count(OK)

    admitted = sum(await asyncio.gather(*(ask(stub, 100) for stub in stubs for _ in range(6))))
    while await ask(stubs[0], 1):
        admitted += 1
    assert admitted <= 1000
    await wait_until(lambda: _is(client, admitted, "calls", None, "daily"), timeout=60, description="all is counted")


async def test_a_hold_is_begun_and_ended_by_its_name_at_any_node(client: headgate.Client, served: Open) -> None:
    (first, one), (_, two) = await served(), await served()
    answer = RateLimitResponse()
    for stub, name, code in ((one, "a", OK), (two, "b", OK), (one, "c", OVER), (two, "a", OK), (two, "c", OVER)):
        answer = await stub.ShouldRateLimit(request({"enter": name}))
        assert answer.overall_code == code, name
    assert not answer.response_headers_to_add, "nobody knows when one is free"
    await first.server.close()
    await first.service.close()
    for _ in range(2):  # once is enough
        assert (await two.ShouldRateLimit(request({"leave": "a"}))).overall_code == OK
    assert await taken(client, "slots") == 1
    assert (await two.ShouldRateLimit(request({"enter": "c"}))).overall_code == OK
    for name in "bc":
        await two.ShouldRateLimit(request({"leave": name}))
    assert await taken(client, "slots") == 0


async def test_who_hangs_up_holds_nothing(client: headgate.Client, served: Open) -> None:
    """As a proxy does that waits no longer than its timeout."""
    _, stub = await served()
    for number in range(20):
        call = stub.ShouldRateLimit(request({"enter": f"s{number}"}, {"daily": "x"}))
        await asyncio.sleep(number / 10_000)
        if call.cancel():
            await stub.ShouldRateLimit(request({"leave": f"s{number}"}))
        else:
            await stub.ShouldRateLimit(request({"leave": f"s{number}"}))
    await wait_until(lambda: _is(client, 0, "slots"), timeout=60, description="all slots are free")


async def test_a_grpc_timeout_bounds_the_answer_and_nobody_waits_for_room(
    client: headgate.Client, served: Open
) -> None:
    """Mutants: whoever has time waits in line; what was admitted after its deadline stays."""
    _, stub = await served()
    for name, code in (("a", OK), ("b", OK), ("c", OVER)):
        assert (await stub.ShouldRateLimit(request({"enter": name}), timeout=3600)).overall_code == code, name
    for name in "ab":
        await stub.ShouldRateLimit(request({"leave": name}))
    for number in range(20):
        try:
            await stub.ShouldRateLimit(request({"enter": f"s{number}"}, {"daily": "x"}), timeout=number / 2000)
        except grpc.aio.AioRpcError as error:
            assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED  # noqa: PT017 -- others were in time
        await stub.ShouldRateLimit(request({"leave": f"s{number}"}))
    await wait_until(lambda: _is(client, 0, "slots"), timeout=60, description="all slots are free")


async def test_what_is_out_of_bounds_is_refused_and_names_what(served: Open) -> None:
    _, stub = await served()
    many = [{"daily": "x"}] * (MOST_DESCRIPTORS + 1)
    cases = [
        (request({"daily": "x"}, domain=""), "domain"),
        (request({"daily": "x"}, domain="d" * 256), "domain"),
        (request(), "descriptors"),
        (request(*many), "descriptors"),
        (request({f"k{n}": "x" for n in range(17)}), "entries"),
        (request({"k" * 256: "v"}), "entries"),
        (request({"path": "/", "tenant": "acme"}, hits=(1 << 20) + 1), "hits_addend"),
        (request({"enter": ""}), "enter"),
        (request({"wrong": "x"}), "slots"),
    ]
    for asked, word in cases:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.ShouldRateLimit(asked)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT, word
        assert word in str(caught.value.details())
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.ShouldRateLimit(request({"k": "v" * (LARGEST + 1)}))
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    more = await stub.ShouldRateLimit(request({"path": "/", "tenant": "acme"}, hits=101))
    assert more.overall_code == OVER, "it is never admitted"


async def test_any_value_has_a_key_for_its_clients_choose_it(client: headgate.Client, served: Open) -> None:
    """Breaks where a value is refused with an error: a proxy that fails open then lets its client through."""
    served_, stub = await served()
    path = "/" + "x" * 300
    assert (key_of(""), key_of("z" * 255)) == ("(empty)", "z" * 255)
    for tenant in ("", "y" * 256, "\u00e9" * 200, "z" * 255):
        key = key_of(tenant)
        assert len(key.encode()) <= 255
        assert (await stub.ShouldRateLimit(request({"path": path, "tenant": tenant}))).overall_code == OK
        assert await taken(client, "requests", key) == 1
    assert len({key_of("y" * 256), key_of("y" * 257), key_of("y" * 100)}) == 3
    raw = request({"path": "/", "tenant": "abc"}).SerializeToString().replace(b"abc", b"a\xffc")

    async def say(raw: bytes) -> RateLimitResponse:
        return RateLimitResponse.FromString(await served_.service._answer(raw, None))

    assert (await say(raw)).overall_code == OVER, "and not an error"


async def test_where_there_is_a_token_it_is_asked_for_and_without_one_nobody_else_is_let_in(served: Open) -> None:
    _, stub = await served(token="t0ken")
    for given in (None, "Bearer wrong", "t0ken", "Basic t0ken"):
        metadata = (("authorization", given),) if given else ()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.ShouldRateLimit(request({"daily": "x"}), metadata=metadata)
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    right = (("authorization", "Bearer t0ken"),)
    assert (await stub.ShouldRateLimit(request({"daily": "x"}), metadata=right)).overall_code == OK
    for host in ("0.0.0.0", "::", "node.example"):
        with pytest.raises(InvalidValue, match="has no token; set a token"):
            await RpcServer([], token=None, host=host).start()


async def test_the_same_is_asked_in_json(client: headgate.Client, served: Open) -> None:
    (service, _), _ = await served()
    app = create_app(client, None, token="t0ken", rate_limits=service.answer_json)
    admin = AdminServer(app, token="t0ken")
    base = f"http://127.0.0.1:{await admin.start()}"
    entries = [{"key": "path", "value": "/"}, {"key": "tenant", "value": "acme"}]
    body = {"domain": "shop", "descriptors": [{"entries": entries}], "hitsAddend": 100}
    async with httpx.AsyncClient(base_url=base, verify=False, trust_env=False, timeout=60) as http:
        assert (await http.post("/json", json=body)).status_code == 401
        http.headers["Authorization"] = "Bearer t0ken"
        admitted, refused = [await http.post("/json", json=body) for _ in range(2)]
        assert (admitted.status_code, admitted.json()["overallCode"]) == (200, "OK")
        assert (refused.status_code, refused.json()["overallCode"]) == (429, "OVER_LIMIT")
        deep = b'{"a":' * 50 + b"1" + b"}" * 50
        odd = json.dumps(
            body | {"descriptors": [{"entries": [entries[0], {"key": "tenant", "value": "\ud800"}]}]}
        ).encode()
        for no_text in (odd, odd.replace(b"\\ud800", b"\xff")):  # what a client wrote opens no limit
            assert (await http.post("/json", content=no_text)).status_code == 429
        for wrong in (b"", b"{", b"[]", deep, b'{"domain": 1}', json.dumps(body | {"x": 1}).encode()):
            assert (await http.post("/json", content=wrong)).status_code == 400, wrong
        assert (await http.get("/json")).status_code == 405
        described = (await http.get("/api/v1/openapi.json")).json()["paths"]["/json"]["post"]
        assert {"200", "429", "401"} <= set(described["responses"])
    await admin.close()


async def test_a_limiter_that_is_not_there_fails_and_does_not_admit(client: headgate.Client, served: Open) -> None:
    _, stub = await served()
    await client.remove("by hand")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.ShouldRateLimit(request({"wrong": "x"}))
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert "by hand" in str(caught.value.details())


async def test_a_change_of_the_policy_is_in_force_for_the_next_requests(client: headgate.Client, served: Open) -> None:
    """Mutants: descriptors read once; a request that came before answered as it was then."""
    _, stub = await served()
    page = {"path": "/", "tenant": "acme"}

    async def answers(code: int, hits: int = 1) -> bool:
        return bool((await stub.ShouldRateLimit(request(page, hits=hits))).overall_code == code)

    for _ in range(3):  # known again, and out of what is in hand
        assert await answers(OK)
    cheaper = 'entries = ["path", "tenant"]\nlimiter = "api"\namounts = { requests = '
    await client.apply_policy(loads(LIMITS + RULES.replace(cheaper + "1", cheaper + "100")))
    await wait_until(lambda: answers(OVER), timeout=60, description="one takes all that a key has")
    assert await answers(OVER)
    await client.apply_policy(loads(LIMITS))
    await wait_until(lambda: answers(OK, 1000), timeout=60, description="nothing is asked any more")
    # A value goes before any value, though it is written later.
    anyone = (
        '[[descriptor]]\ndomain = "shop"\nentries = ["path", "tenant"]\nlimiter = "daily"\namounts = { calls = 1 }\n'
    )
    acme = anyone.replace('"tenant"', '"tenant=acme"').replace("calls = 1 ", "calls = 1000 ")
    await client.apply_policy(loads(LIMITS + anyone + acme))
    await wait_until(lambda: _is(client, 0, "calls", None, "daily"), timeout=60, description="nobody asked so far")
    await wait_until(lambda: answers(OVER, 2), timeout=60, description="two are more than a day has")
    assert (await stub.ShouldRateLimit(request(page | {"tenant": "other"}, hits=2))).overall_code == OK
