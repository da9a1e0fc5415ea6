"""A report has what became of each setting of imported files."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from headgate.brokers import DIFFERS, KEPT, NOT_COVERED, Verdict


@dataclass(frozen=True, slots=True)
class SettingReport:
    """One setting, with the place where it was written.

    Attributes:
        verdict: whether it is kept exactly, kept with a difference, or not covered.
        file: its name, without folders.
        line: from 1.
        setting: as the product writes it, with what it is about.
        value: as it was written.
        ours: what the policy says instead; empty where it says nothing.
        why: the difference, or what to do instead; empty where it is kept exactly.
        states: what the product's document says of it.
    """

    verdict: Verdict
    file: str
    line: int
    setting: str
    value: str
    ours: str = ""
    why: str = ""
    states: str = ""

    def __str__(self) -> str:
        text = f"{self.file}:{self.line}: {self.verdict}: {self.setting} = {self.value!r}"
        text += f" -> {self.ours}" if self.ours else ""
        return f"{text}; {self.why}" if self.why else text

    def as_dict(self) -> dict[str, Any]:
        """Return the facts, for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Imported:
    """`Imported` holds the policy that a configuration became, and a row for every setting that was there.

    Attributes:
        document: the policy, in TOML.
        rows: of every setting that was there, in the order of the files.
    """

    document: str
    rows: Sequence[SettingReport]

    @property
    def place(self) -> str:
        """The first line that says something, as ``file:line``; empty where none does."""
        return f"{self.rows[0].file}:{self.rows[0].line}" if self.rows else ""

    @property
    def summary(self) -> str:
        """How many settings became what, for people."""
        count = Counter(row.verdict for row in self.rows)
        settings = "setting" if len(self.rows) == 1 else "settings"
        return (
            f"{len(self.rows)} {settings}: {count[KEPT]} kept exactly, {count[DIFFERS]} kept with a difference, "
            f"{count[NOT_COVERED]} not covered"
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the facts, for JSON."""
        return {"document": self.document, "rows": [row.as_dict() for row in self.rows]}
