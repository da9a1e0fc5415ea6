"""The limits of a limiter: as policies and settings write them, and as the state keeps them.

>>> requests = Limit.of("requests", {"rate": "500/min"})
>>> requests.text, Limit.of("in_flight", {"at_once": 50}).text
('requests rate 8.333333333333334 500', 'in_flight at_once 50')
>>> limits_of(requests.text)["requests"] == requests
True
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal

from headgate.core.limits.adapting import ADAPTS
from headgate.core.limits.adapting import MOST as MOST_ADAPTING
from headgate.errors import InvalidValue
from headgate.units import check_burst, parse_amount, parse_rate, split_rate

FormOfLimit = Literal["rate", "at_once", "quota"]
FORMS: Final = ("rate", "at_once", "quota")
MOST_LIMITS: Final = 16
RESERVED: Final = frozenset(
    {
        "band",
        "durability",
        "fail_if_late",
        "hold_off",
        "key",
        "line",
        "outcome",
        "outcome_of",
        "timeout",
        "ttl",
        "weight",
    }
)
"""Words that calls and answers have beside the names of limits."""
WINDOWS: Final = {"hour": 60, "day": 1440, "week": 10080, "month": 40320}
"""Minutes after its local begin at which a window may reset: each window has them all."""
SHADOW: Final = "S_"
"""Before the name of a shadow limit, where it stands among others."""
UNLIMITED: Final = 1 << 52
"""The most of a limit that binds nothing: a shadow limit of its name stands beside, or limits of each key."""
FREE: Final = "unlimited"
"""Stands for that in place of a rate, of what may be held at once, and of a quota's number."""
FREE_RATE: Final = 1e15
"""A second: of such a limit."""
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,31}\Z", re.ASCII)
_QUOTA: Final = re.compile(r"\s*([^/]{1,40}?)\s*/\s*(h|hour|day|week|month)\s*\Z", re.ASCII)
_RESETS: Final = re.compile(
    r"\s*(?:(mon|tue|wed|thu|fri|sat|sun|[1-9]|1\d|2[0-8])\s+)?(\d\d):(\d\d)(?:\s+([A-Za-z0-9_+/-]{1,64}))?\s*\Z",
    re.ASCII | re.IGNORECASE,
)
_DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_SHOWN: Final = {
    "hour": "'00:15 UTC' (15 minutes past)", "day": "'00:00 Europe/Berlin'", "week": "'mon 06:00 Europe/Berlin'",
    "month": "'1 06:00 Europe/Berlin' (its day, 1 to 28)",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit bounds what a limiter admits, of all keys together or of each.

    Attributes:
        name: what calls say an amount of.
        form: ``rate``, ``at_once`` or ``quota``.
        most: that may be taken at once: the burst of a rate, what is held together, or the quota of a window.
        rate: a second; None where it is none.
        window: of a quota: ``hour``, ``day``, ``week`` or ``month``; empty where it is none.
        minutes: from the local begin of that window to its reset.
        floor: of one that adapts: the least that it becomes; ``most`` is its ceiling. 0 where it does not.
        adapt: how it adapts, ``aimd`` or ``gradient``; empty where it does not.
    """

    name: str
    form: FormOfLimit
    most: int
    rate: float | None = None
    window: str = ""
    minutes: int = 0
    floor: int = 0
    adapt: str = ""

    @classmethod
    def of(cls, name: str, table: Mapping[str, Any]) -> "Limit":
        """Return the limit that a table says: ``rate`` and ``burst``, ``at_once``, or ``quota`` and ``resets``.

        Raises:
            InvalidValue: it says nothing, too much, or what cannot be read; ``setting`` is the key.
        """
        check_name(name)
        given = {key: value for key, value in table.items() if value is not None}
        forms = [form for form in FORMS if form in given]
        if len(forms) != 1:
            instead = f", not {', '.join(map(repr, given))}" if given else ""
            text = f"the limit {name!r} is one of rate, at_once and quota; give one of them{instead}"
            raise InvalidValue(text, setting="name")
        form = forms[0]
        for key in given:
            if key != form and (key, form) not in (("burst", "rate"), ("resets", "quota"), ("name", form)):
                owner = {"burst": "rate", "resets": "quota"}.get(key, "")
                text = f"belongs to a {owner}" if owner else "is not a key of a limit"
                raise InvalidValue(f"{key} {text}; leave it out of the limit {name!r}", setting=key)
        if form == "rate":
            return cls._of_rate(name, given["rate"], given.get("burst"))
        if form == "at_once":
            if isinstance(given["at_once"], Mapping):
                floor, most, adapt = _adapting(given["at_once"])
                return cls(name, "at_once", most, floor=floor, adapt=adapt)
            return cls(name, "at_once", _count(given["at_once"], "at_once"))
        most, window = _quota(given["quota"])
        return cls(name, "quota", most, window=window, minutes=reset_of(given.get("resets"), window)[0])

    @classmethod
    def _of_rate(cls, name: str, value: Any, burst: Any) -> "Limit":
        if value == FREE and burst is None:
            return cls(name, "rate", UNLIMITED, FREE_RATE)
        rate, amount = split_rate(value, "rate")
        most = max(1, amount) if burst is None else _count(burst, "burst")
        check_burst(rate, most)
        return cls(name, "rate", most, rate)

    def like(self, value: Any) -> "Limit":
        """Return the limit of the same name and form of each key, of which a policy says only the value.

        Raises:
            InvalidValue: it is of another form.
        """
        if self.form == "rate":
            return Limit._of_rate(self.name, value, None) if not isinstance(value, Mapping) else self._table(value)
        if isinstance(value, Mapping):
            return self._table({"at_once": value} if "adapt" in value else value)
        if self.form == "at_once":
            return Limit(self.name, "at_once", _count(value, self.name))
        most, window = _quota(value, self.name)
        if window != self.window:
            raise InvalidValue(
                f"{value!r}: the quota {self.name!r} of all keys together is of a {self.window}; write that here too",
                setting=self.name,
            )
        return Limit(self.name, "quota", most, window=window, minutes=self.minutes)

    def _table(self, value: Mapping[str, Any]) -> "Limit":
        limit = Limit.of(self.name, value)
        if limit.adapt:
            raise InvalidValue("the limit of a key does not adapt; write a count", setting=self.name)
        if (limit.form, limit.window) != (self.form, self.window):
            raise InvalidValue(f"it is a {self.form} of all keys together, so it is one of each key", setting=self.name)
        return Limit(self.name, limit.form, limit.most, limit.rate, self.window, self.minutes)

    @property
    def resets(self) -> str | None:
        """When its window resets, as a policy says it, without its time zone; None where there is no window."""
        if not self.window:
            return None
        day, minute = divmod(self.minutes, 1440)
        before = {"week": f"{_DAYS[day % 7]} ", "month": f"{day + 1} "}.get(self.window, "")
        return f"{before}{minute // 60:02}:{minute % 60:02}"

    def __str__(self) -> str:
        if self.most == UNLIMITED:
            return f"{self.name} unlimited"
        if self.form == "rate":
            return f"{self.name} {self.rate:.9g}/s ({self.most} at once)"
        if self.form == "at_once":
            return f"{self.name} {f'{self.floor} to ' if self.adapt else ''}{self.most} at once"
        return f"{self.name} {self.most}/{self.window} (from {self.resets})"

    @property
    def text(self) -> str:
        """The limit as the state keeps it, one of the entries of ``limits`` or ``key_limits``."""
        if self.form == "rate":
            return f"{self.name} rate {self.rate!r} {self.most}"
        if self.form == "at_once":
            return f"{self.name} at_once {self.most}{f' {self.floor} {self.adapt}' if self.adapt else ''}"
        return f"{self.name} quota {self.most} {self.window} {self.minutes}"


def check_name(name: Any, what: str = "name") -> str:
    """Return the name of a limit as it is.

    Raises:
        InvalidValue: it cannot be one.
    """
    if not isinstance(name, str) or not _NAME.match(name):
        text = f"{name!r} is not a name for a limit; use 1 to 32 of a-z, 0-9 and '_', a letter first"
        raise InvalidValue(text, setting=what)
    if name in RESERVED:
        raise InvalidValue(f"{name!r} has a meaning of its own beside the names of limits; use another", setting=what)
    return name


def reset_of(value: Any, window: str) -> tuple[int, str]:
    """Return when a window resets: minutes after its local begin, and its time zone, empty where none is given.

    Raises:
        InvalidValue: it is not written as a reset of such a window is.
    """
    if value is None:
        return 0, ""
    found = _RESETS.match(value) if isinstance(value, str) else None
    day, hour, minute, zone = found.groups() if found else (None, "99", "0", None)
    at = int(hour) * 60 + int(minute)
    fits = int(minute) < 60 and at < (60 if window == "hour" else 1440)
    if window == "week":
        fits = fits and (day is None or day.lower() in _DAYS)
        at += 1440 * _DAYS.index(day.lower()) if fits and day else 0
    elif window == "month":
        fits = fits and (day is None or day.isdigit())
        at += 1440 * (int(day) - 1) if fits and day else 0
    else:
        fits = fits and day is None
    if not fits:
        raise InvalidValue(
            f"{value!r} is not a reset time of a {window}; write e.g. {_SHOWN[window]}", setting="resets"
        )
    return at, zone or ""


def check_quota(value: Any, what: str = "quota") -> None:
    """See that a value is a quota, such as ``"1000/day"``.

    Raises:
        InvalidValue: it is not.
    """
    _quota(value, what)


def check_reset(value: Any, what: str = "resets") -> None:
    """See that a value is the reset of a window of some length.

    Raises:
        InvalidValue: it is not.
    """
    if not isinstance(value, str) or not _RESETS.match(value):
        raise InvalidValue(f"{value!r} is not a reset time of a quota; write e.g. {_SHOWN['day']}", setting=what)


def check_key_limits(limits: Mapping[str, Limit], key_limits: Mapping[str, Limit]) -> None:
    """See that limits of each key are limits of all keys together too, of the same form and window.

    Raises:
        InvalidValue: one is not.
    """
    for name, limit in key_limits.items():
        whole = limits.get(name)
        if whole is None:
            raise InvalidValue(
                f"there is no limit {name!r} of all keys together; add it, or name one of {', '.join(limits)}",
                setting="key_limits",
            )
        if (whole.form, whole.window, whole.minutes) != (limit.form, limit.window, limit.minutes):
            raise InvalidValue(
                f"{name!r} is a {whole.form} of all keys together and another of each key; make them alike",
                setting="key_limits",
            )


def limits_text(limits: Mapping[str, Limit]) -> str:
    """Return limits as the state keeps them.

    Raises:
        InvalidValue: they are too many, or more than one of them adapts.
    """
    adapting = [name for name, limit in limits.items() if limit.adapt]
    if len(adapting) > 1:
        text = f"{' and '.join(adapting)} both adapt, and an overload does not say which was too high; let one adapt"
        raise InvalidValue(text, setting="adapt")
    if len(limits) > MOST_LIMITS:
        raise InvalidValue(f"{len(limits)} limits are too many; at most {MOST_LIMITS}", setting="limit")
    return ";".join(limit.text for limit in limits.values())


def bounding(limits: Mapping[str, Limit], shadows: Mapping[str, Limit] = MappingProxyType({})) -> frozenset[str]:
    """Return the names of the limits that bind somebody, or count as shadow limits: all but the unlimited ones."""
    return frozenset(name for name, limit in limits.items() if limit.most != UNLIMITED) | shadows.keys()


def limits_of(text: str) -> dict[str, Limit]:
    """Return the limits that the state keeps as text, by name."""
    found = {}
    for entry in filter(None, text.split(";")):
        name, form, *rest = entry.split(" ")
        if form == "rate":
            found[name] = Limit(name, "rate", int(rest[1]), float(rest[0]))
        elif form == "at_once":
            floor, adapt = (int(rest[1]), rest[2]) if len(rest) > 1 else (0, "")
            found[name] = Limit(name, "at_once", int(rest[0]), floor=floor, adapt=adapt)
        else:
            found[name] = Limit(name, "quota", int(rest[0]), window=rest[1], minutes=int(rest[2]))
    return found


OF_KINDS: Final = {
    "gate": limits_of("bytes at_once 1;calls at_once 1"),
    "bucket": limits_of("tokens rate 1 1"),
}
"""The limits that gates and buckets have, whatever their amounts, as limits of each key have to name them."""


def _quota(value: Any, key: str = "quota") -> tuple[int, str]:
    if isinstance(value, str) and value.startswith(f"{FREE}/"):
        return UNLIMITED, _quota(value.replace(FREE, "1", 1), key)[1]
    if not isinstance(value, str) or not (found := _QUOTA.match(value)):
        raise InvalidValue(
            f"{value!r} is not a quota; write an amount of an hour, day, week or month, such as '1_000_000/day'",
            setting=key,
        )
    return _count(found[1], key), "hour" if found[2] == "h" else found[2]


def check_rate(value: Any, what: str = "rate") -> None:
    """See that a value is the rate of a limit, such as ``"500/min"``, or ``"unlimited"``.

    Raises:
        InvalidValue: it is not.
    """
    if value != FREE:
        parse_rate(value, what)


def check_at_once(value: Any, what: str = "at_once") -> None:
    """See that a value is what may be held at once, or a table of how that adapts.

    Raises:
        InvalidValue: it is neither.
    """
    if isinstance(value, Mapping):
        _adapting(value)
    else:
        _count(value, what)


def _adapting(table: Mapping[str, Any]) -> tuple[int, int, str]:
    example = "{ min = 5, max = 200, adapt = 'aimd' }"
    if missing := [key for key in ("min", "max", "adapt") if table.get(key) is None]:
        raise InvalidValue(f"at_once has no {' and no '.join(missing)}; write e.g. {example}", setting="at_once")
    if unknown := sorted(set(table) - {"min", "max", "adapt"}):
        raise InvalidValue(f"at_once has no key {unknown[0]!r}; write e.g. {example}", setting="at_once")
    if table["adapt"] not in ADAPTS:
        raise InvalidValue(f"{table['adapt']!r}; use one of {', '.join(ADAPTS)}", setting="at_once")
    floor, most = _count(table["min"], "min"), _count(table["max"], "max")
    if not floor <= most <= MOST_ADAPTING:
        text = f"{floor} to {most}; min is at most max, and that at most {MOST_ADAPTING:_} where it adapts"
        raise InvalidValue(text, setting="at_once")
    return floor, most, table["adapt"]


def _count(value: Any, key: str) -> int:
    if value == FREE:
        return UNLIMITED
    count = parse_amount(value, key)
    if count == 0:
        raise InvalidValue("0 has no meaning of its own here; use at least 1", setting=key)
    return count
