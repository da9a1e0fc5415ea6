"""Ports of loopback for what starts again where it was before: nobody else takes them in between.

Those that the system gives away are whoever's asks next: of other tests, once a server is killed. Ours lie below them,
a block for each process, which holds it as long as it lives by binding UDP's port of the same number as its first.
"""

import atexit
import functools
import itertools
import os
import socket
from collections.abc import Iterator
from typing import Final

BUS: Final = 10_000
"""The bus of a node of a cluster listens this far above its port."""
_FIRST, _LAST, _BLOCK = 12_000, 22_000, 100  # with buses up to 32,000: Linux gives away those from 32,768
_LOOPBACK: Final = "127.0.0.1"


def own_port() -> int:
    """Return a port at which nobody listens, nor at that of its bus; it comes again when the block has been all round.

    Raises:
        RuntimeError: no block is free, or no port of ours.
    """
    for port in itertools.islice(_ports_of(os.getpid()), _BLOCK):
        if _is_free(port) and _is_free(port + BUS):
            return port
    raise RuntimeError("others listen at all ports of this block")


@functools.cache
def _ports_of(process: int) -> Iterator[int]:
    """Return the ports of a process, for ever; one that was forked gets a block of its own."""
    blocks = range(_FIRST, _LAST, _BLOCK)
    for place in range(len(blocks)):
        first = blocks[(process + place) % len(blocks)]
        lock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            lock.bind((_LOOPBACK, first))
        except OSError:
            lock.close()
            continue
        atexit.register(lock.close)
        return itertools.cycle(range(first, first + _BLOCK))
    raise RuntimeError(f"each block of ports from {_FIRST} to {_LAST} has its process: end some of them")


def _is_free(port: int) -> bool:
    try:
        socket.create_server((_LOOPBACK, port)).close()
    except OSError:
        return False
    return True
