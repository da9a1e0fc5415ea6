"""Artemis, paging: messages above the limit of an address are stored, and nobody blocks before the page limit."""

import asyncio
from pathlib import Path

import pytest

import headgate
from headgate import DestinationFull
from headgate.policy import loads
from tests.conformance.story import body
from tests.sdk.observing import GUARD, drain, field

pytestmark = pytest.mark.one_server
PAGING = """
preset = "artemis"
[[destination]]
match = "#"
limit = "20KB"
[[destination]]
match = "blocking.#"
when_full = "block"
[[store]]
name = "paging"
url = "file://{0}"
limit = "{1}"
segment = "4KiB"
when_full = "fail"
"""


async def test_a15_paging_does_not_block_but_stores(client: headgate.Client, tmp_path: Path) -> None:
    """Mutant: the preset blocks, with a store too."""
    await client.apply_policy(loads(PAGING.format(tmp_path, "unlimited")))
    async with client.session("s") as session:
        for name in ("orders", "blocking.orders"):
            producer = await session.producer(name)
            sends = [asyncio.ensure_future(producer.send(f"{number:04}" + "x" * 996)) for number in range(100)]
            _, waiting = await asyncio.wait(sends, timeout=GUARD if name == "orders" else 0.5)
            assert (len(waiting) == 0) == (name == "orders")
            assert await field(client, name, "pending_bytes") <= 20_000
            for send in waiting:
                send.cancel()
        assert (await client.stores())[0].held > 80_000
        received = await drain(await session.consumer("orders"), 100)
        assert [str(one.body[:4]) for one in received] == [f"{number:04}" for number in range(100)]


async def goes(producer: headgate.Producer) -> bool:
    try:
        await producer.send(body(1000))
    except DestinationFull:
        return False
    return True


async def test_a15_beyond_the_page_limit_the_policy_for_that_holds(client: headgate.Client, tmp_path: Path) -> None:
    """Mutant: the limit of the store binds nobody."""
    await client.apply_policy(loads(PAGING.format(tmp_path, "40KB")))
    async with client.session("s") as session:
        producer = await session.producer("orders")
        sent = 0
        async with asyncio.timeout(GUARD):
            while await goes(producer):
                sent += 1
        assert 35 <= sent <= 60, "about 40 in the store, and up to 20 in memory"
        assert (await client.stores())[0].held <= 40_000
        await drain(await session.consumer("orders"), sent)
