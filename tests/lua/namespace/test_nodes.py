"""The registry of a namespace's nodes: who beats is there, who leaves or falls silent is not."""

from collections.abc import AsyncIterator

import pytest

from headgate.redis.keys import node_keys
from headgate.redis.server import Server
from headgate.redis.stores.nodes import PARTS, NodeStore
from headgate.redis.url import parse_url
from tests.support.rewriting import RewritingServer, watched

STALE_MS = 3_600_000


@pytest.fixture
async def server(redis_url: str, cleanup_namespace: str) -> AsyncIterator[Server]:
    server = Server(parse_url(redis_url))
    await server.open()
    yield server
    await server.close()


@pytest.fixture
def store(server: Server, namespace: str) -> NodeStore:
    return NodeStore(server, namespace, STALE_MS)


async def silence(server: Server, namespace: str, node: str, ms: int) -> None:
    beats = node_keys(namespace)[1]
    await server.command(beats, "ZINCRBY", beats, -ms, node)


async def kept(server: Server, namespace: str) -> tuple[set[bytes], set[bytes]]:
    nodes, beats = node_keys(namespace)
    return set(await server.command(nodes, "HKEYS", nodes)) - {b"!turn"}, set(
        await server.command(beats, "ZRANGE", beats, 0, -1)
    )


async def test_who_beats_is_there_with_what_it_said_last(store: NodeStore) -> None:
    assert await store.there() == []
    await store.beat("n1", "one")
    await store.beat("n2", "two")
    await store.beat("n1", "uno")
    assert {beat.node: beat.entry for beat in await store.there()} == {"n1": "uno", "n2": "two"}


async def test_a_beat_ends_the_silence_before_it(store: NodeStore, server: Server, namespace: str) -> None:
    await store.beat("n1", "one")
    await silence(server, namespace, "n1", 10_000)
    assert (await store.there())[0].silent_ms >= 10_000
    await store.beat("n1", "one")
    assert (await store.there())[0].silent_ms < 10_000


async def test_who_leaves_is_gone_at_once(store: NodeStore, server: Server, namespace: str) -> None:
    await store.beat("n1", "one")
    await store.beat("n2", "two")
    await store.leave("n1")
    await store.leave("n1")
    await store.leave("nobody")
    assert [beat.node for beat in await store.there()] == ["n2"]
    assert await kept(server, namespace) == ({b"n2"}, {b"n2"})


async def test_who_fell_silent_is_listed_no_more(store: NodeStore, server: Server, namespace: str) -> None:
    await store.beat("n1", "one")
    await store.beat("n2", "two")
    await silence(server, namespace, "n1", STALE_MS)
    assert [beat.node for beat in await store.there()] == ["n2"]


async def test_who_fell_silent_is_forgotten_when_another_beats(
    store: NodeStore, server: Server, namespace: str
) -> None:
    await store.beat("n1", "one")
    await silence(server, namespace, "n1", STALE_MS)
    await store.beat("n2", "two")
    assert await kept(server, namespace) == ({b"n2"}, {b"n2"})


async def test_who_comes_back_from_silence_is_there_again(store: NodeStore, server: Server, namespace: str) -> None:
    await store.beat("n1", "one")
    await silence(server, namespace, "n1", STALE_MS)
    await store.beat("n1", "back")
    assert [beat.entry for beat in await store.there()] == ["back"]


async def test_one_beat_forgets_a_bounded_number(store: NodeStore, server: Server, namespace: str) -> None:
    beats = node_keys(namespace)[1]
    await server.command(beats, "ZADD", beats, *(part for n in range(150) for part in (1, f"old{n}")))
    await store.beat("n1", "one")
    assert len((await kept(server, namespace))[1]) == 51
    await store.beat("n1", "one")
    assert await kept(server, namespace) == ({b"n1"}, {b"n1"})


async def test_it_keeps_to_its_keys_and_begins_with_what_a_full_redis_allows(cluster_url: str, namespace: str) -> None:
    server = RewritingServer(cluster_url, watched)
    await server.open()
    nodes, beats = node_keys(namespace)
    trace = nodes + b":trace"
    try:
        await NodeStore(server, namespace, STALE_MS).beat("n1", "one")
        assert await server.command(trace, "LRANGE", trace, 0, -1) == [
            b"TIME",
            b"ZRANGEBYSCORE",
            b"ZREM",
            b"ZADD",
            b"HSET",
            b"HGET",
            b"HSET",
        ]
    finally:
        await server.command(nodes, "UNLINK", nodes, beats, trace)
        await server.close()


async def later(server: Server, namespace: str, parts: int) -> None:
    """Have so many parts of the sweep be due again."""
    nodes = node_keys(namespace)[0]
    await server.command(nodes, "HINCRBY", nodes, "!turn", -parts)


async def test_each_part_of_the_sweep_falls_to_whoever_beats_first_as_it_is_due(
    store: NodeStore, server: Server, namespace: str
) -> None:
    """Mutants: every beat gets all parts; what is due is not written down."""
    assert sorted(await store.beat("n1", "one")) == list(range(PARTS)), "nobody swept before"
    assert len(await store.beat("n2", "two")) < PARTS
    await later(server, namespace, 5)
    first, second = await store.beat("n2", "two"), await store.beat("n1", "one")
    assert 5 <= len(first) < PARTS
    assert not set(first) & set(second)


async def test_all_parts_are_due_after_a_pause_and_by_a_clock_that_was_set_back(
    store: NodeStore, server: Server, namespace: str
) -> None:
    await store.beat("n1", "one")
    for moved in (10 * PARTS, -10 * PARTS):
        await later(server, namespace, moved)
        assert sorted(await store.beat("n1", "one")) == list(range(PARTS))


async def test_those_that_are_there_are_told_from_those_that_are_not(
    store: NodeStore, server: Server, namespace: str
) -> None:
    """However many there are: no list of them is as long. Mutant: one call asks for no more than it may."""
    many = [f"n{number}" for number in range(300)]
    for node in many[::2]:
        await store.beat(node, "one")
    await silence(server, namespace, "n0", STALE_MS)
    assert await store.among([*many, "nobody"]) == set(many[2::2])
    assert await store.among([]) == set()
