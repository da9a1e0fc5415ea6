"""The address of workers: nobody else may have it, and clients of one that stops are sent there or elsewhere."""

import socket
from contextlib import closing
from typing import Any

import pytest

from headgate import InvalidValue
from headgate_coordinator.fleet.registry import NodeEntry
from headgate_coordinator.service.service import another
from headgate_coordinator.workers.ports import Port


class Registry:
    def __init__(self, *addresses: str) -> None:
        self._entries = [
            NodeEntry(str(number), address, "", 0.0, "ready", 0, 0, 0.0) for number, address in enumerate(addresses)
        ]

    async def list(self) -> list[NodeEntry]:
        return self._entries


class Stopping:
    id = "0"
    address = "here:5672"

    def __init__(self, *, address_ends: bool) -> None:
        self.address_ends = address_ends


@pytest.mark.parametrize(
    ("addresses", "ends", "found"),
    [
        (("here:5672",), False, None),
        (("here:5672", "here:5672"), False, ("here", 5672)),
        (("here:5672", "here:5672"), True, None),
        (("here:5672", "here:5672", "there:5673"), True, ("there", 5673)),
        (("here:5672", "[::1]:5673"), True, ("::1", 5673)),
    ],
)
async def test_clients_come_back_to_an_address_only_while_others_serve_it(
    addresses: tuple[str, ...], ends: bool, found: Any
) -> None:
    """Mutant: workers that all stop send their clients to each other."""
    stopping: Any = Stopping(address_ends=ends)
    registry: Any = Registry(*addresses)
    assert await another(stopping, registry) == found


def test_nobody_gets_its_port_before_its_workers_listen_either() -> None:
    """Mutant: two that start at the same time with one port both serve there, and each has some of the clients."""
    with closing(Port("127.0.0.1", 0, "AMQP")) as port:
        with pytest.raises(InvalidValue, match="Address already in use"):
            Port("127.0.0.1", port.number, "AMQP")
        with pytest.raises(OSError, match="already in use"), closing(socket.create_server(("127.0.0.1", port.number))):
            pass
        for _ in range(2):
            worker = socket.create_server(("127.0.0.1", port.number), reuse_port=True)
            worker.close()


@pytest.mark.parametrize("shared", [False, True])
def test_its_port_may_have_connections_that_closed_a_moment_ago(shared: bool) -> None:
    """Mutant: it is kept off by those of a node that was there before, for a minute."""
    with closing(socket.create_server(("127.0.0.1", 0), reuse_port=shared)) as before:
        number = before.getsockname()[1]
        with closing(socket.create_connection(("127.0.0.1", number))) as client:
            before.accept()[0].close()
            assert client.recv(1) == b""
    Port("127.0.0.1", number, "AMQP").close()
