"""The line of what is written and not confirmed yet, on a Redis that a test stands in for."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headgate import NotDurable
from headgate.core.durability import Durability, WriteProgress
from headgate.credit import durable_writes
from headgate.credit.durable_writes import DurableWrites
from headgate.redis.keys import Address
from headgate.redis.store import Store


async def test_an_error_in_place_of_a_wait_is_no_reason_to_ask_without_a_pause() -> None:
    """Mutant: `Securing._keep` goes on at once, thousands of times a second, each a write to Redis."""
    calls = 0

    async def secure(*_: Any) -> tuple[Any, WriteProgress]:
        nonlocal calls
        calls += 1
        await asyncio.sleep(0)
        return [b"OK", b"1", b"0"], WriteProgress()

    store = cast("Store", SimpleNamespace(server=SimpleNamespace(secure=secure)))
    line = DurableWrites(store, Address.of("t", "orders"), "ann~1")
    line.durability = Durability(replicas=1)
    with pytest.raises(NotDurable, match="0 of 1 replicas"):
        await line.up_to_now(1, asyncio.get_running_loop().time() + 0.5)
    assert 0 < calls < 10
    await line.close(0)


async def test_what_is_written_during_a_wait_is_waited_for_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: a pause after each wait. One slow write to a disk then cost all later ones a tenth of a second each."""
    monkeypatch.setattr(durable_writes, "PAUSE", 600.0)
    turns = asyncio.Semaphore(0)

    async def secure(*_: Any) -> tuple[Any, WriteProgress]:
        await turns.acquire()
        return [b"OK", b"1", b"0"], WriteProgress(1)

    store = cast("Store", SimpleNamespace(server=SimpleNamespace(secure=secure)))
    line = DurableWrites(store, Address.of("t", "orders"), "ann~1")
    line.durability = Durability(replicas=1)
    until = asyncio.get_running_loop().time() + 60
    first = asyncio.ensure_future(line.up_to_now(1, until))
    for _ in range(20):
        await asyncio.sleep(0)  # the call for the first is under way
        second = asyncio.ensure_future(line.up_to_now(1, until))
        await asyncio.sleep(0)
        turns.release()
        await first
        first = second
    turns.release()
    await first
    await line.close(0)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("NOPERM this user has no permissions to run the 'wait' command", "refused"),
        ("UNBLOCKED force unblock from blocking operation, instance state changed", "interrupted"),
    ],
)
async def test_a_wait_that_redis_refuses_is_not_one_that_it_interrupted(answer: str, told: str) -> None:
    """Mutants: what passes ends the wait; what passes is told without Redis' words."""
    durability, calls = Durability(replicas=1), 0
    held = durability.read([RuntimeError(answer)])
    assert (held.trouble, held.problem) == (told, answer)

    async def secure(*_: Any) -> tuple[Any, WriteProgress]:
        nonlocal calls
        calls += 1
        return [b"OK", b"1", b"0"], WriteProgress(1) if calls > 1 else held

    store = cast("Store", SimpleNamespace(server=SimpleNamespace(secure=secure)))
    line = DurableWrites(store, Address.of("t", "orders"), "ann~1")
    line.durability = durability
    kept = asyncio.ensure_future(line.up_to_now(1, asyncio.get_running_loop().time() + 60))
    if told == "refused":
        with pytest.raises(NotDurable, match="NOPERM"):
            await kept
    else:
        await kept
    await line.close(0)
