"""Buffers of the library are small while a connection is at rest."""

import ctypes
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from headgate.amqp import transport as buffers
from headgate.amqp.link import Link, Terminus
from headgate.amqp.proton import ffi, lib
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
        for end in (pair.server, pair.client):
            end.engine.tick(1.0)
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


def _rooms(pair: Pair) -> tuple[list[int], list[list[int]]]:
    """Return for how many entries there is room in the server's tables of channels, and in those of each session."""

    def rooms(owner: object, places: tuple[int, ...]) -> list[int]:
        words = buffers._words(owner)
        return [ffi.cast("uintptr_t *", words[at])[buffers._ROOM] for at in places]

    engine = pair.server.engine
    of_transport, of_session = buffers._TABLES
    return rooms(engine._transport, of_transport), [rooms(one, of_session) for one in engine._kept.sessions]


def test_tables_have_room_for_one_until_there_are_more(pair: Pair) -> None:
    """Mutants: those of a transport, or of a session that either side begins, are left as the library makes them."""
    pair.sender()
    assert _rooms(pair) == ([1, 1], [[1, 1, 1, 1]])
    assert {_usable(entries) for entries in _entries(pair)} == {_usable(_entries(pair)[0])}
    pair.sender("another")
    assert _rooms(pair) == ([4, 4], [[1, 1, 1, 1]] * 2)
    client = {lib.pn_link_session(raw) for raw in pair.client.engine.links}
    words = [buffers._words(one) for one in client]
    assert [ffi.cast("uintptr_t *", each[at])[3] for each in words for at in buffers._TABLES[1]] == [1] * 8


def _entries(pair: Pair) -> list[int]:
    words = buffers._words(pair.server.engine._transport)
    return [ffi.cast("uintptr_t *", words[at])[buffers._ENTRIES] for at in buffers._TABLES[0]]


def _begin(pair: Pair, session: object, name: str) -> Link:
    link = pair.client.engine.attach(session, name, receives=False)
    link.accept(Terminus("here"), Terminus("orders"))
    return link


def test_what_is_in_a_table_stays_in_it(pair: Pair) -> None:
    """Mutants: a table of few entries is left large; it is made small though one is not at the place of its number."""
    session = pair.client.engine.session()
    first, second, third = (_begin(pair, session, name) for name in "abc")
    pair.talk()  # the session and its links came together
    assert _rooms(pair)[1] == [[1, 1, 4, 4]]
    first.close()
    second.close()
    pair.talk()
    _rest(pair)
    third.send(b"the third")
    _begin(pair, session, "d").send(b"too early")
    pair.talk()
    _begin(pair, session, "e")
    pair.talk()
    assert [body for body, _ in pair.server.messages] == [b"the third", b"too early"]
    assert [link.name for link in pair.server.links] == list("abcde")
    assert not pair.server.over


def test_many_sessions_links_and_deliveries_go_through_tables_that_were_small(pair: Pair) -> None:
    links = [pair.sender(f"s{number}") for number in range(40)]
    pair.server.accepts = False
    for number in range(300):
        links[number % 40].send(bytes([number % 256]) * 9)
    session = lib.pn_link_session(links[0].raw)
    beside = [_begin(pair, session, f"b{number}") for number in range(20)]
    pair.talk()
    for link in beside:
        link.send(b"beside")
    pair.talk()
    assert len(pair.server.messages) == 320
    for link in links[::2]:
        link.close()
    pair.talk()
    for link in (*links[1::2], *beside):
        link.send(b"again")
    pair.talk()
    assert len(pair.server.messages) == 360
    assert len(pair.server.links) == 60
    assert not pair.server.over


def test_what_many_deliveries_took_is_given_back(pair: Pair) -> None:
    """Mutants: a rest leaves tables alone; it makes one small in which something is."""
    link = pair.sender()
    pair.server.credit, pair.server.accepts = 500, False
    pair.server.links[0].set_credit(500)
    pair.talk()
    for _ in range(400):
        link.send(b"held")
    pair.talk()
    _rest(pair)
    assert _rooms(pair)[1][0][0] >= 400, "they are not settled"
    deliveries = [delivery for _, delivery in pair.server.messages]
    for delivery in deliveries[:-1]:
        pair.server.links[0].settle(delivery)
    pair.talk()
    _rest(pair)
    assert _rooms(pair)[1][0][0] >= 400, "one is not settled"
    pair.server.links[0].settle(deliveries[-1])
    pair.talk()
    _rest(pair)
    assert _rooms(pair)[1] == [[1, 1, 1, 1]]
    assert len(pair.client.outcomes) == 400
    for _ in range(90):
        link.send(b"again")
    pair.talk()
    assert len(pair.server.messages) == 490


def test_deliveries_are_found_in_a_table_in_which_few_are_left(pair: Pair) -> None:
    """Mutant: an entry is taken to be at the place of its number, whatever its number is."""
    link, held = pair.sender(), dict[int, object]()
    pair.server.accepts = False

    def settle(numbers: Iterable[int]) -> None:
        for number in numbers:
            pair.server.links[0].settle(held.pop(number))
        pair.talk()

    for count, keep in ((9, {5, 6, 7, 8}), (6, {13, 14})):  # of 13 places these have the first two
        for _ in range(count):
            link.send(b"held")
        pair.talk()
        held |= {
            number: delivery for number, (_, delivery) in enumerate(pair.server.messages) if number >= 9 or count == 9
        }
        settle(held.keys() - keep)
    _rest(pair)
    settle({13, 14})
    _rest(pair)
    assert _rooms(pair)[1] == [[1, 1, 1, 1]], "each outcome found its delivery"


def test_where_the_library_is_another_its_tables_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffers, "_TABLES", ((), ()))
    pair = Pair()
    pair.sender().send(b"as it makes them")
    pair.talk()
    _rest(pair)
    assert [body for body, _ in pair.server.messages] == [b"as it makes them"]
    pair.free()


@pytest.mark.parametrize("odd", ["another room", "one more", "no memory to look at"])
def test_tables_are_not_touched_where_anything_differs(odd: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: what is found is taken for what is meant, whatever it is."""
    if odd == "another room":
        monkeypatch.setattr(buffers, "_NEW_TABLE", (32, 27, 0))
    elif odd == "one more":
        found = buffers._tables
        monkeypatch.setattr(buffers, "_tables", lambda *where: [*found(*where), 60])
    else:
        monkeypatch.setattr(buffers, "Path", lambda _: Path("/nowhere/mem"))
    assert buffers._found_tables() == ((), ())


def test_where_the_library_is_another_they_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffers, "_AT", 0)
    pair = Pair()
    pair.sender().send(bytes(50_000))
    pair.talk()
    _rest(pair)
    assert not pair.server.engine._buffers.is_small
    assert [len(body) for body, _ in pair.server.messages] == [50_000]
    pair.free()
