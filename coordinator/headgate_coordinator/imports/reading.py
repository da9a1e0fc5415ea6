"""A reading of a broker's files keeps the policy so far, and what became of each setting."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Protocol

from headgate.brokers import DIFFERS, KEPT, NOT_COVERED, BrokerSetting, Verdict
from headgate.core.printable import printable
from headgate.errors import InvalidValue
from headgate_coordinator.imports.draft import Draft, Table
from headgate_coordinator.imports.names import is_exact
from headgate_coordinator.imports.report import Imported, SettingReport

MOST_BYTES: Final = 4 * 1024 * 1024
"""Of one file."""
MOST_TABLES: Final = 10_000
"""Of a policy that is made of files: each of its rules is looked up among all."""
MOST_FACTOR: Final = 100.0
"""Of waits before a message comes again, each beside the one before it."""
HIDDEN: Final = "***"
"""In place of a password."""
NO_VALUE: Final = "the broker would not accept this value; correct it there"
_PROPERTY: Final = re.compile(r"\$\{.*\}")
_WRITE_IT: Final = "a property, which is put in as the broker starts; write its value there, and import it again"
_LINKS: Final = ("bridge", "route")
_MOST_SHOWN: Final = 200
_MOST_REASON: Final = 1000
_SECRET: Final = re.compile("passw|secret|credential", re.IGNORECASE)
_IN_URL: Final = re.compile(r"//[^/@\s]*@")


class Placed(Protocol):
    """A placed part of a file knows its line."""

    @property
    def line(self) -> int:
        """Where it begins, from 1."""


@dataclass(slots=True)
class Reading:
    """A reading takes the files one after the other, and notes what became of each setting."""

    draft: Draft = field(default_factory=Draft)
    rows: list[SettingReport] = field(default_factory=list)
    file: str = ""
    _of: list[tuple[str, ...]] = field(default_factory=list, repr=False)
    _became: dict[tuple[str, str], list[int]] = field(default_factory=dict, repr=False)

    def place(self, one: Placed) -> str:
        """Return ``<file>:<line>`` of something."""
        return f"{self.file}:{one.line}"

    def note(
        self, one: Placed, word: BrokerSetting, verdict: Verdict, value: str, ours: str = "", why: str = ""
    ) -> None:
        """Note what became of a setting; a password is not shown, nor what stands beside such a word."""
        shown = HIDDEN if is_secret(word.name) or is_secret(value) else _IN_URL.sub(f"//{HIDDEN}@", value)
        about = f"{word.group}.{word.name}"
        if why == NO_VALUE and _PROPERTY.search(value):
            why = _WRITE_IT
        shown = printable(shown, _MOST_SHOWN)
        about, ours, why = printable(about), printable(ours), printable(why, _MOST_REASON)
        if len(self.draft.tables) > MOST_TABLES:
            raise InvalidValue(f"{self.place(one)}: more than {MOST_TABLES:,} rules; import a part, or write patterns")
        self._became.setdefault((self.place(one), ours), []).append(len(self.rows))
        self._of.append(self.draft.last)
        self.rows.append(SettingReport(verdict, self.file, one.line, about, shown, ours, why, word.states))

    def plain(self, one: Placed, word: BrokerSetting, value: str, ours: str = "") -> None:
        """Note what the table says of a word."""
        self.note(one, word, word.verdict, value, ours or word.ours, word.differs)

    def become(self, one: Placed, word: BrokerSetting, value: str, ours: str, why: str = "") -> None:
        """Note what a value became: ours, unless that is empty; ``why`` goes above what the table says of the word."""
        why = why or word.differs
        self.note(one, word, NOT_COVERED if not ours else DIFFERS if why else KEPT, value, ours, why)

    def take_back(self, places: set[str], ours: str, why: str, instead: str = "") -> None:
        """Note that what settings became cannot be, after all; ``instead`` is what else they became, if anything."""
        verdict: Verdict = DIFFERS if instead else NOT_COVERED
        for at in (at for place in places for at in self._became.pop((place, ours), ())):
            self.rows[at] = replace(self.rows[at], verdict=verdict, ours=instead, why=why)

    def imported(self, files: Sequence[Path], product: str) -> Imported:
        """Return what the files of a product amount to."""
        self._one_kind_each()
        names = printable(", ".join(file.name for file in files))
        return Imported(self.draft.text(f"From {names} of {product}."), self.rows)

    def _one_kind_each(self) -> None:
        """Drop rules and links of names that are a queue and a topic there; here a name has one kind."""
        kinds: dict[str, list[str]] = {}
        for _, match, kind in (key for key in self.draft.tables if key[0] == "destination"):
            if kind and is_exact(match):
                kinds.setdefault(match, []).append(kind)
        whys: dict[str, str] = {}
        gone: dict[tuple[str, ...], tuple[Table, str]] = {}
        for name, several in kinds.items():
            if len(several) > 1:
                kept = "queue" if "queue" in several else several[0]
                both = " and a ".join(several)
                whys[name] = f"{name!r} is a {both} there, and a {kept} here: rename the other one, and import it again"
                others = [("destination", name, one) for one in several if one != kept]
                gone |= {key: (self.draft.tables.pop(key), whys[name]) for key in others}
        for key, link in [(key, table) for key, table in self.draft.tables.items() if whys and key[0] in _LINKS]:
            if doubled := [name for name in _ends(link) if name in whys]:
                gone[key] = self.draft.tables.pop(key), whys[doubled[0]]
        self._drop(gone)

    def _drop(self, gone: Mapping[tuple[str, ...], tuple[Table, str]]) -> None:
        """Note that settings are not covered that became tables which are gone, each with its reason.

        These are the settings of such a table's lines, but for those that other tables have on the same line.
        """
        theirs = {place for table in self.draft.tables.values() for place in table.places.values()} if gone else set()
        lines = {place: why for table, why in gone.values() for place in table.places.values() if place not in theirs}
        for at, (row, key) in enumerate(zip(self.rows, self._of, strict=True)):
            why = gone[key][1] if key in gone else lines.get(f"{row.file}:{row.line}")
            if why and row.ours:
                self.rows[at] = replace(row, verdict=NOT_COVERED, ours="", why=why)

    def free_dead_letters(self) -> None:
        """Have no limit hold up dead letters, which nobody may be reading: else they hold up the living."""
        tables = [
            table for table in self.draft.tables.values() if table.values.get("dead_letter", "default") != "default"
        ]
        places = {table.values["dead_letter"]: table.places.get("dead_letter", "") for table in reversed(tables)}
        for name in dict.fromkeys(table.values["dead_letter"] for table in tables):
            rule = self.draft.rule(name, "queue")
            rule.places.setdefault("match", places[name])
            if not {"limit.bytes", "limit.messages"} & rule.values.keys():
                rule.set("limit", "unlimited", "so that dead letters hold nobody up")
                rule.set("pools", [])
                rule.set("when_full", "block")


def _ends(table: Table) -> list[str]:
    """Return the destinations of a link."""
    ends = (table.values.get(end, []) for end in ("from", "to"))
    return [name for end in ends for name in (end if isinstance(end, list) else [end])]


def is_secret(text: str) -> bool:
    """Return whether a word or a value speaks of passwords, so that what stands beside it is not shown."""
    return _SECRET.search(text) is not None


def data_of(file: Path) -> bytes:
    """Return what is in a file.

    Raises:
        InvalidValue: it cannot be read, or is larger than 4 MiB.
    """
    try:
        with file.open("rb") as stream:
            data = stream.read(MOST_BYTES + 1)
    except OSError as error:
        raise InvalidValue(f"{file}: cannot be read: {error.strerror}; name a configuration file") from None
    if len(data) > MOST_BYTES:
        raise InvalidValue(f"{file.name}:1: more than {MOST_BYTES // 1024 // 1024} MiB; split the file")
    return data
