"""What a test looks at beside the SDK: the stored messages, the counters and their recount."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from typing import Any

import redis

import headgate
from headgate.consuming.feed import Feed
from headgate.consuming.slices import Slices
from headgate.consuming.wildcard import PatternFeeds
from headgate.core.outbox import Outgoing
from headgate.message import decode, encode
from headgate.redis.keys import Address
from headgate.redis.replies import Snapshot
from tests.sdk.workers import Worker
from tests.support.waiting import wait_until

GUARD = 40.0
"""Seconds after which what should have ended long ago is called hanging."""


def outgoing(text: bytes | str, *, ttl_ms: int | None = None, beyond: bool = False) -> Outgoing:
    """Return a message as a node puts it in line; its ``done`` is a future."""
    payload = encode(text, None)
    done = asyncio.get_running_loop().create_future()
    item = Outgoing(payload, len(payload), math.inf, done, ttl_ms)
    item.beyond = beyond
    return item


def stored_bodies(url: str, namespace: str, destination: str) -> list[Any]:
    """Return the bodies in the destination's stream, oldest first."""
    key = f"{Address.of(namespace, destination).key}:messages"
    with redis.Redis.from_url(url) as direct:
        entries: Any = direct.xrange(key)
    return [decode(fields[b"m"])[0] for _, fields in entries]


async def look(client: headgate.Client, destination: str) -> Snapshot:
    snapshot = await client.store.snapshot(Address.of(client.namespace, destination))
    assert snapshot is not None, f"{destination} does not exist"
    return snapshot


async def field(client: headgate.Client, destination: str, name: str) -> int:
    return int((await look(client, destination)).fields[name])


async def waiting(client: headgate.Client, destination: str, *, at_least: int = 1) -> bool:
    """Return whether so many sessions are in line."""
    return await field(client, destination, "blocked") >= at_least


async def goes(client: headgate.Client, producer: headgate.Producer, body: Any, *, patience: float = 0.5) -> bool:
    """Return whether it was sent; if it stands in line, and still does so many seconds later, it is not.

    The seconds count from when it is seen there, so that a busy machine may take its time to get it there.
    """
    sending = asyncio.ensure_future(producer.send(body, timeout=2 * GUARD))

    async def decided() -> bool:
        return sending.done() or await waiting(client, producer.destination)

    await asyncio.wait([sending], timeout=0.05)
    await wait_until(decided, timeout=GUARD)
    await asyncio.wait([sending], timeout=patience)
    if sending.done():
        await sending
        return True
    sending.cancel()
    await asyncio.wait([sending])
    return False


async def counts(client: headgate.Client, destination: str) -> tuple[int, int]:
    """Return pending and leased bytes, recounted and found equal."""
    recount = await client.recount(destination)
    assert recount.equal, recount
    return recount.stored[0], recount.stored[2]


def learn_fast(*clients: headgate.Client) -> None:
    """Let what they make again after a loss be open after a second of learning instead of ten.

    For tests whose sessions have a TTL of a few seconds and whose only holders are still there.
    """
    for client in clients:
        client._registry._ttl_ms = 1000


async def drain(consumer: headgate.Consumer, count: int) -> list[headgate.Message]:
    """Receive and accept that many messages."""
    messages: list[headgate.Message] = []
    while len(messages) < count:
        async with asyncio.timeout(GUARD):  # of each: a busy machine takes as long as it takes for thousands
            message = await consumer.receive(timeout=GUARD)
            assert message is not None
            await message.accept()
            messages.append(message)
    await consumer.flush(timeout=GUARD)
    return messages


async def outcomes(calls: Sequence[Awaitable[Any]], *, guard: float = GUARD) -> list[Any]:
    """Return the result or the error of each call; fails when one of them hangs."""
    async with asyncio.timeout(guard):
        return await asyncio.gather(*calls, return_exceptions=True)


def feed_of(consumer: headgate.Consumer) -> Feed:
    """Return what fetches for a consumer of one destination."""
    feed = consumer._supply
    if isinstance(feed, Slices):
        feed = feed.first
    assert isinstance(feed, Feed)
    return feed


def feeds_of(consumer: headgate.Consumer) -> list[Feed]:
    """Return what fetches for a consumer, of each slice or topic."""
    supply = consumer._supply
    if isinstance(supply, Slices):
        return supply.feeds
    assert isinstance(supply, PatternFeeds)
    return list(supply.feeds.values())


async def take_turns(
    begin: Callable[[int], Worker], count: Callable[[], Awaitable[int]], seed: int, *, still: bool = False
) -> None:
    """Have two workers at work, and three times end one and begin another, each time once some more was counted.

    They are killed; with ``still`` every other one is stopped instead.
    """
    with ExitStack() as stack:

        async def ready(number: int) -> Worker:
            worker = stack.enter_context(begin(number))
            await asyncio.to_thread(worker.ready)
            return worker

        workers = [await ready(number) for number in range(2)]
        for round_ in range(3):
            until = await count() + 10 + seed % 7

            async def more(until: int = until) -> bool:
                return await count() > until

            await wait_until(more, timeout=GUARD)
            gone = workers.pop(0)
            (gone.sigstop if still and (seed + round_) % 2 == 0 else gone.kill9)()
            workers.append(await ready(10 + round_))
        for worker in workers:
            worker.kill9()
