"""A consumer of slices begins while the first of them does not answer."""

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
import redis

import headgate
from headgate import CoordinatorUnavailable
from headgate.consuming.feed import Feed
from headgate.consuming.slices import Slices
from headgate.core.names import slice_name
from headgate.redis.keys import Address
from headgate.redis.scripts import Script
from tests.sdk.observing import GUARD, field, look
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server
SLICES = 3
EACH = 4


class Masters:
    """The masters of slices, as one client sees them: those that are away answer nothing.

    ``loses`` says what is lost of what others are told: the answer to a call that was made.
    """

    def __init__(self, client: headgate.Client, patch: pytest.MonkeyPatch) -> None:
        self.client, self.away = client, set[str]()
        self.loses: Callable[[Script, bytes], bool] = lambda *_: False
        server = client.store.server
        call, command, burst = server.call, server.command, server.burst

        async def calls(script: Script, keys: Sequence[bytes], argv: Sequence[Any]) -> Any:
            self._reach(keys[0])
            answer = await call(script, keys, argv)
            if self.loses(script, keys[0]):
                raise CoordinatorUnavailable("the answer is lost")
            return answer

        async def commands(key: bytes, *words: Any) -> Any:
            self._reach(key)
            return await command(key, *words)

        async def bursts(pairs: Sequence[tuple[bytes, Sequence[Any]]]) -> list[Any]:
            for key, _ in pairs:
                self._reach(key)
            return await burst(pairs)

        for name, instead in (("call", calls), ("command", commands), ("burst", bursts)):
            patch.setattr(server, name, instead)

    def at(self, number: int) -> Address:
        return Address.of(self.client.namespace, slice_name("orders", number))

    def stop(self, *numbers: int) -> None:
        self.away = {self.at(number).key for number in numbers}

    def _reach(self, key: bytes) -> None:
        if key.decode().partition("}")[0] + "}" in self.away:
            raise CoordinatorUnavailable("nobody is there")


@pytest.fixture
async def masters(
    client: headgate.Client, redis_url: str, cleanup_namespace: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Masters]:
    """The masters as a client sees them that never used the queue."""
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as fresh:
        yield Masters(fresh, monkeypatch)


async def fill(
    client: headgate.Client, kind: str = "queue", slices: int = SLICES, *, empty: int = 0, **settings: Any
) -> None:
    """Make the destination, and send as many messages to each slice but the last ``empty``, a session each."""
    await client.apply("orders", kind=kind, limit="1MB", slices=slices, **settings)
    for number in range(slices - empty):
        async with client.session(f"s{number}") as session:
            producer = await session.producer("orders")
            for at in range(EACH):
                assert (await producer.send(f"{at}", headers={"from": session.id})).slice == number


async def consumers(client: headgate.Client, address: Address) -> set[str]:
    """Return the names of the consumers that a slice knows."""
    snapshot = await client.store.snapshot(address, waiters=0, consumers=10, alone=True)
    assert snapshot is not None
    return set(snapshot.consumers)


def feeds_of(consumer: headgate.Consumer) -> list[Feed]:
    assert isinstance(consumer._supply, Slices)
    return consumer._supply.feeds


async def take(consumer: headgate.Consumer, count: int, seen: dict[str, list[int]]) -> list[headgate.Message]:
    came = []
    for _ in range(count):
        message = await consumer.receive(timeout=GUARD)
        assert message is not None
        seen[message.headers["from"]].append(int(message.body))
        came.append(message)
    return came


@pytest.mark.parametrize(("knows", "rule"), [(True, {"fair_by": "producer"}), (False, {})])
async def test_a_consumer_begins_at_the_others_and_comes_to_the_first_once_it_answers(
    client: headgate.Client, masters: Masters, *, knows: bool, rule: dict[str, Any]
) -> None:
    await fill(client, consumer_window=EACH, **rule)
    async with masters.client.session("in") as into:
        if knows:
            await (await into.consumer("orders", window="paused")).close()
        masters.stop(0)
        consumer, other = await into.consumer("orders"), await into.consumer("orders", window="paused")
        seen = defaultdict[str, list[int]](list)
        for message in await take(consumer, EACH, seen):
            assert message.id.partition(":")[0] in "12"
            await message.accept()
        held = await take(consumer, EACH - 1, seen)  # one place stays free until half of the window is
        assert consumer.held_messages <= EACH, "none counts twice"
        masters.stop()
        await wait_until(lambda: all(feeds_of(one)[0].has_begun for one in (consumer, other)), timeout=GUARD)
        assert all({feed.id for feed in feeds_of(one)} == {one.id} for one in (consumer, other))
        assert consumer._supply._shared.total.messages == consumer.held_messages, "all that is in hand counts"  # type: ignore[attr-defined]
        for message in held:
            await message.accept()
        for _ in range(EACH + 1):
            (message,) = await take(consumer, 1, seen)
            await message.accept(confirm=True)
        assert list(seen.values()) == [[*range(EACH)]] * SLICES
        for number in range(SLICES):
            assert await consumers(client, masters.at(number)) == {consumer.id, other.id}


