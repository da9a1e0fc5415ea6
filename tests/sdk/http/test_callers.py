"""Those who call: a request waits until it is admitted and holds that until its body ends, with each library."""

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import aiohttp.web
import httpx
import pytest
import requests
from aiohttp.test_utils import TestServer

import headgate
import headgate.sync
from headgate.http.aiohttp import limited
from headgate.http.httpx import AsyncLimitedTransport, LimitedTransport
from headgate.http.requests import LimitedAdapter
from tests.sdk.http.conftest import Site, held
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server
Close = Callable[[], Awaitable[object]]
NOBODY = "http://127.0.0.1:1/"
CALLERS = ("httpx", "aiohttp", "httpx for threads", "requests")


class Caller:
    """One library: a whole request, and one of which the body is not read yet."""

    def __init__(self, library: str, stack: AsyncExitStack, redis_url: str, namespace: str) -> None:
        self.library, self._stack = library, stack
        self._redis_url, self._namespace = redis_url, namespace
        self._client: Any = None

    async def open(self, session: headgate.Session, name: str = "slots", **terms: Any) -> None:
        terms = {"timeout": 60, name: 1, **terms}
        if self.library in ("httpx", "aiohttp"):
            limiter = await session.limiter(name, in_hand=False)
            if self.library == "httpx":
                transport = AsyncLimitedTransport(limiter, **terms)
                self._client = await self._stack.enter_async_context(httpx.AsyncClient(transport=transport, timeout=60))
            else:
                middleware = limited(lambda: limiter, **terms)
                self._client = await self._stack.enter_async_context(aiohttp.ClientSession(middlewares=[middleware]))
            return
        await asyncio.to_thread(self._open_threads, name, terms)

    def _open_threads(self, name: str, terms: dict[str, Any]) -> None:
        client = headgate.sync.connect(self._redis_url, namespace=self._namespace)
        self._stack.push_async_callback(asyncio.to_thread, client.close)
        limiter = client.session("threads").limiter(name, in_hand=False)
        if self.library == "requests":
            self._client = requests.Session()
            self._client.mount("http://", LimitedAdapter(limiter, **terms))
        else:
            self._client = httpx.Client(transport=LimitedTransport(limiter, **terms), timeout=60)
        self._stack.callback(self._client.close)

    async def get(self, url: str, method: str = "GET") -> int:
        """Call, read the body and return the code."""
        if self.library == "aiohttp":
            async with self._client.request(method, url) as answer:
                await answer.read()
                return int(answer.status)
        answer = self._client.request(method, url) if self.library == "httpx" else None
        if answer is None:
            return int((await asyncio.to_thread(self._client.request, method, url)).status_code)
        return int((await answer).status_code)

    async def begin(self, url: str) -> Close:
        """Call, and return how to hang up before the body is read."""
        if self.library == "aiohttp":
            answer = await self._client.get(url)

            async def close() -> None:
                answer.close()

            return close
        if self.library == "httpx":
            answer = await self._client.send(self._client.build_request("GET", url), stream=True)
            close_it: Close = answer.aclose
            return close_it
        if self.library == "requests":
            answer = await asyncio.to_thread(self._client.get, url, stream=True)
        else:
            request = self._client.build_request("GET", url)
            answer = await asyncio.to_thread(self._client.send, request, stream=True)
        return lambda: asyncio.to_thread(answer.close)


@pytest.fixture(params=CALLERS)
async def caller(request: pytest.FixtureRequest, redis_url: str, cleanup_namespace: str) -> AsyncIterator[Caller]:
    async with AsyncExitStack() as stack:
        yield Caller(request.param, stack, redis_url, cleanup_namespace)


async def test_no_more_are_under_way_than_are_admitted(
    site: Site, session: headgate.Session, slots: headgate.Limiter, caller: Caller
) -> None:
    await caller.open(session)
    assert set(await asyncio.gather(*(caller.get(site.url) for _ in range(8)))) == {200}
    assert (site.seen, site.most <= 2) == (8, True)
    assert await caller.get(site.url, "HEAD") == 200
    await wait_until(lambda: _is(slots, 0))


async def test_a_body_holds_until_it_is_closed(
    site: Site, session: headgate.Session, slots: headgate.Limiter, caller: Caller
) -> None:
    await caller.open(session)
    site.go.clear()
    first, second = await caller.begin(site.url), await caller.begin(site.url)
    third = asyncio.create_task(caller.get(site.url))
    await wait_until(lambda: _waits(slots))
    assert (site.seen, await held(slots)) == (2, 2)
    await first()
    await wait_until(lambda: site.seen == 3)
    site.go.set()
    assert await third == 200
    await second()
    await wait_until(lambda: _is(slots, 0))


@pytest.mark.filterwarnings("ignore:.*socket:pytest.PytestUnraisableExceptionWarning")  # as is true of requests
async def test_an_answer_that_nobody_closes_holds_until_it_is_garbage(
    site: Site, session: headgate.Session, slots: headgate.Limiter, caller: Caller
) -> None:
    """Mutant: what an answer held is renewed for as long as the session lives, though nobody can end it any more."""
    await caller.open(session)
    site.go.clear()
    gc.freeze()  # to look through all that the tests have would take half a second each time
    forgotten = await caller.begin(site.url)
    assert await held(slots) == 1
    del forgotten

    async def is_free() -> bool:
        gc.collect()
        return await held(slots) == 0

    await wait_until(is_free)
    site.go.set()


