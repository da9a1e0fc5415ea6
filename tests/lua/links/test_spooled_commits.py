"""References that a link commits: paid at their store, once and in order, within their own limit."""

from collections.abc import AsyncIterator

import pytest

from headgate.core.links.calls import Put, Skip
from headgate.core.segment import pack
from headgate.redis.stores.spools import SpoolStore
from tests.lua.place import TTL_MS
from tests.lua.route import LINK, Route
from tests.support.rewriting import RewritingServer

pytestmark = pytest.mark.docker
SIZE = 50


@pytest.fixture
async def route(server: RewritingServer, namespace: str) -> AsyncIterator[Route]:
    """A link whose target has room for one message of :data:`SIZE` bytes."""
    route = await Route.make(server, namespace, limit=str(SIZE))
    await route.commit(want=SIZE)
    yield route
    await route.check()
    await route.close()


def spooled(first: int, count: int, name: str = "abc-1-1") -> tuple[list[Put], str]:
    """Return messages of the source as references to a segment, and the segment as the script takes it."""
    payloads = [b"%03d" % n * (SIZE // 3) + b".." for n in range(count)]
    data, references = pack(payloads, "disk", name)
    puts = [Put(first + n, reference, None, ("here",)) for n, reference in enumerate(references)]
    return puts, f"disk/{name} {len(data)} {count}"


async def state(route: Route) -> dict[str, int]:
    key = route.target.address.shared[0]
    names = ("pending_bytes", "pending_messages", "spooled_bytes", "reference_bytes", "leased_bytes")
    values = await route.server.command(key, "HMGET", key, *names)
    return {name: int(value or 0) for name, value in zip(names, values, strict=True)}


async def test_references_take_no_credit_and_count_as_messages(route: Route) -> None:
    puts, segment = spooled(1, 3)
    done = await route.commit(*puts[:2], Skip(3), Put(4, puts[2].body), segment=segment)
    assert (done.code, done.mark, done.held) == ("OK", 4, SIZE)
    assert await route.stored() == [put.body for put in puts]
    assert await state(route) == {
        "pending_bytes": 0, "pending_messages": 3, "spooled_bytes": 3 * SIZE, "leased_bytes": SIZE,
        "reference_bytes": sum(len(put.body) for put in puts),
    }  # fmt: skip
    assert (await route.commit(Put(5, b"m" * SIZE), prev=4)).mark == 5, "its credit is there for memory"


async def test_references_are_counted_where_messages_have_a_limit(server: RewritingServer, namespace: str) -> None:
    """The link holds credit for one message, and needs it for three."""
    route = await Route.make(server, namespace, limit=str(SIZE), messages="1")
    assert (await route.commit(want=SIZE)).held_m == 1
    await route.target.create("queue", limit=SIZE, messages=4, mode="change")
    puts, segment = spooled(1, 3)
    assert (await route.commit(*puts, segment=segment)).mark == 3
    await route.check()
    assert (await route.commit(*spooled(4, 2, "abc-1-2")[0], prev=3, segment=spooled(4, 2, "abc-1-2")[1])).mark == 4
    await route.check()
    await route.close()


async def test_references_go_with_a_segment_and_messages_without(route: Route) -> None:
    puts, segment = spooled(1, 2)
    for entries, named in ((puts, "-"), ([puts[0], Put(2, b"plain")], segment)):
        assert (await route.commit(*entries, segment=named)).code == "BODY"
    assert await route.stored() == []


async def test_a_commit_of_references_that_is_repeated_stores_what_it_stored(route: Route) -> None:
    """So a segment is counted once, whatever of it found room."""
    puts, segment = spooled(1, 3)
    await route.target.create("queue", limit=SIZE, messages=2, mode="change")
    assert (await route.commit(*puts, segment=segment)).code == "FULL"
    before = await state(route)
    await route.target.create("queue", limit=SIZE, messages=20, mode="change")
    again = await route.commit(*puts, segment=segment)
    assert (again.code, again.mark, await state(route)) == ("OK", before["pending_messages"], before)
    rest, segment = spooled(3, 1, "abc-1-2")
    assert (await route.commit(*rest, prev=2, segment=segment)).mark == 3
    late = await route.commit(*spooled(2, 2, "abc-1-3")[0], prev=1, segment=spooled(2, 2, "abc-1-3")[1])
    assert (late.mark, (await state(route))["pending_messages"]) == (3, 3)


async def test_a_segment_of_a_lease_that_the_target_does_not_know_is_refused(route: Route) -> None:
    """Such a segment is taken for nobody's, and swept."""
    puts, segment = spooled(1, 1, "abc-2-1")
    calls = SpoolStore(route.server)
    place = route.target.address
    assert not await calls.is_orphan(place, "disk/abc-2-1", LINK)
    assert not await calls.is_orphan(place, "disk/abc-1-1", LINK)
    route.fence = 2
    assert (await route.commit(*puts, segment=segment)).code == "BODY"
    await route.commit()
    assert (await route.commit(*puts, segment=segment)).code == "OK"
    await route.wait(5 * TTL_MS)
    assert [await calls.is_orphan(place, f"disk/abc-{fence}-7", LINK) for fence in (1, 2)] == [True, False]
    assert not await calls.is_orphan(place, "disk/abc-2-1", LINK)


async def test_references_go_as_far_as_their_limit(route: Route) -> None:
    puts, segment = spooled(1, 3)
    await route.target.create(
        "queue", limit=SIZE, mode="change", limit_reference_bytes=str(len(puts[0].body + puts[1].body))
    )
    full = await route.commit(*puts, segment=segment)
    assert (full.code, full.mark) == ("FULL", 2)


async def test_the_targets_rate_counts_payloads(server: RewritingServer, namespace: str) -> None:
    route = await Route.make(
        server, namespace, limit=str(SIZE), send_byte_rate=str(SIZE), send_byte_burst=str(2 * SIZE)
    )
    await route.commit()
    puts, segment = spooled(1, 3)
    slow = await route.commit(*puts, segment=segment)
    assert (slow.code, slow.mark) == ("RATE", 2)
    await route.check()
    await route.close()