async def test_nobody_begins_where_no_slice_answers_nor_to_send_where_none_says_how_many_there_are(
    client: headgate.Client, masters: Masters
) -> None:
    await fill(client)
    async with masters.client.session("in") as into:
        masters.stop(*range(SLICES))
        with pytest.raises(CoordinatorUnavailable):
            await into.consumer("orders")
        masters.stop(0)
        consumer = await into.consumer("orders")
        assert consumer.id == f"{into.id}.1", "nothing is left of one that did not begin"
        with pytest.raises(CoordinatorUnavailable):
            await into.producer("orders")
        with pytest.raises(CoordinatorUnavailable):
            await into.consumer("orders", subscription="all")
        masters.stop(*range(SLICES))
        with pytest.raises(CoordinatorUnavailable):
            await into.consumer("orders")
        masters.stop()
        await into.producer("orders")


@pytest.mark.parametrize(("kind", "slices"), [("topic", SLICES), ("queue", 1)])
async def test_nobody_begins_at_a_topic_or_at_a_queue_without_slices_whose_first_is_away(
    client: headgate.Client, masters: Masters, kind: str, slices: int
) -> None:
    await fill(client, kind, slices)
    async with masters.client.session("in") as into:
        masters.stop(0)
        with pytest.raises(CoordinatorUnavailable):
            await into.consumer("orders")
        masters.stop()
        await into.consumer("orders")
        masters.stop(0)
        with pytest.raises(CoordinatorUnavailable):
            await into.consumer("orders")


async def test_whoever_begins_later_has_one_name_where_an_answer_is_lost_and_finds_slices_that_came_meanwhile(
    client: headgate.Client, masters: Masters
) -> None:
    """Mutants: another name for each try; what other slices said is all that is known, or enough to make one."""
    await fill(client, slices=5, empty=1)
    async with masters.client.session("in") as into:
        masters.stop(0)
        consumer = await into.consumer("orders")
        assert len(feeds_of(consumer)) == 4
        assert await client.parts.registry.kind(masters.at(4)) is None, "it may be made with what is out of date"
        await client.apply("orders", slices=6)
        lost = 0

        def loses(script: Script, key: bytes) -> bool:
            nonlocal lost
            lost += (attaches := script.name == "attach" and key == masters.at(0).shared[0])
            return attaches and lost <= 2

        masters.loses = loses
        masters.stop()
        await wait_until(lambda: len(feeds_of(consumer)) == 6, timeout=GUARD)
        await wait_until(lambda: feeds_of(consumer)[0].has_begun, timeout=GUARD)
        assert lost == 3
        assert await consumers(client, masters.at(0)) == {consumer.id}
        assert consumer.id == f"{into.id}.1"


async def test_a_first_slice_that_was_lost_is_made_as_it_was_and_grants_nothing_before_others_have_claimed(
    client: headgate.Client, masters: Masters, redis_url: str
) -> None:
    await fill(client)
    async with masters.client.session("in") as into:
        masters.stop(0)
        consumer = await into.consumer("orders")
        with redis.Redis.from_url(redis_url) as direct:
            direct.delete(*masters.at(0).every_key)
        masters.stop()
        await wait_until(lambda: feeds_of(consumer)[0].has_begun, timeout=GUARD)
        assert (await look(client, "orders")).fields["sliced"] == f"{SLICES}"
        assert await field(client, "orders", "epochs") == 1, "others may hold what was lost"


async def test_a_consumer_that_is_closed_meanwhile_does_not_come_to_the_first(
    client: headgate.Client, masters: Masters
) -> None:
    await fill(client)
    async with masters.client.session("in") as into:
        masters.stop(0)
        consumer = await into.consumer("orders")
        await consumer.close()
        masters.stop()
        other = await into.consumer("orders")
        for number in range(SLICES):
            assert await consumers(client, masters.at(number)) == {other.id}
