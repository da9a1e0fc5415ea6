"""Spool stores of a document, and the rules that name them."""

from collections.abc import Iterator, Mapping
from typing import Any

from headgate.core.addresses.pattern import Pattern
from headgate.core.names import decode_name
from headgate.core.policy import Policy, Resolved, Store
from headgate.core.settings_table import STORES
from headgate.errors import InvalidValue, PolicyError
from headgate.policy.document import StoreTable
from headgate.policy.line_numbers import Path
from headgate.policy.problems import Problem
from headgate.policy.read import Origin, Source
from headgate.spool.stores import store_fields

_KEY_OF = {"limit_bytes": "limit", "total_bytes": "total", "segment_bytes": "segment"}


def compile_stores(
    tables: list[StoreTable], base: Mapping[str, Mapping[str, Any]], preset: str, source: Source, at: Origin,
    problems: list[Problem],
) -> list[Store]:  # fmt: skip
    """Return the spool stores that a document names.

    Args:
        tables: its tables.
        base: by name, what a preset says of a store that the document gives a URL.
        preset: origin of that.
        source: where keys stand.
        at: the origin of a key.
        problems: what is wrong is added here.
    """
    stores: dict[str, Store] = {}
    for position, table in enumerate(tables):
        path: Path = ("store", position)
        if table.name in stores:
            problems.append(source.problem((*path, "name"), f"there is a store {table.name!r} already; keep one"))
        given = {key: value for key, value in table.model_dump(exclude={"name"}).items() if value is not None}
        values = given | _beside(given, base.get(table.name, {}))
        try:
            fields = {field: value for field, value in store_fields(**values).items() if value}
        except (InvalidValue, PolicyError) as error:
            key = error.setting if error.setting in given else ""
            where = (*path, key) if key else path
            problems.append(source.problem(where, error.beside(key)))
            continue
        stores[table.name] = Store(
            table.name, fields, {field: _origin(field, given, path, at, preset) for field in fields}
        )
    return list(stores.values())


def _beside(given: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a preset says that the document does not."""
    sized = {"limit", "percent", "total"}
    return {
        key: value for key, value in base.items() if key not in given and not (key in sized and sized & given.keys())
    }


def _origin(field: str, given: Mapping[str, Any], path: Path, at: Origin, preset: str) -> str:
    key = _KEY_OF.get(field, field)
    if key == "limit" and "percent" in given:
        key = "percent"
    if key in given:
        return at((*path, key))
    return at(path) if key == "segment" or not preset else preset


def check_stores(policy: Policy) -> Iterator[Problem]:
    """Yield what is wrong with stores that rules name."""
    known = {store.name for store in policy.stores}
    for rule in policy.rules:
        for key in STORES:
            name = decode_name(rule.fields.get(key, ""))
            if name and name not in known:
                yield Problem(
                    rule.origins[key],
                    key,
                    f"there is no store {name!r} in this document; add [[store]] with name = {name!r} and a url"
                    + (f", or name one of {', '.join(sorted(known))}" if known else ""),
                )


def check_spooling(name: str, resolved: Resolved) -> Iterator[Problem]:
    """Yield what is contradictory about spooling at one name."""
    fields, origins = resolved.fields, resolved.origins
    spools = fields.get("when_full") == "spool"
    if spools and not fields.get("store"):
        place = origins["when_full"].partition("@")[2]
        yield Problem(
            place, "when_full", f"for destinations such as {name!r} the store is missing; add store = '<name>'"
        )
    for key in STORES:
        store = fields.get(key, "")
        if not store or spools:
            continue
        rule, _, place = origins[key].partition("@")
        full = origins.get("when_full", "").partition("@")[0]
        if not full or Pattern.parse(full).order < Pattern.parse(rule).order:  # else that rule means to switch it off
            yield Problem(
                place,
                key,
                f"nothing of destinations such as {name!r} goes to {decode_name(store)!r}; add when_full = 'spool'",
            )
