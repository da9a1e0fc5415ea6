"""The place where clients of a node that stops are sent to."""

from typing import Any

import pytest

from headgate_coordinator.fleet.registry import NodeEntry
from headgate_coordinator.service.service import another


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
