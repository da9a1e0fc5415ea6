"""Browsing a destination that spools shows payloads, and changes nothing."""

from pathlib import Path

import pytest

import headgate
import headgate.sync
from headgate.spool.storage import Storage
from tests.sdk.observing import look
from tests.support.spooled import PAYLOAD, body, fill, first_segment, number_of, segments, spooling, swept

pytestmark = pytest.mark.one_server


async def test_it_shows_payloads_and_changes_nothing(client: headgate.Client, tmp_path: Path) -> None:
    """Breaks when `browse` yields what is stored as it is."""
    await spooling(client, tmp_path, browser_window=7)
    assert await fill(client, 60) > 30
    before, files = await look(client, "orders"), segments(tmp_path)
    found = [message async for message in client.browse("orders")]
    assert [message.body for message in found] == [body(n) for n in range(60)]
    assert all(message.size > PAYLOAD for message in found)
    after = await look(client, "orders")
    assert (after.fields, segments(tmp_path)) == (before.fields, files)
    assert [message.body async for message in client.browse("orders", after=found[40].id, limit=3)] == [
        body(n) for n in (41, 42, 43)
    ]


def test_threads_see_payloads_too(redis_url: str, cleanup_namespace: str, tmp_path: Path) -> None:
    with headgate.sync.connect(redis_url, namespace=cleanup_namespace) as client:
        client._thread.run(spooling(client._inner, tmp_path))
        with client.session("s") as session:
            producer = session.producer("orders")
            posted = [producer.post(body(n)) for n in range(60)]
            assert [receipt.result().seq for receipt in posted] == list(range(1, 61))
            assert [number_of(message.body) for message in client.browse("orders")] == list(range(60))
            consumer = session.consumer("orders")
            for number in range(60):
                message = consumer.receive(timeout=10)
                assert message is not None
                assert (message.body, message.stored[:1] != b"\xc1") == (body(number), True)
                message.accept()
            consumer.flush()
        client._thread.run(swept(tmp_path))


async def test_a_lost_segment_is_shown_as_a_stub_that_names_it(client: headgate.Client, tmp_path: Path) -> None:
    """Breaks when a payload that cannot be read ends the iteration, or is left out."""
    await spooling(client, tmp_path)
    await fill(client, 60)
    lost = await first_segment(client, tmp_path)
    lost.unlink()
    found = [message async for message in client.browse("orders")]
    assert len(found) == 60
    stubs = [message for message in found if "headgate-lost-segment" in message.headers]
    assert 0 < len(stubs) < 45
    assert all(lost.name in message.headers["headgate-lost-segment"] for message in stubs)
    assert all("there is no such segment" in str(message.body) for message in stubs)


async def test_a_store_that_does_not_answer_is_asked_once_a_page(
    client: headgate.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaks when each message of a page waits for the store anew, or the browse fails."""
    await spooling(client, tmp_path)
    spooled = await fill(client, 60)
    asked = []

    async def silent(_storage: Storage, path: str, _start: int, _end: int) -> bytes:
        asked.append(path)
        raise headgate.SpoolUnavailable("file://here", "read", path, "no answer")

    monkeypatch.setattr(Storage, "read", silent)
    found = [message async for message in client.browse("orders")]
    told = [message for message in found if "for now" in str(message.body)]
    assert (len(found), len(told), len(asked)) == (60, spooled, 1)


async def test_what_is_settled_meanwhile_is_left_out_and_not_called_lost(
    client: headgate.Client, other: headgate.Client, tmp_path: Path
) -> None:
    """Breaks when what cannot be read is shown without asking whether it is there still."""
    await spooling(client, tmp_path)
    await fill(client, 60)
    browsed = other.browse("orders")
    first = await anext(browsed)
    assert first.body == body(0)
    async with client.session("taker") as session:
        consumer = await session.consumer("orders")
        for _ in range(60):
            message = await consumer.receive(timeout=10)
            assert message is not None
            await message.accept()
        await consumer.flush()
    await swept(tmp_path)
    rest = [message async for message in browsed]
    assert [message for message in rest if "headgate-lost-segment" in message.headers] == []
