"""Peers that do what the protocol forbids: the library bears less than it says; the engine stands in between."""

from collections.abc import Iterator

import pytest

from headgate.amqp.engine import Engine
from headgate.amqp.limits import Limits
from headgate.amqp.proton import lib
from tests.amqp import raw
from tests.amqp.pair import Notes, Pair
from tests.amqp.raw import (
    HEADER,
    NULL,
    attach,
    begin,
    described,
    detach,
    frame,
    nothings,
    opening,
    text,
    transfer,
)

SMALL = Limits(links=10, message=100_000, unfinished=150_000, described=20_000, sessions=4)


@pytest.fixture
def notes() -> Iterator[Notes]:
    """A server of which nothing is known but its limits, opened and with one session."""
    notes = Notes()
    notes.engine = Engine(notes, server=True, container="a-server", limits=SMALL)
    notes.engine.receive(opening() + begin())
    notes.engine.outgoing()
    yield notes
    notes.engine.free()


def test_a_transfer_from_a_receiver_ends_the_connection_instead_of_the_process(notes: Notes) -> None:
    """The library takes it for one of ours, and crashes some messages later."""
    notes.engine.receive(attach("r", 0, receives=True))
    link = notes.links[0]
    notes.engine.receive(transfer(0, 1, b"mine") + transfer(0, 2, b"mine"))
    assert notes.over == [("amqp:illegal-state", "a transfer over link 'r', sent by that link's receiver")]
    assert (link.alive, link.credit, notes.gone) == (False, 0, [link])
    notes.engine.receive(attach("other", 1, receives=True))
    assert notes.links == [link], "nothing more is listened to"
    assert b"amqp:illegal-state" in b"".join(notes.engine.outgoing())
    assert notes.engine.ended


def test_a_receiver_that_made_a_transfer_has_no_credit_even_before_that_is_noticed(notes: Notes) -> None:
    notes.engine.receive(attach("r", 0, receives=True))
    link = notes.links[0]
    lib.pn_link_flow(link.raw, 0)
    seen: list[int] = []
    notes.flowed = lambda link: seen.append(link.credit)  # type: ignore[method-assign]
    flow = frame(0x13, [b"\x43", b"\x60\x10\x00", b"\x43", b"\x60\x10\x00", b"\x43", b"\x43", b"\x52\x09"])
    notes.engine.receive(flow)
    assert seen == [9]
    notes.engine.receive(flow + transfer(0, 1, b"mine"))
    assert seen == [9, 0], "both frames are with the library before the first is told"


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ([text("a"), *[NULL] * 4, nothings(9000)], []),
        ([text("a"), *[NULL] * 8, nothings(9000)], []),
        ([text("a"), *[NULL] * 9, nothings(9000)], []),
        ([text("a")], [text("b"), *[NULL] * 4, nothings(9000)]),
        ([text("a" * 9000)], []),
    ],
    ids=["properties", "outcomes", "capabilities", "target's properties", "address"],
)
def test_all_that_describes_links_is_counted(notes: Notes, source: list[bytes], target: list[bytes]) -> None:
    fields = [b"\x41", NULL, NULL, described(0x28, source), described(0x29, target)]
    for count in range(3):
        notes.engine.receive(frame(0x12, [text(f"r{count}"), raw.number(count), *fields]))
    assert notes.over[0][0] == "amqp:resource-limit-exceeded"


@pytest.mark.parametrize(
    ("said", "condition"),
    [
        (frame(0x19, []), "amqp:decode-error"),
        (b"\0\0\0\x0e\x02\0\0\0\0S\x11\xa1\x01x", "amqp:decode-error"),
        (b"\0\0\0\x0b\x02\0\0\0\xa1\x01x", "amqp:decode-error"),
        (b"\0\0\0\x1b\x02\0\0\0\0\xa3\x0famqp:begin:list\x45", "amqp:decode-error"),
    ],
    ids=["unknown performative", "no list", "not described", "symbolic"],
)
def test_a_frame_that_the_library_drops_ends_the_connection(notes: Notes, said: bytes, condition: str) -> None:
    notes.engine.receive(said)
    assert [told for told, _ in notes.over] == [condition]
    assert condition.encode() in b"".join(notes.engine.outgoing())
    assert notes.engine.ended


