"""`headgate audit` checks the index of topics and wildcard subscriptions: it finds entries that no client can read."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from headgate import Client


@dataclass(frozen=True, slots=True)
class IndexFinding:
    """An index finding names one entry that cannot be read.

    Attributes:
        entry: as Redis has it.
        repaired: whether it was taken out.
    """

    entry: str
    repaired: bool

    @property
    def sound(self) -> bool:
        """Whether it is gone."""
        return self.repaired

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data, for JSON."""
        return {"index": self.entry, "verdict": "repaired" if self.repaired else "unreadable"}


async def audit_index(client: Client, *, repair: bool) -> list[IndexFinding]:
    """Look at the index, and take out what cannot be read if that is wanted.

    Raises:
        CoordinatorUnavailable: Redis does not answer.
    """
    index = client.parts.registry.index
    found = await index.unreadable(client.namespace)
    if repair:
        await index.clear(client.namespace, found)
    return [IndexFinding(entry, repair) for entry in found]


def render(findings: Sequence[IndexFinding]) -> Text:
    """Return a line for each."""
    ends = {True: "was taken out", False: "cannot be read by any client; --repair removes it"}
    return Text("\n".join(f"The index entry {finding.entry!r} {ends[finding.repaired]}." for finding in findings))
