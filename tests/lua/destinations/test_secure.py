"""What a wait for replicas is put after: a call that writes and changes nothing, and says of which epoch that is."""

from headgate.core.durability import MEMORY
from headgate.redis.durable_calls import KnownDurability, secure
from tests.lua.place import Place

LATER = b"b" * 40


async def secured(place: Place, session: str = "ann") -> KnownDurability:
    return await secure(place.server, place.address, session, MEMORY, 1)


async def writes(place: Place) -> int:
    info = (await place.server.everywhere("INFO", "persistence"))[0].decode()
    return int(info.partition("rdb_changes_since_last_save:")[2].split()[0])


async def test_it_writes_something_each_time_and_changes_nothing(place: Place) -> None:
    await place.create()
    ann = place.producer("ann")
    await ann.ask(need=30)
    await ann.publish(10, 10)
    seen, before = await place.look(), await writes(place)
    first, again = await secured(place), await secured(place)
    assert (first.code, first.last) == ("OK", 2)
    assert again == first
    assert await writes(place) >= before + 2
    assert await place.look() == seen


async def test_in_a_new_epoch_it_says_which_message_of_the_session_was_the_last_that_is_there(place: Place) -> None:
    await place.create()
    ann = place.producer("ann")
    await ann.ask(need=30)
    await ann.publish(10, 10)
    before = await secured(place)
    place.server.run = LATER
    met = await secured(place)
    assert met.epoch > before.epoch
    assert met.last == 2
    claimed = await place.store.acquire(place.address, ann.account(), ttl_ms=10_000, sent=5)
    assert (claimed.epoch, claimed.lost) == (met.epoch, 3)
    assert (await secured(place)).last == 2  # what `acquire` noted as lost is not there
    assert (await secured(place, "bob")).last == 0


async def test_a_destination_that_is_not_there(place: Place) -> None:
    await place.wait(0)
    assert await secured(place) == KnownDurability("UNKNOWN", (await secured(place)).held)
