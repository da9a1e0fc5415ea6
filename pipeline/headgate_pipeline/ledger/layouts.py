"""Layouts of an entry's text, by version: what scripts of any time wrote, and what is read of it.

A new layout is a row here and in the data dictionary (``lua/README.md``, "Ledger"). Columns that it adds go to the end
of :data:`~headgate_pipeline.ledger.schema.ENTRY`; they are null in entries of the layouts before, which stay here for
ever: ledgers and what was ingested from them outlive a release. A version that is not here is newer than this package.
"""

from typing import Final

Layout = tuple[str, ...]
"""Names of the columns in order, ``version`` first; all are columns of ENTRY, and ``epoch`` is among them."""

LAYOUTS: Final[dict[int, Layout]] = {
    1: (
        *("version", "time", "op", "session", "bytes", "messages", "first", "detail"),
        *("pending_bytes", "pending_messages", "leased_bytes", "leased_messages", "epoch"),
    ),
}
DIGITS: Final = 9
"""Of a version at most: more is no version."""


def of(version: bytes) -> Layout | None:
    """Return the layout of an entry that begins with this, or None where there is none."""
    return LAYOUTS.get(int(version)) if version.isdigit() and len(version) <= DIGITS else None
