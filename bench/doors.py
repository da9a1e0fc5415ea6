"""The doors of a node under those who push: wrong passwords, floods, silence, large policies, odd calls."""

import asyncio
import base64
import contextlib
import json
import multiprocessing
import os
import re
import socket
import sys
import time
import urllib.error
import urllib.request
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Callable
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Final

import headgate
from bench.harness import Figure
from bench.traffic.connections import raise_files
from headgate.amqp.calls import read_calls
from headgate.amqp.sasl import SaslClient
from headgate.errors import MessageFormatError
from headgate.redis.embedded import EmbeddedRedis
from headgate_coordinator.node.connection_share import NOTHING
from headgate_coordinator.security.document import User, parse_grant
from headgate_coordinator.security.passwords import hashed
from headgate_coordinator.security.store import UserStore
from tests.amqp.doors import test_floods as floods

PASSWORDS: Final = 5_000
SILENT: Final = 1_000
RULES: Final = 4_000
KEYS: Final = 60_000
BRIDGES: Final = 17_000
"""About as many as a policy has room for; one node works on all of them."""
PEERS: Final = 64
"""Connections of those who may nothing, all at once."""
STAYS: Final = 1.0
"""Seconds for which a node's memory is watched after that."""
SETTLES: Final = 30.0
"""Seconds for which a node is watched that works on its links."""
TOKEN: Final = "bench"


class _Node:
    def __init__(self, told: dict[str, str], pid: int) -> None:
        self.host, self.port = told["amqp"].rpartition("/")[2].split(":")
        self.admin, self.pid = told["admin"], pid

    def resident(self) -> float:
        """Return its memory in MiB."""
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="utf-8")
        return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024

    def get(self, path: str, body: bytes | None = None) -> float:
        """Ask admin HTTP, and return the seconds until it answered; a document that is refused is an answer."""
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/toml"}
        asked = urllib.request.Request(self.admin + path, body, headers, method="PUT" if body else "GET")
        began = time.perf_counter()
        with contextlib.suppress(urllib.error.HTTPError), urllib.request.urlopen(asked, timeout=120) as answer:
            answer.read()
        return time.perf_counter() - began


@contextlib.asynccontextmanager
async def _node() -> AsyncIterator[_Node]:
    with EmbeddedRedis.start() as redis:
        async with headgate.connect(redis.url) as client:
            grants = [parse_grant("produce,consume:#")]
            people = {name: User(password_hash=hashed(name), grants=grants) for name in ("ann", "bob")}
            people["nobody"] = User(password_hash=hashed("nobody"), grants=[])
            await UserStore(client.store.server, client.namespace).change(lambda known: known.update(people))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "headgate_coordinator", "node", "--json", "--port", "0", "--admin-port", "0"),
            *("--plain-without-tls", "--redis", redis.url),
            stdout=PIPE, stderr=asyncio.subprocess.DEVNULL, env=os.environ | {"HEADGATE_ADMIN_TOKEN": TOKEN},
        )  # fmt: skip
        assert process.stdout is not None
        try:
            yield _Node(json.loads(await process.stdout.readline()), process.pid)
        finally:
            process.kill()
            await process.wait()


def _said(name: str, password: str) -> bytes:
    client = SaslClient(name, password, "node")
    client._choose(("PLAIN",))  # noqa: SLF001 -- as if the node had offered it
    return client.outgoing


async def _log_in(node: _Node, name: str) -> float:
    began = time.perf_counter()
    while True:
        try:
            async with headgate.connect(f"amqp://{name}:{name}@{node.host}:{node.port}"):
                return time.perf_counter() - began
        except headgate.CoordinatorUnavailable:
            continue


async def _passwords(count: int, *, user: str | None, stay: bool) -> list[float]:
    """Return the seconds that log-ins for the first time take, while wrong passwords come in and after."""
    async with _node() as node, contextlib.AsyncExitStack() as stack:

        async def flood() -> None:
            for number in range(count):
                _, writer = await asyncio.open_connection(node.host, int(node.port))
                with contextlib.suppress(ConnectionError):
                    writer.write(_said(user or f"nobody{number}", f"wrong {number}"))
                    if stay:
                        stack.callback(writer.close)
                    else:
                        writer.close()

        flooding = asyncio.create_task(flood())
        await asyncio.sleep(1)
        during = await _log_in(node, "bob")
        await flooding
        return [during, await _log_in(node, "ann")]


