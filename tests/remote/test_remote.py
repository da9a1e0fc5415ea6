"""A client of nodes: its URL, its connection, and what it shares with clients on Redis."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

import headgate
import headgate.sync
from headgate import CoordinatorUnavailable, InvalidValue
from headgate.amqp.remote import ANSWER_WITHIN, NodeBackend
from headgate.amqp.url import parse_url
from headgate.backends import place_of
from headgate.core.account.late_copies import COME_WITHIN
from headgate.redis.call_line import CALL_TIMEOUT
from headgate.redis.keys import Address
from headgate_coordinator.node.connection_share import SENDS
from headgate_coordinator.node.gateway.replies import Replies
from headgate_coordinator.node.node import Node
from tests.remote.node_process import NodeProcess
from tests.sdk.observing import GUARD, counts, drain
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server
SECRET = "hunter2"


def backend(client: headgate.Client) -> NodeBackend:
    server = client.store.server
    assert isinstance(server, NodeBackend)
    return server


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("amqp://a", "amqp://a:5672"),
        ("amqps://a,b:1", "amqps://a:5671,b:1"),
        ("amqp://[::1]:7,b", "amqp://[::1]:7,b:5672"),
        (f"amqp://me:{SECRET}@a,b", "amqp://me:***@a:5672,b:5672"),
        ("amqp://me@a?consumer_window=pull", "amqp://me@a:5672"),
    ],
)
def test_every_form_of_url_is_said_back_without_its_secret(url: str, said: str) -> None:
    assert str(parse_url(url)) == place_of(url).text == said
    assert SECRET not in repr(parse_url(url))


@pytest.mark.parametrize(
    ("url", "wrong"),
    [
        ("amqp://", "host"),
        ("amqp://a:x", "port"),
        ("amqp://a,,b", "host"),
        ("amqp://a/shop", "namespace"),
        ("amqp://a?db=1", "'db' is unknown"),
        ("amqp://a?ca_file=x", "amqps"),
        (f"amqp://:{SECRET}@a", "needs a user"),
        ("amqp://a?consumer_window=0", "consumer_window"),
        ("amqp://me@a?password_file=/not/there", "cannot be read"),
        ("amqps://a?ca_file=/not/there", "cannot be used"),
    ],
)
def test_what_is_wrong_with_a_url_is_said_without_its_secret(url: str, wrong: str) -> None:
    with pytest.raises(InvalidValue, match=wrong) as caught:
        place_of(url).backend()
    assert SECRET not in str(caught.value)


def test_a_password_can_be_kept_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    assert parse_url(f"amqp://me@a?password_file={tmp_path}/secret").password == SECRET


def test_without_the_extra_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "import sys; sys.modules['cproton_ffi'] = None; import headgate, asyncio\n"
        "try: asyncio.run(headgate.connect('amqp://127.0.0.1:1').__aenter__())\n"
        "except headgate.HeadgateError as error: print(error)"
    )
    paths = {"PYTHONPATH": str(Path(headgate.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", code], env=paths, capture_output=True, text=True, check=True)
    assert "headgate[amqp]" in done.stdout, done.stderr


async def test_clients_through_a_node_and_on_redis_share_one_limit(
    client: headgate.Client, redis_url: str, cleanup_namespace: str
) -> None:
    await client.apply("orders", limit=500)
    async with (
        headgate.connect(redis_url, namespace=cleanup_namespace) as direct,
        client.session("far") as far,
        direct.session("near") as near,
    ):
        producers = [await far.producer("orders", window=100), await near.producer("orders", window=100)]
        sends = [producer.send("x" * 80, timeout=GUARD) for _ in range(10) for producer in producers]
        sending = asyncio.ensure_future(asyncio.gather(*sends))
        pending, leased = await counts(direct, "orders")
        assert pending + leased <= 500
        consumers = [await far.consumer("orders", window="pull"), await near.consumer("orders", window="pull")]
        await asyncio.gather(*(drain(consumer, 10) for consumer in consumers))
        assert len(await sending) == 20


@pytest.mark.parametrize("size", [1 << 16, (1 << 20) + 1, pytest.param(20 << 20, marks=pytest.mark.whole)])
async def test_messages_of_any_size_go_there_and_back(client: headgate.Client, size: int) -> None:
    bodies = [bytes([n]) * size for n in range(3)]
    async with client.session("s") as session:
        producer, consumer = await session.producer("orders", window="100MiB"), await session.consumer("orders")
        await asyncio.gather(*(producer.send(body, timeout=GUARD) for body in bodies))
        assert [message.body for message in await drain(consumer, 3)] == bodies


@pytest.mark.usefixtures("patient")
async def test_calls_of_one_turn_go_in_one_message(client: headgate.Client, node: Node) -> None:
    await client.apply("orders", limit=10)
    (gateway,) = [end for connection in node.connections for end in connection.ends.values() if end.link.receives]
    before = gateway.messages
    await asyncio.gather(*(client.explain("orders") for _ in range(100)))
    assert gateway.messages - before <= 20


@pytest.mark.usefixtures("patient")
async def test_who_does_not_read_the_answers_does_not_grow_the_node(
    client: headgate.Client, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutant: `await self._replies.room()` is left out."""
    monkeypatch.setattr("headgate.amqp.nodelink.GIVE_UP_AFTER", 10**6)
    size, calls = 200_000, 200
    async with client.session("s") as session:
        await (await session.producer("orders")).send(b"x" * size)
    (replies,) = [end for c in node.connections for end in c.ends.values() if isinstance(end, Replies)]
    server = backend(client)
    assert server._link
    key = Address.of(client.namespace, "orders").shared[4]
    words = ["XRANGE", key, "-", "+", "COUNT", 10]
    server._link._transport.pause_reading()
    seen: list[int] = []

    def full() -> bool:
        """Whether it has as much as it will have: nothing came during twenty looks."""
        seen.append(replies.waiting_bytes)
        return seen[-1] > SENDS.ahead and seen[-20:] == [seen[-1]] * 20

    reading = [asyncio.ensure_future(server._ask("command", key, words, within=GUARD)) for _ in range(calls)]
    await wait_until(full)
    assert seen[-1] <= SENDS.ahead + (SENDS.at_once + 1) * (size + 1000)
    server._link._transport.resume_reading()
    assert [len(entries) for entries in await asyncio.gather(*reading)] == [1] * calls
    assert replies.waiting_bytes == 0


