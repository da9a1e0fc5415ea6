"""What a connection does with a peer that reads slowly, or not at all."""

import asyncio

import pytest

from headgate.amqp import wire
from headgate.amqp.engine import Engine
from headgate.amqp.limits import Limits
from headgate.amqp.sasl import SaslServer
from tests.amqp.connecting import Socket
from tests.amqp.pair import Notes
from tests.amqp.raw import HEADER, begin, opening


class Slow(Socket):
    """A transport whose peer reads nothing."""

    reads = True
    ended = False

    def get_write_buffer_size(self) -> int:
        return self.written

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.ended = True

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True


class Side(Notes, wire.Wire):
    def __init__(self) -> None:
        Notes.__init__(self)
        wire.Wire.__init__(self, SaslServer(["ANONYMOUS"]), handshake=60)

    def make_engine(self) -> Engine:
        return Engine(self, server=True, container="node", limits=Limits())

    def identified(self) -> None:
        self.sasl.decide(0)  # type: ignore[union-attr]
        self.secure()


@pytest.fixture
async def sides() -> tuple[Side, Slow]:
    side, socket = Side(), Slow()
    side.connection_made(socket)
    return side, socket


async def test_nothing_more_is_read_from_a_peer_that_does_not_read(sides: tuple[Side, Slow]) -> None:
    side, socket = sides
    side.data_received(opening())
    socket.written = wire.MOST_AHEAD + 1
    side.data_received(begin())
    side.flush()
    assert socket.reads, "it was never told to wait"
    side.pause_writing()
    side.data_received(begin(1))
    side.flush()
    assert not socket.reads
    side.resume_writing()
    assert socket.reads
    side.connection_lost(None)


async def test_after_the_last_word_the_socket_is_closed_whatever_the_peer_does(
    sides: tuple[Side, Slow], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "LINGER", 0.01)
    side, socket = sides
    side.data_received(HEADER)
    side.data_received(b"\xff" * 100)
    side.flush()
    assert (socket.ended, socket.closed) == (True, False), "closed at once, it would take back what was said"
    before = socket.written
    side.data_received(begin())
    side.flush()
    assert socket.written == before
    while not socket.closed:  # noqa: ASYNC110 -- nothing tells
        await asyncio.sleep(0.001)
    side.connection_lost(None)
