"""AMQP messages: proton is the other side. What a node changes in one leaves the rest as it was."""

import contextlib
import datetime as dt
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import msgpack
import proton
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate import InvalidValue, MessageFormatError
from headgate.core.amqp import mapping as amqp_mapping
from headgate.core.amqp import message as amqp_message
from headgate.core.amqp import msgpack_form
from headgate.core.amqp.message import AmqpMessage, BodyKind, Properties, decode
from headgate.core.amqp.sections import (
    DEFAULT_HEADER,
    MAX_SECTIONS,
    MOST_READ,
    Header,
    expiry_of,
    header_of,
    later_of,
    sections,
    to_of,
    with_application_properties,
    with_delivery_count,
)
from headgate.core.amqp.types import Described, Symbol
from headgate.core.amqp.writer import write
from headgate.message import decode as read
from headgate.message import encode, is_amqp, to_amqp, with_headers
from tests.sdk.core.test_amqp_values import (
    DAMAGE,
    EPOCH,
    FUZZ,
    ROUND_TRIPS,
    damages,
    moments,
    of_proton,
    plain,
    symbols,
    typed,
    values,
)
from tests.support.extent import each

MOMENT = dt.datetime(2026, 11, 20, 12, 30, 0, 250000, tzinfo=dt.UTC)

ids = st.text(max_size=9) | st.binary(max_size=9) | st.integers(0, 2**64 - 1) | st.uuids()
texts = st.text(max_size=9)
asciis = st.text(st.characters(max_codepoint=127), max_size=9)
properties = st.builds(
    Properties,
    **{name: st.none() | texts for name in ("to", "subject", "reply_to", "group_id", "reply_to_group_id")},
    **{name: st.none() | ids for name in ("message_id", "correlation_id")},
    **{name: st.none() | asciis for name in ("content_type", "content_encoding")},
    **{name: st.none() | moments for name in ("absolute_expiry_time", "creation_time")},
    user_id=st.none() | st.binary(max_size=9),
    group_sequence=st.none() | st.integers(0, 2**32 - 1),
)
headers = st.builds(
    Header,
    durable=st.booleans(),
    priority=st.integers(0, 255),
    ttl_ms=st.none() | st.integers(0, 2**32 - 1),
    first_acquirer=st.booleans(),
    delivery_count=st.integers(0, 2**32 - 1),
)
annotations = st.dictionaries(symbols, values, max_size=3)
bodies: st.SearchStrategy[tuple[Any, Any]] = st.one_of(
    st.just(("none", None)),
    st.tuples(st.just("data"), st.binary()),
    st.tuples(st.just("sequence"), st.lists(values, max_size=3)),
    st.tuples(st.just("value"), values),
)


@st.composite
def messages(draw: st.DrawFn) -> AmqpMessage:
    kind: BodyKind
    kind, body = draw(bodies)
    return AmqpMessage(
        header=draw(headers),
        delivery_annotations=draw(annotations),
        message_annotations=draw(annotations),
        properties=draw(properties),
        application_properties=draw(st.dictionaries(texts, plain, max_size=3)),
        kind=kind,
        body=body,
        footer=draw(annotations),
    )


READERS: list[Callable[[bytes], object]] = [
    read,
    decode,
    header_of,
    to_of,
    to_amqp,
    lambda raw: with_delivery_count(raw, 7),
    lambda raw: with_headers(raw, {"a": 1}),
]


def by_proton(**said: Any) -> bytes:
    return bytes(proton.Message(**said).encode())


def proton_of(raw: bytes) -> proton.Message:
    message = proton.Message()
    message.decode(raw)
    return message


