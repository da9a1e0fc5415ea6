"""Qpid Proton's own Python client: blocking, and driven by events in a thread of its own."""

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from proton import Condition, Delivery, Described, Message, Terminus, symbol, ulong
from proton.handlers import MessagingHandler
from proton.reactor import AtMostOnce, Container, Copy, DurableSubscription, Filter, Selector, SenderOption
from proton.utils import BlockingConnection, ConnectionClosed, LinkDetached, SendException, SyncRequestResponse

import headgate
from headgate.core.addresses.pattern import Pattern
from headgate_coordinator.security import Action
from tests.amqp.conftest import StartNode
from tests.amqp.doors.test_users import grant
from tests.amqp.nodes import NodeProcess
from tests.sdk.observing import GUARD, drain, field
from tests.support.waiting import wait_for, wait_until

pytestmark = pytest.mark.one_server


async def blocking(node: NodeProcess, work: Callable[[BlockingConnection], Any], **how: Any) -> Any:
    """Do something with a blocking connection, in a thread."""

    def whole() -> Any:
        connection = BlockingConnection(node.url, timeout=GUARD, **how)
        try:
            return work(connection)
        finally:
            connection.close()

    return await asyncio.to_thread(whole)


async def test_every_part_of_a_message_comes_back(node: NodeProcess) -> None:
    sent = Message(
        body={"a": [1, "two", 3.5]}, id="m-1", subject="s", correlation_id=7, reply_to="r", durable=True, priority=9,
        properties={"n": 1, "text": "ä"}, annotations={"x-opt-a": "b"}, content_type="text/plain", group_id="g",
    )  # fmt: skip

    def work(connection: BlockingConnection) -> Message:
        connection.create_sender("orders").send(sent)
        receiver = connection.create_receiver("orders")
        got = receiver.receive()
        receiver.accept()
        return got

    got = await blocking(node, work)
    parts = (
        "body", "id", "subject", "correlation_id", "reply_to", "durable", "priority", "properties", "content_type",
        "group_id",
    )  # fmt: skip
    assert [getattr(got, part) for part in parts] == [getattr(sent, part) for part in parts]
    assert got.annotations == sent.annotations


async def test_released_comes_again_and_rejected_does_not(node: NodeProcess, client: headgate.Client) -> None:
    await client.apply("orders", dead_letter="dead")

    def work(connection: BlockingConnection) -> list[int]:
        connection.create_sender("orders").send(Message(body="x"))
        receiver: Any = connection.create_receiver("orders", credit=1)
        counts: list[int] = []
        for settle in (lambda: receiver.release(delivered=False), receiver.release, receiver.reject):
            counts.append(receiver.receive().delivery_count)
            settle()
        assert connection.create_receiver("dead").receive().body == "x"
        return counts

    # Proton says `released` of what was not delivered; of what was, `modified`, but not that it failed.
    assert await blocking(node, work) == [0, 0, 0]


async def test_messages_of_the_sdk_and_to_the_sdk(node: NodeProcess, client: headgate.Client) -> None:
    async with client.session("s") as session:
        await (await session.producer("there")).send("hello", headers={"n": 1}, timeout=GUARD)

        def work(connection: BlockingConnection) -> Message:
            connection.create_sender("back").send(Message(body=b"\x00\xff", inferred=True, properties={"n": 2}))
            return connection.create_receiver("there").receive()

        got = await blocking(node, work)
        assert (got.body, got.properties) == ("hello", {"n": 1})
        (message,) = await drain(await session.consumer("back"), 1)
        assert (message.body, message.headers["n"]) == (b"\x00\xff", 2)


async def test_five_megabytes_there_and_back(node: NodeProcess) -> None:
    body = "0123456789abcdef" * (5 << 16)  # text: its bytes are a view of memory that Proton has freed

    def work(connection: BlockingConnection) -> Any:
        connection.create_sender("files").send(Message(body=body))
        return connection.create_receiver("files").receive().body

    assert await blocking(node, work, max_frame_size=8192) == body


