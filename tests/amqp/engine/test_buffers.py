"""Buffers of the library are small while a connection is at rest."""

import ctypes
from collections.abc import Iterator

import pytest

from headgate.amqp import transport as buffers
from headgate.amqp.transport import LARGE, SMALL
from tests.amqp.pair import Pair

_usable = ctypes.CDLL(None).malloc_usable_size
_usable.restype, _usable.argtypes = ctypes.c_size_t, (ctypes.c_void_p,)


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair()
    yield pair
    pair.free()


def _sizes(pair: Pair) -> list[int]:
    """Return what the allocator has given the buffers of the server's end: out, in, and queued."""
    words = buffers._words(pair.server.engine._transport)
    memory, _ = buffers._queue(words, buffers._AT)
    return [_usable(words[buffers._AT + 2]), _usable(words[buffers._AT + 5]), _usable(memory[0])]


def _rest(pair: Pair) -> None:
    """Have two heartbeats go by, one more than in which something was."""
    for _ in range(2):
        pair.server.engine.tick(1.0)
        pair.talk()


def test_a_new_connection_has_small_ones(pair: Pair) -> None:
    """Mutant: `rest` is not called by a new one."""
    assert buffers._AT
    pair.sender().send(b"small")
    pair.talk()
    assert max(_sizes(pair)) < 2 * SMALL
    assert [body for body, _ in pair.server.messages] == [b"small"]


def test_what_the_library_made_larger_by_itself_is_given_back(pair: Pair) -> None:
    """Mutant: `rest` leaves alone what is not large."""
    pair.sender().send(bytes(SMALL + 200))
    pair.talk()
    assert SMALL < max(_sizes(pair)) < LARGE
    pair.server.engine.tick(1.0)
    assert max(_sizes(pair)) < 2 * SMALL
    assert [len(body) for body, _ in pair.server.messages] == [SMALL + 200]


def test_what_large_messages_need_is_given_back(pair: Pair) -> None:
    """Mutants: a tick makes them small without a rest; it never does."""
    link = pair.sender()
    body = bytes(range(256)) * 8_000
    link.send(body)
    pair.talk()
    assert _sizes(pair)[1] >= LARGE
    pair.server.engine.tick(1.0)
    assert _sizes(pair)[1] >= LARGE, "something was since the last"
    _rest(pair)
    assert max(_sizes(pair)) < 2 * SMALL
    for number in range(40):
        link.send(body[number:])
        pair.talk()
    assert [len(each) for each, _ in pair.server.messages[1:]] == [len(body) - number for number in range(40)]


def test_what_goes_out_is_whole_however_small_they_were(pair: Pair) -> None:
    link = pair.receiver()
    link.set_credit(100)
    pair.talk()
    far = pair.server.links[0]
    bodies = [bytes([number]) * (number * 500) for number in range(1, 60)]
    for body in bodies:
        far.send(body)
    pair.talk()
    assert [body for body, _ in pair.client.messages] == bodies
    assert link.alive
    _rest(pair)
    assert max(_sizes(pair)) < 2 * SMALL


def test_the_first_part_of_a_frame_is_not_thrown_away(pair: Pair) -> None:
    """Mutant: `rest` does not look at what is in them."""
    pair.sender().send(bytes(5_000))
    pieces = b"".join(pair.client.engine.outgoing())
    pair.server.engine.receive(pieces[:3_000])
    for _ in range(3):
        pair.server.engine.tick(1.0)
    pair.server.engine.receive(pieces[3_000:])
    pair.talk()
    assert [len(body) for body, _ in pair.server.messages] == [5_000]


def test_where_the_library_is_another_they_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffers, "_AT", 0)
    pair = Pair()
    pair.sender().send(bytes(50_000))
    pair.talk()
    _rest(pair)
    assert not pair.server.engine._buffers.is_small
    assert [len(body) for body, _ in pair.server.messages] == [50_000]
    pair.free()
