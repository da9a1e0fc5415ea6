"""A link's messages are put together from their frames here, and never more of them than is allowed."""

from typing import Any

from headgate.amqp.handler import Incoming
from headgate.amqp.limits import RetainedLinks
from headgate.amqp.link import RESOURCE_LIMIT, TOO_LARGE, Link
from headgate.amqp.proton import SCRATCH, ffi, lib

# Names of the module, not attributes of the library: they are looked up for each message.
_current, _pending, _recv = lib.pn_link_current, lib.pn_delivery_pending, lib.pn_link_recv
_partial, _aborted, _advance = lib.pn_delivery_partial, lib.pn_delivery_aborted, lib.pn_link_advance
_settled, _settle, _unpack = lib.pn_delivery_settled, lib.pn_delivery_settle, ffi.unpack

Fault = tuple[str, str]
"""An AMQP error, and what it says."""


def take(link: Link, scratch: Any, kept: RetainedLinks) -> tuple[list[Incoming], Fault | None, bool]:
    """Return a link's complete messages, the error of the next one, and whether any was aborted."""
    messages: list[Incoming] = []
    aborted = False
    raw = link.raw
    while delivery := _current(raw):
        size = _recv(raw, scratch, SCRATCH)
        if size < 0 and _aborted(delivery):
            kept.unfinished -= len(link.partial)
            link.partial.clear()
            _settle(delivery)
            aborted = True
            continue
        piece = _unpack(scratch, size) if size > 0 else b""
        if size == SCRATCH and (size := _pending(delivery)):
            buffer = ffi.new("char[]", size)
            piece += _unpack(buffer, max(0, _recv(raw, buffer, size)))
        size = len(piece)
        unfinished = _partial(delivery)
        if unfinished or link.partial:
            link.partial += piece
            kept.unfinished += len(piece)
            size = len(link.partial)
        if size > link.max_message:
            text = f"a message of at least {size} bytes; link {link.name!r} takes {link.max_message}"
            return messages, (TOO_LARGE, text), aborted
        if unfinished:
            excess = kept.excess
            return messages, (RESOURCE_LIMIT, excess) if excess else None, aborted
        if link.partial:
            piece = bytes(link.partial)
            kept.unfinished -= len(piece)
            link.partial.clear()
        _advance(raw)
        if _settled(delivery):
            _settle(delivery)
            messages.append((piece, None))
        else:
            messages.append((piece, delivery))
    return messages, None, aborted


def ignore(raw: Any, scratch: Any) -> int:
    """Drop what comes over a link that we have closed, for the library would keep it; returns how many messages."""
    dropped = 0
    while lib.pn_link_is_receiver(raw) and (delivery := _current(raw)):
        while _recv(raw, scratch, SCRATCH) > 0:
            pass
        if _partial(delivery) and not _aborted(delivery):
            break
        _settle(delivery)
        dropped += 1
    return dropped
