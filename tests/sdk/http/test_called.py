"""Those who are called: requests that are not admitted are refused with the fields that HTTP has for it."""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

import httpx
import pytest
from fastapi import Depends, FastAPI, Request
from fastapi.responses import StreamingResponse

import headgate
from headgate.charge import Held
from headgate.http.asgi import LimitedApp
from headgate.http.deadline import deadline_of
from headgate.http.fastapi import admitted
from headgate.limited import limited
from tests.sdk.http.conftest import Site, held, served
from tests.support.extent import each
from tests.support.servers import RedisServer
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server


def key(scope: Any) -> str | None:
    return next((value.decode() for name, value in scope["headers"] if name == b"x-tenant"), None)


@pytest.fixture
async def web() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(timeout=60, verify=False) as web:
        yield web


async def test_a_request_is_held_until_its_answer_has_ended_and_others_are_refused(
    slots: headgate.Limiter, web: httpx.AsyncClient
) -> None:
    site = Site()
    site.go.clear()
    async with served(LimitedApp(site, lambda: slots, key=key, slots=1)) as url:
        running = [asyncio.create_task(web.get(url)) for _ in range(2)]
        await wait_until(lambda: site.under_way == 2)
        refused = await web.get(url)
        assert (refused.status_code, refused.headers["content-type"]) == (429, "application/problem+json")
        assert refused.json() == {
            "type": "https://iana.org/assignments/http-problem-types#quota-exceeded", "title": "too many requests",
            "status": 429, "violated-policies": ["slots"], "limit": "slots", "retry_after": None,
        }  # fmt: skip
        assert refused.headers["ratelimit"] == '"slots";r=0'
        assert refused.headers["ratelimit-policy"] == '"slots";q=2;qu="concurrent-requests"'
        assert "retry-after" not in refused.headers  # nobody knows, and none is made up
        site.go.set()
        assert [answer.status_code for answer in await asyncio.gather(*running)] == [200, 200]
        await wait_until(lambda: _is(slots, 0))
        assert (await web.get(url)).status_code == 200


async def test_a_rate_says_when_to_come_again(
    client: headgate.Client, session: headgate.Session, web: httpx.AsyncClient
) -> None:
    await client.apply(
        "calls", kind="limiter", limits={"calls": {"rate": "2/h"}}, key_limits={"calls": {"rate": "1/h"}}
    )
    calls = await session.limiter("calls")
    async with served(LimitedApp(Site(), calls, key=key, calls=1)) as url:
        assert (await web.get(url, headers={"x-tenant": "a"})).status_code == 200
        refused = await web.get(url, headers={"x-tenant": "a"})
        assert (refused.status_code, refused.headers["ratelimit-policy"]) == (429, '"calls";q=2;w=3600')
        assert 3000 < int(refused.headers["retry-after"]) <= 3600
        assert (await web.get(url, headers={"x-tenant": "b"})).status_code == 200


@each(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"grpc-timeout": "1500m"}, 1.5),
        ({"grpc-timeout": "2S", "x-envoy-expected-rq-timeout-ms": "700"}, 0.7),
        ({"grpc-timeout": "1M"}, 60.0),
        ({"prefer": "respond-async, wait=10"}, 10.0),
        ({"Prefer": "wait=10, wait=2"}, 10.0),
        ({"prefer": "await=10"}, None),
        ({"grpc-timeout": "100000000000S"}, None),
        ({"grpc-timeout": "-1S"}, None),
        ({"grpc-timeout": "1 S"}, None),
        ({"x-envoy-expected-rq-timeout-ms": "nan"}, None),
        ({"grpc-timeout": "\xff"}, None),
    ],
)
def test_how_long_a_caller_waits(headers: dict[str, str], seconds: float | None) -> None:
    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    assert deadline_of(raw) == seconds


async def test_a_request_stands_in_line_no_longer_than_its_caller_waits(
    slots: headgate.Limiter, web: httpx.AsyncClient
) -> None:
    """Mutants: the header is not read; or it has a request wait for longer than the application lets it."""
    route = FastAPI()

    @route.get("/")
    async def answer(_: Annotated[Held, Depends(admitted(lambda: slots, slots=1, timeout=300))]) -> str:
        return "here"

    both = await slots.admit(slots=2, timeout=0)
    short = {"grpc-timeout": "1S", "x-envoy-expected-rq-timeout-ms": "1000", "prefer": "wait=0"}
    for app in (LimitedApp(Site(), slots, slots=1, timeout="5min"), route):
        async with served(app) as url, asyncio.timeout(60):
            for name, value in short.items():
                assert (await web.get(url, headers={name: value})).status_code == 429
    async with served(LimitedApp(Site(), slots, slots=1, timeout=1)) as url, asyncio.timeout(60):
        assert (await web.get(url, headers={"grpc-timeout": "1H"})).status_code == 429
    both.release()


