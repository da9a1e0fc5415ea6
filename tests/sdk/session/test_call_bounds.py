"""P11: every public coroutine ends in its time while Redis is stopped or hangs; the tables have all there are."""

import asyncio
import inspect
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest.mock import MagicMock

import pytest
import redis

import headgate
import headgate.sync
from headgate import CoordinatorUnavailable, DestinationDamaged, InvalidValue, SessionExpired
from headgate.consuming.wildcard import PatternFeeds
from headgate.limiting.admission import Admission as LimiterAdmission
from headgate.limiting.gate import Admission
from headgate.policy import loads
from headgate.redis.keys import Address
from tests.sdk.observing import GUARD, feed_of, look
from tests.support.servers import RedisServer
from tests.support.waiting import wait_until

SHORT = 0.3
VERBS = ("accept", "release", "reject", "modify")


@pytest.fixture
async def client(server: RedisServer) -> AsyncIterator[headgate.Client]:
    async with headgate.connect(server.url) as client:
        yield client
        server.sigcont()


class Everything:
    """Something of each kind, opened while Redis was there, and every call of each by its name."""

    def __init__(self, client: headgate.Client) -> None:
        self.client = client

    async def open(self) -> "Everything":
        client = self.client
        await client.apply("gate", kind="gate", limit=10)
        await client.apply("bucket", rate=1)
        await client.apply("news.one", kind="topic")
        self.session = client.session("s")
        self.producer = await self.session.producer("orders")
        self.consumer = await self.session.consumer("orders")
        self.wildcard = await self.session.consumer("news.*", subscription="audit")
        self.gate = await self.session.gate("gate", window=10)
        self.bucket = await self.session.bucket("bucket")
        await client.apply("llm", kind="limiter", limits={"slots": {"at_once": 10}})
        self.limiter = await self.session.limiter("llm", in_hand=False)
        self.hold = await self.limiter.admit(slots=1)
        await client.set_store("disk", "memory://calls", limit="1MB")
        self.spool = await client.parts.registry.spooling.spools.get("disk")
        for _ in VERBS:
            await self.producer.send(b"x")
        received = [await self.consumer.receive(timeout=GUARD) for _ in VERBS]
        self.messages = [message for message in received if message is not None]
        return self

    def calls(self) -> dict[type, dict[str, Callable[[], Awaitable[object]]]]:
        client, session, consumer, wildcard = self.client, self.session, self.consumer, self.wildcard
        verbs: dict[str, Callable[[], Awaitable[object]]] = {
            verb: lambda at=at, verb=verb: getattr(self.messages[at], verb)(confirm=True, timeout=SHORT)  # type: ignore[misc]
            for at, verb in enumerate(VERBS)
        }
        return {
            headgate.Message: verbs,
            headgate.Producer: {
                "send": lambda: self.producer.send(b"x", timeout=SHORT),
                "post": lambda: self.producer.post(b"x", timeout=SHORT),
            },
            headgate.Consumer: {
                "receive": lambda: consumer.receive(timeout=SHORT),
                "flush": lambda: consumer.flush(timeout=SHORT),
                "configure": lambda: consumer.configure(window=5),
            },
            PatternFeeds: {
                "flush": lambda: wildcard.flush(timeout=SHORT),
                "configure": lambda: wildcard.configure(window=5),
            },
            Admission: {"__aenter__": lambda: self.gate.admit(11, timeout=SHORT).__aenter__()},
            headgate.Bucket: {
                "take": lambda: self.bucket.take(timeout=SHORT),
                "try_take": self.bucket.try_take,
                "state": self.bucket.state,
                "hold_off": lambda: self.bucket.hold_off(1),
            },
            LimiterAdmission: {"__aenter__": lambda: self.limiter.admit(slots=1, timeout=SHORT).__aenter__()},
            headgate.Limiter: {
                "attempt": lambda: self.limiter.attempt(slots=1),
                "decide": lambda: self.limiter.decide(None, {"slots": 1}),
                "admit_under": lambda: self.limiter.admit_under("word.1", {"slots": 1}, timeout=SHORT),
                "wait_for": lambda: self.limiter.wait_for(None, {"slots": 1}, SHORT, None),
                "hold": lambda: self.limiter.hold("other~00000000.1"),
                "state": self.limiter.state,
                "hold_off": lambda: self.limiter.hold_off(1),
            },
            headgate.Hold: {"hand_over": self.hold.hand_over},
            headgate.Session: {
                "producer": lambda: session.producer("p"),
                "consumer": lambda: asyncio.gather(*(session.consumer(f"c{number}") for number in range(5))),
                "gate": lambda: session.gate("g"),
                "bucket": lambda: session.bucket("b"),
                "limiter": lambda: session.limiter("l"),
                "room_at": lambda: session.room_at(self.spool),
                "inflow": lambda: session.inflow("i", window=100, kind="queue"),
            },
            headgate.Client: {
                "apply": lambda: client.apply("orders", limit=5),
                "apply_policy": lambda: client.apply_policy(headgate.Policy(1, ())),
                "apply_pools": lambda: client.apply_pools([], version=1),
                "block": lambda: client.block("orders", "why"),
                "check_policy": lambda: client.check_policy(headgate.Policy(1, ())),
                "deadlocks": client.deadlocks,
                "destinations": client.destinations,
                "effective": lambda: client.effective("orders"),
                "explain": lambda: client.explain("orders"),
                "policy": client.policy,
                "pools": client.pools,
                "purge": lambda: client.purge("orders"),
                "delete_message": lambda: client.delete_message("orders", "1-1"),
                "move_message": lambda: client.move_message("orders", "1-1", "other"),
                "end_moves": lambda: client.end_moves("orders"),
                "recount": lambda: client.recount("orders"),
                "remove": lambda: client.remove("orders"),
                "remove_pool": lambda: client.remove_pool("pool"),
                "remove_store": lambda: client.remove_store("store"),
                "set_pool": lambda: client.set_pool("pool", limit=5),
                "set_store": lambda: client.set_store("store", "memory://x", limit=10_000),
                "stores": client.stores,
                "unblock": lambda: client.unblock("orders"),
                "unsubscribe": lambda: client.unsubscribe("news.one", "audit"),
                "browse": lambda: anext(client.browse("orders"), None),
                "__aenter__": lambda: headgate.connect(client.redis_url),
            },
        }