FULL = by_proton(
    body=b"content", inferred=True, durable=True, priority=7, ttl=60, id="m-1", user_id=b"me", address="orders",
    subject="new", reply_to="answers", correlation_id=uuid.UUID(int=9), content_type="text/plain",
    content_encoding="gzip", expiry_time=1.5, creation_time=2.5, group_id="g", group_sequence=3, reply_to_group_id="h",
    properties={"tenant": "a", "n": 1, "ratio": 0.5, "ok": True, "nothing": None, "raw": b"\0",
                "at": proton.timestamp(1500), "key": uuid.UUID(int=5), "s": proton.symbol("sym")},
    annotations={proton.symbol("x-opt-a"): [1, {"b": 2}]}, instructions={proton.symbol("x-opt-d"): "d"},
)  # fmt: skip


def test_everything_that_proton_writes_is_read() -> None:
    message = decode(FULL)
    assert message.header == Header(durable=True, priority=7, ttl_ms=60_000)
    assert message.properties == Properties(
        message_id="m-1", user_id=b"me", to="orders", subject="new", reply_to="answers",
        correlation_id=uuid.UUID(int=9), content_type="text/plain", content_encoding="gzip",
        absolute_expiry_time=EPOCH + dt.timedelta(seconds=1.5), creation_time=EPOCH + dt.timedelta(seconds=2.5),
        group_id="g", group_sequence=3, reply_to_group_id="h",
    )  # fmt: skip
    assert message.application_properties == {
        "tenant": "a", "n": 1, "ratio": 0.5, "ok": True, "nothing": None, "raw": b"\0",
        "at": EPOCH + dt.timedelta(seconds=1.5), "key": uuid.UUID(int=5), "s": "sym",
    }  # fmt: skip
    assert message.message_annotations == {"x-opt-a": [1, {"b": 2}]}
    assert message.delivery_annotations == {"x-opt-d": "d"}
    assert (message.kind, message.body) == ("data", b"content")


@ROUND_TRIPS
@given(messages())
def test_what_is_written_is_read(message: AmqpMessage) -> None:
    raw = amqp_message.encode(message)
    if raw:
        assert typed(decode(raw).body) == typed(message.body)
        assert decode(raw) == message
        assert header_of(raw) == message.header
        assert to_of(raw) == message.properties.to


@ROUND_TRIPS
@given(messages())
def test_proton_reads_what_is_written(message: AmqpMessage) -> None:
    if not (raw := amqp_message.encode(message)):
        return
    found, said, header = proton_of(raw), message.properties, message.header
    assert (found.durable, found.priority, found.first_acquirer) == (
        header.durable, header.priority, header.first_acquirer,
    )  # fmt: skip
    assert found.delivery_count == header.delivery_count
    assert of_proton(found.id) == said.message_id
    assert of_proton(found.correlation_id) == said.correlation_id
    assert bytes(found.user_id) == (said.user_id or b"")
    # Where AMQP says nothing, proton says "", None or the symbol None; and it stops reading such text at a zero.
    for mine, theirs in (
        (said.to, found.address), (said.subject, found.subject), (said.reply_to, found.reply_to),
        (said.content_type, found.content_type), (said.content_encoding, found.content_encoding),
        (said.group_id, found.group_id), (said.reply_to_group_id, found.reply_to_group_id),
    ):  # fmt: skip
        assert (mine or "").split("\0")[0] == (theirs or "") or (mine is None and str(theirs) == "None")
    assert of_proton(found.properties or {}) == message.application_properties
    if message.kind in ("data", "value"):
        assert typed(of_proton(found.body)) == typed(message.body)


def test_of_a_message_without_header_nothing_more_is_read() -> None:
    for raw in (b"", b"\x91\xa1x", b"\0\x53\x75 is not read", by_proton(body=b"x")):
        assert header_of(raw) is DEFAULT_HEADER


@pytest.mark.parametrize("descriptor", ["53 70", "80 0000000000000070", "a3 10" + b"amqp:header:list".hex()])
def test_a_section_may_be_named_in_three_ways(descriptor: str) -> None:
    raw = bytes.fromhex(f"00 {descriptor} c0 04 02 41 50 09 00 53 77 a1 01 78")
    assert header_of(raw) == Header(durable=True, priority=9)
    assert decode(raw).body == "x"
    assert proton_of(with_delivery_count(raw, 2)).delivery_count == 2


