"""Who may do what over AMQP: users of the node, their grants, and what happens when those change."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest
from proton import ConnectionException, Message, Timeout
from proton.utils import BlockingConnection, LinkDetached, SendException

from headgate import Client
from headgate_coordinator.security.document import GrantTable, User
from headgate_coordinator.security.grants import Action
from headgate_coordinator.security.passwords import hashed
from headgate_coordinator.security.store import UserStore
from tests.amqp.conftest import StartNode
from tests.amqp.nodes import NodeProcess

T = TypeVar("T")


async def grant(client: Client, name: str, *actions: Action, match: str = "#", most: int | None = None) -> None:
    """Let a user of the namespace do that, and nothing else; the password is the name in capitals."""
    grants = [GrantTable(actions=list(actions), match=match)] if actions else []
    user = User(password_hash=hashed(name.upper()), grants=grants, max_connections=most)
    await UserStore(client.store.server, client.namespace).change(lambda users: users.update({name: user}))


async def dismiss(client: Client, name: str) -> None:
    def without(users: dict[str, User]) -> None:
        del users[name]

    await UserStore(client.store.server, client.namespace).change(without)


@pytest.fixture
def plain_node(start_node: StartNode) -> NodeProcess:
    return start_node("--plain-without-tls")


@pytest.fixture
def call() -> Iterator[Callable[..., object]]:
    """Proton blocks, so its connections are made and used in threads; they are closed after the test."""
    connections: list[BlockingConnection] = []

    def connect(node: NodeProcess, user: str | None, password: str | None = None) -> BlockingConnection:
        secret = password if password is not None else (user or "").upper()
        login: dict[str, Any] = {"user": user, "password": secret, "allow_insecure_mechs": True} if user else {}
        connections.append(BlockingConnection(f"127.0.0.1:{node.port}", timeout=60, reconnect=False, **login))
        return connections[-1]

    yield connect
    for connection in connections:
        connection.close()


async def there(work: Callable[..., T], *args: object, **options: object) -> T:
    """Do something of Proton's in a thread.

    The loop holds no result of it, which it would let go of after the next call has begun: Proton's objects belong to
    one thread at a time, the end of them too.
    """
    found: list[T] = []
    await asyncio.to_thread(lambda: found.append(work(*args, **options)))
    return found.pop()


async def test_while_there_are_no_users_everybody_may_come(
    plain_node: NodeProcess, call: Callable[..., object]
) -> None:
    connection = await there(call, plain_node, None)
    sender = await there(connection.create_sender, "orders")  # type: ignore[attr-defined]
    await there(sender.send, Message(body="x"))


async def test_nobody_comes_without_a_name_once_there_are_users(
    client: Client, plain_node: NodeProcess, call: Callable[..., object]
) -> None:
    """Mutant: `anonymous()` always answers."""
    await grant(client, "ann", Action.PRODUCE)
    with pytest.raises(ConnectionException):
        await there(call, plain_node, None)


async def test_a_wrong_password_is_refused(
    client: Client, plain_node: NodeProcess, call: Callable[..., object]
) -> None:
    await grant(client, "ann", Action.PRODUCE)
    for user, password in (("ann", "wrong"), ("nobody", "NOBODY"), ("ann", "")):
        with pytest.raises(ConnectionException):
            await there(call, plain_node, user, password)
    assert "wrong" not in plain_node.errors


@pytest.mark.one_server
@pytest.mark.parametrize("action", list(Action))
async def test_each_action_is_granted_by_itself(
    client: Client, plain_node: NodeProcess, call: Callable[..., object], action: Action
) -> None:
    """Mutant: `may` is true for any action."""
    await client.apply("orders", kind="queue")
    await grant(client, "ann", action, match="orders")
    connection = await there(call, plain_node, "ann")
    opening = {
        Action.PRODUCE: connection.create_sender,  # type: ignore[attr-defined]
        Action.CONSUME: connection.create_receiver,  # type: ignore[attr-defined]
    }
    for needed, opens in opening.items():
        if needed is action:
            await there(opens, "orders")
            with pytest.raises(LinkDetached, match="unauthorized-access"):
                await there(opens, "other")
        else:
            with pytest.raises(LinkDetached, match=f"may not {needed.value} at 'orders'"):
                await there(opens, "orders")


async def test_a_user_who_is_gone_is_shown_out(
    client: Client, plain_node: NodeProcess, call: Callable[..., object]
) -> None:
    """Mutant: `dismiss` does nothing."""
    await grant(client, "ann", Action.PRODUCE, Action.CONSUME)
    await grant(client, "bob", Action.PRODUCE)
    connection = await there(call, plain_node, "ann")
    receiver = await there(connection.create_receiver, "orders")  # type: ignore[attr-defined]
    await dismiss(client, "ann")
    with pytest.raises((ConnectionException, LinkDetached)):
        await there(receiver.receive, timeout=60)
    with pytest.raises(ConnectionException):
        await there(call, plain_node, "ann")


async def test_a_user_has_at_most_so_many_connections(
    client: Client, plain_node: NodeProcess, call: Callable[..., object]
) -> None:
    """Mutant: `has_too_many` is never true."""
    await grant(client, "ann", Action.PRODUCE, most=1)
    await there(call, plain_node, "ann")
    with pytest.raises(ConnectionException):
        await there(call, plain_node, "ann")


async def test_a_relay_asks_for_each_message(
    client: Client, plain_node: NodeProcess, call: Callable[..., object]
) -> None:
    await grant(client, "ann", Action.PRODUCE, match="orders")
    connection = await there(call, plain_node, "ann")
    sender = await there(connection.create_sender, None)  # type: ignore[attr-defined]
    await there(sender.send, Message(address="orders", body="x"))
    with pytest.raises(SendException):
        await there(sender.send, Message(address="other", body="x"))


async def test_passwords_need_tls_unless_the_node_is_told_otherwise(
    client: Client, node: NodeProcess, call: Callable[..., object]
) -> None:
    await grant(client, "ann", Action.PRODUCE)
    with pytest.raises((ConnectionException, Timeout)):
        await there(call, node, "ann")


async def test_a_node_at_which_nobody_can_sign_in_says_so(start_node: StartNode, client: Client) -> None:
    await grant(client, "ann", Action.CONSUME)
    assert "nobody can sign in" in start_node().errors
    assert "nobody can sign in" not in start_node("--plain-without-tls").errors