async def test_a_lost_connection_is_replaced_and_calls_do_not_notice(client: headgate.Client) -> None:
    await client.apply("orders", limit=10)
    for _ in range(5):
        link = backend(client)._link
        assert link
        asked = asyncio.gather(*(client.explain("orders") for _ in range(20)))
        await asyncio.sleep(0)
        link.abort()
        assert {explanation.state for explanation in await asked} == {"open"}


async def test_a_node_gives_a_call_up_before_its_client_does_and_makes_none_once_no_copy_comes(node: Node) -> None:
    """A client counts on both. Mutant: calls stand in line as long as in a process of their own."""
    server = node.client.store.server
    assert server.line_timeout < ANSWER_WITHIN
    assert server.line_timeout + CALL_TIMEOUT < COME_WITHIN


async def test_what_is_under_way_when_the_client_closes_ends_at_once(node: Node, cleanup_namespace: str) -> None:
    client = await headgate.connect(f"amqp://{node.address}", namespace=cleanup_namespace)
    link = backend(client)._link
    assert link
    link._transport.pause_reading()
    asked = asyncio.ensure_future(client.explain("orders"))
    await asyncio.sleep(0)
    await client.close()
    with pytest.raises(headgate.HeadgateError):
        await asked


async def test_what_is_no_node_is_named(redis_url: str) -> None:
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ready\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(CoordinatorUnavailable, match=rf"127.0.0.1:{port}: the node answers with a protocol other"):
            await headgate.connect(f"amqp://127.0.0.1:{port}")


def test_threads_come_through_nodes_too(redis_url: str, cleanup_namespace: str) -> None:
    with (
        NodeProcess(redis_url, cleanup_namespace) as node,
        headgate.sync.connect(f"amqp://{node.address}", namespace=cleanup_namespace) as client,
        client.session("s") as session,
    ):
        producer, consumer = session.producer("orders"), session.consumer("orders")
        assert producer.send("text", headers={"tenant": "a"}, timeout=5).seq == 1
        message = consumer.receive(timeout=GUARD)
        assert message is not None
        assert (message.body, message.headers) == ("text", {"tenant": "a"})
        message.accept(confirm=True)
        with session.gate("gate").admit(5):
            pass
        assert client.recount("orders").equal
