"""A link with a selector forwards the messages that match, whatever form they are stored in."""

import datetime as dt
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core.amqp.message import AmqpMessage, Properties, encode
from headgate.core.amqp.sections import Header
from headgate.core.links.calls import Entry
from headgate.core.selector.messages import headers_of
from headgate.core.selector.parser import Selector
from headgate.errors import MessageFormatError
from headgate.message import decode, to_amqp
from headgate.message import encode as encode_own
from headgate_coordinator.links.rules import Forwarding, Refusal, judge_by
from tests.links.world import Links, sent
from tests.support.extent import examples

MOMENT = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)
FULL = AmqpMessage(
    header=Header(durable=True, priority=7),
    properties=Properties(
        message_id="ID:1",
        subject="invoice",
        correlation_id=UUID(int=5),
        creation_time=MOMENT,
        group_id="g",
        group_sequence=3,
    ),
    application_properties={"tenant": "a", "amount": 12.5},
    kind="data",
    body=b"x" * 100,
)


def verdict(text: str, stored: bytes) -> Refusal | None:
    return judge_by(Selector.parse(text))(Entry(1, stored))


@pytest.mark.parametrize(
    "text",
    [
        "tenant = 'a' AND amount > 12",
        "JMSPriority = 7 AND JMSDeliveryMode = 'PERSISTENT'",
        "JMSType = 'invoice' AND JMSMessageID = 'ID:1'",
        f"JMSCorrelationID = 'ID:AMQP_UUID:{UUID(int=5)}'",
        f"JMSTimestamp = {int(MOMENT.timestamp() * 1000)} AND JMSXGroupID = 'g' AND JMSXGroupSeq = 3",
        '"amqp.subject" = \'invoice\' AND "amqp.priority" = 7',
    ],
)
def test_a_message_matches_in_either_form(text: str) -> None:
    """Mutants: of a message of AMQP only the application properties; the standard names only of AMQP's form."""
    theirs = encode(FULL)
    ours = encode_own(*decode(theirs))
    for stored in (theirs, ours):
        assert verdict(text, stored) is None
        assert verdict(f"NOT ({text})", stored) == Refusal("selector")


def test_what_a_message_does_not_say_is_what_jms_takes_it_for() -> None:
    for stored in (encode_own("x", None), to_amqp(encode_own("x", None))):
        assert verdict("JMSPriority = 4 AND JMSDeliveryMode = 'NON_PERSISTENT'", stored) is None
        assert verdict("JMSType IS NULL AND JMSMessageID IS NULL AND JMSTimestamp IS NULL", stored) is None


def test_a_name_of_any_type_has_a_spelling() -> None:
    for value, spelled in ((7, "ID:AMQP_ULONG:7"), (b"\x0f", "ID:AMQP_BINARY:0F"), ("7", "7")):
        stored = encode(AmqpMessage(properties=Properties(message_id=value)))
        assert verdict(f"JMSMessageID = '{spelled}'", stored) is None


def test_a_header_that_is_called_like_a_standard_field_comes_first() -> None:
    assert verdict("JMSType = 'mine'", encode_own("x", {"JMSType": "mine", "amqp.subject": "theirs"})) is None


@pytest.mark.parametrize(
    "stored", [b"", b"\x00\x53", b"\x93\xa0", b"\x92\xa0\xa0", b"\x92\xc4\xff", b"hello", b"\x92\xa0"]
)
def test_what_cannot_be_read_is_a_dead_letter(stored: bytes) -> None:
    """Also for a selector that is true of anything, and false of it."""
    for text in ("TRUE", "a = 1", "a IS NULL"):
        assert verdict(text, stored) == Refusal("unreadable", dead_letter=True)


def test_what_cannot_be_read_does_not_stop_a_link_without_dead_letters() -> None:
    for has_dead_letters in (True, False):
        how = Forwarding("a", "b", judge=judge_by(Selector.parse("a = 1")), has_dead_letters=has_dead_letters)
        assert how.refusal(Entry(1, b"\x00\x53")) == Refusal("unreadable", dead_letter=has_dead_letters)


BODIES = (
    st.binary(max_size=40)
    | st.text(max_size=40)
    | st.integers(0, 70_000).map(bytes)
    | st.integers(0, 70_000).map("x".__mul__)
)
VALUES = st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.text() | st.binary()
HEADERS = st.dictionaries(
    st.text(max_size=5) | st.sampled_from(["amqp.subject", "amqp.to", "amqp.priority"]), VALUES, max_size=4
)


@given(BODIES, HEADERS)
@settings(max_examples=examples(200), deadline=None)
def test_headers_are_those_that_a_consumer_gets(body: bytes | str, headers: dict[str, Any]) -> None:
    ours = encode_own(body, headers)
    assert headers_of(ours) == decode(ours)[1]
    theirs = to_amqp(ours)
    assert headers_of(theirs) == decode(theirs)[1]


@given(
    st.binary(max_size=60)
    | st.binary(max_size=60).map(b"\x92\xa0".__add__)
    | st.integers(0, 200).map(lambda size: encode(FULL)[:size])
)
@settings(max_examples=examples(400), deadline=None)
def test_whatever_is_stored_is_read_or_refused(stored: bytes) -> None:
    try:
        headers_of(stored)
    except MessageFormatError:
        return


def test_a_link_forwards_what_matches_in_order_and_tells_what_it_left() -> None:
    judge = judge_by(Selector.parse("n BETWEEN 2 AND 3"))
    bodies = [encode_own(b"", {"n": n}) for n in range(1, 5)]
    links = sent(Links(how=Forwarding("here", "there", window=40, judge=judge)), [*bodies, b"damaged"])
    links.run({})
    assert links.target.log == bodies[1:3]
    assert links.dead.log == [b"damaged"]
    assert links.source.released == 5
