"""Headers may be large, and not so many values that a message kills who reads it."""

import tracemalloc
from typing import Any

import pytest

from headgate.core.amqp import msgpack_form
from headgate.errors import InvalidValue, MessageFormatError
from headgate.message import decode, encode


def test_headers_that_are_too_many_to_be_read_are_not_sent() -> None:
    many: list[dict[str, Any]] = [{"a": [[]] * 200_000}, {"a": [{str(n): 1 for n in range(60_000)}] * 2}]
    for headers in many:
        with pytest.raises(InvalidValue, match="no client could read"):
            encode(b"", headers)
    few: list[dict[str, Any]] = [{"a": list(range(90_000))}, {"a": "x" * 1_000_000}]
    for headers in few:
        assert decode(encode("ü" * 100_000, headers)) == ("ü" * 100_000, headers)


@pytest.mark.parametrize("empty", [b"\x90", b"\x80"])
def test_what_others_sent_is_bounded_as_it_is_read(empty: bytes) -> None:
    bomb = b"\x92\xc4\x01x\x81\xa1a\xdc\x03\xe8" + (b"\xdc\x40\x00" + empty * 16384) * 1000
    tracemalloc.start()
    try:
        for read in (msgpack_form.read, msgpack_form.read_headers):
            with pytest.raises(MessageFormatError, match="more than 100000"):
                read(bomb)
        assert tracemalloc.get_traced_memory()[1] < 96 << 20
    finally:
        tracemalloc.stop()
