"""The socket of a channel sends packets out by UDP multicast."""

import asyncio
import contextlib
import errno
import ipaddress
import socket
from typing import Final

from headgate.core.links.channel import Channel

BUFFER: Final = 1 << 20
DISCARD: Final = 9
"""A port, of any host."""


def address_in(interface: str) -> str:
    """Return the address of this host's interface: itself, or, of a network, the one that is in it.

    Raises:
        OSError: this host has none in that network.
    """
    if "/" not in interface:
        return interface
    network = ipaddress.IPv4Network(interface)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:  # nothing is sent: it only looks for the way
        probe.connect((str(next(iter(network.hosts()))), DISCARD))
        found: str = probe.getsockname()[0]
    if ipaddress.IPv4Address(found) not in network:
        raise OSError(errno.EADDRNOTAVAIL, f"this host has no interface in {interface}")
    return found


class Multicaster:
    """A multicaster sends the packets of one channel.

    Raises:
        OSError: its interface is none of this host's.
    """

    def __init__(self, channel: Channel) -> None:
        self._to = (channel.group, channel.port)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self._socket.setblocking(False)
            self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, channel.ttl)
            self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
            if channel.interface:
                address = socket.inet_aton(address_in(channel.interface))
                self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, address)
            with contextlib.suppress(OSError):
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
        except BaseException:
            self._socket.close()
            raise

    async def send(self, packet: bytes) -> None:
        """Send a packet; waits while the system takes none.

        Raises:
            OSError: there is no way to the group, or the packet is larger than the way.
        """
        try:
            self._socket.sendto(packet, self._to)
        except BlockingIOError:
            await asyncio.get_running_loop().sock_sendto(self._socket, packet, self._to)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
