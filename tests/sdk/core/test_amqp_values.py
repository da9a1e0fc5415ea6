"""AMQP values: what proton writes is read, what is written proton reads, and bytes that are neither are refused."""

import datetime as dt
import random
import struct
import uuid
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import proton
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headgate import MessageFormatError
from headgate.core.amqp.reader import Reader
from headgate.core.amqp.types import MAX_DEPTH, MAX_VALUES, Char, Described, Symbol, Timestamp
from headgate.core.amqp.writer import write
from tests.support.extent import each, examples

ROUND_TRIPS = settings(max_examples=examples(200), deadline=None)
FUZZ = settings(max_examples=examples(2000), deadline=None)
DAMAGE = settings(max_examples=examples(250), deadline=None)
"""Of what is damaged in many ways: a value is what takes long to make up."""
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

moments = st.integers(-(10**13), 10**13).map(lambda ms: EPOCH + dt.timedelta(milliseconds=ms))
plain = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(max_size=400)
    | st.uuids()
    | moments
)
symbols = st.text(st.characters(max_codepoint=127), max_size=300).map(Symbol)
characters = st.characters(exclude_categories=["Cs"])
simple = plain | symbols | characters.map(Char)
keys = st.text(max_size=5) | st.integers(2, 2**64 - 1) | st.uuids()
values = st.recursive(
    simple,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=20,
)


def read(encoded: bytes) -> Any:
    reader = Reader(encoded)
    found = reader.value()
    assert reader.at == len(encoded)
    return found


def typed(value: Any) -> Any:
    """The value with what type it has, for True is 1 to Python."""
    if isinstance(value, list | tuple):
        return [typed(each) for each in value]
    if isinstance(value, dict):
        return {name: typed(each) for name, each in value.items()}
    return type(value), value


def proton_read(encoded: bytes) -> Any:
    data = proton.Data()
    assert data.decode(encoded) == len(encoded)
    data.rewind()
    data.next()
    return of_proton(data.get_object())  # while the memory that it looks at is there


def proton_write(put: str, value: Any) -> bytes:
    data = proton.Data()
    getattr(data, f"put_{put}")(value)
    return bytes(data.encode())


def of_proton(value: Any) -> Any:
    """A value of proton as it is read here."""
    if isinstance(value, memoryview):
        return bytes(value)
    if isinstance(value, proton.timestamp):
        return EPOCH + dt.timedelta(milliseconds=int(value))
    if isinstance(value, list):
        return [of_proton(each) for each in value]
    if isinstance(value, dict):
        return {of_proton(name): of_proton(each) for name, each in value.items()}
    for kind, plainer in ((proton.symbol, Symbol), (proton.char, Char), (int, int), (float, float)):
        if isinstance(value, kind) and not isinstance(value, bool):
            return plainer(value)
    return value


@ROUND_TRIPS
@given(values)
def test_what_is_written_is_read(value: Any) -> None:
    assert typed(read(write(value))) == typed(value)
    reader = Reader(write(value))
    assert reader.encoded() == write(value)


@ROUND_TRIPS
@given(values)
def test_proton_reads_what_is_written(value: Any) -> None:
    assert typed(proton_read(write(value))) == typed(value)


@ROUND_TRIPS
@given(values)
def test_what_proton_writes_is_read(value: Any) -> None:
    encoded = bytes(_put(value))
    assert typed(read(encoded)) == typed(value)


def _put(value: Any) -> bytes:
    data = proton.Data()
    data.put_object(_for_proton(value))
    return bytes(data.encode())


