"""Sessions of one client that wait at a queue with slices look at these together."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any, cast

import pytest

import headgate
from headgate import CreditTimeout
from headgate.core.names import slice_number
from headgate.redis.backend import Backend
from headgate.redis.keys import Address
from headgate.redis.replies import Snapshot
from headgate.redis.stores.slice_looks import SliceLooks
from headgate.redis.stores.sliced_reads import read_slices, read_whole, together
from tests.sdk.observing import GUARD

pytestmark = pytest.mark.one_server


async def test_those_who_wait_read_the_slices_of_others_once_for_all(client: headgate.Client) -> None:
    """Mutants: each reads all slices by itself; its own place is read for another."""
    await client.apply("orders", kind="queue", limit=1000, slices=4)
    calls, call = Counter[str](), client.store.server.call

    async def counted(op: Any, keys: Any, argv: Any) -> Any:
        calls[op.name] += 1
        return await call(op, keys, argv)

    async with AsyncExitStack() as stack:
        filler = await stack.enter_async_context(client.session("filler"))
        await (await filler.producer("orders", window=1000)).send(b"x" * 900, timeout=GUARD)
        sessions = [await stack.enter_async_context(client.session(f"s{at}")) for at in range(16)]
        producers = [await session.producer("orders", window=1) for session in sessions]
        client.store.server.call = counted  # type: ignore[method-assign, assignment]

        async def refused(producer: headgate.Producer) -> CreditTimeout:
            with pytest.raises(CreditTimeout) as caught:
                await producer.send(b"x" * 500, timeout=1.8)
            return caught.value

        errors = await asyncio.gather(*map(refused, producers))
        client.store.server.call = call  # type: ignore[method-assign]
    looks = [error.explanation for error in errors]
    for look, session in zip(looks, sessions, strict=True):
        assert look is not None
        assert (look.destination, look.session) == ("orders", session.id)
        assert look.place
    assert calls["snapshot"] < 4 * 16 * 2, "that is two looks of each, were each to read all slices"


async def test_a_look_that_failed_is_made_again_and_nobody_waits_for_one_that_gave_up() -> None:
    """Mutants: a failure is shared for half a second; the first to give up takes the look away from the others."""
    answers: list[Any] = [headgate.CoordinatorUnavailable("away"), None, None]
    going = asyncio.Event()

    async def read(address: Address, session: str, entries: int) -> None:
        await going.wait()
        if isinstance(answer := answers.pop(0), Exception):
            raise answer

    looks, part = SliceLooks(read), Address.of("shop", "orders#1")
    first, second = (asyncio.ensure_future(looks.snapshot(part, "s", 0)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    going.set()
    with pytest.raises(headgate.CoordinatorUnavailable):
        await second
    assert await looks.snapshot(part, "s", 0) is None
    assert await looks.snapshot(part, "s", 0) is None
    assert len(answers) == 1, "a moment later the same answer does"


@pytest.mark.parametrize("in_use", [[(6, 5), (6, 4)], [(6, 5), (6, 5), (5, 5)], [(6, 4)], [(8, 9), (8, 9), (8, 9)]])
async def test_slices_that_seem_to_be_above_their_limit_together_are_read_again(in_use: list[tuple[int, int]]) -> None:
    """Room may go from one to another between two reads; after the limit was lowered it is so at each."""
    rounds: list[tuple[int, int]] = []

    def fields(number: int) -> dict[str, str]:
        if number == 0:
            rounds.append(in_use[len(rounds)])
        about = {"kind": "queue", "limit_bytes": "10", "leased_bytes": "0", "pending_messages": "0"}
        return about | {"sliced": "2", "pending_bytes": str(rounds[-1][number])}

    async def read(address: Address, session: str = "", entries: int = 0) -> Snapshot:
        del session, entries
        return Snapshot(0, fields(slice_number(address.name)), [], 0, 0, {}, {})

    whole = Address.of("shop", "orders")
    for shared in (False, True):
        rounds.clear()
        looks = SliceLooks(read).snapshot(whole, "a", 0) if shared else None
        seen = await (looks or read_slices(whole, await read(whole), read))
        assert seen is not None
        assert int(seen.fields["pending_bytes"]) == sum(in_use[-1])
        assert len(rounds) == len(in_use)

    class Server:
        async def burst(self, commands: list[tuple[str, tuple[Any, ...]]]) -> list[list[bytes]]:
            numbers = range(2 - len(commands), 2)
            return [
                [values[name].encode() for name in command[2:]]
                for values, (_, command) in zip(map(fields, numbers), commands, strict=True)
            ]

    rounds.clear()
    names = ("sliced", "limit_bytes", "pending_bytes", "leased_bytes")
    found = await read_whole(cast(Backend, Server()), whole, names, fields(0))
    assert int(found["pending_bytes"]) == sum(in_use[-1])
    assert len(rounds) == len(in_use)


def test_a_busy_slice_is_looked_at_for_as_long_as_a_quiet_one() -> None:
    """Else what is freed a second, and how long a wait will take, is told of a busy one over the time of others."""

    def seen(written: int, *times: int) -> Snapshot:
        entries = tuple(f"1,{time},settle,c~1,1000,1,0,settled:1000:1,0,0,0,0,7" for time in times)
        return Snapshot(9_000, {"kind": "queue", "ledger_seq": str(written)}, [], 0, 0, {}, {}, ledger=entries)

    busy, quiet, idle = seen(900, 8_900, 8_800, 8_700), seen(40, 8_750, 6_000, 5_000), seen(2, 8_850, 4_000)
    times = [int(entry.split(",")[1]) for entry in together([quiet, busy, idle, seen(0)]).ledger]
    assert times == [8_900, 8_850, 8_800, 8_750, 8_700]
    assert len(together([seen(3, 8_850, 6_000, 5_000), idle]).ledger) == 5, "nothing was left out of these"
