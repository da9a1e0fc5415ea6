"""Producers: receipts, order, batches, credit that costs no call, rates, and what cannot be sent."""

import asyncio
from typing import Any

import pytest

import headgate
from headgate import Closed, CreditTimeout, InvalidValue, Receipt
from headgate.core.outbox import MAX_BATCH
from headgate.producing.inflow import check_stored
from headgate.redis.keys import Address
from headgate.redis.replies import Credit
from headgate.redis.store import Store
from tests.sdk.observing import GUARD, counts, drain, outcomes, outgoing, stored_bodies
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server


async def test_a_receipt_tells_the_place_and_the_size(client: headgate.Client) -> None:
    async with client.session("s") as session:
        producer = await session.producer("orders")
        receipts = [await producer.send(b"x" * 100) for _ in range(3)]
        assert [(receipt.seq, receipt.size, receipt.id) for receipt in receipts] == [
            (1, 103, "1-103"),
            (2, 103, "2-103"),
            (3, 103, "3-103"),
        ]
        consumer = await session.consumer("orders")
        assert [message.id for message in await drain(consumer, 3)] == [receipt.id for receipt in receipts]


async def test_bodies_and_headers_arrive_as_they_were_sent(client: headgate.Client) -> None:
    sent: list[tuple[bytes | str, dict[str, Any]]] = [
        (b"\x00\xff", {}),
        ("text: äöü", {"tenant": "a", "n": 7, "nested": {"x": [1, 2.5, None, True]}, "raw": b"\x00"}),
        ("", {}),
        (b"", {"k": ""}),
    ]
    async with client.session("s") as session:
        producer, consumer = await session.producer("orders"), await session.consumer("orders")
        for body, headers in sent:
            await producer.send(body, headers=headers)
        received = await drain(consumer, len(sent))
        assert [(message.body, message.headers) for message in received] == sent


async def test_what_cannot_be_stored_is_refused_and_costs_nothing(client: headgate.Client) -> None:
    async with client.session("s") as session:
        producer = await session.producer("orders")
        before = producer.in_hand
        for body in (None, 5, object(), ["x"]):
            with pytest.raises(InvalidValue, match="a body is bytes or text"):
                await producer.send(body)  # type: ignore[arg-type]
        for headers in ({1: "x"}, {"x": object()}, {"x": 1 << 70}):
            with pytest.raises(InvalidValue):
                await producer.send(b"x", headers=headers)  # type: ignore[arg-type]
        for timeout in (-1, "3 parsecs", float("nan")):
            with pytest.raises(InvalidValue, match="timeout"):
                await producer.send(b"x", timeout=timeout)
        assert producer.in_hand == before


async def test_post_waits_for_credit_only_and_what_it_returns_for_the_receipt(client: headgate.Client) -> None:
    await client.apply("orders", limit=1000)
    async with client.session("s") as session:
        producer = await session.producer("orders", window=1000)
        later = await producer.post(b"x" * 900)
        assert not isinstance(later, Receipt)
        blocked = asyncio.ensure_future(producer.post(b"y" * 900, timeout=GUARD))
        receipt = await later
        assert (receipt.seq, receipt.size) == (1, 904)
        assert not blocked.done()
        with pytest.raises(CreditTimeout):
            await producer.post(b"z", timeout=0.05)
        await drain(await session.consumer("orders"), 1)
        assert (await (await blocked)).seq == 2


async def test_posts_that_nobody_awaits_are_sent_all_the_same(client: headgate.Client) -> None:
    async with client.session("s") as session:
        producer = await session.producer("orders")
        for number in range(100):
            await producer.post(f"{number}")
        await producer.close()
    assert (await client.explain("orders")).fields["pending_messages"] == "100"


async def test_put_sends_what_is_encoded_already_and_waits_for_nothing(client: headgate.Client) -> None:
    await client.apply("orders", limit=1000)
    async with client.session("s") as session:
        producer = await session.producer("orders", window=1000)
        inflow = await session.inflow("orders", window=1000, kind="queue")
        first, second, third = (outgoing(body * 600) for body in "abc")
        inflow.put([first, second, third])
        assert (first.paid, second.paid, third.paid) == (True, False, False)
        last = asyncio.ensure_future(producer.send("last", timeout=GUARD))
        assert (await first.done).seq == 1
        await wait_until(lambda: producer.is_blocked)
        third.done.cancel()
        messages = await drain(await session.consumer("orders"), 3)
        assert [str(message.body)[:4] for message in messages] == ["aaaa", "bbbb", "last"]
        assert ((await second.done).seq, (await last).seq) == (2, 3)