async def test_settled_before_it_is_sent(node: NodeProcess, client: headgate.Client) -> None:
    def work(connection: BlockingConnection) -> Any:
        connection.create_sender("orders", options=AtMostOnce()).send(Message(body="x"))
        return connection.create_receiver("orders", options=AtMostOnce()).receive().body

    assert await blocking(node, work) == "x"

    async def gone() -> bool:
        return await field(client, "orders", "pending_messages") == 0

    await wait_until(gone)


async def test_browsing_takes_nothing(node: NodeProcess, client: headgate.Client) -> None:
    def work(connection: BlockingConnection) -> list[Any]:
        sender = connection.create_sender("orders")
        for n in range(3):
            sender.send(Message(body=n))
        browser = connection.create_receiver("orders", credit=10, options=Copy())
        return [browser.receive().body for _ in range(3)]

    assert await blocking(node, work) == [0, 1, 2]
    assert await field(client, "orders", "pending_messages") == 3


async def test_filters_are_refused_by_name(node: NodeProcess, client: headgate.Client) -> None:
    other = Filter({symbol("no-local"): Described(symbol("apache.org:no-local-filter:list"), [])})
    with pytest.raises(LinkDetached, match=r"no-local.*not-implemented|not-implemented.*no-local"):
        await blocking(node, lambda connection: connection.create_receiver("q", options=other))
    await client.apply("q", kind="queue")
    with pytest.raises(LinkDetached, match=r"queue.*selector"):
        await blocking(node, lambda connection: connection.create_receiver("q", options=Selector("colour = 'red'")))
    await client.apply("t", kind="topic")
    with pytest.raises(LinkDetached, match=r"amqp:invalid-field"):
        await blocking(node, lambda connection: connection.create_receiver("t", options=Selector("colour = ")))


@pytest.mark.parametrize("address", ["paint.fresh", "paint.*"])
async def test_a_selector_of_a_topic_uses_no_credit_for_what_it_does_not_match(
    node: NodeProcess, client: headgate.Client, address: str
) -> None:
    await client.apply("paint.fresh", kind="topic")

    def work(connection: BlockingConnection) -> list[Any]:
        receiver: Any = connection.create_receiver(address, credit=1, options=Selector("colour = 'red'"))
        assert receiver.link.remote_source.filter.type is not None
        sender = connection.create_sender("paint.fresh")
        for n in range(60):
            sender.send(Message(body=n, properties={"colour": "red" if n % 20 == 19 else "blue"}))
        got = []
        for _ in range(3):
            got.append(receiver.receive().body)
            receiver.accept()
        receiver.flow(10)
        receiver.drain(0)
        connection.wait(lambda: not receiver.link.credit)
        return got

    assert await blocking(node, work) == [19, 39, 59]

    async def settled() -> bool:
        return await field(client, "paint.fresh", "pending_messages") == 0

    await wait_until(settled, timeout=GUARD)


async def test_a_request_is_answered(node: NodeProcess) -> None:
    def serve(connection: BlockingConnection) -> None:
        requests = connection.create_receiver("sums")
        replies = connection.create_sender(None)
        for _ in range(3):
            request: Any = requests.receive()
            requests.accept()
            replies.send(
                Message(address=request.reply_to, correlation_id=request.correlation_id, body=request.body * 2)
            )

    def ask(connection: BlockingConnection) -> list[Any]:
        asking = SyncRequestResponse(connection, "sums")
        return [asking.call(Message(body=n)).body for n in range(3)]

    _, answers = await asyncio.gather(blocking(node, serve), blocking(node, ask))
    assert answers == [0, 2, 4]


