"""Feeds of one client that lack the rate of deliveries at a slice are served in turn, by one call for all."""

import asyncio
from collections.abc import Callable
from typing import Any, cast
from weakref import WeakValueDictionary

import pytest

from headgate.consuming.delivery_line import DeliveryLine
from headgate.errors import CoordinatorUnavailable
from headgate.namespace.shared_rates import Lent, SharedRates
from headgate.redis.keys import Address
from headgate.redis.stores.rates import Sender
from tests.support.waiting import wait_until

PART = Address.of("shop", "orders#1")


class Rates:
    """Lends what it is told to, and notes what it was asked for."""

    def __init__(self, at_once: int = 1) -> None:
        self.asked: list[tuple[int, int]] = []
        self.senders: list[tuple[str, int, int]] = []
        self._answers: asyncio.Queue[Lent | Exception] = asyncio.Queue()
        self._at_once = at_once

    def answer(self, answer: Lent | Exception) -> None:
        self._answers.put_nowait(answer)

    def at_once(self, _part: Address, _kind: str) -> int:
        return self._at_once

    async def lend(self, _part: Address, _kind: str, need: int, want: int, sender: Sender, at_once: int) -> Lent:
        self.asked.append((need, want))
        self.senders.append((sender.id, sender.weight, at_once))
        answer = await self._answers.get()
        if isinstance(answer, Exception):
            raise answer
        return answer


class Feed:
    """Notes what it hears."""

    def __init__(self, session: str = "s") -> None:
        self.session, self.lents, self.shorts = session, 0, 0

    def lent(self) -> None:
        self.lents += 1

    def short(self) -> None:
        self.shorts += 1


async def until(met: Callable[[], bool]) -> None:
    await wait_until(met, timeout=20)


def line_of(rates: Rates) -> DeliveryLine:
    return DeliveryLine(cast("SharedRates", rates), PART)


def lents(feeds: list[Feed]) -> list[int]:
    return [feed.lents for feed in feeds]