async def test_a_body_of_aiohttp_is_read_to_its_end_though_nobody_has_its_answer(
    site: Site, session: headgate.Session, slots: headgate.Limiter
) -> None:
    """Mutant: an answer that is garbage takes its connection along, as it would do if that did not keep it."""
    site.go.clear()
    async with aiohttp.ClientSession(middlewares=[limited(slots, slots=1)]) as web:
        answer = await web.get(site.url)
        assert isinstance(answer, aiohttp.ClientResponse)
        body = answer.content
        assert await held(slots) == 1
        del answer
        await wait_until(lambda: _is(slots, 0))
        site.go.set()
        assert len(await body.read()) == 3 * 70_000


async def test_a_websocket_of_aiohttp_holds_until_it_is_closed(
    session: headgate.Session, slots: headgate.Limiter
) -> None:
    async def echo(request: aiohttp.web.Request) -> aiohttp.web.WebSocketResponse:
        socket = aiohttp.web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            await socket.send_str(message.data)
        return socket

    app = aiohttp.web.Application()
    app.router.add_get("/", echo)
    gc.freeze()
    async with TestServer(app) as server, aiohttp.ClientSession(middlewares=[limited(slots, slots=1)]) as web:
        async with web.ws_connect(server.make_url("/")) as socket:
            gc.collect()
            await socket.send_str("hello")
            assert (await socket.receive()).data == "hello"
            assert await held(slots) == 1
        await wait_until(lambda: _is(slots, 0))


@pytest.mark.parametrize("code", [429, 503])
async def test_whoever_is_asked_to_come_later_has_all_hosts_wait(
    site: Site, session: headgate.Session, slots: headgate.Limiter, caller: Caller, code: int
) -> None:
    await caller.open(session)
    site.codes = [(code, {"Retry-After": "700"}), (code, {"Retry-After": "soon"})]
    assert await caller.get(site.url) == code
    state = await slots.state()
    assert 600 < state.held_off <= 700
    assert state.reason.startswith(f"{code} of ")
    await slots.hold_off(0)
    assert await caller.get(site.url) == code
    assert (await slots.state()).held_off == 0


async def test_a_call_that_fails_holds_nothing_and_one_that_is_not_admitted_is_not_made(
    site: Site, session: headgate.Session, slots: headgate.Limiter, caller: Caller
) -> None:
    await caller.open(session, timeout=lambda request: 60 if str(request.url) == NOBODY else 0.01)
    with pytest.raises((httpx.ConnectError, aiohttp.ClientConnectorError, requests.ConnectionError)):
        await caller.get(NOBODY)
    await wait_until(lambda: _is(slots, 0))
    mine = [await slots.admit(slots=1) for _ in range(2)]
    with pytest.raises(headgate.CreditTimeout):
        await caller.get(site.url)
    assert site.seen == 0
    for hold in mine:
        hold.release()


async def test_what_an_answer_says_that_it_cost_is_settled(
    site: Site, client: headgate.Client, session: headgate.Session, caller: Caller
) -> None:
    await client.apply("points", kind="limiter", limits={"points": {"rate": "1/h", "burst": 1000}})
    site.codes = [(200, {"X-Cost": "7"})]
    await caller.open(
        session, "points", points=lambda request: 10 if request.method == "GET" else 1,
        settle=lambda answer: {"points": int(answer.headers["X-Cost"])},
    )  # fmt: skip
    assert await caller.get(site.url) == 200
    limiter = await session.limiter("points", in_hand=False)
    await wait_until(lambda: _left(limiter, 993))


async def test_an_answer_whose_cost_cannot_be_told_is_closed_and_holds_nothing(
    site: Site, session: headgate.Session, slots: headgate.Limiter, caller: Caller
) -> None:
    asked = 0

    def cost(_: object) -> int:
        nonlocal asked
        asked += 1
        return 1

    await caller.open(session, slots=cost, settle=lambda answer: {"slots": int(answer.headers["X-Cost"])})
    site.go.clear()
    site.codes = [(429, {"Retry-After": "0"})]
    with pytest.raises(KeyError):
        await caller.begin(site.url)
    await wait_until(lambda: _is(slots, 0))
    await wait_until(lambda: site.gone == 1)
    site.go.set()
    assert asked == 1, "to be admitted, and not again to hold off"


async def _is(limiter: headgate.Limiter, slots: int) -> bool:
    return await held(limiter) == slots


async def _left(limiter: headgate.Limiter, points: int) -> bool:
    return (await limiter.state())["points"].remaining == points


async def _waits(limiter: headgate.Limiter) -> bool:
    return (await limiter.state()).waiting > 0


async def test_what_is_too_much_for_a_server_is_an_overload_to_a_limit_that_adapts(
    site: Site, client: headgate.Client, session: headgate.Session, caller: Caller
) -> None:
    await client.apply("calls", kind="limiter", limits={"calls": {"at_once": {"min": 2, "max": 9, "adapt": "aimd"}}})
    limiter = await session.limiter("calls", in_hand=False)
    await caller.open(session, "calls")
    for code in (503, 429, 504, 500, 200, 404):
        site.codes = [(code, {})]
        assert await caller.get(site.url) == code

    async def is_heard() -> bool:
        await caller.get(site.url)
        found = (await limiter.state())["calls"].adapting
        assert found is not None
        return found.outcomes["overload"] == 3 and found.outcomes["ignore"] == 1 and found.outcomes["ok"] >= 2

    await wait_until(is_heard)
