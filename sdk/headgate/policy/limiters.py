"""Limiters and quotas of users are compiled here: what a limiter is limited to comes from one rule as a whole."""

import re
from collections.abc import Iterator
from typing import Any, Final

from headgate.core.addresses.pattern import Pattern
from headgate.core.limits.limit import Limit, limits_of, limits_text, reset_of
from headgate.core.limits.limiter_forms import weights_text
from headgate.core.limits.shadow import IN_SHADOW, sides, unlimited
from headgate.core.limits.user_limit import BYTES, CONNECTIONS, IN_FLIGHT, IN_FLIGHT_BYTES, MESSAGES, UserLimit
from headgate.core.limits.zones import offsets_text
from headgate.core.names import encode_name
from headgate.core.policy import Resolved, Rule
from headgate.errors import HeadgateError, InvalidValue, PolicyError
from headgate.policy.limiter_table import LimiterTable, LimitTable, PerKey, ShadowPerKey, UserLimitTable
from headgate.policy.line_numbers import Path
from headgate.policy.problems import Problem
from headgate.policy.read import Origin, Source
from headgate.settings import Settings
from headgate.units import parse_count

KEYS: Final = {
    "limits": "limit", "shadow_limits": "limit", "key_limits": "per_key", "shadow_key_limits": "shadow_per_key",
    "key_weights": "per_key.weight", "bands": "band", "zone": "limit.resets",
    "hold_off_ms": "hold_off", "lease_ahead_ms": "lease_ahead",
}  # fmt: skip
"""Keys of the document of fields that are not called so there."""
_TOGETHER: Final = ("limits", "key_limits", "shadow_limits", "shadow_key_limits", "key_weights", "zone")
"""Fields of which one rule says all or nothing: limits of keys are below those of all keys together."""
_OTHERS: Final = (
    "bands", "aging", "reserve", "shed", "order", "fail_if_late", "unknown_keys", "slices", "max_keys", "hold_off",
    "lease_ahead", "durability", "ledger_keys", "ledger", "ledger_keep",
)  # fmt: skip


MOST_DESTINATIONS: Final = 100_000
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}\Z", re.ASCII)
_USER: Final = re.compile(r"[^\s*]{1,255}\*?\Z|\*\Z")
_FORMS: Final = {
    "connections": (CONNECTIONS, "at_once"), "in_flight": (IN_FLIGHT, "at_once"),
    "in_flight_bytes": (IN_FLIGHT_BYTES, "at_once"), "rate": (MESSAGES, "rate"), "byte_rate": (BYTES, "rate"),
}  # fmt: skip


def compile_limiters(tables: list[LimiterTable], source: Source, at: Origin, problems: list[Problem]) -> list[Rule]:
    """Return the rules that the limiters of a document say.

    Args:
        tables: of the document.
        source: where keys stand.
        at: the origin of a key.
        problems: what is wrong is added here.
    """
    rules = []
    for position, table in enumerate(tables):
        path: Path = ("limiter", position)
        compiler = _Limiter(table, path, source, problems)
        fields = compiler.fields()
        try:
            Pattern.parse(table.match)
            encode_name(re.sub("[*#>]", "x", table.match))
        except HeadgateError as error:
            problems.append(source.problem((*path, "match"), f"{error}; write e.g. 'llm'"))
            continue
        origins = {field: at((*path, *KEYS.get(field, field).split("."))) for field in fields}
        rules.append(Rule(table.match, "limiter", fields, {**origins, "kind": at(path)}))
    return rules