@pytest.mark.parametrize(
    "fields",
    ["", "c0", "d0", "c0 00", "c0 02 01 50", "c0 03 01 50 01", "c0 03 02 40 41", "c0 07 06 40 40 40 40 40 40", "a1 00",
     "c0 04 02 40 55 ff", "c0 ff 00", "c0 03 01 41 40", "d0 000000ff 00000000"],
)  # fmt: skip
def test_a_header_that_is_none_is_refused(fields: str) -> None:
    raw = bytes.fromhex("00 53 70" + fields)
    for read_it in (header_of, decode, lambda raw: with_delivery_count(raw, 1)):
        with pytest.raises(MessageFormatError):
            read_it(raw)


def test_a_delivery_count_leaves_the_rest_as_it_was() -> None:
    raw = FULL
    for count in (1, 2, 300):
        raw = with_delivery_count(raw, count)
        found = proton_of(raw)
        assert (found.delivery_count, found.first_acquirer) == (count, False)
        assert (found.durable, found.priority, found.ttl, found.body) == (True, 7, 60.0, b"content")
        assert raw[next(sections(raw)).stop :] == FULL[next(sections(FULL)).stop :]
        assert header_of(raw) == Header(durable=True, priority=7, ttl_ms=60_000, delivery_count=count)


def test_a_message_without_header_gets_one_for_its_delivery_count() -> None:
    raw = amqp_message.encode(AmqpMessage(kind="data", body=b"x"))
    assert with_delivery_count(raw, 0) is raw
    assert with_delivery_count(raw, 3).endswith(raw)
    assert proton_of(with_delivery_count(raw, 3)).delivery_count == 3
    assert header_of(with_delivery_count(with_delivery_count(raw, 3), 0)) == DEFAULT_HEADER
    for count in (-1, 2**32, True, "1", None):
        with pytest.raises(InvalidValue, match="delivery count"):
            with_delivery_count(raw, count)  # type: ignore[arg-type]


def test_the_address_is_read_from_where_it_stands() -> None:
    assert to_of(FULL) == "orders"
    assert to_of(by_proton(body="x")) is None
    assert to_of(by_proton(body="x", subject="s")) is None
    assert to_of(by_proton(body="x", id="1")) is None
    assert to_of(b"\0\x53\x73\x45") is None
    for wrong in (b"", b"\0\x53\x73", b"\0\x53\x73\xc0\x04\x03\x40\x40\x41", b"\x92", b"\0\x53\x79\x40"):
        with pytest.raises(MessageFormatError):
            to_of(wrong)


def test_application_properties_are_added_and_all_else_stays() -> None:
    raw = with_application_properties(FULL, {"tenant": "b", "more": 2})
    assert decode(raw).application_properties == decode(FULL).application_properties | {"tenant": "b", "more": 2}
    found = proton_of(raw)
    assert found.properties is not None
    assert isinstance(found.properties["s"], proton.symbol), "what is not replaced keeps its type"
    there = [section for section in sections(FULL) if section.code != 0x74]
    now = [section for section in sections(raw) if section.code != 0x74]
    assert [FULL[s.start : s.stop] for s in there] == [raw[s.start : s.stop] for s in now]
    bare = b"\0\x53\x70\x45\0\x53\x75\xa0\x01x\0\x53\x78\xc1\x01\x00"
    assert with_application_properties(bare, {"a": 1}) == (
        b"\0\x53\x70\x45\0\x53\x74\xc1\x06\x02\xa1\x01a\x55\x01\0\x53\x75\xa0\x01x\0\x53\x78\xc1\x01\x00"
    )


