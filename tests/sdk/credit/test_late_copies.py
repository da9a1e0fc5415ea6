"""A copy of a call that comes late stores no message in the place of another one: P3 and P5.

A call is made once more where its connection breaks, and the server may read the first copy long after the second.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import headgate
from headgate import CreditTimeout, Receipt
from tests.sdk.observing import GUARD, counts, drain
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server


class Copies:
    """Copies of a client's calls that published; while ``passes`` is not set, no call of an account is made.

    While ``loses``, they are made, and not answered.
    """

    def __init__(self, client: headgate.Client) -> None:
        self.passes = asyncio.Event()
        self.passes.set()
        self.loses = False
        self.stored: list[int] = []
        self._made: list[tuple[Any, Any, list[Any]]] = []
        server: Any = client.store.server
        self._real = server.call
        server.call = self._call

    async def _call(self, script: Any, keys: Any, argv: Sequence[Any], **others: Any) -> Any:
        if script.name in ("acquire", "publish"):
            await self.passes.wait()
        reply = await self._real(script, keys, argv, **others)
        if script.name == "publish":
            self._made.append((script, keys, list(argv)))
            self.stored.append(int(reply[8]) if reply[0] == b"OK" else 0)
            if self.loses:
                raise headgate.CoordinatorUnavailable("its answer is lost")
        return reply

    async def of(self, body: bytes) -> tuple[bytes, int]:
        """Make the first call that had a message once more; returns the code, and how many that copy stored."""
        script, keys, argv = next(
            made for made in self._made if any(body in word for word in made[2] if isinstance(word, bytes))
        )
        reply = await self._real(script, keys, argv)
        return reply[0], int(reply[8]) if reply[0] == b"OK" else 0

    async def store(self, body: bytes) -> int:
        """Make that call until a copy of it stored something; returns how many messages."""
        stored = 0

        async def some() -> bool:
            nonlocal stored
            stored = (await self.of(body))[1]
            return stored > 0

        await wait_until(some)
        return stored


async def _bodies(session: headgate.Session, count: int) -> list[bytes | str]:
    return [message.body for message in await drain(await session.consumer("q"), count)]


async def _given_up(client: headgate.Client, session: headgate.Session) -> tuple[headgate.Producer, Copies]:
    """Return a producer whose second message was refused for the rate, and given up."""
    await client.apply("q", limit=1000, send_rate="4/s", send_burst=1)
    producer, copies = await session.producer("q", window=100), Copies(client)
    await producer.send(b"first", timeout=GUARD)
    with pytest.raises(CreditTimeout):
        await producer.send(b"given up", timeout=0.05)
    assert copies.stored == [1, 0]
    return producer, copies


async def test_a_copy_before_the_next_message_does_not_take_its_place(client: headgate.Client) -> None:
    """Mutant: the next goes out under the number of the one that was given up, and is taken for it."""
    async with client.session("s") as session:
        producer, copies = await _given_up(client, session)
        assert await copies.store(b"given up") == 1
        assert (await producer.send(b"next", timeout=GUARD)).seq == 3
        assert await _bodies(session, 3) == [b"first", b"given up", b"next"]


async def test_a_copy_behind_the_next_message_stores_nothing(client: headgate.Client) -> None:
    async with client.session("s") as session:
        producer, copies = await _given_up(client, session)
        await producer.send(b"next", timeout=GUARD)
        assert (await copies.of(b"given up"))[1] == 0
        assert await _bodies(session, 2) == [b"first", b"next"]
    assert await counts(client, "q") == (0, 0)


@pytest.mark.parametrize("allowed", [1, 3])
async def test_what_a_copy_stored_gets_its_receipts_and_is_not_sent_again(
    client: headgate.Client, allowed: int
) -> None:
    """One of three that were refused together is given up: a copy stores the first, or all of them."""
    await client.apply("q", limit=1000, send_rate="4/s", send_burst=3)
    async with client.session("s") as session:
        producer, copies = await session.producer("q", window=200), Copies(client)
        await asyncio.gather(*[producer.send(b"before", timeout=GUARD) for _ in range(3)])
        sends = [asyncio.ensure_future(producer.send(b"m%d" % number, timeout=GUARD)) for number in (1, 2, 3)]
        await wait_until(lambda: copies.stored[-1] == 0)
        copies.passes.clear()
        sends[1].cancel()
        if allowed == 3:
            await asyncio.sleep(0.8)  # until the rate allows as many
        assert await copies.store(b"m1") >= allowed
        copies.passes.set()
        async with asyncio.timeout(GUARD):
            ends = await asyncio.gather(*sends, return_exceptions=True)
        assert [type(end) for end in ends] == [Receipt, asyncio.CancelledError, Receipt]
        some = [b"m1", b"m2", b"m3"] if allowed == 3 else [b"m1", b"m3"]
        assert (await _bodies(session, 3 + len(some)))[3:] == some
    assert await counts(client, "q") == (0, 0)


async def test_a_producer_that_is_opened_again_finds_what_a_copy_stored_meanwhile(client: headgate.Client) -> None:
    """Mutant: the account that goes on for a closed one forgets what was tried; its first message is lost."""
    async with client.session("s") as session:
        producer, copies = await _given_up(client, session)
        assert await copies.store(b"given up") == 1
        await producer.close()
        producer = await session.producer("q", window=100)
        await producer.send(b"next", timeout=GUARD)
        assert await _bodies(session, 3) == [b"first", b"given up", b"next"]
    assert await counts(client, "q") == (0, 0)


async def test_a_session_that_resumes_loses_nothing_to_a_late_copy(client: headgate.Client) -> None:
    async with client.session("r", resume="work") as session:
        producer, copies = await _given_up(client, session)
        assert await copies.store(b"given up") == 1
        await producer.send(b"next", timeout=GUARD)
        assert await _bodies(session, 3) == [b"first", b"given up", b"next"]


async def test_what_was_on_its_way_as_its_producer_closed_has_its_number_for_good(client: headgate.Client) -> None:
    """Mutant: the producer that is opened next gives that number to its first message, which then is not stored."""
    await client.apply("q", limit=1000)
    async with client.session("s") as session:
        producer, copies = await session.producer("q", window=100), Copies(client)
        copies.loses = True
        sends = asyncio.ensure_future(producer.send(b"unknown", timeout=GUARD))
        await wait_until(lambda: bool(copies.stored))
        await producer.close()
        with pytest.raises(headgate.HeadgateError):
            await sends
        copies.loses = False
        producer = await session.producer("q", window=100)
        await producer.send(b"next", timeout=GUARD)
        assert await _bodies(session, 2) == [b"unknown", b"next"]
    assert await counts(client, "q") == (0, 0)


@pytest.mark.parametrize("spools", [True, False])
async def test_references_on_their_way_as_their_producer_closed_have_their_number_for_good(
    client: headgate.Client, tmp_path: Path, spools: bool
) -> None:
    """The next goes to the store too, or to memory. Mutants: that is forgotten; another segment has its number."""
    await client.set_store("disk", f"file://{tmp_path}", limit="1MB")
    await client.apply("q", limit=1000, when_full="spool", store="disk")
    full, unknown, following = b"m" * 900, b"u" * 300, b"n" * 300
    async with client.session("s") as session, client.session("t") as taker:
        producer, copies = await session.producer("q", window=100), Copies(client)
        await producer.send(full, timeout=GUARD)
        copies.loses = True
        sends = asyncio.ensure_future(producer.send(unknown, timeout=GUARD))
        await wait_until(lambda: len(copies.stored) > 1)
        await producer.close()
        with pytest.raises(headgate.HeadgateError):
            await sends
        copies.loses = False
        consumer = await taker.consumer("q")
        got = [] if spools else await drain(consumer, 2)
        producer = await session.producer("q", window=100)
        await producer.send(following, timeout=GUARD)
        got += await drain(consumer, 3 - len(got))
        assert [message.body for message in got] == [full, unknown, following]
    assert await counts(client, "q") == (0, 0)
