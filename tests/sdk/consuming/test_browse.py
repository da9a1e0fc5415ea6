"""Browsing reads what is stored, and changes nothing."""

import pytest

import headgate
import headgate.sync
from headgate import InvalidValue
from tests.sdk.consuming.test_consumer import fill, receive
from tests.sdk.observing import counts, look

pytestmark = pytest.mark.one_server


async def test_it_reads_what_is_stored_and_changes_nothing(client: headgate.Client) -> None:
    await client.apply("orders", kind="queue", browser_window=3)
    async with client.session("s") as session:
        producer = await session.producer("orders")
        receipts = [await producer.send(f"{n}", headers={"n": n}, ttl=3600 if n else None) for n in range(10)]
        consumer = await session.consumer("orders", window=2)
        await receive(consumer)
        before = await look(client, "orders")
        found = [message async for message in client.browse("orders")]
        after = await look(client, "orders")
        assert (after.fields, after.consumers) == (before.fields, before.consumers)
        assert [message.id for message in found] == [receipt.id for receipt in receipts]
        assert [(message.body, message.headers["n"]) for message in found] == [(f"{n}", n) for n in range(10)]
        assert [message.size for message in found] == [receipt.size for receipt in receipts]
        assert found[0].expires_ms is None
        assert (found[1].expires_ms or 0) > after.now_ms
        assert found[1].id in [m.id async for m in client.browse("orders", after=receipts[0].id, limit=1)]
        assert len([m async for m in client.browse("orders", after=receipts[0].id, limit=4)]) == 4
        assert [m async for m in client.browse("orders", after=receipts[-1].id)] == []


async def test_what_does_not_exist_has_no_messages_and_is_not_made(client: headgate.Client) -> None:
    assert [m async for m in client.browse("nothing")] == []
    assert await client.destinations() == []


@pytest.mark.parametrize(
    "arguments", [{"after": "x"}, {"after": "(1-1"}, {"after": "٣-1"}, {"limit": 0}, {"limit": -1}]
)
async def test_arguments_that_mean_nothing_are_refused(client: headgate.Client, arguments: dict[str, object]) -> None:
    with pytest.raises(InvalidValue, match=next(iter(arguments))):
        await anext(client.browse("orders", **arguments))  # type: ignore[arg-type]


def test_threads_browse_too(redis_url: str, cleanup_namespace: str) -> None:
    with headgate.sync.connect(redis_url, namespace=cleanup_namespace) as client:
        with client.session("s") as session:
            producer = session.producer("orders")
            for number in range(5):
                producer.send(f"{number}")
        assert [message.body for message in client.browse("orders")] == ["0", "1", "2", "3", "4"]
        assert [message.body for message in client.browse("orders", limit=2)] == ["0", "1"]


async def test_a_full_destination_can_be_browsed(client: headgate.Client) -> None:
    await client.apply("orders", kind="queue", limit=100)
    async with client.session("s") as session:
        await fill(session, 1)
        assert len([m async for m in client.browse("orders")]) == 1
    assert await counts(client, "orders") == (100, 0)
