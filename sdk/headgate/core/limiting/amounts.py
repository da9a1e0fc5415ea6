"""Amounts and keys of admissions, as callers write them and as a limiter's script takes them."""

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Final, NamedTuple
from urllib.parse import quote

from headgate.core.limits import MOST_LIMITS
from headgate.errors import InvalidName, InvalidValue
from headgate.units import parse_size

MAX_AMOUNT: Final = 2**52
"""Of one limit at once; sums in the script stay below 2**53, where whole numbers are exact."""
MAX_KEY_BYTES: Final = 255
NO_KEY: Final = "*"
"""Stands for a call that has no key; an encoded key has no such character."""
MAX_TEXT: Final = 800
"""Bytes of all amounts together, as the script takes them."""
MOST_ALIKE: Final = 256
"""Amounts of which it is remembered that they are right."""
FEW: Final = 8
"""Amounts that never take more than that, however long names and numbers are."""
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.~-]{1,255}\Z", re.ASCII)
"""Keys that are spelled as they are."""
_NAME: Final = re.compile(r"[A-Za-z0-9_]{1,64}\Z", re.ASCII)


def check_amounts(amounts: Mapping[str, int | str], known: Iterable[str] = ()) -> dict[str, int]:
    """Return the amounts of an admission or of what was used, as whole numbers.

    Args:
        amounts: by the names of limits; whole numbers, or sizes such as ``"64KiB"``.
        known: the names that there are; nothing where they are not known yet.

    Raises:
        InvalidValue: no amount, too many, an unknown name, or not a whole number from 0 to 2**52.
    """
    names = tuple(known)
    if not amounts:
        some = f" such as {names[0]}=1" if names else " such as requests=1"
        raise InvalidValue(f"no amount is given; name at least one limit,{some}", setting="amounts")
    if len(amounts) > MOST_LIMITS:
        raise InvalidValue(f"{len(amounts)} amounts; a limiter has at most {MOST_LIMITS} limits", setting="amounts")
    checked = {}
    for name, value in amounts.items():
        if names and name not in names:
            near = get_close_matches(name, names, 1)
            there = f"did you mean {near[0]!r}? There" if near else "there"
            raise InvalidValue(f"there is no such limit; {there} are {', '.join(names)}", setting=name[:80])
        if not names and not _NAME.match(name):
            raise InvalidValue("the name of a limit is 1 to 64 of A-Z, a-z, 0-9 and '_'", setting=name[:80])
        number = parse_size(value, name) if isinstance(value, str) else value
        if type(number) is not int or not 0 <= number <= MAX_AMOUNT:
            raise InvalidValue(f"{value!r:.80}; use a whole number from 0 to {MAX_AMOUNT}", setting=name)
        checked[name] = number
    if len(checked) > FEW and len(amounts_text(checked)) > MAX_TEXT:
        raise InvalidValue(f"together they take more than {MAX_TEXT} characters; shorten names", setting="amounts")
    return checked


class RequestedAmounts(NamedTuple):
    """An admission has these amounts, which were found to be right.

    Attributes:
        amounts: as whole numbers; not to be changed, for many admissions share them.
        text: as the script takes them: those that are 0 are left out.
    """

    amounts: dict[str, int]
    text: str


class AmountChecker:
    """An amount checker reads amounts of admissions, once for all that ask for the same.

    Args:
        known: the names of limits that there are; nothing where they are not known yet.
    """

    def __init__(self, known: Iterable[str] = ()) -> None:
        self._known = tuple(known)
        self._asked: dict[tuple[tuple[str, int | str], ...], RequestedAmounts] = {}

    def read(self, amounts: Mapping[str, int | str]) -> RequestedAmounts:
        """Return amounts as they are asked for.

        Raises:
            InvalidValue: as :func:`check_amounts`, and where all are 0.
        """
        names = tuple(amounts.items())
        for _, number in names:
            if number.__class__ is not int:  # True and 1.0 are equal to 1
                return self._check(amounts)
        asked = self._asked.get(names)
        if asked is None:
            if len(self._asked) >= MOST_ALIKE:
                self._asked.clear()
            asked = self._asked[names] = self._check(amounts)
        return asked

    def _check(self, amounts: Mapping[str, int | str]) -> RequestedAmounts:
        checked = check_amounts(amounts, self._known)
        some = {name: number for name, number in checked.items() if number}
        if not some:
            raise InvalidValue("all are 0; an admission takes at least 1 of one limit", setting="amounts")
        return RequestedAmounts(checked, amounts_text(some))


def amounts_text(amounts: Mapping[str, int]) -> str:
    """Return amounts as the script takes them.

    >>> amounts_text({"requests": 1, "tokens": 4000})
    'requests=1,tokens=4000'
    """
    return ",".join([f"{name}={number}" for name, number in amounts.items()]) or "-"


def encode_key(key: str | None) -> str:
    """Return a key as the script takes it: percent-encoded, as names are; ``*`` where there is none.

    Raises:
        InvalidName: not text, empty, over 255 bytes, or not UTF-8.
    """
    if key is None:
        return NO_KEY
    if isinstance(key, str) and _PLAIN.match(key):
        return key
    if not isinstance(key, str) or not key:
        raise InvalidName(f"key {key!r:.80}: a key is text and not empty; leave it out where there is none")
    try:
        size = len(key.encode())
    except UnicodeEncodeError as error:
        raise InvalidName(f"key {key!r:.80}: not UTF-8 at position {error.start}") from None
    if size > MAX_KEY_BYTES:
        raise InvalidName(f"key {key[:40]!r}...: {size} bytes, at most {MAX_KEY_BYTES} are allowed")
    return quote(key, safe="")
