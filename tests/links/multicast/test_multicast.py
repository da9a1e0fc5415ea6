"""Packets of channels and what a reader makes of them, without any network."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.links.multicast import Packet, room, split
from headgate.core.links.packet_reader import MOST_STREAMS, OF_A_PART, Arrived, Loss, Reception
from headgate.errors import MessageFormatError

NAMES = st.text(min_size=1, max_size=20)
NUMBERS = st.integers(1, 2**53)


@given(NAMES, NAMES, NUMBERS, NUMBERS, st.integers(1, 9), st.binary(min_size=1, max_size=64))
def test_a_packet_is_read_as_it_was_written(
    channel: str, topic: str, born: int, seq: int, parts: int, payload: bytes
) -> None:
    packet = Packet(channel, topic, born, seq, seq - 1, parts - 1, parts, payload)
    assert Packet.read(packet.write()) == packet
    heartbeat = Packet(channel, topic, born, seq)
    assert Packet.read(heartbeat.write()) == heartbeat


@given(st.binary(max_size=200))
def test_garbage_is_refused_with_one_error(data: bytes) -> None:
    for text in (data, b"HGMC" + data, b"HGMC\x01" + data):
        try:
            packet = Packet.read(text)
        except MessageFormatError:
            continue
        assert packet.write() == text


@given(st.data(), st.binary(min_size=1, max_size=100))
def test_a_packet_that_was_changed_or_cut_is_refused_or_another_packet(data: st.DataObject, payload: bytes) -> None:
    """Breaks when `read` takes a packet with names that are cut off."""
    whole = bytearray(Packet("quotes", "prices", 5, 7, 6, 0, 1, payload).write())
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] = data.draw(st.integers(0, 255))
    text = bytes(whole[: data.draw(st.integers(0, len(whole)))])
    try:
        packet = Packet.read(text)
    except MessageFormatError:
        return
    assert packet.write() == text


@pytest.mark.parametrize(
    "packet",
    [
        Packet("c", "t", 1, 5, 5, 0, 1, b"x"),
        Packet("c", "t", 1, 5, 4, 1, 1, b"x"),
        Packet("c", "t", 1, 5, 4, 0, 1),
        Packet("c", "t", 1, 5, 4),
        Packet("c", "t", 1, 5, 0, 0, 0, b"x"),
        Packet("", "t", 1, 5),
        Packet("c", "", 1, 5),
    ],
)
def test_what_no_channel_sends_is_refused(packet: Packet) -> None:
    with pytest.raises(MessageFormatError):
        Packet.read(packet.write())


@given(st.binary(min_size=1, max_size=3000), st.integers(80, 1400))
def test_packets_are_no_larger_than_they_may_be(stored: bytes, size: int) -> None:
    packets = list(split(Packet("quotes", "prices", 1, 2, 1, payload=stored), size))
    assert all(len(packet) <= size for packet in packets)
    assert b"".join(Packet.read(packet).payload for packet in packets) == stored
    assert len(packets) == -(-len(stored) // room("quotes", "prices", size))


def datagrams(seqs: list[int], born: int = 1, first: int = 0, size: int = 90) -> list[bytes]:
    """Return the packets of messages with these numbers, the first after ``first``."""
    sent: list[bytes] = []
    prev = first
    for seq in seqs:
        sent += split(Packet("quotes", "prices", born, seq, prev, payload=body(seq)), size)
        prev = seq
    return sent


def body(seq: int) -> bytes:
    return b"%d," % seq * (1 + seq % 40)


def heartbeat(seq: int, born: int = 1) -> bytes:
    return Packet("quotes", "prices", born, seq).write()


def taken(reception: Reception, packets: list[bytes]) -> list[Loss | Arrived]:
    return [event for packet in packets for event in reception.take(packet)]


def numbers(events: list[Loss | Arrived]) -> list[int]:
    return [event.seq for event in events if isinstance(event, Arrived)]


@given(st.sets(st.integers(1, 300), min_size=1, max_size=30), st.randoms(use_true_random=False), st.floats(0, 0.6))
def test_all_is_delivered_in_order_or_missing_whatever_is_dropped(
    chosen: set[int], dice: random.Random, share: float
) -> None:
    """Breaks when an unfinished message that a later one overtakes is not counted."""
    seqs = sorted(chosen)
    reception = Reception()
    kept = [packet for packet in datagrams(seqs) if dice.random() >= share]
    events = taken(reception, [heartbeat(0), *kept, heartbeat(seqs[-1])])
    got = numbers(events)
    assert got == sorted(set(got))
    assert all(event.stored == body(event.seq) for event in events if isinstance(event, Arrived))
    missing = {seq for event in events if isinstance(event, Loss) for seq in range(event.first, event.last + 1)}
    assert missing & set(seqs) == set(seqs) - set(got)
    assert not missing & set(got)
    assert reception.lost["prices"] == len(missing)
    assert reception.duplicates["prices"] == 0


@given(st.integers(2, 40), st.randoms(use_true_random=False))
def test_a_worker_that_begins_again_gives_nothing_twice(count: int, dice: random.Random) -> None:
    """Breaks when what is at or below the last number is taken."""
    seqs = list(range(1, count + 1))
    died, again = dice.randint(1, count), dice.randint(0, count - 1)
    first = datagrams(seqs[:died])
    begins = min(again, died - 1)
    second = datagrams(seqs[begins:], first=begins)
    reception = Reception()
    events = taken(reception, [heartbeat(0), *first[: dice.randint(0, len(first))], *second])
    assert numbers(events)[-1] == count
    got = numbers(events)
    assert got == sorted(set(got))
    assert len(got) + reception.lost["prices"] == count


@given(st.integers(1, 30), st.randoms(use_true_random=False))
def test_two_workers_at_once_give_each_message_once(count: int, dice: random.Random) -> None:
    seqs = list(range(1, count + 1))
    queues = [datagrams(seqs), datagrams(seqs)]
    mixed = []
    while any(queues):
        queue = dice.choice([queue for queue in queues if queue])
        mixed.append(queue.pop(0))
    reception = Reception()
    assert numbers(taken(reception, mixed)) == seqs
    assert reception.lost.total() == 0


def test_the_last_message_is_missed_by_its_heartbeat() -> None:
    reception = Reception()
    packets = datagrams([5, 6])
    whole = len(datagrams([5]))
    assert numbers(taken(reception, packets[:whole])) == [5]
    assert taken(reception, [heartbeat(6)]) == [Loss("quotes", "prices", 6, 6)]
    assert taken(reception, [heartbeat(6)]) == []
    assert (reception.lost["prices"], reception.lost.total()) == (1, 1)


def test_gaps_in_the_numbers_are_no_loss() -> None:
    reception = Reception()
    assert numbers(taken(reception, datagrams([5, 1_700_000_000_000_000]))) == [5, 1_700_000_000_000_000]
    assert reception.lost.total() == 0


def test_what_went_before_the_reader_began_is_not_missing() -> None:
    reception = Reception()
    packets = datagrams([8, 9, 10], first=7)
    begun = taken(reception, packets[1:])  # in the middle of a message
    assert numbers(begun) == [9, 10]
    assert reception.lost.total() == 0


def test_a_topic_that_was_made_anew_begins_anew() -> None:
    reception = Reception()
    taken(reception, datagrams([50]))
    assert numbers(taken(reception, datagrams([1, 2], born=2))) == [1, 2]
    assert numbers(taken(reception, datagrams([51], born=1, first=50))) == []
    assert reception.lost.total() == 0


def test_other_topics_are_left_out() -> None:
    reception = Reception(frozenset({"news"}))
    assert taken(reception, datagrams([1, 2])) == []
    assert (reception.lost.total(), reception.duplicates.total(), reception.refused) == (0, 0, 0)


def test_a_message_above_the_memory_is_missing_and_frees_it() -> None:
    """Breaks when what a dropped message took is not given back."""
    reception = Reception(memory=1000 + 20 * OF_A_PART)
    large, small = b"l" * 3000, b"s" * 100
    sent = [large, small] * 20
    events: list[Loss | Arrived] = []
    for seq, stored in enumerate(sent, 1):
        for packet in split(Packet("quotes", "prices", 1, seq, seq - 1, payload=stored), 120):
            events += reception.take(packet)
    assert numbers(events) == list(range(2, 41, 2))
    assert reception.lost["prices"] == 20


def test_names_without_end_take_no_memory_without_end() -> None:
    reception = Reception()
    for number in range(MOST_STREAMS + 10):
        reception.take(Packet("quotes", f"t{number}", 1, 1, 0, 0, 2, b"half").write())
    assert reception.refused == 10
