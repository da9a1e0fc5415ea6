"""The socket of a channel: packets out by UDP multicast."""

import asyncio
import contextlib
import socket
from typing import Final

from headgate.core.channel import Channel

BUFFER: Final = 1 << 20


class Multicaster:
    """Sends the packets of one channel.

    Raises:
        OSError: its interface is not one of this host's.
    """

    def __init__(self, channel: Channel) -> None:
        self._to = (channel.group, channel.port)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self._socket.setblocking(False)
            self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, channel.ttl)
            self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
            if channel.interface:
                address = socket.inet_aton(channel.interface)
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
