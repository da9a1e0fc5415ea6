"""Users of nodes over a master that dies before its replica heard of a change: put back, or as was said since."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

import headgate
from headgate_coordinator.security import Users
from headgate_coordinator.security.document import User
from headgate_coordinator.security.store import UserStore
from tests.faults.traffic import GUARD
from tests.links.forwarding.test_failovers import Pair
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server
HASH = "scrypt$16384$8$1$AAAAAAAAAAAAAAAAAAAAAA==$aLJr313a4S4tKM+skUSPwmGcnRd98oRU1CnCPv6T4/Q="
"""Of `secret`."""


@pytest.fixture
async def nodes(pair: Pair, cleanup_namespace: str) -> AsyncIterator[list[Users]]:
    """Users as two nodes follow them."""
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(pair.proxy)
        nodes = []
        for _ in range(2):
            client = await stack.enter_async_context(headgate.connect(pair.proxy.url, namespace=cleanup_namespace))
            node = Users.from_redis(client)
            await node.start()
            stack.push_async_callback(node.close)
            nodes.append(node)
        yield nodes


async def change(url: str, namespace: str, *came: str, gone: tuple[str, ...] = ()) -> None:
    def edit(users: dict[str, User]) -> None:
        users.update({name: User(password_hash=None if name == "anonymous" else HASH) for name in came})
        for name in gone:
            del users[name]

    async with headgate.connect(url, namespace=namespace) as client:
        await UserStore(client.store.server, namespace).change(edit)


async def stored(url: str, namespace: str) -> set[str]:
    async with headgate.connect(url, namespace=namespace) as client:
        return set((await UserStore(client.store.server, namespace).read()).users)


async def all_know(nodes: list[Users], *names: str) -> None:
    await wait_until(lambda: all(set(node._users) == set(names) for node in nodes), timeout=GUARD)


async def test_users_that_a_failover_lost_are_put_back_and_who_was_removed_stays_so(
    pair: Pair, nodes: list[Users], namespace: str
) -> None:
    await change(pair.primary.url, namespace, "anonymous")
    await all_know(nodes, "anonymous")
    pair.part()
    await change(pair.primary.url, namespace, "eve", gone=("anonymous",))
    await all_know(nodes, "eve")
    pair.fail_over()

    async def back() -> bool:
        return await stored(pair.replica.url, namespace) == {"eve"}

    await wait_until(back, timeout=GUARD)
    assert all(set(node._users) == {"eve"} for node in nodes)


@pytest.mark.parametrize("lost", [1, 3])
async def test_users_that_were_changed_since_a_failover_are_followed_by_all(
    pair: Pair, nodes: list[Users], namespace: str, lost: int
) -> None:
    """Mutant: versions that count changes; then one change looks like the lost one, or three lost ones as newer."""
    await change(pair.primary.url, namespace, "anonymous")
    pair.part()
    for number in range(lost):
        await change(pair.primary.url, namespace, f"lost{number}")
    await all_know(nodes, "anonymous", *(f"lost{number}" for number in range(lost)))
    await change(pair.replica.url, namespace, "eve", gone=("anonymous",))
    pair.fail_over()
    await all_know(nodes, "eve")
    assert await stored(pair.replica.url, namespace) == {"eve"}
