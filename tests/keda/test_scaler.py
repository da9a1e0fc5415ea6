"""The external scaler, asked with gRPC's own client: what it measures, who may ask, and what it refuses."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml

import headgate
from headgate_coordinator.keda import destination_watch as watching
from headgate_coordinator.keda import messages
from headgate_coordinator.keda import scaler as scaling
from headgate_coordinator.keda.scaler import Scaler
from headgate_coordinator.keda.trigger import LONGEST, MOST_KEYS, Trigger
from headgate_coordinator.rpc import LARGEST, RpcServer
from headgate_coordinator.security.acl import acl_line
from tests.remote.grants import B, P, users
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server
REPOSITORY = Path(__file__).resolve().parents[2]


class Keda:
    """Asks as KEDA's own client does, with what a ScaledObject's trigger says."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel

    def _unary(self, name: str, answer: Any) -> Any:
        return self._channel.unary_unary(
            f"/externalscaler.ExternalScaler/{name}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=answer.FromString,
        )

    async def spec(self, **metadata: Any) -> tuple[str, float]:
        (spec,) = (await self._unary("GetMetricSpec", messages.GetMetricSpecResponse)(ref(metadata))).metricSpecs
        assert spec.targetSize >= spec.targetSizeFloat
        return spec.metricName, spec.targetSizeFloat

    async def value(self, **metadata: Any) -> float:
        name, _ = await self.spec(**metadata)
        request = messages.GetMetricsRequest(scaledObjectRef=ref(metadata), metricName=name)
        (value,) = (await self._unary("GetMetrics", messages.GetMetricsResponse)(request)).metricValues
        assert value.metricName == name
        assert value.metricValue >= value.metricValueFloat
        return float(value.metricValueFloat)

    async def active(self, **metadata: Any) -> bool:
        return bool((await self._unary("IsActive", messages.IsActiveResponse)(ref(metadata))).result)

    def stream(self, **metadata: Any) -> Any:
        method = self._channel.unary_stream(
            "/externalscaler.ExternalScaler/StreamIsActive",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=messages.IsActiveResponse.FromString,
        )
        return method(ref(metadata))


def ref(metadata: Mapping[str, Any]) -> Any:
    texts = {"scalerAddress": "headgate:8181", **{key: str(value) for key, value in metadata.items()}}
    return messages.ScaledObjectRef(name="workers", namespace="shop", scalerMetadata=texts)


Open = Callable[..., Awaitable[Keda]]


@contextlib.asynccontextmanager
async def served(client: headgate.Client, people: Any = None, token: str | None = None) -> AsyncIterator[Keda]:
    scaler = Scaler(client, people, token)
    server = RpcServer([scaler.handler], token=token)
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            yield Keda(channel)
    finally:
        scaler.close()
        await server.close()


@pytest.fixture
async def opened(client: headgate.Client) -> AsyncIterator[Open]:
    """Opens scalers, and clients of them."""
    async with contextlib.AsyncExitStack() as stack:

        async def one(people: Any = None, token: str | None = None) -> Keda:
            return await stack.enter_async_context(served(client, people, token))

        yield one


@contextlib.contextmanager
def refused(code: grpc.StatusCode, word: str = "") -> Any:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        yield
    assert caught.value.code() is code
    assert word in str(caught.value.details())


def test_messages_are_those_of_the_protocol() -> None:
    """Bytes as another implementation writes them."""
    known = b"\x0a\x07workers\x12\x04shop\x1a\x0b\x0a\x06target\x12\x015"
    read = messages.ScaledObjectRef.FromString(known)
    assert (read.name, read.namespace, dict(read.scalerMetadata)) == ("workers", "shop", {"target": "5"})
    value = {"metricName": "m", "metricValue": 3, "metricValueFloat": 2.5}
    encoded = messages.GetMetricsResponse(metricValues=[value]).SerializeToString()
    assert encoded == b"\x0a\x0e\x0a\x01m\x10\x03\x19\x00\x00\x00\x00\x00\x00\x04\x40"


