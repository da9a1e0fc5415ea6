"""Who waits for the rate of all senders is told its place in the line of that rate."""

import asyncio

import pytest

import headgate
from headgate.explain.rate_causes import RateLine
from tests.sdk.observing import GUARD
from tests.sdk.scene import Scene
from tests.support.waiting import wait_until

LINE = (
    "90 1000 @ann 300 500000 1200 @bob 100 250000 1100 @late 50 250000 900 @sent 200 0 1100 @link:a>b 200 1000000 1000"
)


def test_the_line_has_those_who_are_waited_for_in_the_order_of_their_turns() -> None:
    """Mutants: as it is written; also who sent just now; also who did not come in time."""
    line = RateLine.of({"send_line": LINE}, "send_byte", 1050)
    assert line.needs == {"bob": 0.25, "link:a>b": 1.0, "ann": 0.5}
    assert [line.place(one) for one in ("bob", "link:a>b", "ann", "late", "sent", "")] == [1, 2, 3, 0, 0, 0]
    assert [line.before(one) for one in ("bob", "link:a>b", "ann", "late")] == [0, 0.25, 1.25, 0]


def test_each_rate_that_slices_share_has_a_line_of_its_own() -> None:
    fields = {"sliced": "3", "send_line": LINE, "send_byte_line": "9 1000 @ann 3 500000 1200"}
    assert RateLine.of(fields, "send_byte", 1050).needs == {"ann": 0.5}
    assert len(RateLine.of(fields, "send", 1050).needs) == 3
    assert RateLine.of({}, "send", 1050).needs == {}


@pytest.mark.one_server
@pytest.mark.parametrize("slices", [1, 3])
async def test_a_sender_is_told_its_place_and_when_its_turn_is(client: headgate.Client, slices: int) -> None:
    """Mutants: the place in the line for credit alone; the time until the next may go; that others have all credit."""
    await client.apply("slow", kind="queue", slices=slices, limit=3000, send_rate="1/min", send_burst=1)
    async with client.session("a") as a, client.session("b") as b, client.session("c") as c:
        first, *others = [await one.producer("slow", window=3000) for one in (a, b, c)]
        await first.send(b"x", timeout=GUARD)
        sends = [asyncio.create_task(one.send(b"y", timeout=GUARD)) for one in others]

        async def seen() -> list[headgate.Explanation]:
            found = [await client.explain("slow", producer=one.id) for one in (b, c)]
            return found if all(one.place and one.cause == "send-rate" for one in found) else []

        found = await wait_until(seen, timeout=GUARD)
        one, other = sorted(found, key=lambda one: one.place)
        await client.apply("slow", limit=1000)  # all of it is leased by now, and nobody waits for that
        whole = await client.explain("slow")
        for send in sends:
            send.cancel()
        await asyncio.gather(*sends, return_exceptions=True)
    assert whole.cause == "send-rate"
    assert ", place 1 of 2 in its line" in one.reason
    assert ", place 2 of 2 in its line" in str(other)
    assert (other.unblocks_in or 0) - (one.unblocks_in or 0) > 50, "one of a minute is before it"
    assert f"; 2 senders in its line: {one.session}, {other.session}" in whole.reason


@pytest.mark.one_server
async def test_what_is_left_of_the_burst_counts_once_for_all_in_line(scene: Scene) -> None:
    """Of 500 bytes the first, of 800, lacks 300. Mutants: it hears when one byte may go; the second is told 80 s."""
    await scene.make()
    await scene.lease("a", 10)
    await scene.lease("b", 10)
    now = await scene.us()
    line = "".join(
        f" @{one} {turn} {need}000000 {now // 1000 + 60_000}" for one, turn, need in (("a", 1, 80), ("b", 2, 60))
    )
    await scene.fields(send_byte_rate=10, send_byte_burst=1000, send_byte_tat=now + 50_000_000, send_line=f"0 0{line}")
    told = [await scene.client.explain(scene.name, **view) for view in ({"producer": "a"}, {"producer": "b"}, {})]
    assert [one.cause for one in told] == ["send-rate"] * 3
    soon = [one.unblocks_in or 0.0 for one in told]
    assert all(most - 20 < seconds < most + 0.1 for seconds, most in zip(soon, (30, 90, 30), strict=True)), soon
    await scene.fields(send_rate=1, send_burst=1)
    assert "the next is allowed in 0 s, place 1 of 2" in str(await scene.client.explain(scene.name, producer="a"))


@pytest.mark.one_server
async def test_who_waits_for_credit_hears_of_that_first(client: headgate.Client) -> None:
    """Mutant: whoever is in the line of a rate waits for nothing else."""
    await client.apply("slow", kind="queue", limit=100, send_rate="1/min", send_burst=1)
    async with client.session("a") as session:
        producer = await session.producer("slow", window=50)
        await producer.send(b"x" * 20, timeout=GUARD)
        sends = [asyncio.create_task(producer.send(b"x" * 30, timeout=GUARD)) for _ in range(3)]

        async def seen() -> bool:
            told = await client.explain("slow", producer=session.id)
            return bool(told.place) and told.cause == "no-consumer" and "in its line" in str(told)

        await wait_until(seen, timeout=GUARD, description="it hears of both")
        for send in sends:
            send.cancel()
        await asyncio.gather(*sends, return_exceptions=True)
