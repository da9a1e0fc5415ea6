"""A finding is the result of a check: what was found, why it matters, and what to do about it."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

Status = Literal["ok", "warning", "problem"]
STATUSES: Final[tuple[Status, ...]] = ("ok", "warning", "problem")
"""From the best to the worst; the place of each is its exit code."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding is one check's result.

    Attributes:
        check: its name.
        status: ``problem``: promises do not hold, or nothing works. ``warning``: they hold until something happens, or
            it cannot be seen whether they do.
        found: what is so.
        why: why it matters; empty where all is well.
        advice: what to do.
        places: servers of which it was found; none where it is about all together.
    """

    check: str
    status: Status
    found: str
    why: str = ""
    advice: str = ""
    places: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {
            "check": self.check,
            "status": self.status,
            "found": self.found,
            "why": self.why,
            "do": self.advice,
            "places": list(self.places),
        }


def merged(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings by check, with those as one that differ in their servers only."""
    found: dict[tuple[str, ...], Finding] = {}
    for one in findings:
        key = (one.check, one.status, one.found, one.why, one.advice)
        before = found.get(key)
        found[key] = replace(one, places=tuple(dict.fromkeys((*before.places, *one.places)))) if before else one
    order = list(dict.fromkeys(one.check for one in found.values()))
    return sorted(found.values(), key=lambda one: order.index(one.check))


def worst(findings: Iterable[Finding]) -> Status:
    """Return the worst status there is."""
    return max((one.status for one in findings), key=STATUSES.index, default="ok")
