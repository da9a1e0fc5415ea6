"""Frames as bytes, for what no library would send."""

import struct
from collections.abc import Sequence

HEADER = b"AMQP\x00\x01\x00\x00"
NULL, TRUE, FALSE = b"\x40", b"\x41", b"\x42"


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return b"\xb1" + struct.pack(">I", len(raw)) + raw


def number(value: int) -> bytes:
    return b"\x70" + struct.pack(">I", value)


def described(code: int, fields: Sequence[bytes]) -> bytes:
    inner = b"".join(fields)
    return b"\x00\x53" + bytes([code]) + b"\xd0" + struct.pack(">II", len(inner) + 4, len(fields)) + inner


def frame(code: int, fields: Sequence[bytes], *, channel: int = 0, payload: bytes = b"") -> bytes:
    body = described(code, fields) + payload
    return struct.pack(">IBBH", len(body) + 8, 2, 0, channel) + body


def nothings(count: int) -> bytes:
    """A map of nothing to nothing, many times."""
    return b"\xd1" + struct.pack(">II", count + 4, count) + NULL * count


def opening(name: str = "raw") -> bytes:
    return HEADER + frame(0x10, [text(name)])


def begin(channel: int = 0, *, window: int = 1 << 14) -> bytes:
    """Begin a session that takes so many transfers."""
    return frame(0x11, [NULL, number(0), number(window), number(1 << 14)], channel=channel)


def end(channel: int = 0) -> bytes:
    return frame(0x17, [], channel=channel)


def attach(
    name: str,
    handle: int,
    *,
    receives: bool = False,
    address: str | bytes = "orders",
    filters: bytes = NULL,
    capability: str = "",
    presettled: bool = False,
    channel: int = 0,
) -> bytes:
    """Begin a link, as its sender unless it ``receives``."""
    word = b"\xa3" + bytes([len(capability)]) + capability.encode() if capability else NULL
    source = described(0x28, [text(address), *[NULL] * 6, filters, NULL, NULL, word])
    target = described(0x29, [text(address)])
    role = TRUE if receives else FALSE
    count = NULL if receives else number(0)
    return frame(
        0x12,
        [
            text(name),
            number(handle),
            role,
            b"\x50\x01" if presettled else NULL,
            NULL,
            source,
            target,
            NULL,
            NULL,
            count,
        ],
        channel=channel,
    )


def detach(handle: int, *, channel: int = 0) -> bytes:
    return frame(0x16, [number(handle), TRUE], channel=channel)


def transfer(
    handle: int, delivery: int, payload: bytes, *, more: bool = False, settled: bool = False, channel: int = 0
) -> bytes:
    """Send a message, or a part of it."""
    tag = b"\xa0\x04" + struct.pack(">I", delivery)
    fields = [number(handle), number(delivery), tag, number(0), TRUE if settled else FALSE, TRUE if more else FALSE]
    return frame(0x14, fields, channel=channel, payload=payload)


def flow(
    handle: int | None = None,
    credit: int = 0,
    *,
    window: int = 1 << 14,
    drain: bool = False,
    echo: bool = False,
    channel: int = 0,
) -> bytes:
    """Tell the window and a link's credit, both counted from the first transfer of all."""
    link = (
        [number(handle), number(0), number(credit), NULL, TRUE if drain else FALSE]
        if handle is not None
        else [NULL] * 5
    )
    return frame(
        0x13,
        [number(0), number(window), number(0), number(1 << 14), *link, TRUE if echo else FALSE],
        channel=channel,
    )
