"""Ending a wait of a deadlock: a hint to its session, or one message above the limit and no more."""

import pytest

from tests.lua.place import Place, Producer

WAIT = 1_000


async def waiting(place: Place, *sizes: int, limit: int = 100) -> list[Producer]:
    """Fill a queue, and let sessions wait in line, each with a message of a size."""
    await place.create(limit=limit)
    filler = place.producer("filler")
    await filler.send(*[limit // 2] * 2)
    await filler.leave()
    line = [place.producer(f"w{number}") for number in range(len(sizes))]
    for producer, size in zip(line, sizes, strict=True):
        await place.wait(1)
        await producer.ask(need=size)
    await place.wait(WAIT)
    return line


async def resolve(place: Place, session: str, mode: str = "ticket", since: int | None = None) -> str:
    record = (await place.look()).sessions[session]
    when = int(record["since"]) if since is None else since
    return await place.store.resolve(place.address, session, since=when, mode=mode, wait="7.5", text="%7B%7D")  # type: ignore[arg-type]


async def test_a_ticket_is_credit_for_one_message_above_the_limit(place: Place) -> None:
    first, second = await waiting(place, 30, 20)
    assert await resolve(place, "w1") == "OK", "out of turn: it is the one of the deadlock"
    assert await place.usage() == 120
    seen = await place.look()
    assert (seen.line, seen.leased.bytes, seen.held("w1").bytes) == (["w0"], 20, 20)
    snapshot = await place.store.snapshot(place.address, entries=1)
    assert snapshot is not None
    _, _, op, session, size, messages, _, detail, *_ = snapshot.ledger[0].split(",")
    assert (op, session, size, messages) == ("ticket", "w1", "20", "1")
    assert detail == f"ticket:w1:20:1;grant:w1:20:1;unblock:w1:{WAIT}"
    assert (await second.ask(need=20)).place == 0
    await second.publish(20)
    assert (await place.look()).pending.bytes == 120
    assert (await first.ask(need=30)).place == 1


async def test_a_repeated_call_gives_no_other_ticket(place: Place) -> None:
    """Mutant: `resolve` does not compare since."""
    await waiting(place, 30)
    since = int((await place.look()).sessions["w0"]["since"])
    assert [await resolve(place, "w0", since=since) for _ in range(3)] == ["OK", "GONE", "GONE"]
    assert await place.usage() == 130


async def test_of_another_wait_nothing_is_done(place: Place) -> None:
    await waiting(place, 30)
    since = int((await place.look()).sessions["w0"]["since"])
    assert await resolve(place, "w0", since=since - 1) == "GONE"
    assert await resolve(place, "w0", "tell", since=since + 1) == "GONE"
    assert await place.store.resolve(place.address, "nobody", since=since, mode="ticket") == "GONE"
    assert await place.usage() == 100


async def test_while_one_is_above_the_limit_no_other_goes(place: Place) -> None:
    """Mutant: `resolve` gives a ticket whatever is above the limit."""
    await waiting(place, 30, 20)
    assert await resolve(place, "w0") == "OK"
    assert await resolve(place, "w1") == "ABOVE"
    assert await place.usage() == 130
    await place.change(limit_bytes="130")
    assert await resolve(place, "w1") == "OK", "nothing is above the limit any more"
    assert await place.usage() == 150


async def test_messages_are_limited_like_bytes(place: Place) -> None:
    await waiting(place, 30, 20)
    await place.change(limit_bytes="unlimited", limit_messages="2")
    assert await resolve(place, "w0") == "OK"
    assert await resolve(place, "w1") == "ABOVE"
    assert (await place.look()).leased.messages == 1


@pytest.mark.parametrize("settings", [{"stopped": "by hand"}, {"pools": "memory"}])
async def test_what_else_holds_it_up_does_so_still(place: Place, settings: dict[str, str]) -> None:
    """Mutant: `resolve` does not look whether the destination is stopped, or at the slice of a pool."""
    await waiting(place, 30)
    await place.change(**settings)
    assert await resolve(place, "w0") == "REFUSED"
    assert await place.usage() == 100


async def test_a_hint_changes_nothing(place: Place) -> None:
    await waiting(place, 30)
    before = await place.look()
    assert await resolve(place, "w0", "tell") == "OK"
    assert await place.look() == before


async def test_of_what_is_not_there_nothing_is_done(place: Place) -> None:
    await place.wait(0)
    assert await place.store.resolve(place.address, "w0", since=1, mode="ticket") == "UNKNOWN"