@each(
    "raw",
    [
        "", "01", "00", "0053", "005377", "00537740 00537540", "00537540", "00537640", "0053774000537740",
        "00537540 00537040", "00537345 00537145", "005374 c1050255015501", "005374 45", "005372 c1050256014040",
        "005373 c0020141 00", "005379 40", "00a30178 40", "0053 77 40 ff",
    ],
)  # fmt: skip
def test_what_is_no_message_is_refused(raw: str) -> None:
    with pytest.raises(MessageFormatError):
        decode(bytes.fromhex(raw))


@DAMAGE
@given(messages().map(amqp_message.encode) | st.just(FULL), st.integers(0, 2**32))
def test_damaged_messages_are_read_or_refused(raw: bytes, seed: int) -> None:
    for harmed in (raw, *damages(raw or b"\0", seed)):
        for read_it in READERS:
            with contextlib.suppress(MessageFormatError):
                read_it(harmed)


@FUZZ
@given(st.binary(max_size=40), st.sampled_from([b"", b"\0\x53", b"\0\x53\x70", b"\0\x53\x77", b"\x91", b"\x92\xc4"]))
def test_any_bytes_are_read_or_refused(content: bytes, start: bytes) -> None:
    for read_it in READERS:
        with contextlib.suppress(MessageFormatError):
            read_it(start + content)


def test_many_sections_of_data_are_joined() -> None:
    part = b"\0\x53\x75\xa0\x02ab"
    assert decode(part * 20_000).body == b"ab" * 20_000
    with pytest.raises(MessageFormatError, match=f"more than {MAX_SECTIONS} sections"):
        decode(part * (MAX_SECTIONS + 1))
    sequence = b"\0\x53\x76" + write([1, 2])
    assert decode(sequence * 3).body == [1, 2] * 3


# Between the SDK and AMQP.

storable = st.recursive(
    plain | st.datetimes(min_value=dt.datetime(1970, 1, 1), timezones=st.just(dt.UTC)),  # noqa: DTZ001 - hypothesis wants it so
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts | st.integers(2, 99), inner, max_size=3),
    max_leaves=8,
)
names = texts | st.sampled_from(
    [*amqp_mapping._HEADER, *amqp_mapping._PROPERTIES, *amqp_mapping._ANNOTATIONS, amqp_mapping.BODY,
     "amqp.application.amqp.to", "amqp.new", amqp_mapping.EXACT]
)  # fmt: skip
fitting = st.fixed_dictionaries(
    {},
    optional={
        "amqp.priority": st.integers(0, 255),
        "amqp.ttl": st.integers(0, 2**32 - 1),
        "amqp.durable": st.booleans(),
        "amqp.message-id": ids,
        "amqp.to": texts,
        "amqp.group-sequence": st.integers(0, 2**32 - 1),
        "amqp.creation-time": moments,
        "amqp.message-annotations": st.dictionaries(asciis, storable, max_size=2),
        "amqp.body": st.sampled_from(["null", "value", "sequence", "other"]),
    },
)
sdk_bodies = st.text() | st.binary() | (st.lists(storable, max_size=3) | storable).map(msgpack_form.pack)


@ROUND_TRIPS
@given(sdk_bodies, st.dictionaries(names, storable, max_size=4), fitting)
def test_what_the_sdk_sends_comes_back_through_amqp(
    body: bytes | str, said: dict[str, Any], standard: dict[str, Any]
) -> None:
    stored = encode(body, said | standard)
    before, after = read(stored), read(to_amqp(stored))
    assert typed(after[0]) == typed(before[0])
    assert typed(after[1]) == typed(before[1])
    assert read(to_amqp(stored, delivery_count=3)) == before
    assert header_of(to_amqp(stored, delivery_count=3)).delivery_count == 3
    assert header_of(to_amqp(stored)).delivery_count == 0
    proton_of(to_amqp(stored))


