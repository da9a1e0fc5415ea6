"""Every door that takes passwords counts who comes over many connections, from one address, as one."""

import asyncio
import base64
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from starlette.datastructures import Headers

import headgate
from headgate_coordinator.admin.authentication import Authenticator
from headgate_coordinator.keda.authentication import Authenticator as CallersOfKeda
from headgate_coordinator.rpc import peer_of
from headgate_coordinator.security import Users
from headgate_coordinator.security.document import User
from headgate_coordinator.security.password_queue import AT_A_TIME, NOBODY, network_of
from headgate_coordinator.security.passwords import hashed

CONNECTIONS = 60
Ask = Callable[[str, str, str], Awaitable[object]]


class People:
    """Two users that never change."""

    async def read(self) -> dict[str, User]:
        return {name: User(password_hash=hashed(name), grants=[]) for name in ("ann", "bob")}

    async def follow(self, _take: Any) -> None:
        pass

    async def close(self) -> None:
        pass


class Context:
    """What gRPC says of who asks."""

    def __init__(self, peer: str) -> None:
        self._peer = peer

    def peer(self) -> str:
        return self._peer


def over_http(users: Users, _client: headgate.Client) -> Ask:
    callers = Authenticator(users, "token")

    async def ask(name: str, password: str, place: str) -> object:
        host, _, port = place.rpartition(":")
        word = base64.b64encode(f"{name}:{password}".encode()).decode()
        return await callers.identify(Headers({"authorization": f"Basic {word}"}), (host, int(port)))

    return ask


def over_grpc(users: Users, client: headgate.Client) -> Ask:
    callers = CallersOfKeda(users, "token", lambda _: None)

    async def ask(name: str, password: str, place: str) -> object:
        host, _, port = place.rpartition(":")
        said = f"ipv6:%5B{host}%5D:{port}" if ":" in host else f"ipv4:{place}"
        return await callers.identify({"user": name, "password": password}, peer_of(Context(said)))

    return ask


async def _ask(ask: Ask, name: str, password: str, place: str) -> object:
    return await ask(name, password, place)


def test_a_network_is_an_address_or_what_one_subscriber_has_of_ipv6() -> None:
    for place, network in (
        ("10.0.0.1:4000", "10.0.0.1"),
        ("fd00::1:4000", "fd00::/64"),
        ("[fd00::2]:4000", "fd00::/64"),
        ("fe80::1%eth0:4000", "fe80::/64"),
    ):
        assert network_of(place) == network, place
    for said, network in (
        ("ipv4:10.0.0.1:4000", "10.0.0.1"),
        ("ipv6:%5Bfd00::1%5D:4000", "fd00::/64"),
        ("ipv6:[fd00::1]:4000", "fd00::/64"),
        ("unix:", NOBODY),
        ("", NOBODY),
    ):
        assert peer_of(Context(said)) == network, said


@pytest.mark.one_server
@pytest.mark.parametrize("host", ["10.0.0.1", "fd00::1"])
@pytest.mark.parametrize("door", [over_http, over_grpc])
async def test_one_who_comes_over_many_connections_waits_in_one_group(
    redis_url: str, cleanup_namespace: str, door: Callable[[Users, headgate.Client], Ask], host: str
) -> None:
    """Breaks where a door counts ports: then each connection has a turn of its own, and others wait for all of them."""
    users = Users(People())
    await users.start()
    begun: list[str] = []
    go = asyncio.Event()

    async def check(password: str, _known: str) -> bool:
        begun.append(password)
        await go.wait()
        return False

    users._line._check = check
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
        ask = door(users, client)
    tasks = [asyncio.create_task(_ask(ask, "ann", f"wrong {port}", f"{host}:{port}")) for port in range(CONNECTIONS)]
    tasks.append(asyncio.create_task(_ask(ask, "bob", "bob", f"{host}:9")))
    for _ in range(5):
        await asyncio.sleep(0)
    assert begun == ["wrong 0", "bob"], f"{AT_A_TIME} at a time, and of each group one"
    go.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    await users.close()
