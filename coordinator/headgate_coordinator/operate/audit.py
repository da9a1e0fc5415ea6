"""`headgate audit` compares every destination's counters with what its messages and sessions add up to."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headgate import Client
from headgate.redis.keys import PARTS, Address

COUNTERS: Final = (
    "pending_bytes", "pending_messages", "leased_bytes", "leased_messages", "blocked", "weight", "active",
    "in_turn", "in_turn_rightly",
)  # fmt: skip
"""In the order of :class:`headgate.redis.replies.Recount`."""
SPOOLED: Final = ("spooled_bytes", "reference_bytes")
"""Of what is in stores, as a destination counts it."""
AT_ONCE: Final = 500
"""Segments read at once."""
LOOKS: Final = 5
"""Times that what is spooled is looked at before a difference counts."""
_STYLES: Final = {"equal": "green", "repaired": "yellow", "differs": "bold red", "not counted": "bold red"}


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding says how one destination's counters compare with a recount.

    Attributes:
        verdict: ``equal``, ``differs``, ``repaired`` or ``not counted`` (it has too much to count in one go).
        stored: the counters as they stood; ``counted``: as they should.
    """

    destination: str
    verdict: str
    stored: dict[str, int]
    counted: dict[str, int]

    @property
    def sound(self) -> bool:
        """Whether its counters are right now."""
        return self.verdict in ("equal", "repaired")

    @property
    def differences(self) -> list[str]:
        """The counters that differ, with both values."""
        return [
            f"{name} is {self.stored[name]}, counted {self.counted[name]}"
            for name in self.stored
            if self.stored[name] != self.counted[name]
        ]

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data, for JSON."""
        return {
            "destination": self.destination,
            "verdict": self.verdict,
            "stored": self.stored,
            "counted": self.counted,
        }


async def audit(client: Client, *, repair: bool) -> list[Finding]:
    """Recount every destination; each at one instant, so that traffic does not matter.

    Raises:
        CoordinatorUnavailable: Redis does not answer.
    """
    findings = []
    for name in sorted(await client.destinations()):
        count = await client.recount(name)
        if count.code == "UNKNOWN":
            continue  # removed since it was listed
        verdict = "not counted" if count.code != "OK" else "equal" if count.equal else "differs"
        if verdict == "differs" and repair:
            count = await client.recount(name, repair=True)
            verdict = "repaired" if count.code == "OK" else "differs"
        stored, counted = (dict(zip(COUNTERS, numbers, strict=False)) for numbers in (count.stored, count.counted))
        slices = client.parts.registry.slices(Address.of(client.namespace, name))
        spooled = [await spooled_bytes(client, part.name) for part in slices]
        for field in {field for part in spooled for field in part}:
            kept, found = (sum(part[field][at] for part in spooled if field in part) for at in (0, 1))
            stored[field], counted[field] = kept, found
            verdict = verdict if kept == found or verdict == "not counted" else "differs"
        findings.append(Finding(name, verdict, stored, counted))
    return findings


async def spooled_bytes(client: Client, name: str) -> dict[str, tuple[int, int]]:
    """Return the bytes of segments, and of references to them, that a destination has: as it counts, and counted anew.

    Nothing where it has none. It is read piece by piece, so a difference is looked at again: messages may have come or
    gone meanwhile.
    """
    address = Address.of(client.namespace, name)
    key, refs = address.shared[0], address.shared[1 + PARTS.index("refs")]
    stored: tuple[int, ...] = ()
    counted: tuple[int, ...] = ()
    for _ in range(LOOKS):
        segments = list(await client.parts.registry.spooling.spools.calls.segments(address))
        rows: list[list[bytes]] = []
        for at in range(0, len(segments), AT_ONCE):
            values = await client.store.server.command(refs, "HMGET", refs, *segments[at : at + AT_ONCE])
            rows += [value.split() for value in values if value]
        # Rows of older scripts have no bytes of references, and they counted none.
        counted = sum(int(row[-1]) for row in rows), sum(int(row[1]) for row in rows if len(row) > 2)
        values = await client.store.server.command(key, "HMGET", key, *SPOOLED)
        stored = tuple(int(value or 0) for value in values)
        if stored == counted:
            break
    pairs = dict(zip(SPOOLED, zip(stored, counted, strict=True), strict=True))
    return {field: pair for field, pair in pairs.items() if any(pair)}


def render(findings: Sequence[Finding], namespace: str) -> RenderableType:
    """Return the findings as a table and a line that sums them up."""
    if not findings:
        return Text(f"There are no destinations in namespace {namespace!r}.")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("destination", overflow="fold", min_width=12)
    table.add_column("counters", no_wrap=True)
    table.add_column("found", overflow="fold")
    for finding in findings:
        if finding.verdict == "not counted":
            found = "too many messages or sessions to count in one go"
        else:
            found = "; ".join(finding.differences) or (
                f"{finding.counted['pending_messages']} messages of {finding.counted['pending_bytes']} bytes pending, "
                f"{finding.counted['leased_bytes']} bytes leased"
            )
        table.add_row(Text(finding.destination), Text(finding.verdict, style=_STYLES[finding.verdict]), Text(found))
    wrong = sum(not finding.sound for finding in findings)
    total = f"{len(findings)} destination{'s' if len(findings) > 1 else ''} recounted"
    return Group(table, Text(f"{total}: {f'{wrong} not in order' if wrong else 'all in order'}."))
