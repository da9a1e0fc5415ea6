"""AMQP 1.0 has types that Python lacks: they are here, and how much of AMQP one message may hold.

Null, booleans, integers, floats, binary, strings, uuids, lists and maps are what they are called in Python. An array is
a list, a decimal a :class:`decimal.Decimal`, a timestamp a :class:`datetime.datetime` in UTC. The others are here.
"""

from dataclasses import dataclass
from typing import Any, Final

MAX_DEPTH: Final = 32
"""Lists, maps, arrays and described levels of nested values."""
MAX_VALUES: Final = 1 << 20
"""Values in one message: a byte can be a whole list, and each takes far more than that in memory."""


class Symbol(str):
    """A symbol is text of ASCII characters from some vocabulary, such as a content type or an annotation's name."""

    __slots__ = ()


class Char(str):
    """A char is one character."""

    __slots__ = ()


class Timestamp(int):
    """A timestamp is a moment that no :class:`datetime.datetime` can say: ms since 1970, UTC."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Described:
    """A described value has a type that is not AMQP's own.

    Attributes:
        descriptor: names the type: a symbol or a number.
        value: as it would be without the descriptor.
    """

    descriptor: Any
    value: Any
