"""A destination's hash is kept by Redis as a table: each call reads many of its fields."""

from tests.lua.place import Place


async def test_a_destination_is_a_table_from_its_first_call(place: Place) -> None:
    await place.create()
    key = place.address.shared[0]
    assert await place.server.command(key, "OBJECT", "ENCODING", key) == b"hashtable"
