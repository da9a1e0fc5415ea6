"""Who is answered: tokens, what is open without one, security headers, and where admin HTTP may listen."""

import asyncio
import base64
import contextlib
import gc
import signal
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast

import httpx
import pytest
from starlette.types import Receive, Scope, Send

import headgate
from headgate import InvalidValue
from headgate_coordinator.admin import AdminServer, create_app, http_connection, requests
from headgate_coordinator.admin.app import PAGE
from headgate_coordinator.admin.authentication import Authenticator
from headgate_coordinator.admin.guard import IDENTIFIES, GuardedApp, RequestGuard
from headgate_coordinator.security import Identity, Users
from headgate_coordinator.security.password_queue import Network
from tests.admin.standin import StandIn
from tests.support.extent import share_of
from tests.support.waiting import wait_until

Http = httpx.AsyncClient
OpenHttp = Callable[..., Awaitable[Http]]
TOKEN = "correct-horse"
GUARDED = ("/metrics", "/api/v1/overview", "/api/v1/policy", "/api/v1/openapi.json", "/api/v1/nothing", "/nothing")


@pytest.fixture
async def guarded(client: headgate.Client, open_http: OpenHttp) -> Http:
    return await open_http(client, token=TOKEN)


async def test_nothing_is_told_without_the_token(guarded: Http) -> None:
    for path in GUARDED:
        answer = await guarded.get(path)
        assert answer.status_code == 401, path
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert answer.json()["type"] == "urn:headgate:problem:token-missing"
    assert (await guarded.put("/api/v1/policy", content=b"destination = []")).status_code == 401


@pytest.mark.parametrize(
    "given",
    [
        "Bearer wrong",
        "Bearer",
        "Bearer ",
        f"Basic {TOKEN}",
        TOKEN,
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        "Bearer ü",
    ],
)
async def test_a_wrong_token_is_none(guarded: Http, given: str) -> None:
    answer = await guarded.get("/api/v1/overview", headers={b"Authorization": given.encode()})
    assert answer.status_code == 401
    assert TOKEN not in answer.text


async def test_with_the_token_all_is_told(guarded: Http) -> None:
    for path in ("/metrics", "/api/v1/overview", "/api/v1/openapi.json"):
        for scheme in ("Bearer", "bearer"):
            assert (await guarded.get(path, headers={"Authorization": f"{scheme} {TOKEN}"})).status_code == 200


async def test_probes_and_the_files_of_the_page_are_open(guarded: Http) -> None:
    for path in ("/live", "/ready", *PAGE):
        assert (await guarded.get(path)).status_code == 200, path


async def test_metrics_can_be_opened_alone(client: headgate.Client, open_http: OpenHttp) -> None:
    http = await open_http(client, token=TOKEN, open_metrics=True)
    assert (await http.get("/metrics")).status_code == 200
    assert (await http.get("/api/v1/overview")).status_code == 401


@pytest.mark.parametrize("path", ["/", "/page.js", "/live", "/api/v1/overview", "/nothing", "/metrics"])
async def test_every_answer_has_the_security_headers(guarded: Http, http: Http, path: str) -> None:
    for one in (guarded, http):
        headers = (await one.get(path)).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer"
        assert "set-cookie" not in headers
        assert headers["cache-control"] == ("no-cache" if path in PAGE else "no-store")


