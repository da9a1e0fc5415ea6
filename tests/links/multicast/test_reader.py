"""Readers of channels on the loopback interface: what they join, take, refuse, and print."""

import asyncio
import json
import os
import socket
from collections.abc import Iterator
from typing import Any

import pytest

import headgate.multicast
from headgate.core.links.multicast import Packet, split
from headgate.errors import Closed, InvalidValue
from headgate.message import encode
from headgate.multicast import Loss
from tests.links.channels import LOOPBACK, Group, collecting
from tests.support.extent import share_of
from tests.support.forked import run
from tests.support.waiting import wait_until


class Sender:
    """A socket that sends anything to a group."""

    def __init__(self, group: Group) -> None:
        self._to = (group.address, group.port)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(LOOPBACK))

    def say(self, *packets: bytes) -> None:
        for packet in packets:
            self._socket.sendto(packet, self._to)

    def message(self, seq: int, body: str, topic: str = "prices", **headers: str) -> None:
        packet = Packet("quotes", topic, 1, seq, seq - 1, payload=encode(body, headers))
        self.say(*split(packet, 200))

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def group() -> Group:
    return Group()


@pytest.fixture
def sender(group: Group) -> Iterator[Sender]:
    sender = Sender(group)
    yield sender
    sender.close()


@pytest.mark.parametrize(
    ("arguments", "more", "text"),
    [
        (("192.0.2.1", 7000), {}, "group: '192.0.2.1' is not a multicast address"),
        (("quotes", 7000), {}, "is not a multicast address"),
        (("239.1.2.3", 0), {}, "port: 0; write a whole number from 1 to 65535"),
        (("239.1.2.3", True), {}, "port: True"),
        (("239.1.2.3", 7000), {"interface": "eth0"}, "interface: 'eth0' is not an IPv4 address"),
        (("239.1.2.3", 7000), {"memory": "much"}, "memory: 'much' is not a size"),
    ],
)
def test_what_cannot_be_joined_is_refused(arguments: tuple[Any, Any], more: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidValue, match=text):
        headgate.multicast.reader(*arguments, **more)


async def test_an_interface_that_is_not_here_cannot_be_joined() -> None:
    with pytest.raises(OSError, match=r"."):
        async with headgate.multicast.reader("239.1.2.3", 7000, interface="192.0.2.77"):
            raise AssertionError


async def test_readers_get_body_headers_topic_and_number(group: Group, sender: Sender) -> None:
    async with group.reader() as reader:
        sender.message(7, "EUR 1.08" * 50, currency="EUR")
        message = await reader.receive()
    assert (message.body, message.headers, message.topic) == ("EUR 1.08" * 50, {"currency": "EUR"}, "prices")
    assert (message.seq, message.channel, message.born, message.id) == (7, "quotes", 1, f"7-{message.size}")
    with pytest.raises(Closed):
        await reader.receive()


async def test_garbage_is_counted_and_goes_no_further(group: Group, sender: Sender) -> None:
    async with collecting(group.reader()) as got:
        sender.say(b"", b"garbage", b"HGMC", b"HGMC\x01" + b"\xff" * 200)
        sender.message(1, "one")
        await wait_until(lambda: len(got.messages) == 1)
        assert (got.reader.refused, got.reader.lost.total()) == (4, 0)


async def test_only_wanted_topics_come(group: Group, sender: Sender) -> None:
    async with collecting(group.reader(topics=["news"])) as got:
        sender.message(1, "a price")
        sender.message(1, "news", "news")
        await wait_until(lambda: len(got.messages) == 1)
        assert got.bodies == ["news"]


async def test_losses_and_what_comes_again_are_counted_by_topic(group: Group, sender: Sender) -> None:
    losses: list[Loss] = []
    async with collecting(group.reader(on_loss=losses.append)) as got:
        for seq in (1, 2, 2, 5, 6):
            sender.message(seq, str(seq))
        sender.message(1, "news", "news")
        await wait_until(lambda: len(got.messages) == 5)
        assert got.of("prices") == ["1", "2", "5", "6"]
        assert (dict(got.reader.lost), dict(got.reader.duplicates)) == ({"prices": 2}, {"prices": 1})
        assert losses == [Loss("quotes", "prices", 3, 4)]
        assert got.reader.lost.total() == 2


@pytest.mark.parametrize("as_json", share_of([True, False], 2))
async def test_the_command_prints_messages_and_losses(group: Group, sender: Sender, as_json: bool) -> None:
    command = ("multicast", "listen", f"{group.address}:{group.port}", "--count", "3", "--interface", LOOPBACK)
    more = ("--json",) if as_json else ()
    ended = asyncio.ensure_future(
        asyncio.to_thread(run, "headgate_coordinator", *command, *more, environment=os.environ, timeout=60)
    )
    seq = 1
    while not ended.done():  # it may begin with any of these, and misses every other one
        sender.message(seq, f"price {seq}")
        seq += 2
        await asyncio.wait([ended], timeout=0.05)
    done = await ended
    assert done.returncode == 0, done.stderr
    out, errors = done.stdout.splitlines(), done.stderr.splitlines()
    if as_json:
        told = sorted((json.loads(line) for line in out), key=lambda one: one.get("seq", one.get("first")))
        begin = told[0]["seq"]
        assert [one.get("seq", one.get("first")) for one in told] == list(range(begin, begin + 5))
        assert [one.get("lost", 0) for one in told] == [0, 1, 0, 1, 0]
        assert told[0]["body"] == f"price {begin}"
    else:
        begin = int(out[0].split()[1].rstrip(":"))
        assert out == [f"prices {seq}: price {seq}" for seq in (begin, begin + 2, begin + 4)]
        assert errors == [f"prices: 1 lost, {seq} to {seq}" for seq in (begin + 1, begin + 3)]
