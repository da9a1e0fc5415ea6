"""Functions that are called as often as a limit allows: with limiters, gates and buckets, with and without await."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import headgate
import headgate.sync
from headgate.limited import limited
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server


@pytest.fixture
async def session(client: headgate.Client) -> AsyncIterator[headgate.Session]:
    await client.apply(
        "slots", kind="limiter", limits={"slots": {"at_once": 2}, "points": {"rate": "1/h", "burst": 99}}
    )
    await client.apply("gate", kind="gate", limit=2)
    await client.apply("bucket", rate="1/h", burst=3)
    async with client.session("calls") as session:
        yield session


class Meter:
    """Counts what is under way."""

    def __init__(self) -> None:
        self.now = self.most = 0

    def __enter__(self) -> None:
        self.now += 1
        self.most = max(self.most, self.now)

    def __exit__(self, *_: object) -> None:
        self.now -= 1


async def test_a_coroutine_function_holds_until_it_returns(session: headgate.Session) -> None:
    meter, limiter = Meter(), await session.limiter("slots", in_hand=False)

    @limited(limiter, key=lambda number: f"k{number}", slots=1, points=lambda number: number + 1,
             settle=lambda answer: {"points": answer})  # fmt: skip
    async def call(number: int) -> int:
        """Call."""
        with meter:
            await asyncio.sleep(0.005)
        return number

    assert (call.__name__, call.__doc__) == ("call", "Call.")
    assert await asyncio.gather(*(call(number) for number in range(6))) == [*range(6)]
    assert meter.most == 2

    async def settled() -> bool:
        state = await limiter.state()
        return not state["slots"].taken and state["points"].remaining == 99 - sum(range(6))

    await wait_until(settled)


async def test_a_function_that_fails_holds_nothing(session: headgate.Session) -> None:
    limiter = await session.limiter("slots", in_hand=False)

    @limited(lambda: limiter, slots=2)
    async def fail() -> None:
        raise LookupError

    for _ in range(3):
        with pytest.raises(LookupError):
            await fail()
    async with limiter.admit(slots=2, timeout=60):
        pass


async def test_gates_and_buckets_take_size_and_tokens(session: headgate.Session) -> None:
    gate, bucket, meter = await session.gate("gate"), await session.bucket("bucket"), Meter()

    @limited(gate, size=1, timeout=60)
    async def call() -> None:
        with meter:
            await asyncio.sleep(0.005)

    await asyncio.gather(*(call() for _ in range(5)))
    assert (meter.most, gate.in_use) == (2, 0)

    @limited(bucket, tokens=2, timeout=2)
    async def mail() -> str:
        return "sent"

    assert await mail() == "sent"
    with pytest.raises(headgate.CreditTimeout):
        await mail()


@pytest.fixture
def threads(redis_url: str, cleanup_namespace: str) -> Iterator[headgate.sync.Session]:
    with headgate.sync.connect(redis_url, namespace=cleanup_namespace) as client, client.session("t") as session:
        client.apply("slots", kind="limiter", limits={"slots": {"at_once": 2}})
        client.apply("gate", kind="gate", limit=2)
        client.apply("bucket", rate="1/h", burst=8)
        yield session


def test_functions_of_threads_take_what_is_for_threads(threads: headgate.sync.Session) -> None:
    things: dict[str, Any] = {
        "slots": threads.limiter("slots"),
        "size": threads.gate("gate"),
        "tokens": threads.bucket("bucket"),
    }
    for name, thing in things.items():
        meter, terms = Meter(), {"timeout": 60, name: 1}

        @limited(thing, **terms)  # type: ignore[arg-type]  # a timeout and an amount
        def call(number: int, meter: Meter = meter) -> int:
            with meter:
                return number

        with ThreadPoolExecutor(8) as pool:
            assert [*pool.map(call, range(8))] == [*range(8)]
        assert meter.most <= (2 if name != "tokens" else 8)


async def test_what_cannot_be_used_is_refused_at_once(session: headgate.Session) -> None:
    limiter, gate = await session.limiter("slots"), await session.gate("gate")

    def function() -> Any: ...

    async def coroutine() -> Any: ...

    def generator() -> Iterator[int]:
        yield 1

    for on, terms, wrong, named in (
        (limiter, {"slots": 1}, function, "is a headgate.Limiter: use one of headgate.sync.Limiter"),
        (limiter, {}, coroutine, "say what each call takes"),
        (gate, {"slots": 1}, coroutine, "has no amount slots; it takes size="),
        (gate, {"settle": dict}, coroutine, "cannot be settled"),
        ("slots", {"slots": 1}, coroutine, "'slots' is a str: use one of"),
        (session.limiter("slots"), {"slots": 1}, coroutine, "is a coroutine, which nobody awaited"),
        (lambda name: limiter, {"slots": 1}, coroutine, "it takes arguments"),
        (coroutine, {"slots": 1}, coroutine, "it is a coroutine function"),
        (limiter, {"slots": 1}, generator, "is a generator"),
    ):
        with pytest.raises(headgate.InvalidValue, match=named):
            limited(on, **terms)(wrong)  # type: ignore[arg-type]  # that is what is tried