def test_a_session_before_the_connection_is_open_ends_it() -> None:
    notes = Notes()
    notes.engine = Engine(notes, server=True, container="a-server", limits=SMALL)
    notes.engine.receive(HEADER + begin())
    assert notes.over[0][0] == "amqp:connection:framing-error"
    assert b"amqp:connection:framing-error" in b"".join(notes.engine.outgoing())
    notes.engine.free()


def test_what_comes_over_a_link_that_we_have_closed_is_not_kept(notes: Notes) -> None:
    notes.engine.receive(attach("s", 0))
    link = notes.links[0]
    session = lib.pn_link_session(link.raw)
    link.close("amqp:internal-error", "enough")
    for number in range(20):
        notes.engine.receive(transfer(0, number, b"x" * 1000, more=number == 19))
    assert notes.messages == []
    assert lib.pn_session_incoming_bytes(session) == 0


def test_links_that_were_refused_and_never_detached_end_the_connection(notes: Notes) -> None:
    for number in range(20):
        notes.engine.receive(attach(f"s{number}", number))
    assert len(notes.links) == 10
    assert notes.over == []
    notes.engine.receive(attach("more", 20))
    assert [condition for condition, _ in notes.over] == ["amqp:resource-limit-exceeded"]


def test_links_may_come_and_go_for_ever(notes: Notes) -> None:
    for number in range(500):
        notes.engine.receive(attach(f"s{number}", 0) + detach(0))
        notes.engine.outgoing()
    assert notes.over == []
    assert len(notes.gone) == 500


def test_descriptions_that_would_fill_the_memory_end_the_connection(notes: Notes) -> None:
    for number in range(3):
        notes.engine.receive(attach(f"r{number}", number, receives=True, filters=nothings(9000)))
    assert len(notes.links) == 2
    assert [condition for condition, _ in notes.over] == ["amqp:resource-limit-exceeded"]


def test_many_messages_begun_and_none_finished_cost_the_link_that_is_too_much(notes: Notes) -> None:
    for number in range(3):
        notes.engine.receive(attach(f"s{number}", number))
        notes.engine.receive(transfer(number, number, b"x" * 60_000, more=True))
    assert [link.name for link in notes.gone] == ["s2"]
    assert [bytes(link.partial[:1]) for link in notes.links] == [b"x", b"x", b""]
    notes.engine.receive(transfer(0, 0, b"end"))
    assert len(notes.messages) == 1
    notes.engine.receive(attach("s3", 3) + transfer(3, 3, b"x" * 60_000, more=True))
    assert len(notes.gone) == 1, "there is room again"


def test_what_is_asked_of_a_freed_engine_is_answered() -> None:
    pair = Pair()
    link = pair.sender()
    far = pair.server.links[0]
    pair.free()
    assert (pair.server.engine.peer, pair.server.engine.is_open) == ("", False)
    assert (link.credit, far.credit) == (0, 0)
    far.set_credit(5)
    far.accept(far.source, far.target)
    far.refuse("amqp:not-found", "late")
    far.drained()


def test_sessions_that_end_faster_than_it_is_answered_end_the_connection_with_a_word() -> None:
    """Without a channel to answer on the library falls silent, and takes kilobytes for each. Mutant: no count."""
    pair = Pair(limits=Limits(sessions=64))
    said = b"".join(raw.begin(channel) for channel in range(63)) + (raw.begin(63) + raw.end(63)) * 5000
    pair.server.engine.receive(said)
    assert pair.server.over == [("amqp:resource-limit-exceeded", "more than 64 sessions, including those ending")]
    assert b"amqp:resource-limit-exceeded" in b"".join(pair.server.engine.outgoing())
    pair.free()
