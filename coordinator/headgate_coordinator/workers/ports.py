"""Several processes share a port: the supervisor has it bound and does not listen, its workers listen."""

import contextlib
import socket

from headgate import InvalidValue


class Port:
    """A port is kept while workers come and go; nothing else may have it, not even another node.

    Args:
        host: name or address; all its addresses get the same port.
        port: 0 for any that is free.
        what: it is for, as the error says it.

    Raises:
        InvalidValue: the system has no such sharing, there is no such host, or the port is in use.
    """

    def __init__(self, host: str, port: int, what: str) -> None:
        self._bound: list[socket.socket] = []
        self.number = port
        if not hasattr(socket, "SO_REUSEPORT"):
            raise InvalidValue("this system cannot share a port; start a node without --workers")
        try:
            found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            for family, kind, protocol, _, place in dict.fromkeys(found):
                self._bind(family, kind, protocol, place)
        except OSError as error:
            self.close()
            raise InvalidValue(f"{what} cannot listen on {host}:{port}: {error.strerror}; choose another") from None

    def _bind(self, family: int, kind: int, protocol: int, place: tuple[object, ...]) -> None:
        place = (place[0], self.number, *place[2:])
        if self.number:  # sharing would let two nodes have one port by mistake: look first whether anybody listens
            with contextlib.closing(socket.socket(family, kind, protocol)) as probe:
                _bind(probe, place, shared=False)
        bound = socket.socket(family, kind, protocol)
        self._bound.append(bound)
        _bind(bound, place, shared=True)
        # It had to get past connections that closed a moment ago; from now on it keeps others off, who look as we did.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        self.number = int(bound.getsockname()[1])

    def close(self) -> None:
        """Let it go."""
        for bound in self._bound:
            bound.close()


def _bind(bound: socket.socket, place: tuple[object, ...], *, shared: bool) -> None:
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    if bound.family == socket.AF_INET6:
        bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    bound.bind(place)