async def test_one_asks_and_the_next_has_its_turn_once_that_one_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutants: each asks for itself, beside the others; the next has its turn after a while alone."""
    monkeypatch.setattr("headgate.consuming.delivery_line.FETCHED_WITHIN", 60)
    rates, feeds = Rates(), [Feed(), Feed()]
    line = line_of(rates)
    for feed in feeds:
        assert line.stand(feed, 1, 5)
    await until(lambda: len(rates.asked) == 1)
    rates.answer(Lent(0, 1))
    await until(lambda: lents(feeds) == [1, 0])
    assert line.stand(feeds[0], 1, 4), "it fetched, and lacks more: it is last now"
    await until(lambda: len(rates.asked) == 2)
    rates.answer(Lent(0, 1))
    await until(lambda: lents(feeds) == [1, 1])
    line.leave(feeds[1])
    await until(lambda: len(rates.asked) == 3)
    assert rates.asked == [(1, 5), (1, 5), (1, 4)]
    for feed in feeds:
        await line.close(feed)


async def test_what_is_in_hand_serves_as_many_as_it_is_enough_for() -> None:
    """Mutant: only the first fetches, and all others wait for it."""
    rates, feeds = Rates(at_once=20), [Feed() for _ in range(4)]
    line = line_of(rates)
    for feed in feeds:
        line.stand(feed, 2, 5)
    await until(lambda: len(rates.asked) == 1)
    assert rates.asked == [(2, 20)], "what all want, within a moment of the rate"
    rates.answer(Lent(0, 12))
    await until(lambda: lents(feeds) == [1, 1, 1, 0])
    for feed in feeds[:3]:
        line.leave(feed)
    await until(lambda: len(rates.asked) == 2)
    for feed in feeds:
        await line.close(feed)


async def test_they_wait_by_the_name_of_one_with_the_weight_of_all() -> None:
    """Mutants: of the first, whose turn changes with each that fetches; of one that is closed, which a node denies."""
    rates, feeds = Rates(at_once=3), [Feed(session) for session in "abc"]
    line = line_of(rates)
    for feed in feeds:
        line.stand(feed, 1, 5)
    rates.answer(Lent(0, 1))
    await until(lambda: lents(feeds) == [1, 0, 0])
    line.stand(feeds[0], 1, 5)
    rates.answer(Lent(0, 1))
    await until(lambda: lents(feeds) == [1, 1, 0])
    await line.close(feeds[0])
    rates.answer(Lent(0, 1))
    line.stand(feeds[1], 5, 5)
    await until(lambda: lents(feeds) == [1, 1, 1])
    line.leave(feeds[2])
    await until(lambda: len(rates.senders) == 4)
    assert rates.senders == [("a", 3, 3), ("a", 3, 3), ("c", 2, 3), ("c", 1, 5)]
    for feed in feeds:
        await line.close(feed)


async def test_the_first_fetches_although_others_took_what_was_lent() -> None:
    """Mutant: it asks again, and again, and hears of nothing."""
    rates, feeds = Rates(), [Feed(), Feed()]
    line = line_of(rates)
    for feed in feeds:
        line.stand(feed, 1, 1)
    rates.answer(Lent(0, 0))
    await until(lambda: lents(feeds) == [1, 0])
    for feed in feeds:
        await line.close(feed)


async def test_who_was_woken_and_does_not_fetch_keeps_nobody_waiting() -> None:
    """Mutant: the next waits for its answer for ever."""
    rates, feeds = Rates(), [Feed(), Feed()]
    line = line_of(rates)
    for feed in feeds:
        line.stand(feed, 1, 1)
    rates.answer(Lent(0, 1))
    rates.answer(Lent(0, 1))
    await until(lambda: lents(feeds) == [1, 1])
    for feed in feeds:
        await line.close(feed)


@pytest.mark.parametrize("answer", [Lent(60_000), CoordinatorUnavailable("it is away")])
async def test_all_hear_where_there_is_none_also_who_comes_meanwhile(answer: Lent | Exception) -> None:
    """Mutant: a drain of the second feed is answered once the first has its messages."""
    rates, feeds = Rates(), [Feed(), Feed(), Feed()]
    line = line_of(rates)
    for feed in feeds[:2]:
        assert line.stand(feed, 1, 1)
    rates.answer(answer)
    await until(lambda: [feed.shorts for feed in feeds] == [1, 1, 0])
    assert not line.stand(feeds[2], 1, 1)
    assert not line.stand(feeds[0], 1, 1), "a look beside changes nothing"
    assert len(rates.asked) == 1
    rates.answer(Lent(0, 3))
    await until(lambda: lents(feeds) == [1, 1, 1])  # within a second, however long it is to take
    for feed in feeds:
        await line.close(feed)


async def test_a_line_ends_with_its_last_feed_and_begins_again() -> None:
    """Mutant: who comes after that is served by nobody."""
    rates, feed = Rates(), Feed()
    line = line_of(rates)
    before = asyncio.all_tasks()
    line.stand(feed, 1, 1)
    await until(lambda: len(rates.asked) == 1)
    await line.close(feed)
    assert asyncio.all_tasks() == before
    for turn in range(1, 4):
        line.stand(feed, 1, 1)
        rates.answer(Lent(1))
        rates.answer(Lent(0, 1))
        await until(lambda turn=turn: feed.lents == turn)  # type: ignore[misc]
        line.leave(feed)
        await until(lambda: asyncio.all_tasks() == before)


async def test_whatever_ends_a_line_who_stands_in_it_afterwards_is_served() -> None:
    """Mutants: an error that nobody expects ends it for ever; what was short then is said to whoever comes later."""
    rates, feed = Rates(), Feed()
    line = line_of(rates)
    before = asyncio.all_tasks()
    assert line.stand(feed, 1, 1)
    rates.answer(RuntimeError("nobody expects it"))
    await until(lambda: len(rates.asked) == 1 and asyncio.all_tasks() == before)
    assert line.stand(feed, 1, 1)
    rates.answer(Lent(60_000))
    await until(lambda: feed.shorts == 1)
    line.leave(feed)
    await until(lambda: asyncio.all_tasks() == before)
    assert line.stand(feed, 1, 1), "whoever drains hears after somebody asked"
    rates.answer(Lent(0, 1))
    await until(lambda: feed.lents == 1)
    await line.close(feed)


@pytest.mark.parametrize("steps", range(4))
async def test_who_stands_in_line_as_the_last_one_leaves_it_is_served(steps: int) -> None:
    """Mutants: a line that ended before its first step, or is about to end, serves nobody any more."""
    rates, first, second = Rates(), Feed(), Feed()
    line = line_of(rates)
    before = asyncio.all_tasks()
    line.stand(first, 1, 1)
    closing = asyncio.create_task(line.close(first))
    for _ in range(steps):
        await asyncio.sleep(0)
    line.stand(second, 1, 1)
    await closing
    rates.answer(Lent(0, 1))
    rates.answer(Lent(0, 1))
    await until(lambda: second.lents == 1)
    await line.close(second)
    await until(lambda: asyncio.all_tasks() == before)


async def test_who_comes_after_a_line_that_never_began_is_served() -> None:
    """Mutants: the line counts as one that serves; what it would have done is thrown away, with a warning."""
    rates, feed = Rates(), Feed()
    line = line_of(rates)
    line.stand(feed, 1, 1)
    await line.close(feed)
    line.stand(feed, 1, 1)
    rates.answer(Lent(0, 1))
    await until(lambda: feed.lents == 1)
    await line.close(feed)


def test_a_client_has_one_line_at_a_slice() -> None:
    lines: Any = WeakValueDictionary()
    rates: Any = Rates()
    line = DeliveryLine.at(PART, rates, lines)
    assert DeliveryLine.at(PART, rates, lines) is line
    assert DeliveryLine.at(Address.of("shop", "orders#2"), rates, lines) is not line
