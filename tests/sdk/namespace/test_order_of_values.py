"""A queue with slices may keep the order of a header's values, whoever sends them, while slices come and go."""

import asyncio
import random
from collections import Counter
from functools import partial
from itertools import pairwise
from types import SimpleNamespace
from typing import cast

import pytest

import headgate
from headgate import CreditTimeout, DestinationFull, InvalidValue, PolicyError
from headgate._util.tasks import StepCallbacks
from headgate.core.account.calls import Totals
from headgate.core.limits.spread import Spread
from headgate.core.outbox import Outgoing
from headgate.credit.account import CreditAccount
from headgate.message import encode
from headgate.redis.keys import Address, PoolAddress
from headgate.redis.stores.pools import PoolStore
from headgate.redis.stores.spreads import SpreadStore
from tests.sdk.crew import Crew
from tests.sdk.observing import GUARD
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server
VALUES = 12


async def spread_of(client: headgate.Client) -> tuple[Spread | None, str]:
    return await SpreadStore(client.store.server).in_force(Address.of(client.namespace, "orders"))


async def is_held(client: headgate.Client) -> bool:
    """Return whether nobody may send to the second slice, the last that is held."""
    return await SpreadStore(client.store.server).held(Address.of(client.namespace, "orders#1")) != ""


def place_of(value: int, slices: int) -> int:
    stored = encode(b"", headers={"customer": value})
    return Spread(1, slices, "header:customer").slice_of_stored(stored, "")


class Orders:
    """Messages of a few values, sent by several sessions, one after the other for each value, and received."""

    def __init__(self) -> None:
        self.next = dict.fromkeys(range(VALUES), 0)
        self.received: dict[int, list[int]] = {value: [] for value in range(VALUES)}
        self.where: dict[int, set[int]] = {value: set() for value in range(VALUES)}
        self._turns = {value: asyncio.Lock() for value in range(VALUES)}

    @property
    def count(self) -> int:
        return sum(map(len, self.received.values()))

    async def send(self, producer: headgate.Producer, value: int) -> None:
        """Send the next message of a value, after whoever sends one now has a receipt."""
        async with self._turns[value]:
            receipt = await producer.send(f"{self.next[value]}", headers={"customer": value}, timeout=GUARD)
            self.next[value] += 1
            self.where[value].add(receipt.slice)

    async def send_some(self, producer: headgate.Producer, count: int) -> None:
        for number in range(count):
            await self.send(producer, number % VALUES)

    async def consume(self, consumer: headgate.Consumer) -> None:
        async for message in consumer:
            if message.delivery_count == 0:
                self.received[int(message.headers["customer"])].append(int(message.body))
            await message.accept()

    def in_order(self) -> bool:
        return all(before < after for numbers in self.received.values() for before, after in pairwise(numbers))


async def test_messages_of_one_value_go_to_one_slice_whoever_sends_them(
    client: headgate.Client, other: headgate.Client
) -> None:
    await client.apply("orders", kind="queue", limit=100_000, slices=4, order_by="header:customer")
    orders = Orders()
    async with client.session("a") as a, other.session("b") as b:
        producers = [await session.producer("orders", window=300) for session in (a, b)]
        await asyncio.gather(*(orders.send_some(producer, 60) for producer in producers))
        assert all(len(slices) == 1 for slices in orders.where.values())
        assert len(set.union(*orders.where.values())) > 1
        without = [await producers[0].send("x") for _ in range(10)]
        assert len({receipt.slice for receipt in without}) == 1, "what has no value goes by its producer"
        assert producers[0].destination == "orders"


async def test_another_number_of_slices_keeps_the_order_while_all_goes_on(
    client: headgate.Client, other: headgate.Client
) -> None:
    """More, none, and some again, while sessions of two processes send, and others come and go."""
    await client.apply("orders", kind="queue", limit=20_000, slices=2, order_by="header:customer")
    orders = Orders()
    async with other.session("in") as into:
        consumer = await into.consumer("orders", window=20)
        consuming = asyncio.ensure_future(orders.consume(consumer))
        async with client.session("a") as a, other.session("b") as b:
            lasting = [await session.producer("orders", window=300) for session in (a, b)]
            for slices in (5, 1, 3):
                sending = [asyncio.ensure_future(orders.send_some(producer, 30)) for producer in lasting]
                await client.apply("orders", slices=slices)
                async with client.session(f"n{slices}") as late:
                    await orders.send_some(await late.producer("orders"), 12)
                await asyncio.gather(*sending)
            now, to_come = await spread_of(client)
            await wait_until(lambda: orders.count == sum(orders.next.values()), timeout=GUARD)
        assert (now and now.slices, now and now.by, to_come) == (3, "header:customer", "")
        assert orders.in_order()
        await consumer.close()
        await consuming


