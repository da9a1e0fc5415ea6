"""A queue delivers messages by keys that take turns, where the setting ``fair_by`` says so."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from headgate.core.amqp.mapping import PREFIX
from headgate.core.amqp.sections import header_of
from headgate.core.limiting.amounts import NO_KEY
from headgate.core.limits.limiter_forms import weights_text
from headgate.core.limits.priority import PRIORITY, band_key
from headgate.core.links.calls import Put, Skip
from headgate.core.outbox import Outgoing
from headgate.core.selector.messages import headers_of
from headgate.core.spellings import ValueForm
from headgate.errors import InvalidValue, MessageFormatError, PolicyError

PRODUCER: Final = "producer"
GROUP_ID: Final = "group-id"
HEADER: Final = "header:"
MAX_KEY: Final = 128
"""Bytes of an encoded key; of a longer one the first are kept, and a hash of all."""
_KEPT: Final = 64
_MAX_HEADER: Final = 200
MOST_VALUES: Final = 4096
"""Values before the body of an AMQP message that is looked through for its key; one with more has none."""
_LONG: Final = 4096
"""Characters of a value; of a longer one the first stand for it, and a hash of all."""


def named_by(value: Any) -> bool:
    """Return whether a value names a header, or the group id, by which messages have keys."""
    header = value.removeprefix(HEADER) if isinstance(value, str) and value.startswith(HEADER) else ""
    return value == GROUP_ID or (0 < len(header) <= _MAX_HEADER and header.isprintable())


def _fair_by(value: Any, what: str) -> str:
    if value not in (PRODUCER, PRIORITY) and not named_by(value):
        raise InvalidValue(
            f"{value!r}; write '{HEADER}<name>' for the value of a header, '{GROUP_ID}', '{PRODUCER}' or '{PRIORITY}'",
            setting=what,
        )
    return str(value)


def _order_by(value: Any, what: str) -> str:
    if not named_by(value):
        text = f"{value!r}; write '{HEADER}<name>' for the value of a header, or '{GROUP_ID}'"
        raise InvalidValue(text, setting=what)
    return str(value)


FAIR_BY: Final = ValueForm(_fair_by, "FairBy")
ORDER_BY: Final = ValueForm(_order_by, "OrderBy")
FAIR_WEIGHTS: Final = ValueForm(weights_text, "Weights")


def check_turns(fields: Mapping[str, str], given: Mapping[str, str]) -> None:
    """See that only keys have weights, and only priorities a bound on overtaking; about what is given.

    Raises:
        PolicyError: a setting would mean nothing.
    """
    by_priority = fields.get("fair_by") == PRIORITY
    if given.get("fair_weights") and by_priority:
        raise PolicyError("fair_weights mean nothing for priorities; give max_overtaken", setting="fair_weights")
    if given.get("max_overtaken") and not by_priority:
        raise PolicyError(f"nothing overtakes here; give fair_by = '{PRIORITY}' too", setting="max_overtaken")


def fair_key(stored: bytes, fair_by: str) -> str:
    """Return the key of a stored message, encoded; :data:`NO_KEY` where it has none.

    Text, numbers and truth values are keys; other values of a header are none, nor is a header that nobody can read.

    >>> from headgate.message import encode
    >>> fair_key(encode(b"", {"tenant": "a b"}), "header:tenant")
    'a%20b'
    """
    try:
        if fair_by == PRIORITY and stored[:1] == b"\0":
            return band_key(header_of(stored).priority)
        headers = headers_of(stored, MOST_VALUES)
    except MessageFormatError:
        return NO_KEY
    if fair_by == PRIORITY:
        return band_key(headers.get(f"{PREFIX}{PRIORITY}"))
    name = f"{PREFIX}{GROUP_ID}" if fair_by == GROUP_ID else fair_by.removeprefix(HEADER)
    return encoded_key(headers.get(name))


def encoded_key(value: Any) -> str:
    """Return a value as the scripts take it for a key."""
    if isinstance(value, bool):
        value = "true" if value else "false"
    if not isinstance(value, str | int) or value == "":
        return NO_KEY
    text = str(value)
    if len(text) > _LONG:
        text = f"{text[:_LONG]}~{hashlib.sha256(text.encode(errors='replace')).hexdigest()}"
    key = quote(text, safe="", errors="replace")
    if len(key) <= MAX_KEY:
        return key
    return f"{key[:_KEPT]}~{hashlib.sha256(key.encode()).hexdigest()[:24]}"


def keys_over_a_link(entries: Sequence[Put | Skip], fair_by: str) -> str:
    """Return the same of what a link brings; as a producer it is one."""
    if fair_by in ("", PRODUCER):
        return ""
    return " ".join(fair_key(entry.body, fair_by) if isinstance(entry, Put) else NO_KEY for entry in entries)


def fair_keys(items: Sequence[Outgoing], fair_by: str) -> str:
    """Return the keys of a batch as the scripts take them; nothing where all are of the session, which these know."""
    if fair_by != PRODUCER:
        return " ".join(fair_key(item.payload if item.whole is None else item.whole, fair_by) for item in items)
    return " ".join(encoded_key(item.producer) for item in items) if any(item.producer for item in items) else ""
