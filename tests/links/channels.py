"""Channels over the loopback interface, for tests: a free port, its policy, and what a reader got."""

import asyncio
import random
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import headgate.multicast
from headgate.core.links.channel import HEADERS
from headgate.multicast import MulticastMessage, Reader, joined
from headgate.redis.keys import Address, link_id, session_id
from headgate_coordinator.links.supervisor import Supervisor
from tests.support.waiting import wait_until

LOOPBACK = "127.0.0.1"
SO_TIMESTAMPNS = 35
RECEIVE_TTL = 12
"""Of Linux, which Python does not name."""


class Group:
    """A group and port: those that are named, else such as no other test uses."""

    def __init__(self, address: str = "", port: int = 0) -> None:
        if address:
            self.address, self.port = address, port
            return
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind((LOOPBACK, 0))
            self.port = int(probe.getsockname()[1])
        dice = random.SystemRandom()
        self.address = f"239.{dice.randint(0, 255)}.{dice.randint(0, 255)}.{dice.randint(1, 254)}"

    def channel(self, *topics: str, name: str = "quotes", **more: object) -> str:
        """Return the policy of a channel to here."""
        said = {"name": name, "topics": list(topics), "group": self.address, "port": self.port, "interface": LOOPBACK}
        lines = (f"{key} = {value!r}\n" for key, value in {**said, **more}.items())
        return "[[channel]]\n" + "".join(lines)

    def reader(self, **more: Any) -> Reader:
        """Return a reader of what is sent here."""
        return headgate.multicast.reader(self.address, self.port, interface=LOOPBACK, **more)


class Collected:
    """What a reader got so far."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.messages: list[MulticastMessage] = []

    @property
    def bodies(self) -> list[bytes | str]:
        return [message.body for message in self.messages]

    def of(self, topic: str) -> list[bytes | str]:
        return [message.body for message in self.messages if message.topic == topic]


@asynccontextmanager
async def collecting(reader: Reader) -> AsyncIterator[Collected]:
    """Read as fast as messages come."""
    collected = Collected(reader)

    async def collect() -> None:
        async for message in reader:
            collected.messages.append(message)

    async with reader:
        task = asyncio.create_task(collect())
        yield collected
    await task


@asynccontextmanager
async def sending(client: headgate.Client, name: str = "sender") -> AsyncIterator[Supervisor]:
    """Work on the links of the policy, as a node does; returns when it has begun."""
    supervisor = Supervisor(client, session_id(name), ttl=2)
    await supervisor.start()
    try:
        yield supervisor
    finally:
        await supervisor.close()


async def fields(client: headgate.Client, name: str) -> dict[str, str]:
    """Return what a destination is like; nothing where it is not."""
    seen = await client.store.snapshot(Address.of(client.namespace, name))
    return seen.fields if seen else {}


async def opened(client: headgate.Client, *topics: str) -> None:
    """Wait until a channel is a subscription of each of these: what is sent before goes nowhere."""
    for topic in topics or ("prices",):

        async def subscribed(topic: str = topic) -> bool:
            return (await fields(client, topic)).get("subscriptions") == "1"

        await wait_until(subscribed, timeout=80)


async def released(client: headgate.Client, link: str) -> int:
    """Return the number of the last message that a link let go of at its topic."""
    at = Address.of(client.namespace, link.partition(">")[0])
    record = await client.store.server.command(at.shared[0], "HGET", f"{at.key}:links", f"from:{link_id(link)}")
    return int(record.decode().rpartition("=")[2]) if record else 0


class Stamped:
    """Every packet to a group with the moment at which the kernel took it in, whenever this process gets to read it."""

    def __init__(self, group: Group) -> None:
        self.packets: list[tuple[int, bytes]] = []
        self.ttls: set[int] = set()
        self._socket = joined(group.address, group.port, LOOPBACK)
        self._socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self._socket.setsockopt(socket.IPPROTO_IP, RECEIVE_TTL, 1)
        asyncio.get_running_loop().add_reader(self._socket, self._take)

    def _take(self) -> None:
        data, ancillary, _, _ = self._socket.recvmsg(65536, 64)
        said = {(level, kind): value for level, kind, value in ancillary}
        seconds, nanoseconds = struct.unpack("@qq", said[socket.SOL_SOCKET, SO_TIMESTAMPNS])
        self.ttls |= set(struct.unpack("@i", said[socket.IPPROTO_IP, socket.IP_TTL]))
        self.packets.append((seconds * 1_000_000_000 + nanoseconds, data))

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()

    def most_above(self, rate: float) -> float:
        """Return by how many bytes, headers included, the worst span of time was above the rate."""
        worst = lowest = 0.0
        total = 0
        begin = self.packets[0][0]
        for at, data in self.packets:
            allowed = rate * (at - begin) / 1e9
            lowest = min(lowest, total - allowed)  # what went before a span that begins here
            total += len(data) + HEADERS
            worst = max(worst, total - allowed - lowest)
        return worst
