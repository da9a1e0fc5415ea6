"""The policy of a namespace: switched whole, over the version that its author saw, once; told to everybody."""

from collections.abc import AsyncIterator

import pytest
import redis.asyncio

from headgate.redis.keys import namespace_channel, policy_key
from headgate.redis.server import Server
from headgate.redis.stores.policies import PolicyStore, StoredPolicy
from headgate.redis.url import parse_url
from tests.lua.place import Place
from tests.support.rewriting import RewritingServer, watched
from tests.support.waiting import wait_until


@pytest.fixture
async def server(redis_url: str, cleanup_namespace: str) -> AsyncIterator[Server]:
    server = Server(parse_url(redis_url))
    await server.open()
    yield server
    await server.close()


@pytest.fixture
def store(server: Server, namespace: str) -> PolicyStore:
    return PolicyStore(server, namespace)


async def test_the_first_is_put_where_there_is_none(store: PolicyStore) -> None:
    assert await store.read() == StoredPolicy()
    assert await store.switch("one", version=1, expected=0, source="a.toml") == (True, 1)
    assert await store.read() == StoredPolicy(1, "one")
    assert (await store.stamp())[0] == 1


async def test_only_over_the_version_that_was_seen(store: PolicyStore) -> None:
    await store.switch("one", version=1, expected=0, source="")
    assert await store.switch("two", version=2, expected=1, source="") == (True, 2)
    assert await store.switch("other", version=2, expected=1, source="") == (False, 2)
    assert await store.switch("other", version=9, expected=0, source="") == (False, 2)
    assert await store.read() == StoredPolicy(2, "two")


async def test_a_version_never_goes_down(store: PolicyStore) -> None:
    await store.switch("seven", version=7, expected=0, source="")
    assert await store.switch("less", version=7, expected=7, source="") == (False, 7)
    assert await store.read() == StoredPolicy(7, "seven")


async def test_repeated_it_is_in_force_once(store: PolicyStore, server: Server, namespace: str) -> None:
    """P5: the reply was lost, the call comes again."""
    await store.switch("one", version=1, expected=0, source="")
    key = policy_key(namespace)
    before = await server.command(key.encode(), "HGETALL", key)
    assert await store.switch("one", version=1, expected=0, source="") == (True, 1)
    assert await server.command(key.encode(), "HGETALL", key) == before
    await store.switch("two", version=2, expected=1, source="")
    assert await store.switch("one", version=1, expected=0, source="") == (False, 2), "late: another is in force"


async def test_what_was_lost_is_put_back_and_never_over_what_is_newer(store: PolicyStore) -> None:
    assert await store.switch("five", version=5, expected="lost", source="") == (True, 5)
    assert await store.switch("four", version=4, expected="lost", source="") == (False, 5)
    assert await store.switch("other five", version=5, expected="lost", source="") == (False, 5)
    assert await store.switch("six", version=6, expected="lost", source="", came_ms=7) == (True, 6)
    assert await store.read() == StoredPolicy(6, "six")
    assert await store.stamp() == (6, 7), "it came when it had come"
    assert await store.switch("seven", version=7, expected="lost", source="", came_ms=6) == (False, 6)
    assert await store.switch("seven", version=7, expected=6, source="") == (True, 7)
    assert (await store.stamp())[1] > 1_700_000_000_000


async def test_everybody_of_the_namespace_is_told(store: PolicyStore, redis_url: str, namespace: str) -> None:
    async with redis.asyncio.Redis.from_url(redis_url) as direct, direct.pubsub() as heard:
        await heard.subscribe(namespace_channel(namespace))
        await wait_until(lambda: heard.get_message(ignore_subscribe_messages=False, timeout=1))
        await store.switch("one", version=1, expected=0, source="")
        message = await wait_until(lambda: heard.get_message(ignore_subscribe_messages=True, timeout=1))
        assert message["data"] == b"policy 1"


async def test_it_keeps_to_its_key_and_begins_with_what_a_full_redis_allows(cluster_url: str, namespace: str) -> None:
    server = RewritingServer(cluster_url, watched)
    await server.open()
    key = policy_key(namespace)
    try:
        assert await PolicyStore(server, namespace).switch("one", version=1, expected=0, source="") == (True, 1)
        trace = await server.command(key.encode(), "LRANGE", f"{key}:trace", 0, -1)
        assert trace == [b"TIME", b"HMGET", b"HDEL", b"HSET", b"PUBLISH"]
    finally:
        await server.command(key.encode(), "UNLINK", key, f"{key}:trace")
        await server.close()


async def test_settings_that_stay_as_they_are_leave_no_trace(place: Place) -> None:
    """A policy that changes one destination of ten thousand costs the others no entry and no wake-up."""
    await place.create(limit=100, max_attempts="3")
    await place.change(limit_bytes="200")
    before = await place.look()
    await place.change(limit_bytes="200", limit_messages="unlimited", max_attempts="3", policy_version="4", policy="x")
    fields = (await place.look()).fields
    assert (fields["policy_version"], fields["policy"]) == ("4", "x")
    assert fields["ledger_seq"] == before.fields["ledger_seq"]
    await place.change(max_attempts="", policy_version="5")
    fields = (await place.look()).fields
    assert "max_attempts" not in fields
    assert int(fields["ledger_seq"]) == int(before.fields["ledger_seq"]) + 1
