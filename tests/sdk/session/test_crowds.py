"""A process opens much at once: what all of it asks of Redis is asked once, and each learns what was asked for it."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

import headgate
from headgate._util.shared_answer import SharedAnswer
from headgate._util.tasks import stop
from headgate.context import Opened
from headgate.credit.notices import Listeners
from headgate.session.destinations import SessionDestinations
from tests.simulation.loop import BEGINS, VirtualLoop

CROWD = 40
OPEN_WITHIN, OPEN_AT_LAST = 10.0, 60.0


@pytest.mark.one_server
async def test_a_crowd_of_producers_at_slices_makes_the_destination_once(client: headgate.Client) -> None:
    """Mutant: each makes it for itself, which is six calls of Redis for each, and seconds with a thousand of them."""
    await client.apply("orders", kind="queue", limit="1MB", slices=4)
    before = client.store.server.calls
    await asyncio.gather(*(client.session().producer("orders") for _ in range(CROWD)))
    assert client.store.server.calls - before < 3 * CROWD


@pytest.mark.one_server
async def test_a_crowd_of_consumers_at_slices_asks_together(client: headgate.Client) -> None:
    """Mutants: each reads the settings of its slices, attaches, looks, leaves or detaches by itself: 4 calls each."""
    await client.apply("orders", kind="queue", limit="1MB", slices=4)
    await (await client.session().consumer("orders")).close()  # so that Redis has the scripts
    before, sessions = client.store.server.calls, [client.session() for _ in range(CROWD)]
    await asyncio.gather(*(one.consumer("orders") for one in sessions))
    opened = client.store.server.calls
    assert opened - before < 4 * CROWD, "twelve calls each were made"
    await asyncio.gather(*(one.close() for one in sessions))
    assert client.store.server.calls - opened < CROWD, "eight calls each were made"


@pytest.mark.parametrize(("apart", "took"), [(OPEN_WITHIN / 2, OPEN_AT_LAST), (OPEN_WITHIN * 2, OPEN_WITHIN)])
def test_what_is_opened_waits_while_others_are_opened(apart: float, took: float) -> None:
    """The last of thousands wait for all others. Mutants: it is one bound for all; there is none."""
    loop = VirtualLoop()

    async def story() -> None:
        context: Any = SimpleNamespace(opened=Opened(), namespace="t")
        destinations = SessionDestinations(context, Listeners())

        async def others() -> None:
            for _ in range(20):
                await asyncio.sleep(apart)
                async with destinations.opening("orders", alone=False):
                    pass

        going_on = asyncio.create_task(others())
        with pytest.raises(headgate.CoordinatorUnavailable, match=f"within {took:g} s: .*; open fewer at a time"):
            async with destinations.opening("orders"):
                await asyncio.sleep(1000)
        assert loop.now - BEGINS == pytest.approx(took)
        await stop(going_on)

    try:
        loop.run_until_complete(story())
    finally:
        loop.bury()


async def test_who_asks_while_it_is_asked_gets_the_next_answer() -> None:
    """What was asked before may be out of date. Mutant: it gets the one that is under way."""
    shared, asked, goes_on = SharedAnswer[int](), [0], asyncio.Event()

    async def question() -> int:
        asked[0] += 1
        await goes_on.wait()
        return asked[0]

    first = asyncio.ensure_future(shared.ask(question))
    await asyncio.sleep(0)
    others = [asyncio.ensure_future(shared.ask(question)) for _ in range(3)]
    await asyncio.sleep(0)
    goes_on.set()
    assert [await first, *[await one for one in others]] == [1, 2, 2, 2]


async def test_an_error_is_told_to_all_who_share_it_and_to_nobody_else() -> None:
    """Else each in turn waits for a master that is away."""
    shared, goes_on = SharedAnswer[int](), asyncio.Event()

    async def fails() -> int:
        await goes_on.wait()
        raise headgate.CoordinatorUnavailable("away")

    async def answers() -> int:
        return 7

    asking = [asyncio.ensure_future(shared.ask(fails)) for _ in range(9)]
    await asyncio.sleep(0)
    goes_on.set()
    outcomes = await asyncio.gather(*asking, return_exceptions=True)
    assert all(isinstance(one, headgate.CoordinatorUnavailable) for one in outcomes)
    assert len({id(one) for one in outcomes}) == 2
    assert await shared.ask(answers) == 7


async def test_one_that_gives_up_while_it_asks_leaves_it_to_the_next() -> None:
    shared, asked = SharedAnswer[int](), [0]

    async def question() -> int:
        asked[0] += 1
        await asyncio.sleep(0 if asked[0] > 1 else 60)
        return asked[0]

    first = asyncio.ensure_future(shared.ask(question))
    await asyncio.sleep(0)
    second = asyncio.ensure_future(shared.ask(question))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == 2