async def test_a_backlog_is_measured_in_messages_and_in_bytes(client: headgate.Client, opened: Open) -> None:
    """Mutants: messages for bytes; what is delivered and not settled does not count; activation not looked at."""
    keda = await opened()
    async with client.session() as session:
        producer = await session.producer("orders/eu")
        for _ in range(6):
            await producer.send(b"x" * 100)
        consumer = await session.consumer("orders/eu")
        message = await consumer.receive(timeout=30)
        assert message
        await message.accept()
        await consumer.receive(timeout=30)
        orders = {"destination": "orders/eu", "target": "2"}
        await wait_until(lambda: _is(keda, 5, orders), timeout=60, description="one is settled")
        assert await keda.spec(**orders) == ("headgate-messages-orders-eu", 2.0)
        assert await keda.active(**orders)
        assert await keda.active(**orders, activation="4")
        assert not await keda.active(**orders, activation="5")
        in_bytes = orders | {"metric": "bytes", "target": "1KiB"}
        assert await keda.spec(**in_bytes) == ("headgate-bytes-orders-eu", 1024.0)
        assert await keda.value(**in_bytes) >= 500
        with refused(grpc.StatusCode.FAILED_PRECONDITION, "no destination 'nothing'"):
            await keda.value(destination="nothing", target=1)


async def test_what_waits_for_its_time_is_work_once_that_has_come(client: headgate.Client, opened: Open) -> None:
    """Mutants: all that is pending; all that is noted as later, also when nobody has looked since it was due."""
    keda = await opened()
    orders = {"destination": "orders", "target": "1"}
    async with client.session() as session:
        producer = await session.producer("orders")
        for delay in (0, 2, 3600, 3600):
            await producer.send(b"x", delay=delay)
        assert await keda.value(**orders) in (1, 2), "the second is due soon, or already"
        await wait_until(lambda: _is(keda, 2, orders), timeout=60, description="nobody is there who would look")
        assert await keda.value(**orders, metric="bytes") > 0
        consumer = await session.consumer("orders")
        for _ in range(2):
            message = await consumer.receive(timeout=30)
            assert message
            await message.accept(confirm=True)
        assert await keda.active(**orders) is False


async def _is(keda: Keda, value: float, metadata: dict[str, Any]) -> bool:
    return await keda.value(**metadata) == value


async def test_whoever_waits_at_a_limiter_or_a_gate_is_measured(client: headgate.Client, opened: Open) -> None:
    keda = await opened()
    await client.apply("llm", kind="limiter", limits={"slots": {"at_once": 1}})
    await client.apply("gate", kind="gate", limit=1)
    async with client.session() as session:
        limiter, gate = await session.limiter("llm", in_hand=False), await session.gate("gate")
        async with limiter.admit(slots=1), gate.admit(1):
            line = [asyncio.create_task(_pass(limiter.admit(slots=1, timeout=300))) for _ in range(3)]
            line.append(asyncio.create_task(_pass(gate.admit(1, timeout=300))))
            llm = {"destination": "llm", "metric": "waiting", "target": "1"}
            await wait_until(lambda: _is(keda, 3, llm), timeout=60, description="three wait")
            await wait_until(lambda: _is(keda, 1, llm | {"destination": "gate"}), timeout=60, description="one waits")
            with refused(grpc.StatusCode.INVALID_ARGUMENT, "is a limiter, which has no messages"):
                await keda.value(destination="llm", target=1)
        await asyncio.gather(*line)
        await wait_until(lambda: _is(keda, 0, llm), timeout=60, description="nobody waits")


async def _pass(admission: Any) -> None:
    async with admission:
        pass