async def test_a_deadline_of_grpc_is_that_of_the_wait(slots: headgate.Limiter) -> None:
    """As a method of a servicer has it; a context whose deadline is over has less than nothing left."""

    class Context:
        def __init__(self, left: float) -> None:
            self.left = left

        def time_remaining(self) -> float:
            return self.left

    @limited(slots, slots=1, timeout=lambda request, context: context.time_remaining())
    async def method(request: str, context: Context) -> str:
        return request

    assert await method("one", Context(60.0)) == "one"
    with await slots.admit(slots=2, timeout=0):
        for left in (1.0, 0.0, -3.0):
            async with asyncio.timeout(60):
                with pytest.raises(headgate.CreditTimeout):
                    await method("two", Context(left))


async def test_whoever_hangs_up_gives_back_what_was_held_and_leaves_the_line(slots: headgate.Limiter) -> None:
    site = Site()
    site.go.clear()
    async with served(LimitedApp(site, slots, timeout=600, slots=1)) as url:

        async def stream() -> None:
            async with httpx.AsyncClient(timeout=60, verify=False) as web, web.stream("GET", url) as answer:
                await anext(answer.aiter_bytes())
                await asyncio.Event().wait()

        reading = [asyncio.create_task(stream()) for _ in range(2)]
        await wait_until(lambda: site.under_way == 2)
        waiting = asyncio.create_task(stream())
        await wait_until(lambda: _waits(slots, 1))
        waiting.cancel()
        await wait_until(lambda: _waits(slots, 0))
        assert site.seen == 2
        for task in reading:
            task.cancel()
        site.go.set()
        await asyncio.gather(*reading, waiting, return_exceptions=True)
        await wait_until(lambda: _is(slots, 0))


async def test_the_body_of_a_request_that_waited_is_whole(slots: headgate.Limiter, web: httpx.AsyncClient) -> None:
    async def echo(_: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            event = await receive()
            body, more = body + event["body"], event.get("more_body", False)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})

    async with served(LimitedApp(echo, slots, timeout=60, slots=2)) as url:
        mine = await slots.admit(slots=1)
        asked = asyncio.create_task(web.post(url, content=b"0123456789" * 30_000))
        await wait_until(lambda: _waits(slots, 1))
        mine.release()
        assert (await asked).content == b"0123456789" * 30_000


async def test_what_comes_after_the_wait_is_heard_and_whoever_stops_listening_loses_nothing(
    slots: headgate.Limiter,
) -> None:
    events: asyncio.Queue[Any] = asyncio.Queue()
    seen: list[Any] = []

    async def app(_: Any, receive: Any, __: Any) -> None:
        for patience in (0.01, 60, 60):
            try:
                seen.append((await asyncio.wait_for(receive(), patience))["type"])
            except TimeoutError:
                seen.append("nothing yet")
                events.put_nowait({"type": "http.request", "body": b"late", "more_body": False})
                events.put_nowait({"type": "http.disconnect"})

    mine = await slots.admit(slots=1)
    limited = LimitedApp(app, slots, timeout=60, slots=2)
    running = asyncio.ensure_future(limited({"type": "http"}, events.get, events.put))
    await wait_until(lambda: _waits(slots, 1))
    mine.release()
    await running
    assert seen == ["nothing yet", "http.request", "http.disconnect"]
    assert await held(slots) == 0


async def test_a_server_that_always_has_an_event_is_not_heard_without_end(slots: headgate.Limiter) -> None:
    asked = 0

    async def receive() -> Any:
        nonlocal asked
        asked += 1
        return {"type": "http.request", "body": b""}

    async def app(_: Any, receive: Any, __: Any) -> None:
        for _ in range(3):
            assert await receive() == {"type": "http.request", "body": b""}

    mine = await slots.admit(slots=1)
    running = asyncio.ensure_future(LimitedApp(app, slots, timeout=60, slots=2)({"type": "http"}, receive, receive))  # type: ignore[arg-type]  # nothing is sent
    await wait_until(lambda: _waits(slots, 1))
    mine.release()
    await running
    assert asked == 3


async def test_a_websocket_and_the_life_of_an_application_pass(slots: headgate.Limiter) -> None:
    seen = []

    async def app(scope: Any, *_: Any) -> None:
        seen.append(scope["type"])

    limited = LimitedApp(app, slots, slots=2)
    for kind in ("lifespan", "websocket"):
        await limited({"type": kind}, None, None)  # type: ignore[arg-type]  # they are only passed on
    assert seen == ["lifespan", "websocket"]
    assert await held(slots) == 0