async def test_what_is_put_expires_as_what_is_sent(client: headgate.Client) -> None:
    await client.apply("orders", limit=100)
    async with client.session("s") as session:
        inflow = await session.inflow("orders", window=100, kind="queue")
        item = outgoing("x" * 90, ttl_ms=3_600_000)
        inflow.put([item])
        assert (await item.done).size == 93
        assert [found.expires_ms is not None async for found in client.browse("orders")] == [True]


def test_what_cannot_be_stored_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.producing.inflow.MAX_MESSAGE", 10)
    check_stored(10, 1)
    with pytest.raises(InvalidValue, match="11 bytes; at most 10"):
        check_stored(11, None)
    with pytest.raises(InvalidValue, match="ttl_ms"):
        check_stored(1, 0)


async def test_nothing_is_put_into_an_inflow_that_is_closed(client: headgate.Client) -> None:
    async with client.session("s") as session:
        inflow = await session.inflow("orders", window=100, kind="queue")
        await inflow.close()
        with pytest.raises(Closed):
            inflow.put([outgoing("x")])


async def test_window_and_weight_change_while_a_producer_is_open(client: headgate.Client) -> None:
    await client.apply("orders", limit=100_000)
    async with client.session("s") as session:
        producer = await session.producer("orders", window=10_000)
        address = Address.of(client.namespace, "orders")
        assert producer.in_hand == 10_000
        producer.configure(window="1KiB", weight=7)
        assert producer.in_hand == 1024

        async def weighs(weight: int) -> bool:
            return (await client.store.sessions(address))[session.id]["weight"] == str(weight)

        await wait_until(lambda: weighs(7))
        assert await counts(client, "orders") == (0, 1024)
        producer.configure(window=5000)
        await wait_until(lambda: producer.in_hand == 5000)
        assert await weighs(7), "it was not asked to change"
        other = await session.producer("orders", window=2000, weight=9)
        await wait_until(lambda: weighs(9))
        assert producer.in_hand == 5000, "the largest of all counts"
        producer.configure(window=1000)
        assert producer.in_hand == 2000
        for window, weight, says in (
            (0, None, "window"),
            ("much", None, "window"),
            (7, 0, "weight"),
            (7, True, "weight"),
        ):
            with pytest.raises(InvalidValue, match=says):
                other.configure(window=window, weight=weight)
        assert producer.in_hand == 2000
        await other.close()
        with pytest.raises(Closed):
            other.configure(window=1)


async def test_one_producers_messages_keep_their_order(client: headgate.Client, redis_url: str) -> None:
    await client.apply("orders", limit=5000)
    async with client.session("out") as out, client.session("in") as into:
        producer = await out.producer("orders", window=600)
        sending = [asyncio.ensure_future(producer.send(f"{n}".ljust(n % 300))) for n in range(600)]
        messages = await drain(await into.consumer("orders"), 600)
        receipts = await outcomes(sending)
    assert [str(message.body).strip() for message in messages] == [str(number) for number in range(600)]
    assert [receipt.seq for receipt in receipts] == list(range(1, 601))
    assert stored_bodies(redis_url, client.namespace, "orders") == []


async def test_producers_of_one_session_share_its_credit_and_keep_the_common_order(client: headgate.Client) -> None:
    async with client.session("s") as session:
        one, two = await session.producer("orders"), await session.producer("orders")
        assert one.in_hand == two.in_hand
        sends = [asyncio.ensure_future((one, two)[n % 2].send(f"{n}")) for n in range(100)]
        assert [receipt.seq for receipt in await outcomes(sends)] == list(range(1, 101))
        await one.close()
        with pytest.raises(Closed):
            await one.send(b"x")
        assert (await two.send(b"x")).seq == 101


async def test_all_sends_of_one_turn_are_one_call(client: headgate.Client) -> None:
    async with client.session("s") as session:
        producer = await session.producer("orders")
        server = client.store.server
        for count in (1, 10, 200):
            before = server.calls
            await asyncio.gather(*(producer.send(b"x" * 100) for _ in range(count)))
            assert server.calls - before == 1