async def test_there_are_no_more_workers_than_a_limit_lets_work(client: headgate.Client, opened: Open) -> None:
    """Mutants: the limit itself for the metric; a rate's burst for its rate."""
    keda = await opened()
    limits = {"slots": {"at_once": 7}, "calls": {"rate": "30/min", "burst": 100}, "daily": {"quota": "5/day"}}
    await client.apply("llm", kind="limiter", limits=limits)
    await client.apply("gate", kind="gate", limit="64MiB")
    await client.apply("bucket", kind="bucket", rate="3/s")
    await client.apply("open", kind="gate", limit="unlimited")
    async with client.session() as session:
        producer = await session.producer("orders")
        for _ in range(50):
            await producer.send(b"x")
    orders = {"destination": "orders", "target": 5}
    for within, value in (
        ({"within": "llm", "limit": "slots", "each": 2}, 15),  # three workers of two slots, five messages for each
        ({"within": "llm", "limit": "slots"}, 35),
        ({"within": "llm", "limit": "calls", "each": 0.1}, 25),  # half a call a second
        ({"within": "gate", "each": "16MiB"}, 20),
        ({"within": "bucket"}, 15),
        ({"within": "open"}, 50),
        ({"within": "llm", "limit": "slots", "each": 0.1}, 50),
        ({}, 50),
    ):
        assert await keda.value(**orders, **within) == value, within
    for wrong, word in (
        ({"within": "llm"}, "slots, calls"),
        ({"within": "llm", "limit": "daily"}, "daily"),
        ({"within": "gate", "limit": "slots"}, "is a gate"),
        ({"within": "orders"}, "is a queue"),
    ):
        with refused(grpc.StatusCode.INVALID_ARGUMENT, word):
            await keda.value(**orders, **wrong)


async def test_a_stream_says_at_once_and_at_each_change_whether_there_is_work(
    client: headgate.Client, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scaling, "MOST_STREAMS", 2)
    monkeypatch.setattr(watching, "AGAIN_AFTER", 3600)  # nothing comes of looking now and then
    keda = await opened()
    await client.apply("orders")
    orders = {"destination": "orders", "target": "1"}
    first, second = keda.stream(**orders), keda.stream(**orders)
    for stream in (first, second):
        assert (await stream.read()).result is False
    with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "2 streams"):
        await keda.stream(**orders).read()
    second.cancel()
    async with client.session() as session:
        await (await session.producer("orders")).send(b"x")
        assert (await first.read()).result is True
        message = await (await session.consumer("orders")).receive(timeout=30)
        assert message
        await message.accept()
        assert (await first.read()).result is False

    async def another() -> bool:
        with contextlib.suppress(grpc.aio.AioRpcError):
            return (await keda.stream(**orders).read()).result is False
        return False

    await wait_until(another, timeout=60, description="a stream that was given up makes room for another")
    await client.remove("orders")
    with refused(grpc.StatusCode.FAILED_PRECONDITION, "orders"):
        await first.read()


