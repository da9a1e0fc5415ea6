"""A writer has room at its store before it writes: for all that it writes, and ahead of the next segment."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any
from unittest.mock import MagicMock

import pytest

import headgate
from headgate._util.tasks import StepCallbacks
from headgate.core.credit import CreditLine
from headgate.core.outbox import Outbox, Outgoing
from headgate.credit.account import CreditAccount
from headgate.redis.keys import Address
from headgate.spool.writer import Writer
from tests.sdk.observing import GUARD
from tests.sdk.spooling import Depot, sent
from tests.support.faultyfs import FaultyStorage
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server


@pytest.fixture
async def depot(client: headgate.Client, namespace: str) -> AsyncIterator[Depot]:
    storage = FaultyStorage(namespace)
    yield Depot(client, storage)
    storage.close()


class FullStore:
    """A store without room in hand, which gives room as a test says."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, asyncio.Future[None]]] = []
        self.given_back: list[int] = []
        self.put_back = self.given_back.append

    def take(self, size: int) -> bool:
        return False

    def ask(self, size: int, stir: Callable[[], None]) -> "asyncio.Future[None]":
        self.asked.append((size, asyncio.get_running_loop().create_future()))
        return self.asked[-1][1]

    def refused(self, asked: "asyncio.Future[None]") -> bool:
        return False


@pytest.mark.parametrize(("first", "second"), [(10, 3000), (3000, 10)])
async def test_room_is_taken_for_what_goes_where_the_first_in_line_gave_up(first: int, second: int) -> None:
    """Mutants: the room for one that is smaller, or for one that is larger, is used for the next."""
    outbox = Outbox(CreditLine())
    store: Any = FullStore()
    other: Any = MagicMock()
    writer = Writer(other, other, other, Address.of("n", "q"), outbox, other, other, StepCallbacks())
    writer.adopt("disk", "", math.inf)
    items = [Outgoing(b"x" * size, size, math.inf, asyncio.Future[Any]()) for size in (first, second)]
    for item in items:
        outbox.add(item)
    taking = asyncio.create_task(writer._with_room(writer._way, store, max(first, second)))
    await wait_until(lambda: len(store.asked) == 1)
    items[0].done.cancel()
    store.asked[0][1].set_result(None)
    await wait_until(lambda: len(store.asked) == 2)
    store.asked[1][1].set_result(None)
    async with asyncio.timeout(GUARD):
        assert await taking == [items[1]]
    assert [size for size, _ in store.asked] == [first, second]
    assert store.given_back == [first]


async def test_room_for_the_next_segment_is_fetched_while_one_is_written(depot: Depot) -> None:
    """Mutant: `SpoolQuota.hold` asks for none, and every other segment waits for Redis."""
    await depot.make()
    async with depot.client.session("s") as session:
        producer = await session.producer("orders")
        await sent(producer, 20)  # memory is full
        writer: Any = producer._account.writer
        for number in range(5):
            await sent(producer, 1, first=100 + number, size=3000)
            account: CreditAccount = writer._way.quota._account
            await wait_until(partial(_has, account, 3000), timeout=5)
            assert not account.outbox.waiting


def _has(account: CreditAccount, size: int) -> bool:
    return account.in_hand > size
