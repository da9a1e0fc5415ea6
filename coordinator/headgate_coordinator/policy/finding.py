"""A finding of the linter names a trap, where it is and what to do."""

from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding names one trap in a policy.

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