ELSEWHERE = {"close", "__aexit__", "__anext__", "confirm", "start", "began", "find_queue", "undo", "room_at"}
"""Closing has tests of its own; iterating is receiving; `confirm` is what verbs call; the rest is not for callers."""


def test_the_table_has_every_public_coroutine() -> None:
    """A mutant that adds one without a row."""
    for kind, rows in _Nothing().calls().items():
        found = {
            name
            for name, method in inspect.getmembers(kind, inspect.isfunction)
            if inspect.iscoroutinefunction(inspect.unwrap(method))
            and (not name.startswith("_") or name in ("__aenter__", "__anext__"))
        }
        assert found - ELSEWHERE - set(rows) - ({"__aenter__"} if kind is headgate.Session else set()) == set(), kind
        for name in found & set(rows):
            named = inspect.signature(getattr(kind, name)).parameters
            assert "timeout" not in named or named["timeout"].default is not inspect.Parameter.empty


class _Nothing(Everything):
    """The table alone, where nobody makes its calls."""

    def __init__(self) -> None:
        nothing: Any = MagicMock()
        self.client = self.session = self.producer = self.consumer = self.wildcard = nothing
        self.gate = self.bucket = self.limiter = self.hold = self.messages = self.spool = nothing


@pytest.mark.longest
@pytest.mark.parametrize("way", ["stopped", "hangs"])
async def test_every_call_ends_while_redis_is_away(client: headgate.Client, server: RedisServer, way: str) -> None:
    everything = await Everything(client).open()
    rows = {(kind, name): call for kind, of in everything.calls().items() for name, call in of.items()}
    (server.kill9 if way == "stopped" else server.sigstop)()
    ended: dict[tuple[type, str], object] = {}

    async def run(name: tuple[type, str], call: Callable[[], Awaitable[object]]) -> None:
        try:
            ended[name] = await call()
        except (headgate.HeadgateError, TypeError) as error:
            ended[name] = error

    running = [asyncio.create_task(run(name, call)) for name, call in rows.items()]
    await asyncio.wait(running, timeout=2 * GUARD)
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    assert set(rows) - set(ended) == set(), "these hang"
    assert not any(isinstance(error, TypeError) for error in ended.values()), ended
    verbs = {name: error for (kind, name), error in ended.items() if kind is headgate.Message}
    assert {type(error) for error in verbs.values()} == {CoordinatorUnavailable}, verbs
    async with asyncio.timeout(GUARD):
        await everything.session.close()


