"""Named leases: one owner each, shared out evenly, with numbers that only grow; under the test's clock."""

from collections.abc import AsyncIterator

import pytest

from headgate.redis.keys import owned_keys
from headgate_coordinator.fleet.leases import LeaseAnswer, LeaseStore, Mode
from tests.support.rewriting import RewritingServer, virtual_clock, watched

pytestmark = pytest.mark.docker

TTL_MS = 10_000
BEGIN_MS = 1_800_000_000_000
NAMES = [f"link{number}" for number in range(6)]


class Board:
    """The leases of a namespace, and how many each owner believes to have; the clock stands until it is moved."""

    def __init__(self, server: RewritingServer, namespace: str) -> None:
        self.server = server
        self.store = LeaseStore(server, namespace)
        self.keys = owned_keys(namespace)
        self.held: dict[str, dict[str, int]] = {}
        self.now = BEGIN_MS

    async def wait(self, ms: int) -> None:
        self.now += ms
        key = self.keys[0] + b":clock"
        await self.server.command(key, "SET", key, self.now * 1000)

    async def call(self, owner: str, *names: str, mode: Mode = "hold", above: int = 0) -> LeaseAnswer:
        held = self.held.setdefault(owner, {})
        answer = await self.store.call(
            owner, names or NAMES, mode=mode, ttl_ms=TTL_MS, held=len(held), total=len(NAMES), above=above
        )
        self.held[owner] = answer.fences
        return answer

    async def sweep(self, ms: int, *owners: str) -> None:
        for _ in range(0, ms, 500):
            await self.wait(500)
            for owner in owners:
                await self.call(owner)

    async def clear(self) -> None:
        await self.server.command(
            self.keys[0], "UNLINK", *self.keys, self.keys[0] + b":clock", self.keys[0] + b":trace"
        )


@pytest.fixture
async def board(redis_url: str, namespace: str) -> AsyncIterator[Board]:
    server = RewritingServer(redis_url, virtual_clock)
    await server.open()
    board = Board(server, namespace)
    await board.wait(0)
    yield board
    await board.clear()
    await server.close()


async def test_the_only_owner_gets_all_and_a_second_gets_its_part(board: Board) -> None:
    assert set((await board.call("ann")).fences) == set(NAMES)
    assert (await board.call("bob")).fences == {}
    told = await board.call("ann")
    assert (told.fair, len(told.fences)) == (3, 6)
    await board.call("ann", *NAMES[:3], mode="release")
    board.held["ann"] = dict.fromkeys(NAMES[3:], 1)
    assert set((await board.call("ann")).fences) == set(NAMES[3:]), "it has enough"
    assert set((await board.call("bob")).fences) == set(NAMES[:3])
    assert len(board.held["ann"]) == 3


async def test_a_dead_owners_leases_are_taken_within_the_ttl_and_a_second(board: Board) -> None:
    before = (await board.call("ann")).fences
    await board.sweep(TTL_MS // 2, "bob")
    assert board.held["bob"] == {}
    await board.sweep(TTL_MS // 2 + 1000, "bob")
    assert set(board.held["bob"]) == set(NAMES)
    assert all(board.held["bob"][name] > before[name] for name in NAMES)


async def test_a_living_owner_keeps_its_leases_over_a_clock_that_jumps(board: Board) -> None:
    before = (await board.call("ann")).fences
    await board.wait(3_600_000)
    assert (await board.call("bob")).fences == {}, "the first strike"
    await board.wait(TTL_MS // 4)
    assert (await board.call("ann")).fences == before
    await board.wait(TTL_MS // 4)
    assert (await board.call("bob")).fences == {}


async def test_a_clock_that_was_set_back_does_not_keep_the_dead(board: Board) -> None:
    await board.call("ann")
    await board.wait(-3_600_000)
    await board.sweep(2 * TTL_MS, "bob")
    assert set(board.held["bob"]) == set(NAMES)


async def test_numbers_grow_even_when_all_was_lost(board: Board) -> None:
    first = (await board.call("ann", NAMES[0])).fences[NAMES[0]]
    await board.call("ann", NAMES[0], mode="release")
    second = (await board.call("bob", NAMES[0])).fences[NAMES[0]]
    assert second > first
    await board.clear()
    await board.wait(10)
    board.held.clear()
    third = (await board.call("ann", NAMES[0])).fences[NAMES[0]]
    assert third > second
    assert (await board.call("ann", NAMES[0])).fences[NAMES[0]] == third, "renewed"
    await board.call("ann", NAMES[0], mode="release")
    assert (await board.call("ann", NAMES[0], above=third + 50_000)).fences[NAMES[0]] == third + 50_001


async def test_only_the_owner_lets_go(board: Board) -> None:
    await board.call("ann")
    await board.call("bob", mode="release")
    await board.call("bob", mode="forget")
    assert set((await board.call("ann", mode="watch")).fences) == set(NAMES)
    await board.call("ann", mode="forget")
    assert (await board.call("ann", mode="watch")).fences == {}
    assert await board.server.command(board.keys[0], "EXISTS", board.keys[0]) == 0


async def test_one_who_leaves_does_not_count_any_more(board: Board) -> None:
    await board.call("ann")
    await board.call("bob")
    await board.call("ann", mode="leave")
    told = await board.call("bob")
    assert (told.fair, set(told.fences)) == (6, set(NAMES))


async def test_a_lease_that_is_alone_is_nobodys_part_of_the_whole(board: Board) -> None:
    """Mutants: who holds it counts among those who share; its part is that of all."""
    assert set((await board.call("ann", "!one", mode="alone")).fences) == {"!one"}
    board.held["ann"] = {}
    assert (await board.call("bob", "!one", mode="alone")).fences == {}
    told = await board.call("cid")
    assert (told.fair, set(told.fences)) == (6, set(NAMES)), "neither ann nor bob shares"
    taken: set[str] = set()
    for _ in range(0, TTL_MS, 500):
        await board.wait(500)
        taken |= set((await board.call("bob", "!one", mode="alone")).fences)
    assert taken == {"!one"}, "ann was not heard of"


async def test_of_leases_that_are_known_none_is_made_that_was_forgotten(board: Board) -> None:
    """Mutants: it is made; what is there is not claimed."""
    await board.call("ann", "one")
    await board.call("ann", "one", mode="release")
    assert set((await board.call("bob", "one", "two", mode="known")).fences) == {"one"}
    await board.call("bob", "one", mode="forget")
    assert (await board.call("ann", "one", "two", mode="known")).fences == {}
    assert await board.server.command(board.keys[0], "HLEN", board.keys[0]) == 0


async def test_who_waits_is_told_when_to_look_again(board: Board) -> None:
    await board.call("ann")
    assert (await board.call("bob")).again_ms == 6000
    await board.wait(6000)
    assert (await board.call("bob")).again_ms == 3000
    await board.wait(3000)
    assert len((await board.call("bob")).fences) == 6


async def test_leases_keep_to_their_keys(cluster_url: str, namespace: str) -> None:
    server = RewritingServer(cluster_url, virtual_clock, watched)
    await server.open()
    board = Board(server, namespace)
    await board.wait(0)
    await board.call("ann")
    await board.sweep(TTL_MS, "bob")
    await board.call("bob", mode="leave")
    names = await server.command(board.keys[0], "LRANGE", board.keys[0] + b":trace", 0, -1)
    assert {b"HSET", b"ZADD", b"ZREM"} <= set(names)
    await board.clear()
    await server.close()