def _asks(name: str, password: str) -> bytes:
    word = base64.b64encode(f"{name}:{password}".encode()).decode()
    return f"GET /v1/limits/none HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic {word}\r\n\r\n".encode()


async def _log_in_over_http(node: _Node, name: str) -> float:
    host, port = node.admin.rpartition("/")[2].split(":")
    began = time.perf_counter()
    while True:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(_asks(name, name))
            said = await reader.read(16)
            writer.close()
            if b" 404 " in said:  # it is known who asks, and there is no such limiter
                return time.perf_counter() - began


def _guess(admin: str, user: str | None, tried: "Synchronized[int]", *, stay: bool) -> None:
    """Try wrong passwords over HTTP, on 1,000 connections at a time, until killed."""
    host, port = admin.rpartition("/")[2].split(":")

    async def one(number: int) -> None:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection(host, int(port))
            try:
                writer.write(_asks(user or f"nobody{number}", f"wrong {number}"))
                if stay:
                    await reader.read(1)
            finally:
                writer.close()

    async def flood() -> None:
        tasks: set[asyncio.Task[None]] = set()
        while True:
            tried.value += 1
            tasks.add(task := asyncio.create_task(one(tried.value)))
            task.add_done_callback(tasks.discard)
            if len(tasks) >= SILENT:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.sleep(0)

    raise_files()
    asyncio.run(flood())


async def _passwords_over_http(count: int, *, user: str | None, stay: bool) -> list[float]:
    """Return the same of HTTP, and the longest that `/live` took under as many wrong passwords."""
    apart = multiprocessing.get_context("spawn")  # a process of its own: what it costs is no part of what is measured
    tried = apart.Value("i", 0)

    def wait(share: float) -> None:
        while tried.value < count * share:
            time.sleep(0.01)

    async with _node() as node:
        flood = apart.Process(target=_guess, args=(node.admin, user, tried), kwargs={"stay": stay})
        flood.start()
        try:
            await asyncio.to_thread(wait, 0.1)
            during = await _log_in_over_http(node, "bob")
            live = await _while_asked(node, lambda: wait(1))
        finally:
            flood.kill()
            flood.join()
        return [during, await _log_in_over_http(node, "ann"), live]


async def _while_asked(node: _Node, work: Callable[[], object]) -> float:
    """Return the longest that `/live` took while something was done in a thread."""
    task, longest = asyncio.create_task(asyncio.to_thread(work)), 0.0
    while not task.done():
        longest = max(longest, await asyncio.to_thread(node.get, "/live"))
        await asyncio.sleep(0.01)
    await task
    return longest


async def _silent(count: int) -> float:
    async with _node() as node, contextlib.AsyncExitStack() as stack:
        host, port = node.admin.rpartition("/")[2].split(":")
        longest = 0.0
        for number in range(count):
            _, writer = await asyncio.open_connection(host, int(port))
            stack.callback(writer.close)
            if number % 100 == 99:
                longest = max(longest, await asyncio.to_thread(node.get, "/live"))
        return max(longest, await asyncio.to_thread(node.get, "/ready"))


