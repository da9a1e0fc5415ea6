"""Every performative, over and over and as large as it goes, from peers that may do nothing and read nothing.

Each such peer may cost a node a MiB and keep no turn of its loop, and nothing of it comes to Redis. Memory is that of
the process, because the protocol's library keeps its own; a turn is measured in processor time, against plain Python.
"""

import asyncio
import gc
import re
import socket
import struct
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest

from headgate.amqp.calls import GATEWAY
from headgate.amqp.sasl import HEADER as SASL
from headgate_coordinator.security import Action
from tests.amqp import raw
from tests.amqp.raw import NULL, TRUE, attach, begin, detach, end, flow, frame, nothings, number, text, transfer
from tests.remote.people import node_with, peer_as
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.one_server, pytest.mark.usefixtures("patient")]
PEERS: Final = 12
MOST: Final = 1 << 20
"""Bytes that a node may hold for one of them."""
BIG: Final = nothings(60_000)
NAMES: Final = [f"{at:04}" + "n" * 200 for at in range(3000)]
CHANNELS: Final = range(64)


def sasl(code: int, *fields: bytes) -> bytes:
    body = raw.described(code, fields)
    return struct.pack(">IBBH", len(body) + 8, 2, 1, 0) + body


def plain(name: str) -> bytes:
    said = f"\0{name}\0secret".encode()
    return SASL + sasl(0x41, b"\xa3\x05PLAIN", b"\xa0" + bytes([len(said)]) + said)


def disposition(last: int, *state: bytes) -> bytes:
    return frame(0x15, [TRUE, number(0), number(last), TRUE, *state])


def ended_because(code: int, *before: bytes) -> bytes:
    """A detach, an end or a close with an error that says very much."""
    error = raw.described(0x1D, [b"\xa3\x01x", text("y" * 1000), BIG])
    return frame(code, [*before, error])


