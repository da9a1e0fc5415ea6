"""A session that goes on where an earlier one ended, through a node."""

import pytest

import headgate
from headgate.redis.keys import Address

pytestmark = pytest.mark.one_server


async def test_who_begins_anew_is_told_how_many_are_stored(client: headgate.Client, other: headgate.Client) -> None:
    """Mutant: a node does not let `keep` through."""
    for behind, there in ((0, client), (2, other)):
        async with there.session("etl", resume="batch 7") as session:
            producer = await session.producer("jobs")
            assert producer.resumed == behind
            await producer.send("1")
            await producer.send("2")
        snapshot = await client.store.snapshot(Address.of(client.namespace, "jobs"))
        assert snapshot is not None
        assert snapshot.sessions == 0, "who left is gone at once"
    assert [message.body async for message in client.browse("jobs")] == ["1", "2"] * 2