async def test_a_message_that_somebody_had_and_did_not_begin_says_so(node: NodeProcess) -> None:
    def work(connection: BlockingConnection) -> list[tuple[bool, int]]:
        connection.create_sender("orders").send(Message(body="x", first_acquirer=True))
        got = []
        for outcome in (Delivery.RELEASED, Delivery.ACCEPTED):
            receiver: Any = connection.create_receiver("orders")
            message = receiver.receive()
            got.append((message.first_acquirer, message.delivery_count))
            receiver.settle(outcome)
            receiver.close()
        return got

    assert await blocking(node, work) == [(True, 0), (False, 0)]


class OwnTarget(SenderOption):
    """As JMS makes a temporary queue or topic."""

    def __init__(self, kind: str = "temporary-queue") -> None:
        self._kind = kind

    def apply(self, sender: Any) -> None:
        sender.target.dynamic = True
        sender.target.properties.put_dict({symbol("lifetime-policy"): Described(ulong(0x2B), [])})
        sender.target.capabilities.put_object(symbol(self._kind))


async def test_a_sender_has_a_topic_of_its_own_that_goes_with_its_connection(
    start_node: StartNode, client: headgate.Client
) -> None:
    """Its client has a user with one grant of something else; who subscribes to every topic hears nothing of it."""
    loop = asyncio.get_running_loop()
    await grant(client, "maker", Action.PRODUCE, match="sums")
    node = start_node("--plain-without-tls")

    def work(connection: BlockingConnection) -> list[Any]:
        own: Any = connection.create_sender(None, name="creator", options=OwnTarget("temporary-topic"))
        name = own.link.remote_target.address
        subscribers: list[Any] = [connection.create_receiver(name, name=f"s{n}") for n in range(2)]
        own.send(Message(body="to all"))
        got = [subscriber.receive().body for subscriber in subscribers]
        read = asyncio.run_coroutine_threadsafe(
            client._registry.index.topics(client.namespace, Pattern.parse("#")), loop
        )
        got.append(list(read.result(GUARD)))
        connection.close()
        wait_for(lambda: not asyncio.run_coroutine_threadsafe(client.destinations(), loop).result(GUARD), timeout=GUARD)
        return got

    assert await blocking(node, work, user="maker", password="MAKER", allow_insecure_mechs=True) == [
        "to all",
        "to all",
        [],
    ]


@pytest.mark.parametrize("goodbye", ["close", "detach", "connection"])
async def test_a_sender_has_a_queue_of_its_own_for_requests_and_their_answers(
    node: NodeProcess, client: headgate.Client, goodbye: str
) -> None:
    """Mutant: it stays when its link is gone."""
    loop = asyncio.get_running_loop()

    def work(connection: BlockingConnection) -> list[Any]:
        own: Any = connection.create_sender(None, name="creator", options=OwnTarget())
        name = own.link.remote_target.address
        own.send(Message(body="by its maker"))
        other = BlockingConnection(node.url, timeout=GUARD)
        other.create_sender(None).send(Message(address=name, body="over a relay"))
        other.create_sender(name).send(Message(body="by name"))
        answers: Any = connection.create_receiver(name)
        got = [answers.receive().body for _ in range(3)]
        properties = own.link.remote_target.properties
        properties.rewind()
        properties.next()
        lifetime = properties.get_object()["lifetime-policy"].descriptor
        if goodbye == "connection":
            connection.close()
        elif goodbye == "close":
            answers.close()
            own.close()
        else:
            own.link.detach()
            with pytest.raises(LinkDetached, match="amqp:resource-deleted"):
                connection.wait(lambda: False)
        wait_for(lambda: not asyncio.run_coroutine_threadsafe(client.destinations(), loop).result(GUARD), timeout=GUARD)
        with pytest.raises(LinkDetached, match="not-found"):
            other.create_sender(name, name="late")
        other.close()
        return [*got, lifetime]

    assert await blocking(node, work) == ["by its maker", "over a relay", "by name", 0x2B]


