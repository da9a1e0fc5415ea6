"""LangChain's models wait for a limiter that all processes share.

It is imported in the tests: it takes as long as a tenth of all other imports of the suite, in each process.
"""

import asyncio
from collections.abc import Iterator

import pytest

import headgate
import headgate.sync
from headgate.charge import SyncCharge

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

    limited = LimitedCalls(SyncCharge(session.limiter("llm"), requests=1, timeout=0.01))
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