async def test_what_was_sent_before_is_settled_before_anything_goes_elsewhere(client: headgate.Client) -> None:
    """Whoever waits learns why; what does not wait fails, and what has no time any more too."""
    await client.apply("orders", kind="queue", limit=10_000, slices=2, order_by="header:customer")
    async with client.session("a") as a, client.session("in") as into:
        producer = await a.producer("orders", window=300)
        await producer.send("first", headers={"customer": 1})
        await client.apply("orders", slices=3)
        await wait_until(partial(is_held, client), timeout=GUARD)
        with pytest.raises(CreditTimeout):
            await producer.send("late", headers={"customer": 2}, timeout=0.8)
        explained = await client.explain("orders")
        assert (explained.state, explained.cause) == ("stopped", "spread-anew")
        assert (
            "spread over 3 slices by header:customer once what was sent before is settled: 1 message"
            in explained.reason
        )
        hasty = await a.producer("orders", when_full="fail")
        with pytest.raises(DestinationFull):
            await hasty.send("hasty", headers={"customer": 2}, timeout=0.5)
        waiting = asyncio.ensure_future(producer.send("second", headers={"customer": 1}, timeout=GUARD))
        consumer = await into.consumer("orders", window=5)
        message = await consumer.receive(timeout=GUARD)
        assert message is not None
        assert message.body == "first"
        assert await consumer.receive(timeout=0.3) is None, "it is in hand, and not settled"
        assert not waiting.done()
        await message.accept()
        await waiting
        message = await consumer.receive(timeout=GUARD)
        assert message is not None
        assert message.body == "second"
        await message.accept(confirm=True)
        assert (await client.recount("orders")).equal


async def test_an_account_is_quiet_once_nothing_is_on_its_way_when_that_is_heard() -> None:
    """Else what follows a batch is taken out, and goes elsewhere before it. Mutant: the moment of the step counts."""
    outbox, steps = SimpleNamespace(flight=1, ready=()), StepCallbacks()
    account = SimpleNamespace(outbox=outbox, steps=steps, _task=asyncio.ensure_future(asyncio.Event().wait()))
    waiting = asyncio.ensure_future(CreditAccount.quiet(cast("CreditAccount", account)))
    for flight, after in ((None, 2), (None, None)):
        await asyncio.sleep(0.01)
        outbox.flight = flight
        steps.made()
        outbox.flight = after
        await asyncio.sleep(0.01)
        assert waiting.done() == (after is None)
    account._task.cancel()


async def test_a_change_that_is_taken_back_waits_for_nothing(client: headgate.Client) -> None:
    await client.apply("orders", kind="queue", slices=2, order_by="header:customer")
    async with client.session("a") as a:
        producer = await a.producer("orders")
        before = await producer.send("first", headers={"customer": 1})
        await client.apply("orders", slices=3)
        await wait_until(partial(is_held, client), timeout=GUARD)
        waiting = asyncio.ensure_future(producer.send("second", headers={"customer": 1}, timeout=GUARD))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        await client.apply("orders", slices=2)
        assert (await waiting).slice == before.slice
        now, to_come = await spread_of(client)
        assert (now, to_come) == (Spread(3, 2, "header:customer"), "")


async def test_senders_that_are_open_go_by_values_as_soon_as_these_are_set(
    client: headgate.Client, other: headgate.Client
) -> None:
    """From no slices and from slices by producer, and back; what waits for room meanwhile comes in its turn."""
    await client.apply("orders", kind="queue", limit=400)
    orders = Orders()
    async with client.session("a") as a, other.session("b") as b, other.session("in") as into:
        producers = [await session.producer("orders", window=100) for session in (a, b)]
        consumer = await into.consumer("orders", window=20)
        consuming = asyncio.ensure_future(orders.consume(consumer))
        for settings in ({"slices": 4}, {"order_by": "header:customer"}, {"order_by": "default"}):
            sending = [asyncio.ensure_future(orders.send_some(producer, 24)) for producer in producers]
            await asyncio.sleep(0)
            await client.apply("orders", **settings)
            await asyncio.gather(*sending)
            if settings != {"order_by": "header:customer"}:
                await wait_until(lambda: orders.count == sum(orders.next.values()), timeout=GUARD)
                for numbers in orders.received.values():  # of several producers, as before
                    numbers.clear()
                orders.next = dict.fromkeys(orders.next, 0)
                orders.where = {value: set() for value in orders.where}
        await consumer.close()
        await consuming
    assert orders.in_order()