def _documents(*, quick: bool) -> dict[str, bytes]:
    count = RULES // (10 if quick else 1)
    wild = "".join(f'[[destination]]\nmatch = "a{n}.*.b{n % 7}.#"\nlimit = "1MB"\n' for n in range(count))
    crossed = "".join(
        f'[[destination]]\nmatch = "{match}"\nlimit = 1\n'
        for n in range(count // 2)
        for match in (f"*.a{n}", f"b{n}.*")
    )
    keys = "".join(f"key{n:06d} = 1\n" for n in range(KEYS // (10 if quick else 1)))
    names = {f"{count} wildcard rules": wild, f"{count} that overlap": crossed, "1 MiB of unknown keys": keys}
    return {name: text.encode() for name, text in names.items()}


async def _policies(*, quick: bool) -> list[Figure]:
    figures = []
    async with _node() as node:
        for name, text in _documents(quick=quick).items():
            longest = await _while_asked(node, lambda text=text: node.get("/api/v1/policy?dry_run=true", text))  # type: ignore[misc]
            figures.append(_figure(f"/live, at the longest, beside a policy of {name}", longest, 1))
    return figures


async def _bridges(count: int) -> list[Figure]:
    """Return the longest that `/live` took under silent connections, as a policy of links came in force, and after."""
    text = "".join(f'[[bridge]]\nname = "b{n}"\nfrom = "a{n}"\nto = "a{n + 1}"\n' for n in range(count)).encode()
    async with _node() as node, contextlib.AsyncExitStack() as stack:
        host, port = node.admin.rpartition("/")[2].split(":")
        for _ in range(SILENT):
            _, writer = await asyncio.open_connection(host, int(port))
            stack.callback(writer.close)
        put = await _while_asked(node, lambda: node.get("/api/v1/policy", text))
        after = await _while_asked(node, lambda: time.sleep(SETTLES))
    what = f"/live, at the longest, under {SILENT} silent connections"
    return [
        _figure(f"{what}, while {count} bridges come into force", put, 1),
        _figure(f"{what}, in the {SETTLES:g} s after, as one node begins to work on all", after, 1),
    ]


def _calls(most: int) -> float:
    """Return the seconds that the worst message with calls of so many bytes keeps the loop."""
    head, longest = b"\0\x53\x75\xb0\0\0\0\0", 0.0
    deep = b"\xdc\x03\xe8" + (b"\xdc\x03\xe8" + (b"\xdc\x03\xe8" + b"\x90" * 1000) * 1000) * 24
    for bomb in (b"\xdd" + most.to_bytes(4) + b"\x90" * most, deep, b"\x91" * 8000, b"\xdc\x04\x00" * 8000):
        began = time.perf_counter()
        with contextlib.suppress(MessageFormatError):
            read_calls(head + bomb[:most])
        longest = max(longest, time.perf_counter() - began)
    return longest


async def _held(first: bytes, said: bytes) -> float:
    """Return the MiB that a new node holds at the most for each of those who say this and read nothing."""
    async with _node() as node:
        sockets: list[socket.socket] = []

        async def pour(peers: int) -> None:
            await asyncio.to_thread(floods.pour, int(node.port), said, sockets, first, peers)

        await pour(1)  # so that what it has once is there
        await asyncio.sleep(0.5)
        before = most = node.resident()
        pouring = asyncio.create_task(pour(PEERS))
        over = None
        while over is None or time.monotonic() < over:
            most = max(most, node.resident())
            await asyncio.sleep(0.02)
            if over is None and pouring.done():
                over = time.monotonic() + STAYS
        await pouring
        floods.hang_up(sockets)
        return (most - before) / PEERS


async def _memory(*, quick: bool) -> list[Figure]:
    figures = []
    for who, first, all_floods in (
        ("a stranger", b"", floods.BEFORE),
        ("a user without grants", _said("nobody", "nobody"), floods.AFTER),
    ):
        some = dict(list(all_floods.items())[: 2 if quick else None])
        found = {name: await _held(first, said) for name, said in some.items()}
        worst = max(found, key=lambda name: found[name])
        what = f"memory for {who}, of {PEERS} that come at once, at the worst of {len(found)} floods ({worst})"
        figures.append(Figure(what, found[worst], "MiB", "<= 1", found[worst] <= 1))
    return figures


async def measure(*, quick: bool) -> list[Figure]:
    """Return seconds: of log-ins and probes while others push, and of the loop for what they send."""
    raise_files()
    figures = []
    count = PASSWORDS // (10 if quick else 1)
    for what, user, stay in (("for one user", "ann", True), ("that hang up", "ann", False), ("for nobody", None, True)):
        found = await _passwords(count, user=user, stay=stay)
        for when, seconds in zip(("of another user under", "of that user after"), found, strict=True):
            figures.append(_figure(f"log-in {when} {count} wrong passwords {what}", seconds, 2))
        *found, live = await _passwords_over_http(count, user=user, stay=stay)
        for when, seconds in zip(("of another user under", "of that user after"), found, strict=True):
            figures.append(_figure(f"log-in {when} {count} wrong passwords {what}, over HTTP", seconds, 2))
        figures.append(_figure(f"/live, at the longest, under wrong passwords {what}, over HTTP", live, 1))
    figures += await _memory(quick=quick)
    figures.append(_figure(f"/live, at the longest, under {SILENT} silent connections", await _silent(SILENT), 1))
    figures += await _policies(quick=quick)
    figures += await _bridges(BRIDGES // (10 if quick else 1))
    figures.append(_figure("the loop, for the worst call of who has no grants", _calls(NOTHING.calls), 0.05))
    figures.append(Figure("the loop, for the worst 24 MiB of who may send", _calls(24 << 20), "s"))
    return figures


def _figure(name: str, seconds: float, most: float) -> Figure:
    return Figure(name, seconds, "s", f"<= {most:g}", seconds <= most)
