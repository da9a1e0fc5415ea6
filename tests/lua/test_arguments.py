"""What a script is given is bounded before it is used: a value outside its bound changes nothing, and costs nothing."""

from time import monotonic

import pytest

from headgate.errors import InvalidValue
from tests.lua.place import Place


@pytest.mark.parametrize("number", [0, -1, 65, 2**31, 2**53, 2**63])
async def test_a_consumer_has_a_number_up_to_64(place: Place, number: int) -> None:
    """Mutant: any number is taken. Whoever ended that lease would look for as many, and Redis served nobody."""
    await place.create()
    with pytest.raises(InvalidValue, match=f"attach: number is {number}; use 1 to 64"):
        await place.store.attach(
            place.address, "ann", number=number, subscription="queue", durable=True, window="1/1", ttl_ms=1000
        )
    assert not (await place.look()).sessions


async def test_a_session_that_has_a_number_beyond_ends_in_a_moment(place: Place) -> None:
    """Mutant: the loop over a session's consumers has no bound. The record is as an earlier version wrote it."""
    await place.create()
    await place.consumer("ann")
    key = place.address.shared[1]
    record = (await place.server.command(key, "HGET", key, "ann")).replace(
        b"consumers=1 ", b"consumers=9007199254740992 "
    )
    await place.server.command(key, "HSET", key, "ann", record)
    began = monotonic()
    await place.store.acquire(place.address, place.producer("ann").account(), ttl_ms=1000, leave=True)
    assert monotonic() - began < 1.5
    assert not (await place.look()).sessions