async def test_what_waits_as_values_are_set_for_the_first_time_goes_where_its_value_says(
    client: headgate.Client, other: headgate.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Credit may come to a session at its old slice before it hears that the change is in force."""
    await client.apply("orders", kind="queue", limit=110, slices=2)
    first, registry, is_deaf = Address.of(client.namespace, "orders"), other.parts.registry, asyncio.Event()
    looked, read, give_up = asyncio.Event(), registry.refresh, CreditAccount.give_up

    async def refresh(address: Address) -> None:
        if address != first or not is_deaf.is_set():
            await read(address)

    def gives_up(account: CreditAccount) -> None:
        looked.set()
        give_up(account)

    async def is_in_force() -> bool:
        return await spread_of(client) == (Spread(1, 2, "header:customer"), "")

    monkeypatch.setattr(registry, "refresh", refresh)
    monkeypatch.setattr(CreditAccount, "give_up", gives_up)
    async with other.session("a") as a, other.session("b") as b, client.session("c") as c:
        producers = [await session.producer("orders", window=1) for session in (a, b)]
        at = [(await producer.send("x" * 50)).slice for producer in producers]
        late, prompt = producers[at.index(1)], await c.producer("orders", window=1)
        value = next(value for value in range(VALUES) if place_of(value, 2) == 0)
        sends = [
            asyncio.ensure_future(producer.send("y" * 40, headers={"customer": value}, timeout=GUARD))
            for producer in (late, prompt)
        ]
        await wait_until(lambda: late.is_blocked and prompt.is_blocked, timeout=GUARD)
        is_deaf.set()
        await client.apply("orders", order_by="header:customer")
        consumer = await c.consumer("orders", window=2)
        for _ in producers:
            message = await consumer.receive(timeout=GUARD)
            assert message is not None
            await message.accept(confirm=True)
        await wait_until(is_in_force, timeout=GUARD)
        looked.clear()
        await wait_until(lambda: looked.is_set() or sends[0].done(), timeout=GUARD)
        is_deaf.clear()
        assert [(await sent).slice for sent in sends] == [0, 0]


async def test_the_last_producer_gives_everything_back_while_values_are_about_to_be_set(
    client: headgate.Client,
) -> None:
    await client.apply("orders", kind="queue", slices=2)
    async with client.session("a") as a:
        producers = [await a.producer("orders") for _ in range(2)]
        await producers[0].send("is to be settled first")
        before = producers[0]._account
        await client.apply("orders", order_by="header:customer")
        await wait_until(lambda: producers[0]._account is not before, timeout=GUARD)
        for producer in producers:
            assert not before.closed
            await producer.close()
        assert before.closed


async def test_a_session_whose_lease_ran_out_as_values_were_set_hears_of_it_before_it_sends(
    client: headgate.Client, other: headgate.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session that stood still hears no hint of what was set meanwhile, or too late."""
    await client.apply("orders", kind="queue", slices=2)
    monkeypatch.setattr(other.parts.registry, "_doubt", lambda *_: None)
    value = next(value for value in range(VALUES) if place_of(value, 2) == 0)
    async with other.session("a") as a, other.session("b") as b, client.session("c") as c:
        producers = [await session.producer("orders") for session in (a, b)]
        at = [(await producer.send("first")).slice for producer in producers]
        late, session = producers[at.index(1)], (a, b)[at.index(1)]
        account = late._account
        line, consumer = account.credit, await c.consumer("orders", window=2)
        had = Totals(session.id, line.inc, line.epoch, line.granted, line.granted_m, line.used, line.used_m)
        assert (await client.store.acquire(account.address, had, ttl_ms=1000, leave=True)).code == "LEFT"
        await producers[at.index(0)].close()
        await client.apply("orders", order_by="header:customer")
        prompt = asyncio.ensure_future((await c.producer("orders")).send("a", headers={"customer": value}))
        while not prompt.done():
            if message := await consumer.receive(timeout=0.1):
                await message.accept()
        assert (await late.send("b", headers={"customer": value}, timeout=GUARD)).slice == (await prompt).slice == 0


async def test_a_sender_that_did_not_hear_of_a_change_looks_before_it_sends(
    client: headgate.Client, other: headgate.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.apply("orders", kind="queue", slices=2, order_by="header:customer")
    orders = Orders()
    monkeypatch.setattr(other.parts.registry, "_doubt", lambda *_: None)
    async with client.session("a") as a, other.session("b") as b, client.session("in") as into:
        deaf, producer = await b.producer("orders"), await a.producer("orders")
        await orders.send_some(deaf, VALUES)
        consumer = await into.consumer("orders", window=20)
        consuming = asyncio.ensure_future(orders.consume(consumer))
        await client.apply("orders", slices=7)
        await orders.send_some(producer, VALUES)
        now, _ = await spread_of(client)
        assert now is not None
        assert now.slices == 7
        orders.where = {value: set() for value in orders.where}
        await orders.send_some(deaf, VALUES)
        await orders.send_some(producer, VALUES)
        assert all(len(slices) == 1 for slices in orders.where.values())
        await consumer.close()
        await consuming


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 21))])
async def test_no_kill_while_slices_change_breaks_the_order_or_stops_the_others(
    cluster_url: str, cleanup_namespace: str, seed: int
) -> None:
    """Processes that send, and take the steps of changes, are killed with -9 at any moment, over three masters."""
    dice, received, limit = random.Random(seed), dict[str, list[int]](), 4000

    async def consume(consumer: headgate.Consumer) -> None:
        async for message in consumer:
            if message.delivery_count == 0:
                received.setdefault(str(message.headers["from"]), []).append(int(message.body))
            await message.accept()

    def count() -> int:
        return sum(map(len, received.values()))

    async with headgate.connect(cluster_url, namespace=cleanup_namespace) as cluster, cluster.session("in") as session:
        await cluster.apply("orders", kind="queue", limit=limit, slices=3, order_by="header:from")
        consumer = await session.consumer("orders", window=10)
        consuming = asyncio.ensure_future(consume(consumer))
        async with Crew("by_value", cluster_url, cleanup_namespace, "orders", 1, name="w{}") as crew:
            for _ in range(3):
                await cluster.apply("orders", slices=dice.choice([1, 2, 4, 6]))
                await asyncio.sleep(dice.random() / 2)
                await crew.replace_one()
                before = count()
                await wait_until(lambda: count() > before + 8, timeout=120)  # noqa: B023 -- it is over by then
        assert all(one < next_ for numbers in received.values() for one, next_ in pairwise(numbers))
        assert len(received) > 8
        fields = await PoolStore(cluster.store.server).fields(PoolAddress.of(cleanup_namespace, "orders#0"))
        assert int(fields["peak_bytes"]) <= limit
        await consumer.close()
        await consuming
        await cluster.purge("orders")