BEFORE = {
    "silence": b"",
    "half a frame": SASL + struct.pack(">IBBH", 0x7FFFFFFF, 2, 1, 0) + b"x" * (4 << 20),
    "frames of nothing": SASL + struct.pack(">IBBH", 8, 2, 1, 0) * 200_000,
    "a long password": SASL + sasl(0x41, b"\xa3\x05PLAIN", b"\xb0" + struct.pack(">I", 4 << 20) + b"x" * (4 << 20)),
    "many choices": SASL + sasl(0x41, b"\xa3\x05PLAIN", b"\xa0\x04\0a\0b") * 50_000,
    "a large map": SASL + sasl(0x41, b"\xa3\x05PLAIN", BIG, BIG),
    "no SASL": raw.opening() * 2000,
    "AMQP behind it": SASL + raw.opening() + begin() + attach("s", 0) + transfer(0, 0, b"x" * (4 << 20)),
    "garbage": b"\xff" * (4 << 20),
}
AFTER = {
    "open": frame(0x10, [text("raw"), *[NULL] * 8, BIG]) * 2,
    "begin": raw.opening() + b"".join(begin(channel) for channel in CHANNELS),
    "begin with properties": raw.opening() + b"".join(
        frame(0x11, [NULL, number(0), number(9), number(9), NULL, NULL, NULL, BIG], channel=at) for at in CHANNELS
    ),
    "begin and end": raw.opening() + b"".join(begin(at) + end(at) for at in CHANNELS) * 60,
    "end with an error": raw.opening() + b"".join(begin(at) + ended_because(0x17) for at in CHANNELS),
    "attach": raw.opening() + b"".join(map(begin, CHANNELS)) + b"".join(
        attach(name, at // 64, channel=at % 64, receives=bool(at % 2)) for at, name in enumerate(NAMES)
    ),
    "attach with filters": raw.opening() + begin() + b"".join(
        attach(name, at, receives=True, filters=BIG) for at, name in enumerate(NAMES[:80])
    ),
    "attach and detach": raw.opening() + begin() + (attach("l", 0) + detach(0)) * 4000,
    "detach with an error": raw.opening() + begin() + (attach("l", 0) + ended_because(0x16, number(0), TRUE)) * 60,
    "detach of nothing": raw.opening() + begin() + b"".join(map(detach, range(4000))),
    "flow": raw.opening() + begin() + attach("r", 0, receives=True) + flow(0, 1 << 30, echo=True) * 20_000,
    "flow of the session": raw.opening() + begin() + flow(echo=True) * 20_000,
    "flow with properties": raw.opening() + begin() + attach("r", 0, receives=True) + frame(
        0x13, [number(0), number(9), number(0), number(9), number(0), number(0), number(9), NULL, NULL, TRUE, BIG]
    ) * 60,
    "transfer": raw.opening() + begin() + attach("s", 0) + transfer(0, 0, b"x" * 60_000, more=True) * 80,
    "transfers": raw.opening() + begin() + attach("s", 0) + b"".join(transfer(0, at, b"x") for at in range(4000)),
    "transfer to the gateway": raw.opening() + begin() + attach("s", 0, address=GATEWAY)
    + transfer(0, 0, b"x" * 60_000, more=True) * 80,
    "disposition": raw.opening() + begin() + attach("r", 0, receives=True) + disposition(0xFFFFFFFF) * 4000,
    "disposition with a state": raw.opening() + begin() + disposition(9, raw.described(0x27, [TRUE, TRUE, BIG])) * 60,
    "close with an error": raw.opening() + begin() + ended_because(0x18),
    "frames of nothing": raw.opening() + struct.pack(">IBBH", 8, 2, 0, 0) * 200_000,
    "half a frame": raw.opening() + struct.pack(">IBBH", 65_000, 2, 0, 0) + b"x" * 60_000,
}  # fmt: skip


def resident() -> int:
    found = re.search(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) * 1024


class Turns:
    """The turns of this thread's event loop while it is watched: the longest one, and the most memory after one."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._inner = self._loop._run_once  # type: ignore[attr-defined]
        self.begin()

    def begin(self) -> None:
        self.longest, self.last_work = 0.0, time.monotonic()
        self.before = self.most = resident()

    @property
    def rest(self) -> float:
        """Seconds without work."""
        return time.monotonic() - self.last_work

    def __call__(self) -> None:
        began = time.thread_time()
        self._inner()
        took = time.thread_time() - began
        self.longest = max(self.longest, took)
        if took > 0.001:
            self.last_work = time.monotonic()
            self.most = max(self.most, resident())

    @contextmanager
    def watched(self) -> Iterator[None]:
        gc.collect()
        gc.freeze()  # a collection of all that the tests have is none of the node's, nor of any later test's
        self._loop._run_once = self  # type: ignore[attr-defined]
        try:
            yield
        finally:
            del self._loop._run_once  # type: ignore[attr-defined]


def yardstick() -> float:
    """Seconds of the processor for what takes about 50 ms on a machine of today; more on a slow or busy one."""
    began, count = time.thread_time(), 0
    while count < 1_500_000:
        count += 1
    return time.thread_time() - began


def pour(port: int, said: bytes, sockets: list[socket.socket], first: bytes, peers: int = PEERS) -> None:
    """Say it on every socket, as far as the node takes it, and read nothing but that it lets us in."""
    for _ in range(peers):
        one = socket.create_connection(("127.0.0.1", port), timeout=60)
        sockets.append(one)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.sendall(first)
        heard = b""
        while first and b"\0S\x44" not in heard:
            heard += one.recv(4096)
        one.settimeout(0.3)  # it stopped reading: that is an answer, too
        with suppress(OSError):
            one.sendall(said)


def hang_up(sockets: list[socket.socket]) -> None:
    for one in sockets:
        one.close()


@pytest.mark.parametrize("who", ["a stranger", "a user without grants"])
async def test_no_flood_of_who_may_nothing_costs_a_node_memory_or_a_turn(
    redis_url: str, cleanup_namespace: str, who: str
) -> None:
    first, floods = (b"", BEFORE) if who == "a stranger" else (plain("nobody"), AFTER)
    costs: dict[str, str] = {}
    async with node_with(redis_url, cleanup_namespace, {"nobody": {}}, handshake=600.0) as node:
        turns = Turns()
        with ThreadPoolExecutor(1) as thread, turns.watched():
            for name, said in (("warming up", AFTER["attach"]), *floods.items()):
                allowed = 2 * yardstick()
                await asyncio.sleep(0)
                with ExitStack() as stack:
                    sockets: list[socket.socket] = []
                    stack.callback(hang_up, sockets)
                    turns.begin()
                    pouring = asyncio.get_running_loop().run_in_executor(thread, pour, node.port, said, sockets, first)
                    await pouring
                    await wait_until(lambda: turns.rest > 0.1, timeout=60)
                    assert all((one.identity is not None) == bool(first) for one in node.connections)
                    grown = (turns.most - turns.before) / PEERS
                    if name != "warming up" and (grown > MOST or turns.longest > allowed):
                        costs[name] = f"{grown / MOST:.2f} MiB each, a turn of {turns.longest * 1000:.0f} ms"
                await wait_until(lambda: not node.connections, timeout=60)
        assert costs == {}
        assert await node.client.destinations() == []
        assert node.orphaned == 0


def more_than_all(size: int = 200_000) -> bytes:
    """Flows of a link with more credit than the library counts, up to the midst of one."""
    fields = b"\x43\x52\xff\x43\x52\xff\x43\x43" + number(0xFFFFFFFF)
    body = b"\0S\x13\xc0" + bytes([len(fields) + 1, 7]) + fields
    one = struct.pack(">IBBH", len(body) + 8, 2, 0, 0) + body
    return (one * (size // len(one)))[:-5]


def like_addresses() -> bytes:
    """Attaches behind what looks like their address, often; before these comes what lets more be read at once."""
    like_it = b"\xd1" + struct.pack(">II", 30_012, 2) + b"\xa3\x01k\xb0" + struct.pack(">I", 30_000) + b"q\0" * 15_000
    session = frame(0x11, [NULL, number(0), number(9), number(9), NULL, NULL, NULL, like_it], channel=1)
    nothing = struct.pack(">IBBH", 8, 2, 0, 0) * 100_000
    return nothing + session + b"".join(attach(f"{at}", at, address="q") for at in range(400))


@pytest.mark.parametrize(
    "flood",
    [
        (attach("l", 0) + detach(0)) * 4000,
        attach("r", 0, receives=True, address="q") + more_than_all(),
        like_addresses(),
    ],
    ids=["links", "flows", "addresses"],
)
async def test_who_may_something_keeps_no_turn_for_all_that_it_sends_at_once(
    flood: bytes, redis_url: str, cleanup_namespace: str
) -> None:
    """Breaks where all that a socket has is read in one turn, 256 KiB; or where all after it is read for each flow."""
    said, may = raw.opening() + begin() + flood, {Action.PRODUCE, Action.CONSUME}
    async with node_with(redis_url, cleanup_namespace, {"nobody": {"#": may}}) as node:
        await node.client.apply("q")
        turns = Turns()
        with ThreadPoolExecutor(1) as thread, turns.watched(), ExitStack() as stack:
            sockets: list[socket.socket] = []
            stack.callback(hang_up, sockets)
            turns.begin()
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(thread, pour, node.port, said, sockets, plain("nobody"), 1)
            await wait_until(lambda: turns.rest > 0.1, timeout=60)
            assert turns.longest < yardstick() * 2.5, "a quarter of what it takes in all"


async def test_a_message_with_a_large_head_keeps_no_turn(redis_url: str, cleanup_namespace: str) -> None:
    """Breaks where annotations are read to their end for the one that says when it is due: half a second."""
    many = 500_000
    pairs = b"\xa3\x13x-opt-delivery-time\x43" + b"\xa3\0\x40" * many
    said = b"\0\x53\x72\xd1" + struct.pack(">II", len(pairs) + 4, 2 * many + 2) + pairs + b"\0\x53\x75\xa0\0"
    async with node_with(redis_url, cleanup_namespace, {"sender": {"#": {Action.PRODUCE}}}) as node:
        turns = Turns()
        async with peer_as(node, "sender") as peer:
            link = await peer.sender("q")
            with turns.watched():
                turns.begin()
                delivery = link.send(said)
                peer.waits[delivery] = asyncio.get_running_loop().create_future()
                peer.flush_soon()
                outcome, why = await peer.waits[delivery]
        assert (outcome, "more than 1024 values" in why) == ("rejected", True)
        assert turns.longest < yardstick() * 2.5