def _for_proton(value: Any) -> Any:
    if isinstance(value, list):
        return [_for_proton(each) for each in value]
    if isinstance(value, dict):
        return {_for_proton(name): _for_proton(each) for name, each in value.items()}
    if isinstance(value, dt.datetime):
        return proton.timestamp((value - EPOCH) // dt.timedelta(milliseconds=1))
    if isinstance(value, Symbol):
        return proton.symbol(value)
    if isinstance(value, Char):
        return proton.char(value)
    if isinstance(value, int) and value >= 2**63:
        return proton.ulong(value)
    return value


@each(
    ("put", "value"),
    [
        ("ubyte", 255), ("byte", -128), ("ushort", 65535), ("short", -32768), ("uint", 0), ("uint", 255),
        ("uint", 2**32 - 1), ("int", -1), ("int", -(2**31)), ("ulong", 0), ("ulong", 2**64 - 1), ("long", -(2**63)),
        ("long", 1), ("float", 0.5), ("double", -0.1), ("bool", True), ("bool", False), ("binary", b""),
        ("binary", b"x" * 300), ("string", "é" * 300), ("symbol", "a" * 300),
        ("timestamp", 0),
    ],
)  # fmt: skip
def test_every_width_that_proton_writes_is_read(put: str, value: Any) -> None:
    assert read(proton_write(put, value)) == (EPOCH if put == "timestamp" else value)


def test_an_array_is_a_list() -> None:
    data = proton.Data()
    data.put_array(False, proton.Data.INT)
    data.enter()
    for number in (1, -2, 70000):
        data.put_int(number)
    data.exit()
    assert read(bytes(data.encode())) == [1, -2, 70000]
    described = b"\xe0\x09\x02\x00\xa3\x01k\x53\x05\x06"
    assert read(b"\xe0\x08" + described[2:]) == [Described("k", 5), Described("k", 6)]


def test_a_described_value_keeps_its_descriptor() -> None:
    data = proton.Data()
    data.put_described()
    data.enter()
    data.put_symbol("some:type")
    data.put_string("x")
    data.exit()
    encoded = bytes(data.encode())
    assert read(encoded) == Described(Symbol("some:type"), "x")
    assert write(read(encoded)) == encoded


def test_a_moment_that_no_datetime_can_say_stays_a_number() -> None:
    encoded = struct.pack(">Bq", 0x83, 2**63 - 1)
    assert typed(read(encoded)) == (Timestamp, 2**63 - 1)
    assert write(read(encoded)) == encoded


@pytest.mark.parametrize(
    ("encoded", "value"),
    [
        ("74 32800001", "1"),
        ("74 B2800001", "-1"),
        ("74 3200000F", "1.5"),
        ("74 6CB8967F", "9999999"),
        ("74 78000000", "Infinity"),
        ("84 31A000000000000F", "1.5"),
        ("94 303E000000000000000000000000000F", "1.5"),
    ],
)
def test_decimals_are_read_and_written_with_128_bits(encoded: str, value: str) -> None:
    found = read(bytes.fromhex(encoded))
    assert (found, str(found)) == (Decimal(value), value)
    assert write(found)[0] == 0x94
    assert str(read(write(found))) == value


@ROUND_TRIPS
@given(st.decimals(allow_nan=False) | st.just(Decimal("-9" + "9" * 33)) | st.just(Decimal("1E+6111")))
def test_decimals_come_back_with_every_digit_or_are_refused(value: Decimal) -> None:
    try:
        encoded = write(value)
    except MessageFormatError:
        assert len(value.as_tuple().digits) > 34
    else:
        assert str(read(encoded)) == str(value)


@each(
    "value",
    [2**64, -(2**63) - 1, Decimal("1" * 35), Decimal("1E-6177"), Decimal("sNaN"),
     Symbol("é"), Char("ab"), Char(""), Char("\ud800"), "\ud800", object(), {1}, 1j,
     dt.datetime(2026, 1, 1),  # noqa: DTZ001 - it is what is refused
     Timestamp(2**63), {"x": [object()]}],
)  # fmt: skip
def test_what_amqp_cannot_say_is_refused(value: Any) -> None:
    with pytest.raises(MessageFormatError):
        write(value)


def test_what_holds_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(MessageFormatError, match="levels of nested values"):
        write(endless)


@pytest.mark.parametrize("opening", [b"\xc0%c\x01", b"\0\x53\x01", b"\xe0%c\x01"])
def test_too_many_values_inside_one_another_are_refused(opening: bytes) -> None:
    for depth, refused in ((MAX_DEPTH, False), (MAX_DEPTH + 1, True), (5000, True)):
        encoded = b"\x40"
        for _ in range(depth):
            if opening[0] == 0:
                encoded = opening + encoded
            elif opening[0] == 0xC0:
                encoded = struct.pack(">BII", 0xD0, len(encoded) + 4, 1) + encoded
            else:
                encoded = struct.pack(">BII", 0xF0, len(encoded) + 4, 1) + encoded
        if refused:
            with pytest.raises(MessageFormatError, match="levels of nested values"):
                Reader(encoded).value()
        else:
            assert Reader(encoded).value() is not object
        assert Reader(encoded).encoded() == encoded


@pytest.mark.parametrize("code", ["40", "41", "43", "45"])
def test_values_that_take_no_bytes_are_counted_all_the_same(code: str) -> None:
    encoded = struct.pack(">BII", 0xF0, 5, MAX_VALUES + 1) + bytes.fromhex(code)
    with pytest.raises(MessageFormatError, match=f"more than {MAX_VALUES} values"):
        Reader(encoded).value()


@each(
    "encoded",
    [
        "", "00", "a1", "a105616263", "b000000005", "56 02", "a1 01 ff", "a3 02 c3a9", "73 0000d800", "73 00110000",
        "98 00", "3f", "46", "59", "99", "c0 02 02 40", "c0 01 01", "c1 02 01 40", "c1 05 04 40 40 40 40",
        "c1 03 02 45 40", "c0 03 01 40 40", "e0 01 01", "e0 02 01 00", "d0 00000004 ffffffff", "c0 00",
    ],
)  # fmt: skip
def test_damaged_values_are_refused(encoded: str) -> None:
    with pytest.raises(MessageFormatError, match=r"cannot be read: .*\(byte \d+\)"):
        Reader(bytes.fromhex(encoded)).value()


def refusal(encoded: bytes) -> int:
    """Read it every way there is, and return where it was refused; 0 where it was not."""
    where = 0
    for read_it in (Reader.value, Reader.skip):
        try:
            read_it(Reader(encoded))
        except MessageFormatError as error:
            where = error.at or 0
    return where


@FUZZ
@example(b"\xc1\x06\x02\x00\x53\x01\x45\x40")
@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(encoded: bytes) -> None:
    assert 0 <= refusal(encoded) <= len(encoded)


def damages(raw: bytes, seed: int, ways: int = 16) -> Iterator[bytes]:
    """The bytes with one to three of them changed, in so many ways, each also cut off somewhere."""
    dice = random.Random(seed)
    for _ in range(ways):
        harmed = bytearray(raw)
        for _ in range(dice.randint(1, 3)):
            harmed[dice.randrange(len(harmed))] = dice.randrange(256)
        yield bytes(harmed)
        yield bytes(harmed[: dice.randint(0, len(harmed))])


@DAMAGE
@given(values.map(write), st.integers(0, 2**32))
def test_damaged_bytes_are_read_or_refused(encoded: bytes, seed: int) -> None:
    for harmed in damages(encoded, seed):
        assert 0 <= refusal(harmed) <= len(harmed)


def test_a_uuid_is_sixteen_bytes() -> None:
    one = uuid.UUID(int=7)
    assert proton_read(write(one)) == one == read(proton_write("uuid", one))
