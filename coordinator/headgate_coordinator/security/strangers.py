"""Strangers at a library's port are cut off: there may be only so many, and the largest crowd goes first."""

import asyncio
import contextlib
import ipaddress
import os
import socket
import stat
import time
from collections import defaultdict
from typing import Final
from urllib.parse import unquote

from headgate_coordinator.security.password_queue import Network, network_of

MOST: Final = 256
"""Connections of strangers; of more, the oldest of the network that has most is cut off."""
EVERY: Final = 0.1
"""Seconds between two looks at all connections of the process, if these take little time:"""
PART: Final = 50
"""between two looks pass so many times what one takes."""
_FILES: Final = next((path for path in ("/proc/self/fd", "/dev/fd") if os.path.isdir(path)), "")  # noqa: PTH112 -- many at a time
Place = tuple[str, int]


class UnauthenticatedConnections:
    """This watch cuts off connections at a port, when they are too many, from which nobody came who is known.

    The library that reads them says nothing of a connection before there is a request. So they are found among the
    open files of the process, and one is shut as its peer would do.
    """

    def __init__(self) -> None:
        self._known: dict[str, Place] = {}
        self._since: dict[Place, int] = {}

    def know(self, peer: str) -> None:
        """Keep the connection of somebody who is known, as gRPC calls it, for as long as it lasts."""
        if peer not in self._known:
            family, _, place = unquote(peer).partition(":")
            if family in ("ipv4", "ipv6"):
                host, _, port = place.rpartition(":")
                self._known[peer] = _place(host.strip("[]"), int(port))

    async def watch(self, port: int) -> None:
        """Look after a port, until cancelled."""
        while _FILES:
            took = await asyncio.to_thread(self.look, port)
            await asyncio.sleep(max(EVERY, PART * took))

    def look(self, port: int) -> float:
        """Cut off those that are too many; returns how long it took, in seconds."""
        began = time.perf_counter()
        with contextlib.ExitStack() as stack:
            there = {place: stack.enter_context(one) for place, one in _connections(port)}
            number = max(self._since.values(), default=0) + 1
            self._since = {place: self._since.get(place, number) for place in there}
            self._known = {peer: place for peer, place in self._known.copy().items() if place in there}
            known = set(self._known.values())
            crowds: defaultdict[Network, list[Place]] = defaultdict(list)
            for place in sorted(there.keys() - known, key=self._since.__getitem__, reverse=True):
                crowds[network_of(f"[{place[0]}]:0")].append(place)
            for _ in range(sum(map(len, crowds.values())) - MOST):
                oldest = max(crowds.values(), key=len).pop()
                with contextlib.suppress(OSError):
                    there[oldest].shutdown(socket.SHUT_RDWR)
        return time.perf_counter() - began


def _connections(port: int) -> list[tuple[Place, socket.socket]]:
    """Return the connections of this process at a port of its own, by where they come from."""
    found = []
    for name in os.listdir(_FILES):  # noqa: PTH208 -- there may be ten thousand
        with contextlib.suppress(OSError):  # it was closed meanwhile
            if stat.S_ISSOCK(os.stat(int(name)).st_mode):  # noqa: PTH116 -- an open file
                # A copy, so that it stays what it is while it is looked at and shut.
                one = socket.socket(socket.AF_INET6, socket.SOCK_STREAM, fileno=os.dup(int(name)))
                if place := _peer(one, port):
                    found.append((place, one))
                else:
                    one.close()
    return found


def _peer(one: socket.socket, port: int) -> Place | None:
    """Return where a connection at that port comes from; None where it is none."""
    with contextlib.suppress(OSError):
        own = one.getsockname()
        if isinstance(own, tuple) and own[1] == port:
            host, its, *_ = one.getpeername()
            return _place(host, its)
    return None


def _place(host: str, port: int) -> Place:
    address = ipaddress.ip_address(host.partition("%")[0])
    return str(getattr(address, "ipv4_mapped", None) or address), port
