"""A single value of a policy document has a form: sizes, counts, durations, rates, shares, names, windows.

Each is checked as it is read, so that an error names its key, and has its JSON schema.
"""

import re
from collections.abc import Callable
from typing import Annotated, Any, Final
from urllib.parse import parse_qsl

from pydantic import Field, PlainValidator, Strict, ValidationInfo, WithJsonSchema

from headgate.backends import REDIS_FORMS, REDIS_SCHEMES
from headgate.core.addresses.pattern import WILDCARDS, Pattern
from headgate.core.limits.adapting import ADAPTS
from headgate.core.limits.bands import AGING, BANDS, KEY_BANDS, LEAST_AGING, MOST_AGING, SHARES
from headgate.core.limits.descriptor import LONGEST, MOST_ENTRIES, MOST_OF_A_HIT, check_text, read_amounts, read_entries
from headgate.core.limits.fairness import FAIR_BY, ORDER_BY
from headgate.core.limits.limit import FREE, check_at_once, check_name, check_quota, check_rate, check_reset
from headgate.core.limits.limiter_forms import weights_text
from headgate.core.limits.priority import LEAST_OVERTAKEN, MAX_OVERTAKEN, MOST_OVERTAKEN
from headgate.core.links.link import is_site_variable
from headgate.core.names import encode_name
from headgate.core.selector.parser import Selector
from headgate.core.spellings import (
    DURABILITY,
    GROWTH,
    MOST_GROWTH,
    NUMBER,
    SHARE,
    SHARE_COUNT,
    SIZE,
    WEIGHT,
    WHEN_FULL,
    WINDOW,
    ValueForm,
    at_least_one,
)
from headgate.errors import HeadgateError, InvalidName, InvalidValue, PolicyError
from headgate.redis.keys import check_namespace
from headgate.settings import DEFAULT, MOST_POOLS
from headgate.spool.storage import check_url
from headgate.units import MAX_WEIGHT, parse_amount, parse_count, parse_duration, parse_limit, parse_rate, parse_size

MOST_HOPS: Final = 64
"""Of a link: each place that a message came through is kept beside it."""
MOST_REPLICAS: Final = 16
_SITE_FORMS: Final = "redis://host:6379, 'env:HEADGATE_SITE_BERLIN' or 'file:berlin'"
_SITE: Final = re.compile(r"[a-z0-9-]{1,32}\Z")
_UNIT: Final = r"\s*(\d+(\.\d+)?|\.\d+)\s*"
_SIZE: Final = _UNIT + r"([kKmMgGtT][iI]?)?[bB]?\s*"
_DURATION: Final = _UNIT + "(us|ms|s|min|h)"
_NUMBER: Final = r"\s*\d[\d_]*(\.\d+)?\s*"
_COUNTED: Final = _NUMBER + r"([kKMG]|([kKmMgGtT][iI]?)?[bB])?\s*"
_PERIOD: Final = r"/\s*(\d+(\.\d+)?)?\s*(ms|s|min|h|hour|day|week|month)\s*"
_AMOUNT: Final[dict[str, Any]] = {"type": "integer", "minimum": 1}


def _text(pattern: str, *words: str) -> dict[str, Any]:
    return {"type": "string", "pattern": f"^({'|'.join([pattern, *words, DEFAULT])})$"}


def form(check: Callable[[Any, str], object], *schemas: dict[str, Any]) -> Any:
    """Return the annotation of a value that a function checks; it stays as it was written."""

    def validate(value: Any, info: ValidationInfo) -> Any:
        if value != DEFAULT:
            check(value, info.field_name or "value")
        return value

    schema = {"anyOf": list(schemas)} if len(schemas) > 1 else schemas[0]
    return Annotated[Any, PlainValidator(validate), WithJsonSchema(schema)]


