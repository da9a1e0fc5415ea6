"""The namespace's index: topics, wildcard subscriptions, and who holds them under a clock that the test moves."""

from collections.abc import AsyncIterator

import pytest

from headgate.core.pattern import Pattern
from headgate.index import Entry, Index
from headgate.redis.keys import Address, index_keys
from headgate.redis.store import Store
from tests.support.rewriting import RewritingServer, virtual_clock
from tests.support.waiting import wait_until

TTL_MS = 10_000
NEWS = Entry(Pattern.parse("news.*"), "audit", durable=False, ttl_ms=TTL_MS)
LASTING = Entry(Pattern.parse("news.#"), "audit of all", durable=True, ttl_ms=TTL_MS)


class Desk:
    """A namespace's index; the clock stands until it is moved."""

    def __init__(self, server: RewritingServer, namespace: str) -> None:
        self.server = server
        self.index = Index(Store(server))
        self.namespace = namespace
        self.now = 1_800_000_000_000

    async def wait(self, ms: int) -> None:
        self.now += ms
        key = index_keys(self.namespace)[0] + b":clock"
        await self.server.command(key, "SET", key, self.now * 1000)

    async def keep(self, entry: Entry, holder: str) -> bool:
        return await self.index.keep(self.namespace, entry, holder)

    async def leave(self, entry: Entry, holder: str) -> None:
        await self.index.leave(self.namespace, entry, holder)

    async def entries(self) -> set[str]:
        return {entry.name for entry in await self.index.entries(self.namespace)}

    async def holders(self) -> int:
        key = index_keys(self.namespace)[1]
        return int(await self.server.command(key, "ZCARD", key))

    def topic(self, name: str) -> Address:
        return Address.of(self.namespace, name)

    async def clear(self) -> None:
        keys = index_keys(self.namespace)
        await self.server.command(keys[0], "UNLINK", *keys, keys[0] + b":clock")


@pytest.fixture
async def desk(redis_url: str, namespace: str) -> AsyncIterator[Desk]:
    server = RewritingServer(redis_url, virtual_clock)
    await server.open()
    desk = Desk(server, namespace)
    await desk.wait(0)
    yield desk
    await desk.clear()
    await server.close()


async def test_an_entry_goes_with_the_last_who_leaves_it(desk: Desk) -> None:
    assert await desk.keep(NEWS, "ann~1")
    assert not await desk.keep(NEWS, "bob~1")
    await desk.leave(NEWS, "ann~1")
    assert await desk.entries() == {"news.* audit"}
    await desk.leave(NEWS, "bob~1")
    assert (await desk.entries(), await desk.holders()) == (set(), 0)


async def test_a_call_that_is_repeated_counts_once(desk: Desk) -> None:
    for _ in range(3):
        await desk.keep(NEWS, "ann~1")
    await desk.keep(NEWS, "bob~1")
    for _ in range(3):
        await desk.leave(NEWS, "ann~1")
    assert await desk.entries() == {"news.* audit"}
    await desk.leave(NEWS, "bob~1")
    assert await desk.entries() == set()


async def test_a_durable_entry_stays_until_it_is_ended_which_waits_for_its_holders(desk: Desk) -> None:
    await desk.keep(LASTING, "ann~1")
    assert not await desk.index.end(desk.namespace, LASTING)
    await desk.leave(LASTING, "ann~1")
    assert await desk.entries() == {"news.# audit%20of%20all"}
    assert await desk.index.end(desk.namespace, LASTING)
    assert await desk.index.end(desk.namespace, LASTING)
    assert await desk.entries() == set()


async def test_the_first_says_whether_an_entry_is_durable(desk: Desk) -> None:
    passing = Entry(LASTING.pattern, LASTING.subscription, durable=False, ttl_ms=TTL_MS)
    await desk.keep(LASTING, "ann~1")
    await desk.keep(passing, "bob~1")
    for holder in ("ann~1", "bob~1"):
        await desk.leave(passing, holder)
    assert [entry.durable for entry in await desk.index.entries(desk.namespace)] == [True]


async def test_what_the_dead_held_ends_with_their_lease_and_the_living_keep_theirs(desk: Desk) -> None:
    other = Entry(NEWS.pattern, "other", durable=False, ttl_ms=TTL_MS)
    for entry in (NEWS, other, LASTING):
        await desk.keep(entry, "dead~1")
    await desk.wait(TTL_MS // 2)
    await desk.keep(other, "ann~1")
    await desk.wait(TTL_MS // 2)
    await desk.index.announce(desk.topic("news.eu"))  # whoever calls cleans up
    assert await desk.entries() == {other.name, LASTING.name}
    assert await desk.holders() == 1
    await desk.leave(other, "ann~1")
    assert await desk.entries() == {LASTING.name}


async def test_the_living_clean_up_after_the_dead_too(desk: Desk) -> None:
    await desk.keep(NEWS, "dead~1")
    await desk.wait(TTL_MS)
    await desk.keep(LASTING, "ann~1")
    assert await desk.entries() == {LASTING.name}


async def test_whoever_comes_late_makes_the_entry_again(desk: Desk) -> None:
    await desk.keep(NEWS, "ann~1")
    await desk.wait(TTL_MS)
    await desk.index.announce(desk.topic("news.eu"))
    assert await desk.entries() == set()
    assert await desk.keep(NEWS, "ann~1")
    assert await desk.entries() == {NEWS.name}


async def test_one_call_ends_a_bounded_number_of_leases(desk: Desk) -> None:
    for number in range(20):
        await desk.keep(NEWS, f"dead~{number}")
    await desk.wait(TTL_MS)
    await desk.index.announce(desk.topic("news.eu"))
    assert await desk.holders() == 4
    await desk.index.announce(desk.topic("news.eu"))
    assert (await desk.holders(), await desk.entries()) == (0, set())


async def test_a_topic_is_told_of_once_and_found_by_its_pattern(desk: Desk) -> None:
    subscriber = await desk.server.subscriber()
    heard: list[bytes] = []
    async with subscriber.pubsub() as pubsub:
        await pubsub.subscribe(f"hg:{{{desk.namespace}}}:wake")
        for name in ("news.eu", "news.eu", "news.eu.sport", "wéather now", "news.eu"):
            await desk.index.announce(desk.topic(name))

        async def all_heard() -> bool:
            message = await pubsub.get_message(timeout=0.01)
            if message and message["type"] == "message":
                heard.append(message["data"])
            return len(heard) == 3

        await wait_until(all_heard)
    await subscriber.aclose()
    assert heard == [b"created news.eu", b"created news.eu.sport", b"created w%C3%A9ather%20now"]
    assert await desk.index.topics(desk.namespace, NEWS.pattern) == {"news.eu"}
    assert await desk.index.topics(desk.namespace, LASTING.pattern) == {"news.eu", "news.eu.sport"}
    assert await desk.index.topics(desk.namespace, Pattern.parse("wéather now")) == {"wéather now"}
    await desk.index.withdraw(desk.topic("news.eu"))
    await desk.index.withdraw(desk.topic("news.eu"))
    assert not await desk.index.has(desk.topic("news.eu"))
    assert await desk.index.topics(desk.namespace, NEWS.pattern) == set()