@ROUND_TRIPS
@given(messages())
def test_what_an_amqp_client_sends_comes_back_through_the_sdk(message: AmqpMessage) -> None:
    raw = amqp_message.encode(message)
    if not raw:
        return
    body, said = read(raw)
    again = decode(to_amqp(encode(body, said)))
    same = ("delivery_annotations", "message_annotations", "properties", "application_properties", "footer")
    assert [getattr(again, name) for name in same] == [getattr(message, name) for name in same]
    assert (again.header.durable, again.header.priority, again.header.ttl_ms) == (
        message.header.durable, message.header.priority, message.header.ttl_ms,
    )  # fmt: skip
    assert again.body == message.body


def test_headers_of_the_sdk_are_what_an_amqp_client_knows() -> None:
    said = {
        "tenant": "a", "n": 1, "at": MOMENT, "list": [1, 2], "amqp.subject": "new", "amqp.message-id": 7,
        "amqp.content-type": "text/plain", "amqp.durable": True, "amqp.ttl": 1000, "amqp.priority": 9,
        "amqp.message-annotations": {"x-opt-a": 1}, "amqp.user-id": "not bytes",
    }  # fmt: skip
    found = proton_of(to_amqp(encode("text", said)))
    assert found.body == "text"
    assert (found.subject, found.id, found.content_type) == ("new", 7, "text/plain")
    assert (found.durable, found.ttl, found.priority) == (True, 1.0, 9)
    assert of_proton(found.properties) == {"tenant": "a", "n": 1, "at": MOMENT, "amqp.user-id": "not bytes"}
    assert found.annotations is not None
    assert found.annotations["x-opt-a"] == 1
    assert msgpack_form.unpack(bytes(found.annotations[amqp_mapping.EXACT])) == {"list": [1, 2]}
    assert proton_of(to_amqp(encode(b"bytes", None))).body == b"bytes"


@pytest.mark.parametrize(
    ("said", "body", "kind"),
    [
        ({"body": b"x", "inferred": True}, b"x", None),
        ({"body": b"x"}, b"x", None),
        ({"body": "text"}, "text", None),
        ({"body": {"a": [1, None]}}, msgpack_form.pack({"a": [1, None]}), "value"),
        ({"body": [1, 2], "inferred": True}, msgpack_form.pack([1, 2]), "sequence"),
        ({"body": 5}, msgpack_form.pack(5), "value"),
        ({"body": proton.symbol("s")}, "s", None),
    ],
)
def test_a_body_is_bytes_or_text(said: dict[str, Any], body: bytes | str, kind: str | None) -> None:
    found, shown = read(by_proton(**said))
    assert (type(found), found) == (type(body), body)
    assert shown.get("amqp.body") == kind


@pytest.mark.parametrize("raw", [b"\0\x53\x77\x40", b"\0\x53\x70\x45"])
def test_no_body_is_empty_and_says_so(raw: bytes) -> None:
    assert read(raw) == (b"", {"amqp.body": "null"})
    assert to_amqp(encode(*read(raw))) == b"\0\x53\x77\x40"


def test_an_application_property_never_hides_a_standard_one() -> None:
    raw = by_proton(body="x", address="orders", properties={"amqp.to": "theirs", "amqp.subject": "alone"})
    assert read(raw)[1] == {"amqp.to": "orders", "amqp.application.amqp.to": "theirs", "amqp.subject": "alone"}


def test_an_annotation_that_only_looks_like_ours_is_an_annotation() -> None:
    for value in (5, b"\xc1", msgpack_form.pack([1]), msgpack_form.pack({1: 2})):
        raw = amqp_message.encode(AmqpMessage(message_annotations={amqp_mapping.EXACT: value}, kind="data", body=b""))
        assert read(raw)[1] == {"amqp.message-annotations": {amqp_mapping.EXACT: value}}


@pytest.mark.parametrize(
    "value",
    [Decimal("1.50"), Decimal("1" * 40), Decimal("sNaN"), msgpack.ExtType(5, b"x"), msgpack.ExtType(71, b"short"),
     msgpack.Timestamp(10**12),
     Described(Symbol("a:type"), [Decimal(1), uuid.UUID(int=1)])],
)  # fmt: skip
def test_rare_values_of_headers_come_back_too(value: Any) -> None:
    before = read(encode(b"", {"rare": value, "in": [value]}))
    after = read(to_amqp(encode(b"", {"rare": value, "in": [value]})))
    assert repr(sorted(before[1].items())) == repr(sorted(after[1].items())) == repr([("in", [value]), ("rare", value)])