def _count(value: Any, what: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InvalidValue(f"{value!r} is not a count; write a whole number from 1", setting=what)
    parse_size(value, what)


def _limit_count(value: Any, what: str) -> None:
    if value != "unlimited" and isinstance(value, str):
        raise InvalidValue(f"{value!r} is not a count; write a whole number from 1, or 'unlimited'", setting=what)
    parse_limit(value, what)


def _as(form: ValueForm) -> Callable[[Any, str], object]:
    """Check a value as the form of a setting is checked; errors name the key."""

    def check(value: Any, what: str) -> None:
        try:
            form.spell(value, what)
        except (InvalidValue, PolicyError) as error:
            raise InvalidValue(error.beside(what), setting=what) from None

    return check


def _kept(value: Any, what: str) -> None:
    if not isinstance(value, int):
        raise InvalidValue(f"{value!r} is not a count; write a whole number", setting=what)
    parse_size(value, what)


def _store_full(value: Any, what: str) -> None:
    if value == "spool":
        raise InvalidValue("a store does not spool to another; use block, fail, 'fail-after 3s' or drop", setting=what)
    _as(WHEN_FULL)(value, what)


def _store_url(value: Any, what: str) -> None:
    try:
        check_url(value)
    except PolicyError as error:
        raise InvalidValue(error.beside("url"), setting=what) from None


def _duration(value: Any, what: str) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if parse_duration(str(value) if number else value, what) < 0.001:  # a bare number has no unit in a document
        raise InvalidValue(f"{value!r}; use at least 1 ms", setting=what)


def _patience(value: Any, what: str) -> None:
    if value != "unlimited":
        _duration(value, what)


def _name(value: Any, what: str) -> None:
    encode_name(value, what)


def _names(value: Any, what: str) -> None:
    if not isinstance(value, list):
        encode_name(value, what)
    elif not value:
        raise InvalidValue("[] names nothing; give one name, or several", setting=what)
    else:
        for name in value:
            encode_name(name, what)


def _topics(value: Any, what: str) -> None:
    if value == []:
        _names(value, what)
    for name in value if isinstance(value, list) else [value]:
        if not isinstance(name, str) or not any(wildcard in name for wildcard in WILDCARDS):
            encode_name(name, what)
            continue
        try:
            Pattern.parse(name)
            encode_name(re.sub("[*#>]", "x", name), what)
        except HeadgateError as error:
            raise InvalidValue(f"{error}; write e.g. 'news.>'", setting=what) from None


_amount = at_least_one(parse_amount)


def _key_limit(value: Any, what: str) -> None:
    """Look at what a limit of a key can be at all: which form it has, the limit of all keys together says."""
    if isinstance(value, dict):
        return
    if isinstance(value, str) and "/" in value:
        try:
            check_quota(value, what)
        except InvalidValue:
            parse_rate(value, what)
    else:
        _amount(value, what)


def _site(value: Any, what: str) -> None:
    if not isinstance(value, str) or not _SITE.match(value):
        raise InvalidValue(f"{value!r} is not a site's or zone's name; write 1 to 32 of a-z, 0-9 and '-'", setting=what)


def _namespace(value: Any, what: str) -> None:
    try:
        check_namespace(value)
    except InvalidName as error:
        raise InvalidValue(str(error), setting=what) from None


def _url(value: Any, what: str) -> None:
    if not isinstance(value, str):
        raise InvalidValue(f"{value!r} is not a URL; write {_SITE_FORMS}", setting=what)
    where, _, name = value.partition(":")
    if where == "env" and not is_site_variable(name):
        raise InvalidValue(
            f"{value!r} names no variable for a site; write e.g. 'env:HEADGATE_SITE_BERLIN'", setting=what
        )
    if where == "file" and not name:
        raise InvalidValue(
            f"{value!r} names nothing; write 'file:berlin', of the folder of --site-secrets", setting=what
        )
    if where in ("env", "file"):
        return
    _, _, rest = value.partition("://")
    options = dict(parse_qsl(rest.partition("?")[2], keep_blank_values=True))
    if ":" in rest.rpartition("@")[0] or "sentinel_password" in options:  # a policy is kept in Redis, and shown
        raise InvalidValue(
            "it holds a password, and a policy is shown to all; write 'env:HEADGATE_SITE_BERLIN', "
            "'file:berlin' or redis://user@host?password_file=berlin",
            setting=what,
        )
    if not rest or value.partition("://")[0] not in REDIS_SCHEMES:
        raise InvalidValue(f"use 'env:HEADGATE_SITE_BERLIN', 'file:berlin', {REDIS_FORMS}", setting=what)


def _selector(value: Any, what: str) -> None:
    if not isinstance(value, str):
        raise InvalidValue(f"{value!r} is not a selector; write e.g. \"region = 'EU'\"", setting=what)
    try:
        Selector.parse(value)
    except InvalidValue as error:
        raise InvalidValue(str(error), setting=what) from None


def _replicas(value: Any, what: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MOST_REPLICAS:
        raise InvalidValue(f"{value!r} is not a number of replicas; write 0 to {MOST_REPLICAS}", setting=what)


def _hops(value: Any, what: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST_HOPS:
        raise InvalidValue(
            f"{value!r} is not a number of places; write a whole number from 1 to {MOST_HOPS}", setting=what
        )


def _percent(value: Any, what: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 100:
        raise InvalidValue(f"{value!r} is not a percentage; write a number above 0 and up to 100", setting=what)


def _top_up(value: Any, what: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise InvalidValue(f"{value!r} is not a share of the window; write a number above 0 and up to 1", setting=what)


_NAME: Final[dict[str, Any]] = {"type": "string", "minLength": 1, "maxLength": 255}
_SIZES: Final = (_AMOUNT, _text(_SIZE))
_UNLIMITED_SIZES: Final = (_AMOUNT, _text(_SIZE, "unlimited"))

Size = form(_as(SIZE), *_SIZES)
LimitSize = form(parse_limit, *_UNLIMITED_SIZES)
Count = form(_count, _AMOUNT, _text(DEFAULT))
LimitCount = form(_limit_count, _AMOUNT, _text("unlimited"))
Kept = form(_kept, {"type": "integer", "minimum": 0}, _text(DEFAULT))
Share = form(_as(SHARE), {"type": "integer", "minimum": 0}, _text(_SIZE, _UNIT + "%"))
ShareCount = form(_as(SHARE_COUNT), {"type": "integer", "minimum": 0}, _text(_NUMBER + r"[kKMG]?\s*", _UNIT + "%"))
Duration = form(_duration, _text(_DURATION))
Patience = form(_patience, _text(_DURATION, "unlimited"))
Rate = form(parse_rate, {"type": "number", "exclusiveMinimum": 0}, _text(_COUNTED + _PERIOD))
Amount = form(_amount, _AMOUNT, _text(_COUNTED))
Counted = form(at_least_one(parse_count), _AMOUNT, _text(_NUMBER + r"[kKMG]?\s*"))
AtOnce = form(
    check_at_once, _AMOUNT, _text(_COUNTED, FREE),
    {
        "type": "object",
        "properties": {
            "min": {"anyOf": [_AMOUNT, _text(_COUNTED)]}, "max": {"anyOf": [_AMOUNT, _text(_COUNTED)]},
            "adapt": {"enum": list(ADAPTS)},
        },
        "required": ["min", "max", "adapt"],
        "additionalProperties": False,
    },
)  # fmt: skip
LimitRate = form(check_rate, {"type": "number", "exclusiveMinimum": 0}, _text(_COUNTED + _PERIOD, FREE))
Quota = form(check_quota, _text("(" + FREE + "|" + _COUNTED + r")/\s*(h|hour|day|week|month)\s*"))
Resets = form(check_reset, _text(r"([a-z]{3}\s+|\d{1,2}\s+)?\d\d:\d\d(\s+[A-Za-z0-9_+/-]+)?"))
LimitName = form(check_name, {"type": "string", "pattern": "^[a-z][a-z0-9_]{0,31}$"})
KeyLimit = form(_key_limit, _AMOUNT, _text(_COUNTED, _COUNTED + _PERIOD), {"type": "object"})
Weight = form(_as(WEIGHT), {"type": "integer", "minimum": 1, "maximum": MAX_WEIGHT})
Weights = form(
    weights_text,
    {"type": "object", "additionalProperties": {"type": "integer", "minimum": 1, "maximum": MAX_WEIGHT}},
)
_ENTRY: Final[dict[str, Any]] = {"type": "string", "minLength": 1, "maxLength": LONGEST}
ProxyText = form(check_text, _ENTRY)
Entries = form(read_entries, {"type": "array", "items": _ENTRY, "minItems": 1, "maxItems": MOST_ENTRIES})
HitAmounts = form(
    read_amounts,
    {
        "type": "object",
        "additionalProperties": {"anyOf": [{**_AMOUNT, "maximum": MOST_OF_A_HIT}, _text(_COUNTED)]},
        "minProperties": 1,
        "maxProperties": MOST_ENTRIES,
    },
)
Bands = form(
    _as(KEY_BANDS),
    {"type": "object", "additionalProperties": {"type": "integer", "minimum": 0, "maximum": BANDS - 1}},
)
Aging = form(_as(AGING), {"type": "number", "minimum": LEAST_AGING, "maximum": MOST_AGING})
FairBy = form(_as(FAIR_BY), _text("group-id|producer|priority|header:.+"))
OrderBy = form(_as(ORDER_BY), _text("group-id|header:.+"))
Overtaken = form(
    _as(MAX_OVERTAKEN), {"type": "integer", "minimum": LEAST_OVERTAKEN, "maximum": MOST_OVERTAKEN}, _text(DEFAULT)
)
BandShares = form(
    _as(SHARES),
    {
        "type": "object", "propertyNames": {"pattern": "^[0-7]$"},
        "additionalProperties": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
    },
)  # fmt: skip
Growth = form(_as(GROWTH), {"type": "number", "minimum": 1, "maximum": MOST_GROWTH}, _text(DEFAULT))
Number = form(_as(NUMBER), {"type": "number", "exclusiveMinimum": 0}, _text(DEFAULT))
Percent = form(_percent, {"type": "number", "exclusiveMinimum": 0, "maximum": 100})
TopUp = form(_top_up, {"type": "number", "exclusiveMinimum": 0, "maximum": 1})
Name = form(_name, _NAME)
Topics = form(_topics, _NAME, {"type": "array", "items": _NAME, "minItems": 1})
Names = form(_names, _NAME, {"type": "array", "items": _NAME, "minItems": 1})
SiteName = form(_site, {"type": "string", "pattern": "^[a-z0-9-]{1,32}$"})
Tenant = form(_namespace, {"type": "string", "pattern": "^[a-z0-9-]{1,63}$"})
SiteUrl = form(
    _url,
    {"type": "string", "pattern": "^(env:HEADGATE_SITE_[A-Za-z0-9_]+|file:.+|(redis|rediss|unix)([+][a-z]+)?://.+)$"},
)
SelectorText = form(_selector, {"type": "string", "minLength": 1})
Replicas = form(_replicas, {"type": "integer", "minimum": 0, "maximum": MOST_REPLICAS})
Hops = form(_hops, {"type": "integer", "minimum": 1, "maximum": MOST_HOPS})
WhenFull = form(_as(WHEN_FULL), _text("block|fail|drop|spool|fail-after " + _DURATION))
StoreFull = form(_store_full, _text("block|fail|drop|fail-after " + _DURATION))
StoreUrl = form(_store_url, {"type": "string", "pattern": "^[a-z0-9]+://[^@?]+$"})
Pools = Annotated[list[Name], Field(max_length=MOST_POOLS)] | None  # type: ignore[valid-type] # as form() makes it
Flag = Annotated[bool, Strict()] | None
DurabilityText = form(_as(DURABILITY), _text(r"memory|(fsync )?replicas:[1-9]\d?|fsync|replicas:[1-9]\d? fsync"))
WindowWord = form(_as(WINDOW), _AMOUNT, _text("pull|paused|unlimited"))