async def test_one_route_of_fastapi_is_held_until_its_stream_has_ended(
    slots: headgate.Limiter, web: httpx.AsyncClient
) -> None:
    app, go = FastAPI(), asyncio.Event()

    @app.get("/limited")
    async def limited(hold: Annotated[Held, Depends(admitted(lambda: slots, slots=2))]) -> StreamingResponse:
        async def parts() -> AsyncIterator[bytes]:
            yield b"a"
            await go.wait()
            yield repr(hold).encode()

        return StreamingResponse(parts())

    @app.get("/free")
    async def free() -> str:
        return "yes"

    async with served(app) as url:
        running = asyncio.create_task(web.get(f"{url}limited"))
        await wait_until(lambda: _is(slots, 2))
        refused = await web.get(f"{url}limited")
        assert (refused.status_code, refused.json()) == (429, {"detail": "too many requests"})
        assert refused.headers["ratelimit"] == '"slots";r=0'
        assert (await web.get(f"{url}free")).status_code == 200
        go.set()
        assert (await running).text == "aHold('slots', slots=2, held)"
        await wait_until(lambda: _is(slots, 0))


async def test_more_than_is_ever_admitted_and_a_redis_that_is_gone(web: httpx.AsyncClient, server: RedisServer) -> None:
    async with headgate.connect(server.url) as client, client.session() as session:
        await client.apply("slots", kind="limiter", limits={"slots": {"at_once": 2}})
        slots = await session.limiter("slots", in_hand=False)
        async with (
            served(LimitedApp(Site(), slots, slots=3)) as large,
            served(LimitedApp(Site(), slots, slots=1)) as url,
        ):
            refused = await web.get(large)
            assert (refused.status_code, refused.json()["limit"]) == (413, "slots")
            server.kill9()
            refused = await web.get(url)
            assert (refused.status_code, refused.json()["title"]) == (503, "the limits cannot be read")


async def _is(limiter: headgate.Limiter, slots: int) -> bool:
    return await held(limiter) == slots


async def _waits(limiter: headgate.Limiter, waiting: int) -> bool:
    return (await limiter.state()).waiting == waiting


async def test_a_route_of_fastapi_leaves_the_line_with_its_client_and_keeps_its_body(
    slots: headgate.Limiter,
) -> None:
    """A mutant that hears nobody fails; so does one that keeps what it heard to itself."""
    app = FastAPI()
    admission = Depends(admitted(lambda: slots, timeout=600, slots=2))
    seen: list[int] = []

    @app.post("/raw", dependencies=[admission])
    async def raw(request: Request) -> int:
        seen.append(len(await request.body()))
        return seen[-1]

    @app.post("/json", dependencies=[admission])
    async def of_json(numbers: list[int]) -> int:
        seen.append(len(numbers))
        return seen[-1]

    async def post(path: str, **content: Any) -> httpx.Response:
        async with httpx.AsyncClient(timeout=60, verify=False) as web:
            return await web.post(url + path, **content)

    body = b"0123456789" * 30_000
    async with served(app) as url:
        mine = await slots.admit(slots=1)
        for path, content in (("raw", {"content": b"x"}), ("json", {"json": [1]})):
            waiting = asyncio.create_task(post(path, **content))
            await wait_until(lambda: _waits(slots, 1))
            waiting.cancel()
            await wait_until(lambda: _waits(slots, 0))
        assert seen == []
        asked = [asyncio.create_task(post("raw", content=body)), asyncio.create_task(post("json", json=[1, 2, 3]))]
        await wait_until(lambda: _waits(slots, 2))
        mine.release()
        assert [(await one).json() for one in asked] == [len(body), 3]
        await wait_until(lambda: _is(slots, 0))


async def test_an_answer_that_says_too_much_is_an_overload_to_a_limit_that_adapts(
    client: headgate.Client, session: headgate.Session, web: httpx.AsyncClient
) -> None:
    await client.apply("calls", kind="limiter", limits={"calls": {"at_once": {"min": 2, "max": 9, "adapt": "aimd"}}})
    limiter = await session.limiter("calls", in_hand=False)
    site = Site()
    async with served(LimitedApp(site, limiter, calls=1)) as url:
        for code in (503, 200, 500):
            site.codes = [(code, {})]
            assert (await web.get(url)).status_code == code

        async def is_heard() -> bool:
            await web.get(url)
            found = (await limiter.state())["calls"].adapting
            assert found is not None
            return (found.outcomes["overload"], found.outcomes["ignore"]) == (1, 1)

        await wait_until(is_heard)