def test_a_body_with_a_type_of_its_own_comes_back() -> None:
    raw = b"\0\x53\x77" + write(Described(Symbol("a:type"), [Decimal("1.5"), Described(1, "x")]))
    assert decode(to_amqp(encode(*read(raw)))) == decode(raw)


def test_extensions_inside_one_another_do_not_exhaust_the_stack() -> None:
    content = b"\x00"
    for _ in range(5000):
        content = msgpack.packb(msgpack.ExtType(73, b"\x92\x01" + content))
    assert read(b"\x92\xa0\x81\xa1a" + content)[0] == ""
    for depth in (500, 1000, 5000):
        with contextlib.suppress(MessageFormatError):
            to_amqp(b"\x92\xa0\x81\xa1a" + b"\x91" * depth + b"\xc0")


def test_symbols_are_text_to_the_sdk() -> None:
    raw = by_proton(body="x", properties={"s": proton.symbol("sym")})
    assert isinstance(read(raw)[1]["s"], Symbol)
    assert read(encode(*read(raw)))[1] == {"s": "sym"}


def test_the_two_forms_are_told_apart() -> None:
    assert is_amqp(FULL)
    assert not is_amqp(encode(b"\0", None))
    assert not is_amqp(b"")
    assert to_amqp(FULL) is FULL
    for wrong in (b"", b"\xc0", b"\x90", b"\x93\x01\x02\x03", b"\x91\x01", b"\x92\xa0\x90", b"\x91\xa1\xff", b"text",
                    b"\x92\xa0\x81\x01\x02", b"\x91", b"\x92\xa0\x81\x90\x01"):  # fmt: skip
        with pytest.raises(MessageFormatError):
            read(wrong)
        with pytest.raises(MessageFormatError):
            to_amqp(wrong)
    for count in (-1, 2**32):
        for stored in (FULL, encode("x", None)):
            with pytest.raises(InvalidValue, match="delivery count"):
                to_amqp(stored, delivery_count=count)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(texts, storable, max_size=3))
def test_what_amqp_has_can_be_in_headers(said: dict[str, Any]) -> None:
    assert typed(read(encode("x", said))[1]) == typed(said)


def _section(code: int, kind: int, count: int, content: bytes) -> bytes:
    return bytes([0, 0x53, code, kind]) + (len(content) + 4).to_bytes(4) + count.to_bytes(4) + content


def test_of_a_large_head_nothing_is_read_to_its_end() -> None:
    """A node reads it in a turn of its loop; a list of a million was half a second."""
    many = MOST_READ + 1
    nothings = _section(0, 0xD0, many, b"\x40" * many)[3:]
    time = b"\xa3\x13x-opt-delivery-time\x43"
    heads: dict[str, tuple[bytes, Callable[[bytes], Any]]] = {
        "header": (_section(0x70, 0xD0, 1, nothings), header_of),
        "annotations": (
            _section(0x72, 0xD1, 2 * many, time + b"\xa3\0\x40" * (many - 1)),
            lambda raw: later_of(raw, float),
        ),
        "expiry": (_section(0x73, 0xD0, 9, b"\x40" * 8 + nothings), expiry_of),
        "to": (_section(0x73, 0xD0, 3, b"\x40" * 2 + nothings), to_of),
    }
    for head, read_it in heads.values():
        with pytest.raises(MessageFormatError, match="more than 1024 values"):
            read_it(head + b"\0\x53\x75\xa0\0")
    others = _section(0x72, 0xD1, 2 * many, b"\xa3\0\x40" * many)
    assert later_of(others + b"\0\x53\x75\xa0\0", float) == "", "annotations of others are as many as they like"