async def test_streams_of_one_user_or_of_a_stranger_leave_room_for_others(
    client: headgate.Client, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutants: a user has all there are; a stream counts before it is known who asks."""
    monkeypatch.setattr(scaling, "MOST_STREAMS", 3)
    monkeypatch.setattr(scaling, "MOST_OF_ONE", 2)
    people: Any = users(ann={"orders": {B}}, bob={"orders": {B}})
    keda = await opened(people)
    await client.apply("orders")
    checked = asyncio.Event()
    right = people.authenticate

    async def slow(name: str, password: str, **more: Any) -> Any:
        if password != "secret":
            await checked.wait()
        return await right(name, password, **more)

    monkeypatch.setattr(people, "authenticate", slow)
    orders = {"destination": "orders", "target": "1"}
    guesses = [asyncio.ensure_future(keda.stream(**orders, user="eve", password="guess").read()) for _ in range(9)]
    streams = [keda.stream(**orders, user="ann", password="secret") for _ in range(2)]
    for stream in streams:
        assert (await stream.read()).result is False
    with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "2 of yours"):
        await keda.stream(**orders, user="ann", password="secret").read()
    assert (await keda.stream(**orders, user="bob", password="secret").read()).result is False
    checked.set()
    for answer in await asyncio.gather(*guesses, return_exceptions=True):
        assert isinstance(answer, grpc.aio.AioRpcError)
        assert answer.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_a_stream_hears_of_what_is_due_of_who_waits_and_of_what_came_while_redis_hung_up(
    client: headgate.Client, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutants: no look when a message is due; none after the connection is gone; changes not asked for once more."""
    monkeypatch.setattr(watching, "AGAIN_AFTER", 3600)
    keda = await opened()
    await client.apply("orders")
    await client.apply("gate", kind="gate", limit=1)
    orders = keda.stream(destination="orders", target=1)
    line = keda.stream(destination="gate", metric="waiting", target=1)
    assert [(await stream.read()).result for stream in (orders, line)] == [False, False]
    async with client.session() as session:
        gate = await session.gate("gate")
        async with gate.admit(1):
            waiting = asyncio.create_task(_pass(gate.admit(1, timeout=300)))
            assert (await line.read()).result is True
        await waiting
        assert (await line.read()).result is False
        await (await session.producer("orders")).send(b"x", delay=1.5)
        assert (await orders.read()).result is True
        async for connection in _told(client):
            await connection
        message = await (await session.consumer("orders")).receive(timeout=30)
        assert message
        await message.accept()
        assert (await orders.read()).result is False


async def test_a_stream_hears_of_each_slice_of_a_queue(
    cluster_url: str, cleanup_namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutants: only the first slice is followed, or all at one server; those that come later are not."""
    monkeypatch.setattr(watching, "AGAIN_AFTER", 3600)
    async with headgate.connect(cluster_url, namespace=cleanup_namespace) as client, served(client) as keda:
        await client.apply("orders")
        stream = keda.stream(destination="orders", target=1)
        assert (await stream.read()).result is False
        await client.apply("orders", slices=3)
        for number in range(3):
            async with client.session() as session:
                receipt = await (await session.producer("orders")).send(b"x")
                assert receipt.slice == number
                assert (await stream.read()).result is True
                assert await keda.value(destination="orders", target=1) == 1
            assert await client.purge("orders") == 1
            assert (await stream.read()).result is False
        stream.cancel()


async def _told(client: headgate.Client) -> AsyncIterator[Awaitable[Any]]:
    """Give, for each connection that has changes told, what ends it."""
    async with await client.store.server.subscriber() as server:  # type: ignore[attr-defined]
        for one in await server.client_list():
            if "t" in one["flags"]:
                yield server.client_kill_filter(_id=one["id"])


async def test_a_node_s_user_has_changes_told_and_one_who_may_not_looks_now_and_then(
    client: headgate.Client, url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Mutants: the role without the right; who may not ends the stream, or looks as seldom as who is told."""
    monkeypatch.setattr(watching, "AGAIN_AFTER", 3600)
    monkeypatch.setattr(watching, "UNTOLD", 0.05)
    rights = acl_line("node", client.namespace, password="secret").split()[2:]
    await client.apply("orders")
    async with await client.store.server.subscriber() as admin, client.session() as session:  # type: ignore[attr-defined]
        for words, told in ((rights, True), ([*rights, "-client|tracking"], False)):
            await admin.execute_command("ACL", "SETUSER", "keda", "reset", *words)
            try:
                async with (
                    headgate.connect(url.replace("//", "//keda:secret@", 1), namespace=client.namespace) as node,
                    served(node) as keda,
                ):
                    stream = keda.stream(destination="orders", target=1)
                    assert (await stream.read()).result is False
                    await (await session.producer("orders")).send(b"x")
                    assert (await stream.read()).result is True
                    stream.cancel()
                message = await (await session.consumer("orders")).receive(timeout=30)
                assert message
                await message.accept(confirm=True)
            finally:
                await admin.execute_command("ACL", "DELUSER", "keda")
            assert ("KEDA learns of work" in caplog.text) is not told


async def test_users_measure_what_they_may_browse_and_the_token_measures_all(
    client: headgate.Client, opened: Open
) -> None:
    """Mutants: PRODUCE for BROWSE; the limiter's name not asked for; a grant that was taken away still counts."""
    people: Any = users(worker={"orders": {B}, "llm": {P}})
    keda = await opened(people, "t0ken")
    await client.apply("orders")
    await client.apply("llm", kind="limiter", limits={"slots": {"at_once": 7}})
    orders: dict[str, Any] = {"destination": "orders", "target": 1}
    worker = {"userFromEnv": "worker", "passwordFromEnv": "secret"}
    for right in (worker, {"user": "worker", "password": "secret"}, {"token": "t0ken"}, {"tokenFromEnv": "t0ken"}):
        assert await keda.active(**orders, **right) is False
    for wrong in (
        {},
        {"user": "worker"},
        worker | {"passwordFromEnv": "no"},
        {"token": "no"},
        worker | {"token": "no"},
    ):
        for ask in (keda.active, keda.spec):
            with refused(grpc.StatusCode.UNAUTHENTICATED, "passwordFromEnv"):
                await ask(**orders, **wrong)
    for elsewhere in ({"destination": "llm", "metric": "waiting"}, {"within": "llm"}):
        with refused(grpc.StatusCode.PERMISSION_DENIED, "'worker' may not browse at 'llm'"):
            await keda.value(**orders | elsewhere | worker)
    stream = keda.stream(**orders, **worker)
    assert (await stream.read()).result is False
    people.may("worker", {"orders": {P}})
    with refused(grpc.StatusCode.PERMISSION_DENIED, "browse"):
        await stream.read()


def test_what_is_shown_can_be_used() -> None:
    shown = (REPOSITORY / "docs" / "doors.md").read_text(encoding="utf-8")
    block = next(block for block in re.findall(r"```yaml\n(.*?)```", shown, re.DOTALL) if "scalerAddress" in block)
    deployed = yaml.safe_load((REPOSITORY / "deploy" / "keda.yaml").read_text(encoding="utf-8"))["spec"]
    for trigger in (*yaml.safe_load(block)["triggers"], *deployed["triggers"]):
        assert Trigger.read(trigger["metadata"]) == Trigger("orders", "messages", 100.0, 0.0, "llm", "in_flight", 2.0)


def test_what_keda_reads_of_the_metadata_itself_is_no_mistake() -> None:
    """All of it comes along: https://keda.sh/docs/latest/scalers/external/."""
    own = dict.fromkeys(("scalerAddress", "caCert", "tlsClientCert", "tlsClientKey", "tlsCertFile"), "/path")
    own |= {"enableTLS": "true", "unsafeSsl": "false"}
    assert Trigger.read({"destination": "orders", "target": "1"} | own).destination == "orders"


async def test_metadata_is_bounded_and_each_mistake_is_named(opened: Open) -> None:
    keda = await opened()
    right: dict[str, Any] = {"destination": "orders", "target": 1}
    cases: list[tuple[dict[str, Any], str]] = [
        ({"target": 1}, "destination: it is missing"),
        ({"destination": "orders"}, "target: it is missing"),
        (right | {"target": 0}, "target: it is 0"),
        (right | {"target": "nan"}, "target"),
        (right | {"target": "many"}, "target"),
        (right | {"activation": "-1"}, "activation"),
        (right | {"metric": "lag"}, "metric: 'lag' is not one of messages, bytes, waiting"),
        (right | {"queue": "orders"}, "queue: it is not one of destination"),
        (right | {"limit": "slots"}, "limit: it belongs to a limiter"),
        (right | {"destination": "a\0b"}, "a"),
        (right | {"destination": "x" * (LONGEST + 1)}, "metadata"),
        (right | {f"k{number}": 1 for number in range(MOST_KEYS)}, "metadata"),
    ]
    for metadata, word in cases:
        with refused(grpc.StatusCode.INVALID_ARGUMENT, word):
            await keda.active(**metadata)
    with refused(grpc.StatusCode.RESOURCE_EXHAUSTED):
        await keda.active(**right, within="x" * LARGEST)
    name = Trigger.read({"destination": "ä/b:c" * 40, "target": "1"}).name
    assert name.replace("-", "").isalnum()
    assert len(name) < 140
