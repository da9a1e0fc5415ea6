"""An audit's verdict on a period, as the report shows it."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from headgate import InvalidValue

_LINES: Final = 20


@dataclass(frozen=True, slots=True)
class Verdict:
    """A verdict sums up the audit of the same period.

    Attributes:
        held: no promise was seen broken.
        lines: what it found, in words.
    """

    held: bool
    lines: tuple[str, ...] = ()

    @classmethod
    def of(cls, findings: Iterable[Mapping[str, Any]]) -> Self:
        """Return what the rows of an audit say: those with ``violated`` first, then what is ``unproven``."""
        rows = list(findings)
        audited = [row for row in rows if row["finding"] == "audited"]
        entries = sum(row.get("entries") or 0 for row in audited)
        found = sorted(
            (row for row in rows if row["finding"] != "audited"), key=lambda row: row["finding"] != "violated"
        )
        lines = [_line(row) for row in found[:_LINES]]
        if len(found) > _LINES:
            lines.append(f"{len(found) - _LINES} more.")
        held = all(row["finding"] != "violated" for row in rows)
        return cls(held, (f"{len(audited)} destination(s), {entries:,} entries were replayed.", *lines))


def _line(row: Mapping[str, Any]) -> str:
    return (
        f"{row.get('destination')}, entry {row.get('seq')}: {row['finding']} ({row.get('promise')}): {row.get('what')}"
    )


def read_verdict(file: Path) -> Verdict:
    """Return what a file says: JSON, a list of findings, or an object that has it as ``findings``.

    Raises:
        InvalidValue: it is something else, or not there.
    """
    try:
        findings = json.loads(file.read_text(encoding="utf-8"))
        return Verdict.of(findings if isinstance(findings, list) else findings["findings"])
    except OSError as error:
        raise InvalidValue(f"--audit {file}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidValue(f"--audit {file}: no findings of an audit in it ({error!r})") from None