async def test_a_file_that_did_not_change_is_not_sent_again(http: Http) -> None:
    first = await http.get("/page.js")
    again = await http.get("/page.js", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize("token", ["", " ", "a\n", " a", "ü"])
async def test_a_token_that_no_header_can_carry_is_refused(client: headgate.Client, token: str) -> None:
    with pytest.raises(InvalidValue, match="admin token"):
        create_app(client, None, token=token)


OWN = ("localhost", "LOCALHOST:8161", "localhost.", "127.0.0.1:8161", "10.1.2.3", "[::1]:8161", "node.example:80")
FOREIGN = ("evil.example:8161", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example",
           "[::1].evil.example", "evil.example@localhost", "localhost:80@evil.example", "", "0x7f000001",
           "2130706433", "localhost evil", ":80", "node.example.evil", "evil.localhost", "::1", "[evil]", "127.1",
           "localhost,evil.example")  # fmt: skip


class TestNamesThatSomebodyLedHere:
    """A page may have its name lead to this host (DNS rebinding): its browser then sends all that our page sends."""

    @pytest.mark.parametrize("host", FOREIGN)
    async def test_are_refused_without_a_token_whatever_the_browser_says(self, http: Http, host: str) -> None:
        """Mutants: names compared by their beginning or end; only what changes something is looked at."""
        same = {"Host": host, "Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin"}
        for answer in (
            await http.get("/api/v1/overview", headers=same),
            await http.get("/metrics", headers={"Host": host}),
            await http.post("/api/v1/destinations/orders/purge", headers=same),
            await http.put("/api/v1/policy", headers=same, content=b"destination = []"),
        ):
            assert answer.status_code == 403
            assert answer.json()["type"] == "urn:headgate:problem:foreign-host"

    @pytest.mark.parametrize("host", OWN)
    async def test_are_told_from_our_own(self, http: Http, host: str) -> None:
        same = {"Host": host, "Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin"}
        assert (await http.get("/api/v1/overview", headers=same)).status_code == 200
        assert (await http.post("/api/v1/destinations/orders/purge", headers=same)).status_code == 404, "but reached"

    async def test_do_no_harm_where_a_token_is_asked_for(self, guarded: Http) -> None:
        bearing = {"Host": "any.example", "Authorization": f"Bearer {TOKEN}"}
        assert (await guarded.get("/api/v1/overview", headers=bearing)).status_code == 200
        assert (await guarded.get("/live", headers={"Host": "any.example"})).status_code == 200

    async def test_are_told_apart_in_raw_requests_too(self, client: headgate.Client) -> None:
        """Two hosts, a host in the request line, and none at all, as old probes have it."""
        server = AdminServer(create_app(client, None, token=None), token=None)
        port = await server.start()
        for request, status in (
            (b"GET /live HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", b"400"),
            (b"GET http://localhost/live HTTP/1.1\r\nHost: evil.example\r\n\r\n", b"403"),
            (b"GET /live HTTP/1.1\r\nHost: evil.example\r\n\r\n", b"403"),
            (b"GET /live HTTP/1.1\r\n\r\n", b"400"),
            (b"GET /live HTTP/1.0\r\n\r\n", b"200"),
            (b"GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", b"200"),
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request)
            assert (await reader.readline()).split()[1] == status, request
            writer.close()
            await writer.wait_closed()
        await server.close()


class TestSilence:
    """Breaks when connections that say nothing count, or stay: they need no token."""

    @pytest.fixture
    async def port(self, client: headgate.Client, node: StandIn) -> AsyncIterator[int]:
        server = AdminServer(create_app(client, node, token=TOKEN), token=TOKEN)
        yield await server.start()
        await server.close()

    @pytest.mark.parametrize(
        "sent",
        share_of(
            [
                b"GET /live HTTP/1.1\r\nHost: a\r\nX: ",
                b"",
                b"PUT /live HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n",
            ],
            3,
        ),
    )
    async def test_of_a_thousand_connections_keeps_nobody_out(self, port: int, sent: bytes) -> None:
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(1000):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                stack.callback(writer.close)
                writer.write(sent)
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", verify=False, trust_env=False) as http:
                assert (await http.get("/live", timeout=60)).status_code == 200

                async def ready() -> bool:  # Redis has a second for it, which it may need on a busy machine
                    return (await http.get("/ready", timeout=60)).status_code == 200

                await wait_until(ready, timeout=60)

    async def test_beside_a_large_policy_keeps_probes_waiting_for_a_fraction_of_it(self, port: int) -> None:
        """Breaks where the document is read on the loop, or is gone through by full collections of garbage."""
        rules = "".join(f'[[destination]]\nmatch = "a.{at}"\nlimit = "1MiB"\n' for at in range(5000))
        held_up: list[str] = []

        def note(phase: str, info: dict[str, int]) -> None:
            thread = threading.current_thread()
            if (phase, info["generation"]) == ("start", 2) and thread is not threading.main_thread():
                held_up.append(thread.name)

        async with contextlib.AsyncExitStack() as stack:
            for _ in range(1000):
                stack.callback((await asyncio.open_connection("127.0.0.1", port))[1].close)
            bearer = {"Authorization": f"Bearer {TOKEN}"}
            http = await stack.enter_async_context(
                httpx.AsyncClient(
                    base_url=f"http://127.0.0.1:{port}", verify=False, trust_env=False, timeout=120, headers=bearer
                )
            )
            gc.collect()
            gc.freeze()  # what the tests have is not the node's, nor any later test's
            gc.callbacks.append(note)
            stack.callback(gc.callbacks.remove, note)
            began = time.monotonic()
            kind = {"Content-Type": "application/toml"}
            put = asyncio.create_task(
                http.put("/api/v1/policy", content=rules, headers=kind, params={"dry_run": "true"})
            )
            longest, looks = 0.0, 0
            while not put.done():
                asked = time.monotonic()
                assert (await http.get("/live")).status_code == 200
                longest, looks = max(longest, time.monotonic() - asked), looks + 1
            assert (await put).status_code == 200
            assert longest < (time.monotonic() - began) / 2, f"of {looks} looks"
            assert held_up == []

    async def test_ends_the_connection(self, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(http_connection, "PATIENCE", 0.2)
        for first in (b"", b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(first)
            if first:
                assert (await reader.readline()).split()[1] == b"200"
            ended = asyncio.create_task(reader.read())

            def trickles(writer: asyncio.StreamWriter = writer, ended: "asyncio.Task[bytes]" = ended) -> bool:
                writer.write(b"G")  # a byte now and then is no request
                return ended.done()

            await wait_until(trickles, timeout=20)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await ended

    async def test_in_the_middle_of_a_body_is_told(
        self, client: headgate.Client, node: StandIn, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(requests, "PATIENCE", 0.2)
        server = AdminServer(create_app(client, node, token=None), token=None)
        reader, writer = await asyncio.open_connection("127.0.0.1", await server.start())
        writer.write(b"PUT /api/v1/policy HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/toml\r\n")
        writer.write(b"Content-Length: 99\r\n\r\nsite")
        assert (await reader.readline()).split()[1] == b"408"
        writer.close()
        await server.close()


class TestServer:
    async def test_it_listens_on_a_free_port_and_stops(self, client: headgate.Client) -> None:
        handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
        server = AdminServer(create_app(client, None, token=None), token=None)
        port = await server.start()
        assert port > 0
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", verify=False, trust_env=False) as http:
            assert (await http.get("/live")).json() == {"status": "live"}
            assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
            await client.apply("a/b", limit=10)
            assert (await http.get("/api/v1/destinations/a%2Fb")).json()["name"] == "a/b"
            assert "server" not in (await http.get("/live")).headers
            await server.close()
            with pytest.raises(httpx.TransportError):
                await http.get("/live")
        await server.close()

    async def test_closing_waits_for_no_idle_connection(self, client: headgate.Client) -> None:
        server = AdminServer(create_app(client, None, token=None), token=None)
        port = await server.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await server.close()
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()

    async def test_others_are_let_in_only_with_a_token_or_when_told_so(self, client: headgate.Client) -> None:
        app = create_app(client, None, token=None)
        for host in ("0.0.0.0", "::"):
            with pytest.raises(InvalidValue, match="has no token; set a token, or bind to 127"):
                await AdminServer(app, token=None, host=host).start()
        for server in (
            AdminServer(app, token=TOKEN, host="0.0.0.0"),
            AdminServer(app, token=None, host="0.0.0.0", insecure=True),
        ):
            assert await server.start() > 0
            await server.close()

    async def test_an_address_that_is_taken_is_named(self, client: headgate.Client) -> None:
        app = create_app(client, None, token=None)
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            with pytest.raises(InvalidValue, match=rf"127\.0\.0\.1:{port}: Address already in use"):
                await AdminServer(app, token=None, port=port).start()
        with pytest.raises(InvalidValue, match="cannot be found"):
            await AdminServer(app, token=None, host="no such host").start()

    async def test_it_leaves_no_task_behind(self, client: headgate.Client) -> None:
        before = asyncio.all_tasks()
        server = AdminServer(create_app(client, None, token=None), token=None)
        port = await server.start()
        async with httpx.AsyncClient(trust_env=False, verify=False) as http:
            await http.get(f"http://127.0.0.1:{port}/api/v1/overview")
        await server.close()
        await wait_until(lambda: asyncio.all_tasks() == before)


class Undecided:
    """Users of whose passwords nothing is ever known."""

    has_any = False

    def __init__(self) -> None:
        self.is_open = False
        self.peers: list[Network] = []

    async def authenticate(self, _name: str, _password: str, *, peer: Network) -> Identity | None:
        self.peers.append(peer)
        answer: asyncio.Future[Identity | None] = asyncio.get_running_loop().create_future()
        return await answer


class TestPasswords:
    """Floods of passwords that wait for a check, and of requests, with nothing that is set for the test."""

    @pytest.fixture
    def users(self) -> Undecided:
        return Undecided()

    @pytest.fixture
    async def port(self, client: headgate.Client, users: Undecided) -> AsyncIterator[int]:
        server = AdminServer(create_app(client, None, token=TOKEN, users=cast("Users", users)), token=TOKEN)
        yield await server.start()
        await server.close()

    async def test_of_a_thousand_connections_keep_nobody_out(self, port: int, users: Undecided) -> None:
        """Mutant: who waits for the check of a password keeps the place of who has none to check, as a probe."""
        guess = "Authorization: Basic " + base64.b64encode(b"ann:wrong").decode()
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(1000):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                stack.callback(writer.close)
                writer.write(f"GET /v1/limits/a HTTP/1.1\r\nHost: a\r\n{guess}\r\n\r\n".encode())
            await wait_until(lambda: len(users.peers) > http_connection.MOST)
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=60) as http:
                assert (await http.get("/live")).status_code == 200

    async def test_that_were_right_leave_the_connection_to_its_request(self, users: Undecided) -> None:
        """Mutant: the mark of who is not known yet stays where the connection looks, which is cut off as it answers."""
        scope: dict[str, Any] = {"type": "http", "method": "GET", "path": "/v1/limits/a", "headers": []}
        seen: list[bool] = []

        async def app(_scope: Scope, _receive: Receive, _send: Send) -> None:
            seen.append(IDENTIFIES in scope)

        callers = Authenticator(cast("Users", users), None)
        users.is_open = True
        await GuardedApp(app, RequestGuard(frozenset(), callers))(scope, cast("Receive", None), cast("Send", None))
        assert seen == [False]

    async def test_come_from_where_their_connection_does(self, port: int, users: Undecided) -> None:
        """Mutant: a header says from where, so that one host is as many peers as it likes, and each takes its turn."""
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=60) as http:
            said = {"X-Forwarded-For": "203.0.113.7", "Forwarded": "for=203.0.113.7", "X-Real-IP": "203.0.113.7"}
            asking = asyncio.create_task(http.get("/v1/limits/a", auth=("ann", "wrong"), headers=said))
            await wait_until(lambda: users.peers)
            asking.cancel()
        assert users.peers == ["127.0.0.1"]

    async def test_whose_request_came_at_once_is_answered_before_too_many_others_come(self, port: int) -> None:
        """Mutant: one turn of the loop takes on all that wait, and the oldest go before their requests are read."""
        loop = asyncio.get_running_loop()
        with contextlib.ExitStack() as stack:
            sockets = [stack.enter_context(socket.socket()) for _ in range(http_connection.MOST + 72)]
            for each in sockets:
                each.connect(("127.0.0.1", port))
                each.sendall(b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n")
                each.setblocking(False)
            answers = await asyncio.gather(*(loop.sock_recv(each, 20) for each in sockets))
        assert set(answers) == {b"HTTP/1.1 200 OK\r\ndat"}, "none was cut off"
