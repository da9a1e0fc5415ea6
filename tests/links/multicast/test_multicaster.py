"""The socket of a channel: which interface it sends by."""

import pytest

from headgate.core.links.channel import Channel
from headgate_coordinator.links.multicast_socket import Multicaster, address_in
from tests.links.channels import LOOPBACK, Group
from tests.support.waiting import wait_until


@pytest.mark.parametrize("interface", [LOOPBACK, "127.0.0.0/8", "127.0.0.0/30", "127.0.0.1/32"])
def test_an_interface_is_named_by_its_address_or_its_network(interface: str) -> None:
    assert address_in(interface) == LOOPBACK


def test_a_network_that_this_host_is_not_in_is_refused() -> None:
    with pytest.raises(OSError, match=r"has no interface in|unreachable"):
        address_in("203.0.113.0/24")


async def test_what_is_sent_by_a_network_is_received_there() -> None:
    group = Group()
    channel = Channel("quotes", ("prices",), group.address, group.port, interface="127.0.0.0/8")
    sender = Multicaster(channel)
    async with group.reader() as reader:
        await sender.send(b"anything")
        await wait_until(lambda: reader.refused == 1)
    sender.close()
