"""The namespace's index: topics, wildcard subscriptions, and who holds them under a clock that the test moves."""

from collections.abc import AsyncIterator

import pytest

from headgate.core.addresses.pattern import Pattern
from headgate.core.names import encode_name
from headgate.namespace.topics import TopicIndex, WildcardSubscription
from headgate.redis.keys import Address, index_keys
from headgate.redis.scripts import script
from headgate.redis.store import Store
from tests.support.rewriting import RewritingServer, virtual_clock
from tests.support.waiting import wait_until

TTL_MS = 10_000
NEWS = WildcardSubscription(Pattern.parse("news.*"), "audit", durable=False, ttl_ms=TTL_MS)
LASTING = WildcardSubscription(Pattern.parse("news.#"), "audit of all", durable=True, ttl_ms=TTL_MS)


class Desk:
    """A namespace's index; the clock stands until it is moved."""

    def __init__(self, server: RewritingServer, namespace: str) -> None:
        self.server = server
        self.index = TopicIndex(Store(server))
        self.namespace = namespace
        self.now = 1_800_000_000_000

    async def wait(self, ms: int) -> None:
        self.now += ms
        key = index_keys(self.namespace)[0] + b":clock"
        await self.server.command(key, "SET", key, self.now * 1000)

    async def keep(self, entry: WildcardSubscription, holder: str) -> bool:
        return await self.index.keep(self.namespace, entry, holder)

    async def leave(self, entry: WildcardSubscription, holder: str) -> None:
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
    passing = WildcardSubscription(LASTING.pattern, LASTING.subscription, durable=False, ttl_ms=TTL_MS)
    await desk.keep(LASTING, "ann~1")
    await desk.keep(passing, "bob~1")
    for holder in ("ann~1", "bob~1"):
        await desk.leave(passing, holder)
    assert [entry.durable for entry in await desk.index.entries(desk.namespace)] == [True]


async def test_what_the_dead_held_ends_with_their_lease_and_the_living_keep_theirs(desk: Desk) -> None:
    other = WildcardSubscription(NEWS.pattern, "other", durable=False, ttl_ms=TTL_MS)
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


BAD_NAMES = [
    "", "a b", "a%7B", "a%7b", "a%2a", "%61", "a%2E", "a%0A", "a%00", "a%7F", "a%", "a%zz", "a*", "a{", "é", "a\nb",
    "x" * 256, "a%5D", "a%3F",
]  # fmt: skip
BAD_ENTRIES = [
    "inbox..x s", ".x s", "x. s", "a.# ", "# ", " s", "#", "a.#.b s", "a# s", "a*.b s", ">.a s", ".# s", "a.%2A s",
    "a.* s t", "a.%7B s", "a.* s%7B", "a.* %73", "a.*  s", "%61.* s", "a.* *",
]  # fmt: skip
GOOD_ENTRIES = [
    "# s",
    "> s",
    "* s",
    "a.* s",
    "*.*.# s",
    "a.b.> s%20t",
    "%C3%A9.* s",
    "a b.#".replace(" ", "%20") + " s",
]


async def _topic(desk: Desk, name: str, present: int = 1) -> bytes:
    op = script("topic")
    reply = await desk.server.call(op, index_keys(desk.namespace), op.argv({"name": name, "present": present}))
    return bytes(reply[0])


async def _wildcard(desk: Desk, mode: str, name: str, holder: str) -> bytes:
    op = script("wildcard")
    values = {"mode": mode, "name": name, "holder": holder, "durable": 1, "ttl_ms": TTL_MS}
    return bytes((await desk.server.call(op, index_keys(desk.namespace), op.argv(values)))[0])


async def test_names_that_no_client_spells_so_are_refused(desk: Desk) -> None:
    for name in BAD_NAMES:
        assert (name, await _topic(desk, name)) == (name, b"INVALID")
    assert await desk.server.command(index_keys(desk.namespace)[2], "SCARD", index_keys(desk.namespace)[2]) == 0
    for name in ("news", "a.b-c_d~e", "x y", "é", "a/b", "reply~n~1", "x" * 255, "é" * 127):
        assert await _topic(desk, encode_name(name)) == b"CREATED"


async def test_entries_that_no_client_spells_so_are_refused(desk: Desk) -> None:
    for name in BAD_ENTRIES:
        assert (name, await _wildcard(desk, "keep", name, "ann~1")) == (name, b"INVALID")
        assert WildcardSubscription.read(name, durable=False, ttl_ms=0) is None
    assert (await desk.entries(), await desk.holders()) == (set(), 0)
    for name in GOOD_ENTRIES:
        assert await _wildcard(desk, "keep", name, "ann~1") == b"CREATED"
    assert await desk.entries() == set(GOOD_ENTRIES)


async def test_what_nobody_can_read_is_passed_over_and_can_be_taken_out(desk: Desk) -> None:
    """As an older version let it in, with a holder that keeps it. Mutants: `entries` or `topics` raise."""
    wildcards, holders, topics = index_keys(desk.namespace)
    await desk.keep(NEWS, "ann~1")
    await desk.index.announce(desk.topic("news.uk"))
    for name in ("inbox..x s", "a b c", "a%7B s"):
        await desk.server.command(wildcards, "HSET", wildcards, name, "durable=1 holders=1 ttl=10000")
        await desk.server.command(holders, "ZADD", holders, desk.now + 5 * TTL_MS, f"{name} ann~1")
    for name in ("news.a%7B", "news.x y", "%6E"):
        await desk.server.command(topics, "SADD", topics, name)
    assert await desk.entries() == {"news.* audit"}
    assert await desk.index.topics(desk.namespace, NEWS.pattern) == {"news.uk"}
    found = await desk.index.unreadable(desk.namespace)
    assert found == sorted(["inbox..x s", "a b c", "a%7B s", "news.a%7B", "news.x y", "%6E"])
    await desk.index.clear(desk.namespace, found)
    assert await desk.index.unreadable(desk.namespace) == []
    assert await desk.entries() == {"news.* audit"}
    assert await desk.index.topics(desk.namespace, NEWS.pattern) == {"news.uk"}
    await desk.wait(6 * TTL_MS)
    await desk.index.announce(desk.topic("news.uk"))
    assert await desk.holders() == 0
