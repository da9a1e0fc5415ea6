from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest

from headgate.amqp.engine import Engine
from headgate.amqp.limits import Limits
from headgate.amqp.link import Outcome, Terminus
from headgate.amqp.proton import delivery_tag, ffi, lib
from tests.amqp.pair import Notes, Pair


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair()
    yield pair
    pair.free()


def test_both_sides_know_each_other(pair: Pair) -> None:
    assert pair.client.engine.is_open
    assert pair.server.engine.peer == "a-client"
    assert pair.client.engine.peer == "a-server"


@pytest.mark.parametrize("size", [0, 1, 65_000, 65_536, 200_000, 5_000_000])
def test_a_message_of_any_size_arrives_whole(pair: Pair, size: int) -> None:
    body = bytes(i & 255 for i in range(1024)) * (size // 1024) + b"x" * (size % 1024)
    pair.sender().send(body)
    pair.talk()
    assert pair.server.messages[0][0] == body
    assert pair.client.outcomes == [("accepted", "")]


def test_credit_is_counted_and_can_be_taken_back(pair: Pair) -> None:
    pair.server.credit = 10
    link = pair.sender()
    assert link.credit == 10
    for _ in range(4):
        link.send(b"m")
    pair.talk()
    far = pair.server.links[0]
    assert (link.credit, far.credit) == (6, 6)
    far.set_credit(0)
    pair.talk()
    assert link.credit == 0


def _tag(delivery: Any) -> bytes:
    tag = lib.pn_delivery_tag(delivery)
    return bytes(ffi.unpack(tag.start, tag.size))


def test_deliveries_that_are_open_keep_tags_of_their_own(pair: Pair) -> None:
    other = Pair()
    pair.server.accepts = other.server.accepts = False
    links = pair.sender(), other.sender()
    sent = [(link, link.send(b"m")) for _ in range(50) for link in links]
    pair.talk()
    other.talk()
    for link, notes in zip(links, (pair.server, other.server), strict=True):
        tags = [_tag(delivery) for its, delivery in sent if its is link]
        assert len(set(tags)) == 50
        assert [_tag(delivery) for _, delivery in notes.messages] == tags
    other.free()


def test_threads_write_tags_into_memory_of_their_own() -> None:
    with ThreadPoolExecutor(2) as pool:
        began = Barrier(2)
        own = pool.map(lambda _: began.wait() >= 0 and delivery_tag(), range(2))
        assert len({id(tag) for tag in [*own, delivery_tag()]}) == 3


def test_what_was_under_way_when_credit_was_taken_back_is_taken(pair: Pair) -> None:
    pair.server.credit = 5
    link = pair.sender()
    for _ in range(5):
        link.send(b"m")
    pair.server.links[0].set_credit(0)
    pair.talk()
    assert len(pair.server.messages) == 5
    assert pair.server.gone == []
    pair.server.links[0].set_credit(3)
    pair.talk()
    assert link.credit == 3


def test_a_peer_that_sends_without_credit_loses_its_link(pair: Pair) -> None:
    """Mutant: `if link.slack < 0` never true."""
    pair.server.credit = 2
    link = pair.sender()
    for _ in range(3):
        link.send(b"m")
    pair.talk()  # the library keeps the third back, so it must believe in credit that there is not
    far = pair.server.links[0]
    lib.pn_link_flow(far.raw, 5)
    pair.talk()
    lib.pn_link_flow(far.raw, -5)  # behind the back of the engine
    for _ in range(3):
        link.send(b"m")
    pair.talk()
    assert [gone.name for gone in pair.server.gone] == ["s"]
    assert link.user == "amqp:link:transfer-limit-exceeded"


def test_a_message_above_the_limit_ends_the_link_before_it_is_all_here() -> None:
    pair = Pair(limits=Limits(message=100_000, frame=4096))
    link = pair.sender()
    link.send(b"x" * 1_000_000)
    pair.talk()
    assert pair.server.messages == []
    assert link.user == "amqp:link:message-size-exceeded"
    assert len(pair.server.gone) == 1
    pair.free()


def test_settled_by_its_sender_a_message_has_no_outcome(pair: Pair) -> None:
    link = pair.sender(presettled=True)
    assert pair.server.links[0].presettled
    link.send(b"m", settled=True)
    pair.talk()
    assert pair.server.messages == [(b"m", None)]
    assert pair.client.outcomes == []


def test_outcomes_that_come_together_are_told_together(pair: Pair) -> None:
    """Mutant: a run is told once more, or not at the end of what came."""
    pair.server.accepts = False
    link = pair.sender()
    for _ in range(5):
        link.send(b"m")
    pair.talk()
    far = pair.server.links[0]
    for number, (_, delivery) in enumerate(pair.server.messages):
        far.settle(delivery, "accepted" if number != 2 else "released")
    pair.talk()
    assert pair.client.outcomes == [("accepted", "")] * 2 + [("released", "")] + [("accepted", "")] * 2
    assert pair.client.runs == [5]
    assert far.unsettled == link.unsettled == 0
    pair.free()


@pytest.mark.parametrize("outcome", ["accepted", "rejected", "released", "failed", "undeliverable"])
def test_every_outcome_is_told(pair: Pair, outcome: Outcome) -> None:
    pair.server.accepts = False
    link = pair.sender()
    link.send(b"m")
    pair.talk()
    far = pair.server.links[0]
    far.settle(pair.server.messages[0][1], outcome, "amqp:decode-error" if outcome == "rejected" else "", "why")
    pair.talk()
    assert pair.client.outcomes == [(outcome, "why" if outcome == "rejected" else "")]
    assert link.unsettled == far.unsettled == 0


def test_a_receiver_drains(pair: Pair) -> None:
    link = pair.receiver()
    link.set_credit(5)
    pair.talk()
    far = pair.server.links[0]
    assert far.credit == 5
    far.send(b"m")
    lib.pn_link_set_drain(link.raw, True)
    pair.talk()
    assert far.drains
    far.drained()
    pair.talk()
    assert far.credit == 0
    assert link.credit == 0
    assert len(pair.client.messages) == 1


def test_ends_say_what_they_are(pair: Pair) -> None:
    wanted = Terminus("prices", durable=True, capabilities=("topic", "shared"), browse=True)
    pair.receiver(source=wanted)
    assert pair.server.links[0].source == wanted
    assert pair.client.links[0].source == wanted


def test_more_links_than_allowed_are_refused() -> None:
    pair = Pair(limits=Limits(links=2))
    links = [pair.sender(f"s{i}") for i in range(3)]
    assert [link.user for link in links] == [None, None, "amqp:resource-limit-exceeded"]
    pair.free()


def test_a_closed_link_is_told_once_and_may_come_again(pair: Pair) -> None:
    for _ in range(3):
        link = pair.sender("again")
        link.send(b"m")
        pair.talk()
        link.close()
        pair.talk()
    assert len(pair.server.messages) == len(pair.server.gone) == 3
    assert not pair.server.engine.links


def test_a_close_says_why(pair: Pair) -> None:
    pair.server.engine.close("amqp:connection:forced", "the node stops")
    pair.talk()
    assert pair.client.over == [("amqp:connection:forced", "the node stops")]
    assert pair.client.engine.ended


@pytest.mark.parametrize(
    "garbage",
    [b"GET / HTTP/1.1\r\n\r\n", b"AMQP\x01\x01\x00\x0a", b"\x00" * 64, b"AMQP\x00\x01\x00\x00" + bytes(8)],
)
def test_garbage_ends_the_connection(garbage: bytes) -> None:
    notes = Notes()
    notes.engine = Engine(notes, server=True, container="s", limits=Limits())
    notes.engine.receive(garbage)
    notes.engine.hung_up()
    notes.engine.outgoing()
    assert notes.over
    notes.engine.free()


def test_how_far_a_peer_is_with_a_message_is_no_outcome_of_it(pair: Pair) -> None:
    """Mutant: `> RECEIVED` becomes `> 0`; the message would go to somebody else."""
    link = pair.receiver()
    link.set_credit(1)
    pair.talk()
    pair.server.links[0].send(b"m")
    pair.client.accepts = False
    pair.talk()
    delivery = pair.client.messages[0][1]
    lib.pn_delivery_update(delivery, lib.PN_RECEIVED)
    pair.talk()
    assert pair.server.outcomes == []
    link.settle(delivery)
    pair.talk()
    assert pair.server.outcomes == [("accepted", "")]


def test_large_messages_go_out_in_pieces_and_in_order(pair: Pair) -> None:
    """What follows one of them waits for it, is paid with the same credit, and a large one takes no quadratic time."""
    limits = Limits(message=1 << 30)
    pair = Pair(limits, limits)
    link = pair.sender()
    bodies = [b"a" * 60_000_000, b"b", b"c" * 40_000_000, b"d" * 300_000]
    for body in bodies:
        link.send(body)
    assert link.credit == 96
    pair.talk()
    assert [body for body, _ in pair.server.messages] == bodies
    assert pair.client.outcomes == [("accepted", "")] * 4
    assert link.credit == 96
    pair.free()


def test_a_link_that_ends_takes_its_unsent_messages_along(pair: Pair) -> None:
    link = pair.sender()
    link.send(b"a" * 1_000_000)
    link.send(b"b")
    link.close()
    pair.talk()
    assert pair.server.messages == []
    assert pair.client.engine.streams.feed() == (False, [])


def test_no_more_is_sent_than_the_peers_session_takes() -> None:
    pair = Pair(client_limits=Limits(window=4 * 65_536))
    pair.receiver().set_credit(100)
    pair.talk()
    (link,) = pair.server.links
    assert (link.window, link.room) == (4, 4)
    for _ in range(3):
        link.send(b"m")
    assert (link.window, link.room, link.credit) == (1, 1, 97)
    link.send(bytes(500_000))  # of which the library has nothing yet
    assert link.window <= 0
    assert link.room <= 0
    flows = pair.server.flows
    pair.talk()
    assert pair.server.flows > flows, "there is room again"
    assert (link.window, link.room) == (4, 4)
    pair.free()
