"""Limiters of a document, compiled to rules: what a limiter is limited to comes from one rule as a whole."""

import re
from collections.abc import Iterator
from typing import Any, Final

from headgate.core.addresses.pattern import Pattern
from headgate.core.limits.forms import weights_text
from headgate.core.limits.limit import Limit, limits_text, reset_of
from headgate.core.limits.zones import offsets_text
from headgate.core.names import encode_name
from headgate.core.policy import Resolved, Rule
from headgate.errors import HeadgateError, InvalidValue, PolicyError
from headgate.policy.limiter_table import LimiterTable, LimitTable
from headgate.policy.places import Path
from headgate.policy.problems import Problem
from headgate.policy.read import Origin, Source
from headgate.settings import Settings

KEYS: Final = {
    "limits": "limit", "key_limits": "per_key", "key_weights": "per_key.weight", "zone": "limit.resets",
    "hold_off_ms": "hold_off", "lease_ahead_ms": "lease_ahead",
}  # fmt: skip
"""Keys of the document of fields that are not called so there."""
_TOGETHER: Final = ("limits", "key_limits", "key_weights", "zone")
"""Fields of which one rule says all or nothing: limits of keys are below those of all keys together."""
_OTHERS: Final = (
    "unknown_keys", "max_keys", "hold_off", "lease_ahead", "durability", "ledger_keys", "ledger", "ledger_keep",
)  # fmt: skip


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
        if self._table.limit is None:
            if self._table.per_key is not None:
                self._wrong(("per_key",), "there are no limits of all keys together here; add [[limiter.limit]]")
        elif limits := self._limits(self._table.limit):
            fields = dict.fromkeys(_TOGETHER, "")
            fields |= {"limits": limits_text(limits), "zone": self._zone(self._table.limit, limits)}
            fields |= self._per_key(limits)
        given: dict[str, Any] = {key: value for key in _OTHERS if (value := getattr(self._table, key)) is not None}
        while True:
            try:
                return fields | Settings(**given).fields()
            except (InvalidValue, PolicyError) as error:
                named = next((key for key in error.settings if key in given), "")
                self._wrong((named,) if named else (), error.beside(named))
                if not given.pop(named, None):
                    return fields

    def _limits(self, tables: list[LimitTable]) -> dict[str, Limit]:
        limits: dict[str, Limit] = {}
        for position, table in enumerate(tables):
            try:
                limit = Limit.of(table.name, table.model_dump())
            except InvalidValue as error:
                self._wrong(("limit", position, error.setting or "name"), error.beside(error.setting))
                continue
            if limit.name in limits:
                self._wrong(("limit", position, "name"), f"there is a limit {limit.name!r} already; keep one")
            limits[limit.name] = limit
        if not tables:
            self._wrong(("limit",), "[] limits nothing; add [[limiter.limit]] with name = 'requests' and a rate")
        return limits

    def _zone(self, tables: list[LimitTable], limits: dict[str, Limit]) -> str:
        zones: dict[str, int] = {}
        for position, table in enumerate(tables):
            if table.quota is not None and table.name in limits:
                zone = reset_of(table.resets, limits[table.name].window)[1] if table.resets else ""
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

    def _per_key(self, limits: dict[str, Limit]) -> dict[str, str]:
        table, of_keys, weights = self._table.per_key, {}, ""
        if table is None:
            return {}
        for name, value in (table.__pydantic_extra__ or {}).items():
            if name not in limits:
                known = ", ".join(limits)
                self._wrong(("per_key", name), f"there is no limit {name!r} of all keys together; there are {known}")
                continue
            try:
                of_keys[name] = limits[name].like(value)
            except InvalidValue as error:
                self._wrong(("per_key", name), error.problem)
        try:
            weights = weights_text(table.weight) if table.weight is not None else ""
        except InvalidValue as error:
            self._wrong(("per_key", "weight"), error.problem)
        return {"key_limits": limits_text(of_keys), "key_weights": weights}

    def _wrong(self, path: Path, text: str) -> None:
        self._problems.append(self._source.problem((*self._path, *path), text))


def check_limiter(name: str, resolved: Resolved) -> Iterator[Problem]:
    """Yield what is contradictory about a limiter when its rules are merged."""
    fields, origins = resolved.fields, resolved.origins
    if resolved.kind != "limiter" or not origins:
        return
    place = next(iter(origins.values())).partition("@")[2]
    if not fields.get("limits"):
        yield Problem(place, "limiter", f"a limiter such as {name!r} has no limits; add [[limiter.limit]]")
    elif fields.get("unknown_keys") == "refuse" and not fields.get("key_weights"):
        yield Problem(
            origins["unknown_keys"].partition("@")[2],
            "unknown_keys",
            f"every key of limiters such as {name!r} is refused; add per_key.weight = {{ 'tenant-*' = 1 }}",
        )