async def test_what_cannot_keep_the_order_of_values_is_refused(client: headgate.Client) -> None:
    for kind in ("topic", "gate"):
        with pytest.raises(PolicyError, match=f"order_by belongs to a queue, not to a {kind}"):
            await client.apply("orders", kind=kind, slices=2, order_by="header:customer")
    with pytest.raises(InvalidValue, match="write 'header:<name>'"):
        await client.apply("orders", kind="queue", slices=2, order_by="customer")
    await client.apply("orders", kind="queue", slices=2, order_by="group-id")
    async with client.session("a", resume="work") as session:
        with pytest.raises(PolicyError, match="leave out resume, or order_by"):
            await session.producer("orders")


def test_values_are_spread_evenly_and_the_same_everywhere() -> None:
    spread = Spread(1, 6, "header:customer")

    def place(value: object) -> int:
        return spread.slice_of(Outgoing(encode(b"", {"customer": value}), 1, 0.0, None), "a~1")

    counts = Counter(place(f"customer {number}") for number in range(6000))
    assert max(counts.values()) < 1.1 * 1000
    assert [place("ann"), place(7), place(True)] == [3, 0, 5], "another version must not choose another slice"
    assert place(7) == place("7")
    assert Spread.read("3 2") is Spread.read("") is Spread.read("x 2 header:a") is None
