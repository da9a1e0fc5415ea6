"""Findings of the linter."""

from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One trap.

    Attributes:
        code: of the rule.
        place: ``<file>:<line>``.
        key: the key it is about.
        stalls: what would happen.
        remedy: what to do.
    """

    code: str
    place: str
    key: str
    stalls: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.place}: {self.code} {self.key}: {self.stalls}; {self.remedy}"

    def as_dict(self) -> dict[str, str]:
        """Return the facts, for JSON."""
        return asdict(self)
