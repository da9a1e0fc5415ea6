"""Users are written into the text of a file, and the comments that are there stay."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.items import AoT, Array, Table

from headgate.policy.read import text_of
from headgate_coordinator.security.document import User, Users


def with_users(file: Path, users: Users) -> str:
    """Return the text of a file with these users in place of its own; comments, and what is unchanged, stay."""
    try:
        document = tomlkit.parse(text_of(file).removeprefix("\ufeff"))
    except (OSError, ValueError):  # it is not there, or nobody can read it
        document = tomlkit.document()
    tables = document.get("user")
    if not users or not isinstance(tables, AoT):
        document.pop("user", None)
        document["user"] = tables = tomlkit.aot() if users else tomlkit.array()
    for at in reversed(range(len(tables))):
        if tables[at]["name"] not in users:
            del tables[at]
    by_name = {str(table["name"]): table for table in tables}
    for name, user in sorted(users.items()):
        if name not in by_name:
            by_name[name] = tomlkit.table()
            by_name[name]["name"] = name
            tables.append(by_name[name])
        _update(by_name[name], user)
    return tomlkit.dumps(document)


def _update(table: Table, user: User) -> None:
    values = {"grants": [], **user.model_dump(mode="json", exclude_none=True)}
    for key in ("password_hash", "max_connections", "max_destinations", "grants"):
        if key not in values:
            table.pop(key, None)
        elif key not in table or table[key] != values[key]:
            table[key] = _array(values[key]) if key == "grants" else values[key]


def _array(grants: Iterable[Mapping[str, Any]]) -> Array:
    """Return grants as a table a line."""
    lines = tomlkit.array()
    for grant in grants:
        lines.append(tomlkit.inline_table())
        lines[-1].update(grant)
    return lines.multiline(multiline=True)