class _Limiter:
    def __init__(self, table: LimiterTable, path: Path, source: Source, problems: list[Problem]) -> None:
        self._table = table
        self._path = path
        self._source = source
        self._problems = problems

    def fields(self) -> dict[str, str]:
        fields: dict[str, str] = {}
        table = self._table
        if table.limit is None:
            for key in ("per_key", "shadow_per_key", "enforce"):
                if getattr(table, key) is not None:
                    self._wrong((key,), "there are no limits of all keys together here; add [[limiter.limit]]")
        elif limits := self._limits(table.limit):
            fields = dict.fromkeys(_TOGETHER, "") | {"zone": self._zone(table.limit, limits)}
            fields |= self._sides(limits)
        entries = {setting: getattr(table, KEYS.get(setting, setting)) for setting in _OTHERS}
        given: dict[str, Any] = {setting: value for setting, value in entries.items() if value is not None}
        while True:
            try:
                return fields | Settings(**given).fields()
            except (InvalidValue, PolicyError) as error:
                named = next((key for key in error.settings if key in given), "")
                self._wrong((KEYS.get(named, named),) if named else (), error.beside(named))
                if not given.pop(named, None):
                    return fields

    def _is_shadow(self, table: LimitTable) -> bool:
        return (table.enforce or self._table.enforce) == IN_SHADOW

    def _limits(self, tables: list[LimitTable]) -> dict[tuple[bool, str], Limit]:
        """Return limits by whether they are shadow limits, and by name."""
        limits: dict[tuple[bool, str], Limit] = {}
        for position, table in enumerate(tables):
            try:
                limit = Limit.of(table.name, table.model_dump(exclude={"enforce"}))
            except InvalidValue as error:
                self._wrong(("limit", position, error.setting or "name"), error.beside(error.setting))
                continue
            is_shadow = self._is_shadow(table)
            other = limits.get((not is_shadow, limit.name))
            if (is_shadow, limit.name) in limits:
                self._wrong(("limit", position, "name"), f"there is a limit {limit.name!r} already; keep one")
            elif other is not None and (other.form == "at_once") != (limit.form == "at_once"):
                text = f"{limit.name!r} and its shadow are of two sorts, {other.form} and {limit.form}; make them alike"
                self._wrong(("limit", position, "name"), text)
            elif limit.adapt and is_shadow:
                text = "a limit that adapts goes by those who wait for it, and nobody waits for a shadow; write a count"
                self._wrong(("limit", position, "at_once"), text)
                continue
            elif limit.adapt and any(one.adapt for one in limits.values()):
                self._wrong(("limit", position, "at_once"), "a limit of this limiter adapts already; let one of them")
                continue
            limits[is_shadow, limit.name] = limit
        if not tables:
            self._wrong(("limit",), "[] limits nothing; add [[limiter.limit]] with name = 'requests' and a rate")
        return limits

    def _sides(self, limits: dict[tuple[bool, str], Limit]) -> dict[str, str]:
        """Return the fields of limits that bind and of shadow limits; those of its keys are on the side of a limit."""
        real = {name: limit for (is_shadow, name), limit in limits.items() if not is_shadow}
        shadows = {name: limit for (is_shadow, name), limit in limits.items() if is_shadow}
        table, beside = self._table.per_key, self._table.shadow_per_key
        of_keys = self._of_keys("per_key", table, shadows | real) if table else {}
        shadows_of_keys = self._of_keys("shadow_per_key", beside, real | shadows) if beside else {}
        alone = {name: limit for name, limit in of_keys.items() if name not in real}
        fields = sides(
            real, {name: limit for name, limit in of_keys.items() if name in real}, shadows, alone | shadows_of_keys
        )
        return fields | {"key_weights": self._weights(table) if table else ""}

    def _zone(self, tables: list[LimitTable], limits: dict[tuple[bool, str], Limit]) -> str:
        zones: dict[str, int] = {}
        for position, table in enumerate(tables):
            limit = limits.get((self._is_shadow(table), table.name))
            if table.quota is not None and limit is not None:
                zone = reset_of(table.resets, limit.window)[1] if table.resets else ""
                zones.setdefault(zone, position)
        if len(zones) > 1:
            last = list(zones.values())[-1]
            named = " and ".join(sorted(zone or "none" for zone in zones))
            self._wrong(("limit", last, "resets"), f"quotas of one limiter have one time zone, and here are {named}")
            return ""
        try:
            return offsets_text(zone) if (zone := next(iter(zones), "")) else ""
        except InvalidValue as error:
            self._wrong(("limit", next(iter(zones.values())), "resets"), error.problem)
            return ""

    def _of_keys(self, key: str, table: PerKey | ShadowPerKey, limits: dict[str, Limit]) -> dict[str, Limit]:
        found = {}
        for name, value in (table.__pydantic_extra__ or {}).items():
            if name not in limits:
                known = ", ".join(limits)
                self._wrong((key, name), f"there is no limit {name!r} of all keys together; there are {known}")
                continue
            try:
                found[name] = limits[name].like(value)
            except InvalidValue as error:
                self._wrong((key, name), error.problem)
        return found

    def _weights(self, table: PerKey) -> str:
        try:
            return weights_text(table.weight) if table.weight is not None else ""
        except InvalidValue as error:
            self._wrong(("per_key", "weight"), error.problem)
            return ""

    def _wrong(self, path: Path, text: str) -> None:
        self._problems.append(self._source.problem((*self._path, *path), text))