async def test_a_confirmation_has_a_bound_that_nobody_named(
    client: headgate.Client, server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert headgate.consuming.settlements.CONFIRM_WITHIN == 30
    monkeypatch.setattr("headgate.consuming.settlements.CONFIRM_WITHIN", SHORT)
    everything = await Everything(client).open()
    server.sigstop()
    for message, verb in zip(everything.messages, VERBS, strict=True):
        async with asyncio.timeout(GUARD):
            with pytest.raises(
                CoordinatorUnavailable, match=r"not known to be settled after 0.3 s: .*once that is over"
            ):
                await getattr(message, verb)(confirm=True)
    server.sigcont()
    await everything.consumer.flush(timeout=GUARD)  # it goes on by itself
    snapshot = await look(client, "orders")
    assert int(snapshot.fields["pending_messages"]) == 2  # accepted and rejected; the others came back


def test_threads_have_that_bound_too(server: RedisServer) -> None:
    with headgate.sync.connect(server.url) as client, client.session("s") as session, ThreadPoolExecutor(4) as pool:
        producer, consumer = session.producer("orders"), session.consumer("orders")
        for _ in VERBS:
            producer.send(b"x")
        messages = [consumer.receive(timeout=GUARD) for _ in VERBS]
        server.sigstop()
        try:
            settling = [
                pool.submit(getattr(message, verb), confirm=True, timeout="300ms")
                for message, verb in zip(messages, VERBS, strict=True)
            ]
            for one in settling:
                assert isinstance(one.exception(GUARD), CoordinatorUnavailable)
        finally:
            server.sigcont()


async def test_a_timeout_that_cannot_be_read_settles_nothing(client: headgate.Client) -> None:
    everything = await Everything(client).open()
    message = everything.messages[0]
    with pytest.raises(InvalidValue, match=r"timeout: 'soon' is not a duration; .*, or 'unlimited' to wait for ever"):
        await message.accept(confirm=True, timeout="soon")
    assert not message.settled
    await message.accept(confirm=True, timeout="unlimited")


async def test_unlimited_is_a_timeout_wherever_one_is_taken(client: headgate.Client) -> None:
    everything = await Everything(client).open()
    session, later = everything.session, 0.05
    await everything.producer.send(b"x", timeout="unlimited")
    await (await everything.producer.post(b"x", timeout="unlimited"))
    await everything.consumer.flush(timeout="unlimited")
    assert await everything.consumer.receive(timeout="unlimited") is not None
    await everything.bucket.take(timeout="unlimited")
    async with everything.gate.admit(10, timeout="unlimited"):
        waiting = asyncio.create_task(everything.gate.admit(5, timeout="unlimited").__aenter__())
        await asyncio.wait([waiting], timeout=later)
        assert not waiting.done()
    (await asyncio.wait_for(waiting, GUARD)).release()
    await client.apply("full", limit=5)
    patient = await session.producer("full", timeout="unlimited")
    blocked = asyncio.create_task(patient.send(b"xx"))
    also = asyncio.create_task(patient.send(b"yy", timeout="unlimited"))
    await wait_until(lambda: patient.is_blocked)
    await asyncio.wait([blocked, also], timeout=later)
    await client.apply("full", limit=500)
    async with asyncio.timeout(GUARD):
        await asyncio.gather(blocked, also)


def test_unlimited_is_one_for_threads_too(server: RedisServer) -> None:
    with headgate.sync.connect(server.url) as client, client.session("s") as session:
        client.apply("bucket", rate=100)
        client.apply("gate", kind="gate", limit=10)
        producer, consumer = session.producer("orders", timeout="unlimited"), session.consumer("orders")
        assert producer.post(b"x", timeout="unlimited").result("unlimited").seq == 1
        message = consumer.receive(timeout="unlimited")
        assert message is not None
        message.accept(confirm=True, timeout="unlimited")
        consumer.flush(timeout="unlimited")
        session.bucket("bucket").take(timeout="unlimited")
        with session.gate("gate").admit(5, timeout="unlimited"):
            pass


@pytest.mark.parametrize("damage", ["group", "messages", "string"])
async def test_a_destination_whose_keys_are_gone_is_told_and_nobody_waits_for_it(
    client: headgate.Client, server: RedisServer, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    caplog.set_level(logging.ERROR)
    key = f"{Address.of(client.namespace, 'orders').key}:messages"
    everything = await Everything(client).open()
    consumer, (first, second, *_) = everything.consumer, everything.messages
    with redis.Redis.from_url(server.url) as direct:
        if damage == "group":
            direct.xgroup_destroy(key, "queue")
        else:
            direct.delete(key)
            if damage == "string":
                direct.set(key, "x")
    await first.release()
    async with asyncio.timeout(GUARD):
        with pytest.raises(DestinationDamaged, match="noeviction"):
            await second.release(confirm=True, timeout="unlimited")
        with pytest.raises(DestinationDamaged):
            await consumer.receive()
        with pytest.raises(DestinationDamaged):
            await consumer.flush()
        with pytest.raises(DestinationDamaged):
            await anext(consumer)
    assert f"consumer {consumer.id} of 'orders' ends: " in caplog.text


async def test_a_dead_letter_that_finds_no_room_is_told(client: headgate.Client) -> None:
    await client.apply("dead", limit=200)
    everything = await Everything(client).open()
    await (await everything.session.producer("dead")).send(b"x" * 150)
    await client.apply("orders", dead_letter="dead")
    message = everything.messages[0]
    await wait_until(lambda: feed_of(everything.consumer).settlements._dead_letters.target)
    with pytest.raises(CoordinatorUnavailable, match=r"the dead-letter destination 'dead' has no room"):
        async with asyncio.timeout(GUARD):
            await message.reject("bad", confirm=True, timeout=1)


async def test_all_who_wait_are_told_that_their_deliveries_went_to_others(
    client: headgate.Client, server: RedisServer
) -> None:
    count = 700  # more than one call settles
    async with client.session("s", ttl=600) as session:
        producer, consumer = await session.producer("orders"), await session.consumer("orders")
        await asyncio.gather(*(producer.send(f"{number}") for number in range(count)))
        messages = [await consumer.receive(timeout=GUARD) for _ in range(count)]
        with redis.Redis.from_url(server.url) as direct:  # they are nobody's, as after the end of a lease
            direct.delete(f"{Address.of(client.namespace, 'orders').key}:consumers")
        waiting = [asyncio.ensure_future(message.accept(confirm=True)) for message in messages if message]
        done, pending = await asyncio.wait(waiting, timeout=GUARD)
        assert not pending
        assert {type(one.exception()) for one in done} == {SessionExpired}


async def test_settings_and_policies_spell_it_alike(client: headgate.Client) -> None:
    async with client.session("s") as session:
        producer = await session.producer("orders")
        await client.apply("orders", producer_timeout="unlimited")
        await wait_until(lambda: producer._timeout == math.inf)
        await client.apply("orders", producer_timeout="2s")
        await wait_until(lambda: producer._timeout == 2)
        rules = "[[destination]]\nmatch = 'orders'\nkind = 'queue'\nproducer.timeout = 'unlimited'\n"
        await client.apply_policy(loads(rules))
        await wait_until(lambda: producer._timeout == math.inf)
        with pytest.raises(InvalidValue):
            await client.apply("orders", producer_timeout="never")
