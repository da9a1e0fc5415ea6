"""Some fields are read again, from the bytes that have just come: those that the library misreads or loses.

It is looked for only where something shows that it may be there, and taken for true only where frames follow one
another up to the end of those bytes: then the library is between two frames too.
"""

import re
import struct
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, Final

from headgate.amqp.link import DECODE_ERROR, INVALID_FIELD, Link, Terminus
from headgate.amqp.proton import lib, read_text_map, text
from headgate.core.amqp.reader import Reader
from headgate.errors import HeadgateError, MessageFormatError

MOST_CREDIT: Final = (1 << 31) - 1
"""Credit that the library takes for what it says; more is less than none to it."""
_DELIVERY_COUNT, _CREDIT, _DRAIN, _ECHO = 5, 6, 8, 9
_FLOW: Final = re.compile(rb"\x02\x00..\x00(?:S\x13|\x80\0{7}\x13)", re.DOTALL)
_MOST: Final = 100
"""Bounds of a second reading: flows at a time, possible addresses, and bytes of a flow at the end."""


class MalformedAttach(HeadgateError):
    """An attach says what cannot be a name or an address.

    Attributes:
        condition: the AMQP error that says so, and its text.
    """

    def __init__(self, condition: str, text: str) -> None:
        super().__init__(text)
        self.condition = condition, text


def read_attach(raw: Any, data: bytes) -> tuple[Terminus, Terminus, str]:
    """Return source and target of a link as the peer says them in what has just come, and its name.

    Raises:
        Unreadable: a name, an address, a capability, a filter or a property is no text, or an address has a NUL.
    """
    try:
        source, target = (Terminus.read(get(raw)) for get in (lib.pn_link_remote_source, lib.pn_link_remote_target))
        name = text(lib.pn_link_name(raw)) or ""
        read_text_map(lib.pn_link_remote_properties(raw))
    except UnicodeDecodeError as error:
        part = "a name, an address, a capability, a filter or a property of the link"
        raise MalformedAttach(DECODE_ERROR, f"{part} is not UTF-8: {error}") from None
    receives = lib.pn_link_is_receiver(raw)
    end = target if receives else source
    if not end.dynamic and not end.coordinator and (wrong := _misread(data, end.address, target=receives)):
        raise MalformedAttach(INVALID_FIELD, wrong)
    return source, target, name


def repeated(data: bytes, links: Iterable[Link]) -> bytes:
    """Return flows that came last, as they have to be passed to the library; empty where there are none.

    They give more credit than it can count, or drain a link whose receiver did not know yet of all transfers.
    """
    senders = [link.raw for link in links if not link.receives]
    drained = [raw for raw in senders if lib.pn_link_get_drain(raw) and lib.pn_link_credit(raw) < 0]
    behind = -lib.pn_link_credit(drained[0]) - lib.pn_link_queued(drained[0]) if len(drained) == 1 else 0
    again = []
    for start, stop in _frames(data):
        if not _FLOW.match(data, start + 4):
            continue
        body = start + 8
        reader = Reader(data, body + (3 if data[body + 1] == 0x53 else 10), stop)
        try:
            fields = [reader.value(1) for _ in range(reader.enter_list())]
        except MessageFormatError:
            continue
        if len(fields) <= _CREDIT or not all(isinstance(field, int) for field in fields[_DELIVERY_COUNT : _CREDIT + 1]):
            continue
        if fields[_CREDIT] > MOST_CREDIT:
            fields[_CREDIT] = MOST_CREDIT
        elif behind > 0 and len(fields) > _DRAIN and fields[_DRAIN] is True:
            fields[_DELIVERY_COUNT] = (fields[_DELIVERY_COUNT] + behind) & 0xFFFFFFFF
        else:
            continue
        again.append(_flow(data[start + 6 : start + 8], fields[: _DRAIN + 1]))
    return b"".join(again[-_MOST:])


def echoes(data: bytes) -> bool:
    """Return whether what came last is a flow that asks for an answer."""
    start = data.rfind(b"\0S\x13", max(0, len(data) - _MOST)) - 8
    if start < 0 or int.from_bytes(data[start : start + 4]) != len(data) - start:
        return False
    reader = Reader(data, start + 11)
    try:
        fields = [reader.value(1) for _ in range(reader.enter_list())]
    except MessageFormatError:
        return False
    return len(fields) > _ECHO and fields[_ECHO] is True


def _frames(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield where frames begin and end, from the first flow with only whole frames after it."""
    seen = set[int]()  # whoever comes to where one was before ends as that did
    for found in _FLOW.finditer(data):
        starts = [at := found.start() - 4]
        while 0 <= at <= len(data) - 8 and at not in seen and (size := int.from_bytes(data[at : at + 4])) >= 8:
            seen.add(at)
            starts.append(at := at + size)
        if at == len(data):
            yield from pairwise(starts)
            return


def _flow(channel: bytes, fields: list[Any]) -> bytes:
    items = b"".join(
        b"\x40"
        if field is None
        else b"\x41"
        if field is True
        else b"\x42"
        if field is False
        else b"\x70" + _uint(field)
        for field in fields
    )
    body = b"\0S\x13\xd0" + struct.pack(">II", len(items) + 4, len(fields)) + items
    return struct.pack(">IBB", len(body) + 8, 2, 0) + channel + body


def _uint(value: int) -> bytes:
    return struct.pack(">I", value & 0xFFFFFFFF)


def _misread(data: bytes, address: str | None, *, target: bool) -> str:
    """Return what is wrong with an address that the library has read, in words; empty where nothing shows.

    It stops at a NUL, and takes an address that is no text for none.
    """
    if address is None:
        descriptor = b"\0S\x29" if target else b"\0S\x28"
        for found in re.finditer(re.escape(descriptor) + rb"(?:\xc0..|\xd0.{8})([^\x40\x42])", data, re.DOTALL):
            if found[1] not in (b"\xa1", b"\xb1"):
                return "an address is text"
        return ""
    raw = address.encode()
    at = data.find(raw + b"\0")
    for _ in range(_MOST):
        if at < 0:
            return ""
        short = at > 1 and data[at - 2] == 0xA1 and data[at - 1] > len(raw)
        if short or (data[at - 5 : at - 4] == b"\xb1" and int.from_bytes(data[at - 4 : at]) > len(raw)):
            break
        at = data.find(raw + b"\0", at + 1)
    return "an address has no NUL"  # or it stands before one so often that nobody looks for it to the end
