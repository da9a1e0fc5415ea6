"""Clients of AMQP and destinations that spool: the node writes payloads to the store, and reads them back."""

import time
from pathlib import Path
from typing import Any

import pytest

import headgate
from tests.amqp.rhea_client import Rhea
from tests.sdk.observing import field, look
from tests.support.spooled import fill, first_segment, references, segments, spooling, swept
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server
COUNT = 400
TEXT = "x" * 1000


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def told(first: int, count: int) -> list[dict[str, Any]]:
    return [{"body": f"{number:06d}{TEXT}"} for number in range(first, first + count)]


def numbers(rhea: Rhea, link: str) -> list[int]:
    return [int(text(body)[:6]) for body in rhea.bodies(link)]


def text(body: Any) -> str:
    if isinstance(body, dict):  # the SDK's are data sections
        (data,) = body["$data"]
        return bytes.fromhex(data["$bytes"]).decode()
    return str(body)


async def test_what_memory_has_no_room_for_is_accepted_and_comes_back_in_order(
    rhea_there: Rhea, client: headgate.Client, store: Path
) -> None:
    """Breaks when a line gives credit for what is in hand only: then each message gets a segment of its own."""
    rhea = rhea_there
    await spooling(client, store, memory=120_000)
    await rhea.sender("s", "orders")
    rhea.do("send", link="s", messages=told(0, COUNT))
    await rhea.sees("accepted", COUNT, link="s")
    spooled = len(await references(client))
    assert spooled > COUNT // 2
    assert len(segments(store)) < spooled // 4
    assert int((await look(client, "orders")).fields["pending_bytes"]) <= 120_000
    await rhea.receiver("r", "orders", credit_window=30, autoaccept=True, autosettle=True)
    await rhea.sees("message", COUNT, link="r")
    assert numbers(rhea, "r") == list(range(COUNT))
    await wait_until(lambda: _empty(client))
    await swept(store)


async def _empty(client: headgate.Client) -> bool:
    return await field(client, "orders", "pending_messages") == 0


@pytest.mark.soak
async def test_credit_of_seven_brings_seven_though_payloads_come_later(
    rhea_there: Rhea, client: headgate.Client, store: Path
) -> None:
    """Breaks when deliveries whose payload is on its way do not count under the link's credit."""
    rhea = rhea_there
    await spooling(client, store)
    assert await fill(client, 60) > 40
    await rhea.receiver("r", "orders")
    for got in (7, 14, 21, 28):
        rhea.do("credit", link="r", more=7)
        await rhea.sees("message", got, link="r")
        (holds,) = (await look(client, "orders")).consumers.values()
        assert int(holds["delivered"]) == got
    assert numbers(rhea, "r") == list(range(28))


async def test_payloads_go_out_as_they_arrive(rhea_there: Rhea, client: headgate.Client, store: Path) -> None:
    """A round of spooled messages takes not much longer than one of others.

    Breaks when payloads that arrived wait for the next look at the destination, which is a second away.
    """
    rhea = rhea_there
    await spooling(client, store)
    await fill(client, 60)
    await fill(client, 20, "plain")
    took = {}
    for name in ("plain", "orders"):
        await rhea.receiver(name, name)
        rhea.do("credit", link=name, more=16)  # of orders, all that is in memory
        await rhea.sees("message", 16, link=name)
        began = time.monotonic()
        for got in (17, 18, 19, 20):
            rhea.do("credit", link=name, more=1)
            await rhea.sees("message", got, link=name)
        took[name] = time.monotonic() - began
    assert took["orders"] < 20 * took["plain"]


async def test_a_drained_link_gets_what_there_is_before_its_credit_is_used_up(
    rhea_there: Rhea, client: headgate.Client, store: Path
) -> None:
    """Breaks when credit is said to be used up while payloads are still on their way."""
    rhea = rhea_there
    await spooling(client, store)
    await fill(client, 60)
    await rhea.receiver("r", "orders")
    rhea.do("credit", link="r", more=100)
    rhea.do("drain", link="r")
    await rhea.sees("receiver_drained", link="r")
    assert numbers(rhea, "r") == list(range(60))


@pytest.mark.soak
async def test_a_browser_sees_payloads_and_stubs(rhea_there: Rhea, client: headgate.Client, store: Path) -> None:
    rhea = rhea_there
    await spooling(client, store)
    await fill(client, 60)
    lost = await first_segment(client, store)
    lost.unlink()
    await rhea.receiver("b", {"address": "orders", "distribution_mode": "copy"}, credit_window=0)
    rhea.do("credit", link="b", more=100)
    await rhea.sees("message", 60, link="b")
    shown = [text(body) for body in rhea.bodies("b")]
    stubs = [body for body in shown if not body.endswith("x")]
    assert stubs
    assert all(lost.name in body for body in stubs)
    assert [int(body[:6]) for body in shown if body not in stubs] == [
        number for number, body in enumerate(shown) if body not in stubs
    ]
    assert await field(client, "orders", "pending_messages") == 60


async def test_a_lost_segment_goes_to_the_dead_letters_and_the_rest_goes_on(
    rhea_there: Rhea, client: headgate.Client, store: Path
) -> None:
    rhea = rhea_there
    await spooling(client, store, dead_letter="dead", max_attempts=3)
    await fill(client, 60)
    (await first_segment(client, store)).unlink()
    await rhea.receiver("r", "orders", credit_window=10, autoaccept=True, autosettle=True)
    await wait_until(lambda: _empty(client))
    dead = [message async for message in client.browse("dead")]
    assert dead
    assert all("headgate-lost-segment" in message.headers for message in dead)
    got = numbers(rhea, "r")
    assert (got, len(got) + len(dead)) == (sorted(got), 60)


async def test_dead_letters_of_an_amqp_client_hold_payloads(
    rhea_there: Rhea, client: headgate.Client, store: Path
) -> None:
    rhea = rhea_there
    await spooling(client, store, dead_letter="dead", max_attempts=2)
    await fill(client, 60)
    await rhea.receiver("r", "orders")
    rhea.do("credit", link="r", more=60)
    await rhea.sees("message", 60, link="r")
    rhea.do("settle", link="r", count=60, how="reject")
    await wait_until(lambda: _has(client, "dead", 60))
    dead = [message async for message in client.browse("dead")]
    assert [int(message.body[:6]) for message in dead] == list(range(60))


async def _has(client: headgate.Client, name: str, count: int) -> bool:
    return name in await client.destinations() and await field(client, name, "pending_messages") == count
