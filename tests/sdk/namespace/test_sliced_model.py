"""A queue, or a topic with one subscription, over slots beside plain lists: nothing is lost, repeated or overtaken."""

import asyncio
from collections import defaultdict
from contextlib import AsyncExitStack
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headgate
from headgate.message import encode
from headgate.redis.keys import PoolAddress
from headgate.redis.stores.pools import PoolStore
from tests.sdk.observing import GUARD
from tests.support.extent import WHOLE
from tests.support.leaks import delete_namespace

pytestmark = pytest.mark.one_server
LIMIT = 1000
ACTIONS = st.one_of(
    st.just(("open",)),
    st.tuples(st.just("send"), st.integers(0, 9), st.integers(1, 400)),
    st.tuples(st.just("send"), st.integers(0, 9), st.integers(1, 400)),
    st.tuples(st.just("send"), st.integers(0, 9), st.integers(1, 400)),
    st.tuples(st.just("receive"), st.integers(1, 4)),
    st.tuples(st.just("slices"), st.sampled_from([1, 2, 3, 7, 12])),
    st.tuples(st.just("close"), st.integers(0, 9)),
)


class Model:
    """A list for each session, of what it sent and nobody has had."""

    def __init__(self) -> None:
        self.sent: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self.next = 0

    @property
    def pending(self) -> int:
        return sum(size for sent in self.sent.values() for _, size in sent)

    def take(self, message: headgate.Message) -> None:
        name, _, number = str(message.body).partition(" ")
        assert self.sent[name].pop(0) == (int(number), message.size), "each session's in order, each once"


class Run:
    def __init__(self, client: headgate.Client, stack: AsyncExitStack) -> None:
        self.client, self.stack = client, stack
        self.model = Model()
        self.sessions: list[tuple[headgate.Session, headgate.Producer]] = []

    async def begin(self, kind: str) -> None:
        await self.client.apply("orders", kind=kind, limit=LIMIT)
        into = await self.stack.enter_async_context(self.client.session("in"))
        self.consumer = await into.consumer("orders", window=3, kind=kind)
        await self.open()

    async def open(self) -> None:
        session = await self.stack.enter_async_context(self.client.session())
        self.sessions.append((session, await session.producer("orders", window=100)))

    async def send(self, index: int, size: int) -> None:
        session, producer = self.sessions[index % len(self.sessions)]
        self.model.next += 1
        body = f"{session.id} {self.model.next}".ljust(size)
        if self.model.pending + len(encode(body, None)) > LIMIT:
            with pytest.raises(headgate.CreditTimeout):
                await producer.send(body, timeout=0.05)
        else:  # whatever others hold and do not use
            receipt = await producer.send(body, timeout=GUARD)
            self.model.sent[session.id].append((self.model.next, receipt.size))

    async def receive(self, count: int) -> None:
        for _ in range(count if self.model.pending else 0):
            if not self.model.pending:
                return
            message = await self.consumer.receive(timeout=GUARD)
            assert message is not None, "it waits beside what is there"
            await message.accept(confirm=True)
            self.model.take(message)

    async def act(self, action: tuple[Any, ...]) -> None:
        match action:
            case ("open",):
                await self.open()
            case ("send", index, size):
                await self.send(index, size)
            case ("receive", count):
                await self.receive(count)
            case ("slices", count):
                await self.client.apply("orders", slices=count)
            case ("close", index) if len(self.sessions) > 1:
                session, _ = self.sessions.pop(index % len(self.sessions))
                await session.close()

    async def check(self) -> None:
        told = (await self.client.explain("orders")).limits[0]
        assert told.pending == self.model.pending
        fields = await PoolStore(self.client.store.server).fields(PoolAddress.of(self.client.namespace, "orders#0"))
        assert int(fields.get("peak_bytes", 0)) <= LIMIT

    async def end(self) -> None:
        await self.receive(1 << 20)
        assert self.model.pending == 0
        await self.check()
        assert (await self.client.recount("orders")).equal


async def live(url: str, namespace: str, kind: str, actions: list[tuple[Any, ...]]) -> None:
    async with headgate.connect(url, namespace=namespace) as client:
        try:
            async with AsyncExitStack() as stack:
                run = Run(client, stack)
                await run.begin(kind)
                for action in actions:
                    await run.act(action)
                    await run.check()
                await run.end()
        finally:
            await client.remove("orders")


@settings(deadline=None, max_examples=60 if WHOLE else 4, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kind=st.sampled_from(["queue", "topic"]), actions=st.lists(ACTIONS, min_size=8, max_size=25))
def test_slices_are_what_a_list_for_each_session_is(
    redis_url: str, cleanup_namespace: str, kind: str, actions: list[tuple[Any, ...]]
) -> None:
    namespace = f"{cleanup_namespace}-{kind}"
    asyncio.run(live(redis_url, namespace, kind, actions))
    delete_namespace(redis_url, namespace)  # a call that was cut off may have made a slice once more
