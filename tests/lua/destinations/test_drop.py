"""Dropped messages are counted for the whole cluster, each once, and the count of a session ends with its account."""

from tests.lua.place import Place, Producer


async def dropped(place: Place) -> tuple[str, str]:
    snapshot = await place.store.snapshot(place.address)
    assert snapshot is not None
    return snapshot.fields.get("dropped_messages", "0"), snapshot.fields.get("dropped_bytes", "0")


async def tell(place: Place, session: str, messages: int, size: int) -> str:
    return await place.store.drop(place.address, session, messages=messages, size=size)


async def opened(place: Place, session: str) -> Producer:
    producer = place.producer(session)
    await producer.ask()
    return producer


async def test_totals_of_sessions_add_up_and_count_once(place: Place) -> None:
    await place.create()
    await opened(place, "ann")
    await opened(place, "bob")
    for session, messages, size in (("ann", 2, 20), ("bob", 1, 5), ("ann", 2, 20), ("ann", 5, 60), ("ann", 2, 20)):
        assert await tell(place, session, messages, size) == "OK"
    assert await dropped(place) == ("6", "65")


async def test_a_session_without_an_account_is_told_so(place: Place) -> None:
    await place.create()
    assert await tell(place, "nobody", 1, 1) == "EXPIRED"
    assert await dropped(place) == ("0", "0")


async def test_a_destination_that_is_not_there(place: Place) -> None:
    await place.wait(0)
    assert await tell(place, "ann", 1, 1) == "UNKNOWN"


async def test_the_count_of_a_session_ends_with_its_account(place: Place) -> None:
    await place.create()
    ann = await opened(place, "ann")
    await tell(place, "ann", 3, 30)
    await ann.leave()
    ann.start_anew()
    await ann.ask()
    await tell(place, "ann", 2, 20)
    assert await dropped(place) == ("5", "50")


async def test_a_dead_session_leaves_no_entry(place: Place) -> None:
    await place.create()
    await opened(place, "ann")
    await tell(place, "ann", 3, 30)
    await place.sweep(11_000)
    drops = f"{place.address.key}:drops"
    assert await place.server.command(drops.encode(), "HLEN", drops) == 0


async def test_the_ledger_has_what_was_added(place: Place) -> None:
    await place.create()
    await opened(place, "ann")
    await tell(place, "ann", 3, 30)
    await tell(place, "ann", 4, 70)
    ledger = f"{place.address.key}:ledger"
    entries = await place.server.command(ledger.encode(), "XREVRANGE", ledger, "+", "-", "COUNT", 2)
    told = [dict(zip(fields[::2], fields[1::2], strict=True))[b"e"].decode().split(",")[2:6] for _, fields in entries]
    assert told == [["drop", "ann", "40", "1"], ["drop", "ann", "30", "3"]]