def check_limiter(name: str, resolved: Resolved, place: str) -> Iterator[Problem]:
    """Yield what is contradictory about a limiter when its rules are merged; the last of these stands at ``place``."""
    fields, origins = resolved.fields, resolved.origins
    if not fields.get("limits"):
        yield Problem(place, "limiter", f"a limiter such as {name!r} has no limits; add [[limiter.limit]]")
    elif fields.get("unknown_keys") == "refuse" and not fields.get("key_weights"):
        yield Problem(
            origins["unknown_keys"].partition("@")[2],
            "unknown_keys",
            f"every key of limiters such as {name!r} is refused; add per_key.weight = {{ 'tenant-*' = 1 }}",
        )


def compile_user_limits(
    tables: list[UserLimitTable], source: Source, at: Origin, problems: list[Problem]
) -> tuple[list[UserLimit], list[Rule]]:
    """Return the quotas of a document, and the rules of their limiters."""
    found: dict[str, UserLimit] = {}
    rules = []
    for position, table in enumerate(tables):
        path: Path = ("user_limit", position)
        try:
            one, fields = _compile(table, at(path))
        except InvalidValue as error:
            problems.append(source.problem((*path, error.setting or "name"), error.beside(error.setting)))
            continue
        if one.name in found:
            problems.append(source.problem((*path, "name"), f"there is a quota {one.name!r} already; keep one"))
            continue
        found[one.name] = one
        if one.limits:
            rules.append(Rule(one.limiter, "limiter", fields, {field: at(path) for field in (*fields, "kind")}))
    return list(found.values()), rules


def _compile(table: UserLimitTable, origin: str) -> tuple[UserLimit, dict[str, str]]:
    if not _NAME.match(table.name):
        raise InvalidValue(f"{table.name!r}; use a-z, 0-9, '-' and '_'", setting="name")
    for user in table.users:
        if not _USER.match(user):
            raise InvalidValue(f"{user!r}; write the name of a user, or its beginning and '*'", setting="users")
    limits = _quotas(table)
    destinations = None
    if table.destinations is not None:
        destinations = parse_count(table.destinations, "destinations")
        if destinations > MOST_DESTINATIONS:
            raise InvalidValue(f"{destinations}; use 0 to {MOST_DESTINATIONS}", setting="destinations")
        if table.together:
            raise InvalidValue("are counted of each user; leave them out, or together", setting="destinations")
    if not limits and destinations is None:
        raise InvalidValue(f"of what? give {', '.join(_FORMS)} or destinations", setting="name")
    one = UserLimit(table.name, tuple(table.users), limits_text(limits), table.together, destinations, origin)
    return one, _fields(one, shadow=table.enforce == IN_SHADOW)


def _quotas(table: UserLimitTable) -> dict[str, Limit]:
    """Return the limits that a table says; ``in_flight`` with a unit is of bytes, as ``at_once`` is."""
    limits: dict[str, Limit] = {}
    for key, (usual, form) in _FORMS.items():
        value: Any = getattr(table, key)
        if value is None:
            continue
        in_bytes = key == "in_flight" and isinstance(value, str) and value.rstrip().lower().endswith("b")
        name = IN_FLIGHT_BYTES if in_bytes else usual
        if name in limits:
            raise InvalidValue("in_flight is in bytes already; give a number there, or leave one out", setting=key)
        try:
            limits[name] = Limit.of(name, {form: value})
        except InvalidValue as error:
            raise InvalidValue(error.problem, setting=key) from None
    return limits


def _fields(one: UserLimit, *, shadow: bool) -> dict[str, str]:
    """Return the settings of its limiter: what is of each user stands below a limit of all that binds nothing."""
    limits = limits_of(one.limits)
    of_all = limits if one.together else {}
    of_each = {} if one.together else limits
    free = {name: unlimited(limit) for name, limit in limits.items()}
    if shadow:
        return {**sides(free, {}, of_all, of_each), "key_weights": "", "zone": ""}
    return {**sides(of_all or free, of_each, {}, {}), "key_weights": "", "zone": ""}
