"""Calls travel from an SDK to a node, their answers and hints back, many in one AMQP message.

A message is one data section with a msgpack array. A call is ``[number, what, ...]``; an answer
``[number, "ok", value]`` or ``[number, error, text, facts]``; a hint ``[0, channel, words]``. Numbers tell which answer
is whose, so answers come in any order; a call that is repeated, on whatever connection, keeps its number.

    call        script, first key, ARGV      the other keys follow from the first, and from the session in ARGV
    secure      script, first key, ARGV, durability, ms
                                             the same, and then a wait of so long at most; answered
                                             [reply, replicas, whether it is on the disk, problem]
    command     key, words                   one read-only command
    scan        pattern                      keys
    everywhere  words                        one read-only command at each master
    hear        channels                     from now on their hints come
    unhear      channels
    waited      rows of kind, destination, seconds, outcome
                                             waits of callers that are over, for the node to count; from nodes on that
                                             say ``waits``
    ping                                     answered without asking Redis
"""

import struct
from collections.abc import Sequence
from typing import Any, Final

import msgpack

from headgate.core.amqp.msgpack_form import counter
from headgate.errors import (
    AccessDenied,
    CoordinatorUnavailable,
    DestinationDamaged,
    HeadgateError,
    InvalidName,
    InvalidValue,
    MessageFormatError,
    PolicyError,
)

GATEWAY: Final = "$headgate"
"""Where the calls go to, and where the answers come from."""
MAX_CALL: Final = 129 << 20
"""Bytes of one AMQP message with calls: the largest message there is, 128 MiB, and its frame."""
MAX_CALLS: Final = 256
"""Calls in one AMQP message."""
MAX_WORDS: Final = 1024
"""Values in one array of a call."""
MAX_PAIRS: Final = 16
"""Pairs of a map, which no call has: it is refused by itself."""
LARGE: Final = 1 << 20
"""Bytes above which a call goes alone, and only when no other such call of its connection is under way."""
CREDIT: Final = 16
"""AMQP messages with calls that a connection may have under way; one more is kept for a ping."""
ANSWERS: Final = 1000
"""AMQP messages with answers that a node may send ahead of its client."""
PING: Final = -1
"""The number of a call that asks for a sign of life."""
HINT: Final = 0
OK: Final = "ok"

_DATA: Final = b"\0\x53\x75\xb0"
_ERRORS: Final[dict[str, type[HeadgateError]]] = {
    "damaged": DestinationDamaged,
    "unavailable": CoordinatorUnavailable,
    "policy": PolicyError,
    "name": InvalidName,
    "invalid": InvalidValue,
}
"""The first that fits; AccessDenied, which has facts, is none of them."""
_packer: Final = msgpack.Packer(autoreset=True, use_bin_type=True)
pack: Final = _packer.pack


def message(packed: Sequence[bytes]) -> bytes:
    """Return the AMQP message with these calls or answers, each packed."""
    content = b"".join((_packer.pack_array_header(len(packed)), *packed))
    return b"".join((_DATA, struct.pack(">I", len(content)), content))


def read(raw: bytes) -> list[list[Any]]:
    """Return the answers in an AMQP message of a node, which is trusted with all that goes over it.

    Raises:
        MessageFormatError: it is none of ours.
    """
    return _arrays(raw, strict_map_key=False)


def read_calls(raw: bytes) -> list[list[Any]]:
    """Return the calls in an AMQP message of a client, which may be anybody: what it becomes in memory is bounded.

    Raises:
        MessageFormatError: it is none of ours, or has too many values.
    """
    hook = counter(raw)
    bounds = {"max_array_len": MAX_WORDS, "max_map_len": MAX_PAIRS, "max_ext_len": 0}
    return _arrays(raw, **bounds, strict_map_key=False, list_hook=hook, object_hook=hook)


def _arrays(raw: bytes, **how: Any) -> list[list[Any]]:
    if raw[:4] != _DATA or len(raw) < 9:
        raise MessageFormatError("not one data section with its size in four bytes", at=0)
    try:
        found = msgpack.unpackb(memoryview(raw)[8:], **how)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise MessageFormatError(str(error) or type(error).__name__, at=8) from None
    if type(found) is not list or not all(type(one) is list and len(one) > 1 and type(one[0]) is int for one in found):
        raise MessageFormatError("not an array of arrays that begin with a number", at=8)
    return found


def failure(error: HeadgateError) -> tuple[str, str, dict[str, str]]:
    """Return an error as it is sent: its kind, its text and its facts."""
    if isinstance(error, AccessDenied):
        return "denied", str(error), {"user": error.user, "action": error.action, "destination": error.destination}
    for kind, known in _ERRORS.items():
        if isinstance(error, known):
            answered = isinstance(error, CoordinatorUnavailable) and error.answered
            return kind, str(error), {"answered": "yes"} if answered else {}
    return "failed", str(error), {}


def error_of(kind: Any, text: Any = "", facts: Any = None) -> HeadgateError:
    """Return the error that was sent."""
    known_facts = facts if isinstance(facts, dict) else {}
    if kind == "denied":
        return AccessDenied(
            str(text),
            user=str(known_facts.get("user", "")),
            action=str(known_facts.get("action", "")),
            destination=str(known_facts.get("destination", "")),
        )
    known = _ERRORS.get(kind, HeadgateError)
    if issubclass(known, CoordinatorUnavailable):
        return known(str(text), answered=known_facts.get("answered") == "yes")
    return known(str(text))