class Handler(MessagingHandler):
    """Sends so many, receives as many, and detaches its durable subscription in between."""

    def __init__(self, url: str, count: int) -> None:
        super().__init__(prefetch=10)
        self.url, self.count = url, count
        self.sent = self.accepted = 0
        self.sender: Any = None
        self.guard: Any = None
        self.got: list[Any] = []

    def on_start(self, event: Any) -> None:
        self.connection = event.container.connect(self.url, reconnect=False)
        event.container.create_receiver(self.connection, "news", name="sub", options=[DurableSubscription()])
        self.guard = event.container.schedule(GUARD, self)

    def on_timer_task(self, _: Any) -> None:
        self.connection.close()  # what has not come by now does not

    def on_link_opened(self, event: Any) -> None:
        if event.receiver and not self.sender:  # before, there is no subscription that keeps anything
            self.sender = event.container.create_sender(self.connection, "news")

    def on_sendable(self, event: Any) -> None:
        while event.sender.credit and self.sent < self.count:
            event.sender.send(Message(body=self.sent))
            self.sent += 1

    def on_accepted(self, event: Any) -> None:
        self.accepted += 1

    def on_message(self, event: Any) -> None:
        self.got.append(event.message.body)
        if len(self.got) == self.count:
            self.guard.cancel()  # it would keep the container alive
            event.connection.close()


async def test_events_of_a_durable_subscriber(node: NodeProcess, client: headgate.Client) -> None:
    await client.apply("news", kind="topic")
    handler = Handler(node.url, 100)
    container = Container(handler)
    container.container_id = "reader"
    await asyncio.to_thread(container.run)
    assert handler.got == list(range(100))
    async with client.session("s") as session:
        await (await session.producer("news")).send("meanwhile", timeout=GUARD)
    again = Handler(node.url, 1)
    again.sent = 1
    container = Container(again)
    container.container_id = "reader"
    await asyncio.to_thread(container.run)
    assert again.got[-1] == "meanwhile"


class Transaction(MessagingHandler):
    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url
        self.told = Condition("none")

    def on_start(self, event: Any) -> None:
        self.connection = event.container.connect(self.url, reconnect=False)
        sender = event.container.create_sender(self.connection, None, name="txn")
        sender.target.type = Terminus.COORDINATOR

    def on_link_error(self, event: Any) -> None:
        self.told = event.link.remote_condition
        event.connection.close()


async def test_transactions_are_refused(node: NodeProcess) -> None:
    handler = Transaction(node.url)
    await asyncio.to_thread(Container(handler).run)
    assert handler.told.name == "amqp:not-implemented"
    assert "transactions" in str(handler.told.description)


async def test_what_can_never_fit_is_rejected_and_the_link_goes_on(node: NodeProcess, client: headgate.Client) -> None:
    await client.apply("small", limit=100)

    def work(connection: BlockingConnection) -> tuple[int, int]:
        sender = connection.create_sender("small")
        with pytest.raises(SendException) as refused:
            sender.send(Message(body="x" * 200))
        return refused.value.state, sender.send(Message(body="x")).remote_state

    assert await blocking(node, work) == (Delivery.REJECTED, Delivery.ACCEPTED)


async def test_a_node_that_stops_says_where_another_one_is(start_node: StartNode) -> None:
    """Mutant: `elsewhere` stays None."""
    stopping, other = start_node("--name", "first", "--admin"), start_node("--name", "second")

    def stop_and_hear() -> Any:
        connection = BlockingConnection(f"127.0.0.1:{stopping.port}", timeout=20, reconnect=False)
        wait_for(lambda: "second" in httpx.get(f"{stopping.admin}/api/v1/nodes").text)
        stopping.terminate()
        with pytest.raises(ConnectionClosed):
            connection.wait(lambda: False)
        assert connection.conn is not None
        return connection.conn.remote_condition

    heard = await asyncio.to_thread(stop_and_hear)
    assert heard.name == "amqp:connection:forced"
    assert str(heard.info["network-host"]) == "127.0.0.1"
    assert int(heard.info["port"]) == other.port
    assert f"127.0.0.1:{other.port}" in heard.description