async def test_the_next_batch_is_called_for_before_the_receipts_of_the_last(
    client: headgate.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_before: list[int] = []
    publish = Store.publish

    async def counted(store: Store, *args: Any, **words: Any) -> Credit:
        given_before.append(sum(stored.done() for stored in posts))
        return await publish(store, *args, **words)

    monkeypatch.setattr(Store, "publish", counted)
    async with client.session("s") as session:
        producer = await session.producer("orders")
        posts: list[asyncio.Future[Receipt]] = []
        posts += [await producer.post(b"x") for _ in range(3 * MAX_BATCH)]  # type: ignore[misc]
        assert [(await stored).seq for stored in posts] == list(range(1, 3 * MAX_BATCH + 1))
        assert given_before == [0, 0, MAX_BATCH]
        receipt = await producer.send(b"x")
        assert (receipt.seq, given_before[-1]) == (3 * MAX_BATCH + 1, 3 * MAX_BATCH)


async def test_a_kibibyte_message_costs_at_most_a_fiftieth_of_a_call(client: headgate.Client) -> None:
    total = 6400
    async with client.session("out") as out, client.session("in") as into:
        producer, consumer = await out.producer("orders"), await into.consumer("orders")
        server = client.store.server

        async def send(count: int) -> None:
            for _ in range(count):
                await producer.send(b"x" * 1020)

        before = server.calls
        await asyncio.gather(*(send(total // 128) for _ in range(128)))
        assert (server.calls - before) / total <= 0.02
        before = server.calls
        await drain(consumer, total)
        assert (server.calls - before) / total <= 0.02


async def test_a_rate_of_its_own_spreads_the_messages(client: headgate.Client) -> None:
    async with client.session("s") as session:
        producer = await session.producer("orders", rate=100)
        began = asyncio.get_running_loop().time()
        await asyncio.gather(*(producer.send(b"x") for _ in range(31)))
        assert asyncio.get_running_loop().time() - began >= 30 / 100 * 0.99
        with pytest.raises(CreditTimeout, match="its own rate allows it in"):
            await asyncio.gather(*(producer.send(b"x", timeout=0.1) for _ in range(50)))


async def test_the_window_bounds_what_is_on_its_way(client: headgate.Client) -> None:
    async with client.session("s") as session:
        producer = await session.producer("orders", window="10kB")
        assert producer.in_hand == 10_000
        for _ in range(50):
            await producer.post(b"x" * 997)
            assert 0 <= producer.in_hand <= 10_000
        await wait_until(lambda: producer.in_hand == 10_000, description="the window is full again")


async def test_closing_sends_what_is_paid_and_gives_the_rest_back(client: headgate.Client) -> None:
    await client.apply("orders", limit="1MB")
    session = client.session("s")
    producer = await session.producer("orders", window="100kB")
    sends = [asyncio.ensure_future(producer.send(b"x" * 96)) for _ in range(300)]
    await asyncio.sleep(0)
    await session.close()
    assert {type(result) for result in await outcomes(sends)} == {Receipt}
    assert await counts(client, "orders") == (300 * 99, 0)
    for call in (session.producer, session.consumer, session.gate, session.bucket):
        with pytest.raises(Closed):
            await call("orders")


async def test_messages_of_a_topic_without_subscriptions_go_nowhere(client: headgate.Client) -> None:
    await client.apply("news", kind="topic", limit=1000)
    async with client.session("s") as session:
        producer = await session.producer("news", window=1000)
        for _ in range(20):
            await producer.send(b"x" * 500)
    assert await counts(client, "news") == (0, 0)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ({"window": 0}, "window"),
        ({"window": "many"}, "window"),
        ({"weight": 0}, "weight"),
        ({"weight": 1001}, "weight"),
        ({"weight": True}, "weight"),
        ({"rate": 0}, "rate"),
        ({"rate": "fast"}, "rate"),
        ({"timeout": -1}, "timeout"),
    ],
)
@pytest.mark.one_server
async def test_bad_arguments_are_named_and_nothing_is_created(
    client: headgate.Client, arguments: dict[str, object], what: str
) -> None:
    async with client.session("s") as session:
        with pytest.raises(InvalidValue, match=f"^{what}: "):
            await session.producer("orders", **arguments)  # type: ignore[arg-type]
    assert await client.destinations() == []


async def test_a_producer_that_is_opened_again_beside_a_consumer_goes_on_where_the_first_ended(
    client: headgate.Client,
) -> None:
    """The consumer keeps the session's lease, and so what Redis knows of its credit and of its last batch."""
    async with client.session("s") as session:
        consumer = await session.consumer("orders")
        for number in range(3):
            producer = await session.producer("orders")
            await producer.send(f"{number}")
            await producer.close()
            assert [message.body for message in await drain(consumer, 1)] == [f"{number}"]
    assert await counts(client, "orders") == (0, 0)
