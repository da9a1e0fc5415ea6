"""What presets set beside what their systems have as they come: the rows of `presets.toml`, for a page and tests."""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from headgate.core.policy import Policy
from headgate.core.settings_table import PATHS, ROWS
from headgate.policy import loads

HEAD: Final = """## Presets, row by row

A [preset](policy.md#presets) gives each setting the value that its system has out of the box, as the system's document
states it. The rows are in `tests/conformance/presets/presets.toml`. A test compiles each row and compares it with
the preset, and fails on anything that a preset sets without a row. The last column names the scenario that shows it.
"""


@dataclass(frozen=True, slots=True)
class PresetRow:
    """One setting as a system comes, and what the preset has for it.

    Attributes:
        setting: as its document calls it.
        comes: its value there, before anybody sets it.
        shown: the scenario, ``<file>::<test>``.
        ours: the words of a policy that the preset has.
        kinds: of destinations that have them.
        pool: that has them instead.
        store: that has them instead.
        limit: of the preset's limiters, as a policy writes it, with what each key has of it.
        unset: what the preset sets for nobody, as the system does.
        call: what a program or a rule says, where a preset can say nothing.
        node: nodes do so, whatever the preset.
        spools: the document has the store of the preset.
        switched_on: the document switches flow control on.
        differs: how it differs from what the document states.
    """

    setting: str
    comes: str
    shown: str
    ours: str = ""
    kinds: list[str] = field(default_factory=list)
    pool: str = ""
    store: str = ""
    limit: dict[str, Any] = field(default_factory=dict)
    unset: str = ""
    call: str = ""
    node: bool = False
    spools: bool = False
    switched_on: bool = False
    differs: str = ""

    @property
    def here(self) -> str:
        """What there is for it, for people."""
        if self.unset:
            return f"no `{self.unset}`"
        if self.limit:
            return ", ".join(f"`{name} = {value!r}`" for name, value in self.limit.items()).replace("'", '"')
        if self.call or self.node:
            return self.call or "as there, of a node's links"
        words = ", ".join(f"`{line}`" for line in self.ours.split("\n"))
        return f"{words} of the {self._of}"

    @property
    def _of(self) -> str:
        if self.pool or self.store:
            return f"pool `{self.pool}`" if self.pool else f"store `{self.store}`"
        *most, last = [f"{kind}s" for kind in self.kinds]
        return f"rule for {', '.join(most)} and {last}" if most else f"rule for {last}"


@dataclass(frozen=True, slots=True)
class PresetTable:
    """The rows of a preset, the title of its system, its document, and the store that has it spool."""

    title: str
    document: str
    rows: list[PresetRow]
    spooling: str = ""


TABLES: Final = {
    preset: PresetTable(
        one["title"], one["document"], [PresetRow(**row) for row in one["row"]], one.get("spooling", "")
    )
    for preset, one in tomllib.loads((Path(__file__).parent / "presets.toml").read_text(encoding="utf-8")).items()
}


def in_force(preset: str, row: PresetRow | None = None) -> Policy:
    """Return a document with nothing but the preset, and the store or the switch that a row is about."""
    text = f'preset = "{preset}"\n'
    if row is not None and row.switched_on:
        text = f'flow_control = "on"\n{text}'
    stores = {TABLES[preset].spooling} if row is not None and row.spools else set()
    stores |= {row.store} if row is not None and row.store else set()
    return loads(text + "".join(f'[[store]]\nname = "{name}"\nurl = "file:///{name}"\n' for name in sorted(stores)))


def fields_of(row: PresetRow, kind: str) -> dict[str, str]:
    """Return what a row's words are in the state of a destination of this kind."""
    stores = "".join(f'[[store]]\nname = "{name}"\nurl = "file:///{name}"\nlimit = 1\n' for name in ("paging", "store"))
    pools = '[[pool]]\nname = "memory"\nlimit = 1\n'
    compiled = loads(f'[[destination]]\nmatch = "#"\nkind = "{kind}"\n{row.ours}\n{stores}{pools}')
    resolved = compiled.resolve("x", kind)
    return {name: resolved.fields[name] for name in resolved.origins}


def field_of(path: str) -> str:
    """Return the field of the state that a place in a policy is."""
    name = next(name for name, steps in PATHS.items() if ".".join(map(str, steps)) == path)
    return ROWS[name].field


def page() -> Iterator[str]:
    """Return the lines of the tables."""
    yield HEAD
    for preset, table in TABLES.items():
        yield f"### `{preset}`: {table.title}\n\nFrom {table.document}.\n"
        yield "| setting | as it comes | here | difference | test |\n|---|---|---|---|---|"
        for row in table.rows:
            file, _, name = row.shown.partition("::")
            test = f"[`{name}`](../tests/conformance/test_{file}.py)"
            yield f"| {row.setting} | {row.comes} | {row.here} | {row.differs or 'none'} | {test} |"
        yield ""
