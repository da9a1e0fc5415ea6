"""LangChain's models wait for a limiter that all processes share.

It is imported in the tests: it takes as long as a tenth of all other imports of the suite, in each process.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest

import headgate
import headgate.sync
from headgate.charge import SyncCharge
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server


@pytest.fixture
def session(redis_url: str, cleanup_namespace: str) -> Iterator[headgate.sync.Session]:
    with headgate.sync.connect(redis_url, namespace=cleanup_namespace) as client, client.session("llm") as session:
        limits = {"requests": {"rate": "1/h", "burst": 3}, "slots": {"at_once": 2}}
        client.apply("llm", kind="limiter", limits=limits)
        client.apply("gate", kind="gate", limit=2)
        yield session


def test_a_model_calls_as_often_as_it_may(session: headgate.sync.Session) -> None:
    from langchain_core.language_models.fake_chat_models import FakeListChatModel

    from headgate.llm.langchain import LimitedCalls

    with pytest.raises(headgate.InvalidValue, match=r"use a headgate\.charge\.SyncCharge"):
        LimitedCalls(session.limiter("llm"))  # type: ignore[arg-type]  # that is what is tried
    limited = LimitedCalls(SyncCharge(session.limiter("llm"), requests=1, timeout=2))
    model = FakeListChatModel(responses=["yes"], rate_limiter=limited)
    assert model.invoke("?").content == "yes"
    assert asyncio.run(model.ainvoke("?")).content == "yes"
    assert limited.acquire(blocking=False) is True
    assert limited.acquire(blocking=False) is False
    with pytest.raises(headgate.CreditTimeout):
        model.invoke("?")


def test_what_is_held_at_once_cannot_be_limited_so(session: headgate.sync.Session) -> None:
    from headgate.llm.langchain import LimitedCalls

    for charge in (SyncCharge(session.limiter("llm"), slots=1), SyncCharge(session.gate("gate"))):
        with pytest.raises(headgate.InvalidValue, match="LangChain does not say when a call has ended"):
            LimitedCalls(charge).acquire()
    bucket = session.bucket("bucket")
    assert LimitedCalls(SyncCharge(bucket, tokens=1)).acquire() is True


async def test_calls_that_wait_take_no_thread_and_those_that_are_cancelled_leave_the_line(
    session: headgate.sync.Session,
) -> None:
    """Mutant: each waits in a thread of the loop, which goes on waiting and takes what nobody uses."""
    from headgate.llm.langchain import LimitedCalls

    limiter = await asyncio.to_thread(session.limiter, "llm", in_hand=False)
    limited = LimitedCalls(SyncCharge(limiter, requests=1, timeout=600))
    assert [await limited.aacquire() for _ in range(3)] == [True] * 3
    calls = [asyncio.create_task(limited.aacquire()) for _ in range(50)]

    async def waiting() -> int:
        return (await asyncio.to_thread(limiter.state)).waiting

    await wait_until(lambda: _is(waiting, 50), description="they stand in line, and other threads are free")
    for call in calls:
        call.cancel()
    assert {type(error) for error in await asyncio.gather(*calls, return_exceptions=True)} == {asyncio.CancelledError}
    await wait_until(lambda: _is(waiting, 0), description="nobody stands there")
    late = asyncio.create_task(limited.aacquire())
    await wait_until(lambda: _is(waiting, 1))
    await asyncio.to_thread(session.close)
    with pytest.raises(headgate.Closed):
        await late


async def _is(count: Callable[[], Awaitable[int]], expected: int) -> bool:
    return await count() == expected
