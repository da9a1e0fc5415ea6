"""Where values say the slice, it keeps the numbers of what a link brought above its mark, and stores each once."""

import pytest

from headgate.core.links.calls import Committed, Put
from headgate.redis.stores.links import MAX_BEYOND
from tests.lua.place import TTL_MS
from tests.lua.route import LINK, Route, puts

pytestmark = pytest.mark.docker


async def commit(
    route: Route, *entries: Put, done: int = 0, spread: int = 1, want: int = 500, born: int = 0
) -> Committed:
    return await route.store.commit(
        route.target.address, LINK, entries, fence=route.fence, born=born or route.born, prev=0, lost=True, want=want,
        ttl_ms=TTL_MS, spread=(spread, done),
    )  # fmt: skip


async def filled(route: Route, *sizes: int) -> list[Put]:
    await route.source.producer("ann").send(*sizes)
    entries = (await route.read()).entries
    assert (await commit(route)).held == 500
    return puts(entries)


async def test_what_is_here_above_the_mark_is_stored_once(route: Route) -> None:
    one, two, three, four = await filled(route, 10, 20, 30, 40)
    first = await commit(route, two, four)
    assert (first.code, first.mark, first.beyond) == ("OK", 0, (2, 4))
    again = await commit(route, two, three, four)
    assert (again.mark, again.beyond, again.has(3), again.has(1)) == (0, (2, 4, 3), True, False)
    assert await route.stored() == [two.body, four.body, three.body]
    assert (await commit(route, one, done=2)).beyond == (4, 3), "one is at another slice"
    assert len(await route.stored()) == 3


async def test_the_mark_says_nothing_of_what_other_slices_lack(route: Route) -> None:
    """Whoever takes all to one slice again, such as an older node, begins after what is at one of them for good."""
    _, two, three = await filled(route, 10, 20, 30)
    assert (await commit(route, three, done=1)).mark == 1
    assert (await route.commit()).mark == 1
    assert (await commit(route, two, done=1)).beyond == (3, 2)
    assert (await commit(route, done=3)).beyond == ()
    assert (await route.commit()).mark == 3


async def test_a_call_of_an_earlier_spread_stores_nothing(route: Route) -> None:
    one, two = await filled(route, 10, 20)
    assert (await commit(route, one, spread=2)).code == "OK"
    assert (await commit(route, two, spread=1)).code == "STALE"
    assert await route.stored() == [one.body]
    assert (await commit(route, two, spread=3)).beyond == (1, 2)


async def test_numbers_of_a_source_that_was_made_anew_are_its_own(route: Route) -> None:
    one, two = await filled(route, 10, 20)
    assert (await commit(route, two)).beyond == (2,)
    assert (await commit(route, one, two, born=route.born + 1)).beyond == (1, 2)
    assert await route.stored() == [two.body, one.body, two.body]


async def test_numbers_above_the_mark_are_bounded(route: Route) -> None:
    (one,) = await filled(route, 10)
    key, field = route.target.address.shared[15], f"beyond:{LINK}"
    numbers = " ".join(str(number) for number in range(10, 10 + 4096))
    await route.server.command(key, "HSET", key, field, f"{route.born} 1 {numbers}")
    assert (await commit(route, one)).code == "FULL"
    assert await route.stored() == []
    assert (await commit(route, done=4000)).code == "OK"
    assert len((await commit(route, done=4000)).beyond) == 105


async def test_what_slices_have_leaves_the_source_and_what_lies_between_does_not(route: Route) -> None:
    await filled(route, 10, 20, 30, 40, 50)

    async def close(*beyond: int) -> str:
        return await route.store.close(
            route.source.address, LINK, fence=1, born=route.born, mark=1, beyond=beyond[:MAX_BEYOND]
        )

    assert await close(3, 3, 5, 9) == "OK", "what was there up to the mark is accepted first"
    assert await close(3, 3, 5, 9) == "OK"
    look = await route.source.look()
    assert (look.pending.messages, look.pending.bytes) == (2, 60)
    assert [entry.seq for entry in (await route.read(mark=1)).entries] == [2, 4]
