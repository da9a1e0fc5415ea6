"""Implements `headgate audit` of spool stores: it compares storage, the store's state, destinations and their messages.

A segment is entered at its store, written, and then referred to; it is deleted, freed and forgotten once no message is
left. So whatever is found wanting is looked at once more: only what is wanting then too was not merely on its way.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headgate import Client, HeadgateError, InvalidName
from headgate.core.names import decode_name
from headgate.core.segment import MARK, Reference
from headgate.redis.keys import Address
from headgate.redis.stores.sliced_reads import every_slice
from headgate.spool import Spooling
from headgate.spool.stores import Spool, folder, row_of
from headgate_coordinator.operate.terminal import size

PAGE: Final = 500
"""Messages read at once."""
_STYLES: Final = {"equal": "green", "repaired": "yellow"}


@dataclass(slots=True)
class StoreFinding:
    """A store finding says what the audit of one store found. Segments are ``<encoded destination>/<name>``.

    Attributes:
        store: its name.
        segments: that it has.
        held_bytes: of them.
        missing: errors: messages without their payload, segments that are not counted, or not as they were written.
        orphans: segments that no message refers to, nor will; ``--repair`` deletes them.
        waiting: segments that no message refers to yet, with the living session that wrote each.
        repaired: whether the orphans were deleted.
    """

    store: str
    segments: int = 0
    held_bytes: int = 0
    missing: list[str] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)
    waiting: dict[str, str] = field(default_factory=dict)
    repaired: bool = False

    @property
    def verdict(self) -> str:
        """``equal``, ``repaired``, or ``differs``."""
        if self.missing or (self.orphans and not self.repaired):
            return "differs"
        return "repaired" if self.orphans else "equal"

    @property
    def sound(self) -> bool:
        """Whether it is in order now."""
        return self.verdict != "differs"

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data, for JSON."""
        return {"verdict": self.verdict, **asdict(self)}


@dataclass(frozen=True, slots=True)
class _Place:
    """A place is one destination: its segments ``<store>/<name>``, and how many messages refer to each."""

    address: Address
    segments: frozenset[str]
    references: Counter[str]


async def audit_stores(client: Client, *, repair: bool) -> list[StoreFinding]:
    """Compare every store of the namespace with its storage, and with the destinations that spool to it.

    Raises:
        CoordinatorUnavailable: Redis does not answer.
    """
    spooling = client.parts.registry.spooling
    names = await spooling.spools.names()
    if not names:
        return []
    places = [
        await _place(client, spooling, Address.of(client.namespace, name))
        for name in await every_slice(client.store.server, client.namespace)
    ]
    if repair:
        for place in places:
            if place.segments:
                await spooling.sweeper.sweep(place.address)  # those that are spent, and nobody is there to delete
    findings = []
    for name in names:
        finding = StoreFinding(name)
        findings.append(finding)
        try:
            await _audit(client, await spooling.spools.get(name), places, finding, repair=repair)
        except HeadgateError as error:
            finding.missing.append(f"it cannot be compared: {error}")
    return findings


async def _place(client: Client, spooling: Spooling, address: Address) -> _Place:
    segments = await spooling.spools.calls.segments(address)
    references: Counter[str] = Counter()
    spools = await client.store.server.command(address.shared[0], "HGET", address.shared[0], "spooled_bytes")
    after: str | None = None
    more = spools is not None or bool(segments)
    while more:
        messages = await client.store.browse(address, after=after, count=PAGE)
        references.update(Reference.parse(body).segment for _, body, *_ in messages if body[:1] == MARK)
        after = messages[-1][0].decode() if messages else None
        more = len(messages) == PAGE
    return _Place(address, frozenset(segments), references)


async def _audit(
    client: Client, spool: Spool, places: Sequence[_Place], finding: StoreFinding, *, repair: bool
) -> None:
    spooling = client.parts.registry.spooling
    root = f"{client.namespace}/"
    objects = {row_of(path.removeprefix(root)): held for path, held in await _listing(client, spool)}
    rows: dict[str, tuple[int, str]] = {}
    cursor = b""
    while cursor != b"0":
        cursor, piece = await spooling.spools.calls.held(spool.address, cursor or b"0")
        rows |= piece
    finding.segments, finding.held_bytes = len(rows), sum(held for held, _ in rows.values())
    mine = f"{spool.encoded}/"
    referred: set[str] = set()
    for place in places:
        known = {segment for segment in (*place.segments, *place.references) if segment.startswith(mine)}
        referred |= {f"{folder(place.address)}/{segment.removeprefix(mine)}" for segment in known}
        if any(_wrong(place, segment, mine, objects, rows) for segment in known):
            again = await _place(client, spooling, place.address)
            still = [_wrong(again, segment, mine, objects, rows) for segment in sorted(known)]
            finding.missing += [text for text in still if text]
    for segment, (_, session) in rows.items():
        if segment not in referred:
            address, name = _split(client.namespace, segment)
            if await spooling.spools.calls.is_orphan(address, f"{mine}{name}", session):
                finding.orphans.append(segment)
            elif segment not in {f"{folder(address)}/{found}" for found in await _names(spooling, address, mine)}:
                finding.waiting[segment] = session
    strays = [segment for segment in objects if segment not in rows and segment not in referred]
    if strays:  # they may have been about to go: the object first, then its row
        left = {row_of(path.removeprefix(root)) for path, _ in await _listing(client, spool)}
        finding.orphans += [segment for segment in strays if segment in left and _is_ours(client.namespace, segment)]
    if repair and finding.orphans:
        await spooling.sweeper.sweep_orphans(spool)
        for segment in finding.orphans:  # objects that the store does not know; the others are gone already
            address, name = _split(client.namespace, segment)
            if segment not in rows:
                await spool.delete(address, [name])
        finding.repaired = True
    await _count(client, spool, finding, repair=repair)


def _wrong(place: _Place, segment: str, mine: str, objects: dict[str, int], rows: dict[str, tuple[int, str]]) -> str:
    """Return what is wrong with a segment that messages of a destination refer to; nothing, if they do not any more."""
    messages = place.references[segment]
    at = f"{folder(place.address)}/{segment.removeprefix(mine)}"
    if not messages:
        return ""
    about = f"{at}: {messages} message(s) of {place.address.name!r} refer to it, and"
    if at not in objects:
        return f"{about} it is not in the storage: they go to the dead letters"
    if at not in rows:
        return f"{about} the store does not count its {objects[at]} bytes"
    if objects[at] != rows[at][0]:
        return f"{about} it has {objects[at]} bytes where {rows[at][0]} were written"
    if segment not in place.segments:
        return f"{about} the destination does not know it: nobody will delete it"
    return ""


async def _count(client: Client, spool: Spool, finding: StoreFinding, *, repair: bool) -> None:
    """Compare the counters of a store with its segments."""
    count = await client.store.recount(spool.address)
    if count.code == "OK" and not count.equal and repair:
        count = await client.store.recount(spool.address, repair=True)
        finding.repaired = True
    elif count.code == "OK" and not count.equal:
        finding.missing.append(f"its counters are {count.stored[:2]} bytes and segments, counted {count.counted[:2]}")


async def _names(spooling: Spooling, address: Address, mine: str) -> list[str]:
    found = await spooling.spools.calls.segments(address)
    return [segment.removeprefix(mine) for segment in found if segment.startswith(mine)]


async def _listing(client: Client, spool: Spool) -> Iterable[tuple[str, int]]:
    return (await spool.storage.listing(client.namespace)).items()


def _is_ours(namespace: str, segment: str) -> bool:
    """Return whether an object lies where a segment would; others have put theirs where it does not."""
    try:
        address, name = _split(namespace, segment)
    except InvalidName:
        return False
    return f"{folder(address)}/{name}" == segment


def _split(namespace: str, segment: str) -> tuple[Address, str]:
    encoded, _, name = segment.rpartition("/")
    return Address.of(namespace, decode_name(encoded)), name


def render(findings: Sequence[StoreFinding]) -> RenderableType:
    """Return the findings as a table and a line that sums them up; nothing where there are no stores."""
    if not findings:
        return Group()
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("store", overflow="fold", min_width=12)
    table.add_column("segments", no_wrap=True)
    table.add_column("found", overflow="fold")
    for finding in findings:
        style = _STYLES.get(finding.verdict, "bold red")
        orphan = "was deleted" if finding.repaired else "--repair deletes it"
        lines = [f"missing {text}" for text in finding.missing]
        lines += [f"orphaned {segment}: no message refers to it, {orphan}" for segment in finding.orphans]
        lines += [
            f"held {segment}: session {session} may refer to it yet" for segment, session in finding.waiting.items()
        ]
        text = "\n".join(lines) or f"{finding.segments} segments of {size(finding.held_bytes)}"
        table.add_row(Text(finding.store), Text(finding.verdict, style=style), Text(text))
    wrong = sum(not finding.sound for finding in findings)
    total = f"{len(findings)} spool store{'s' if len(findings) > 1 else ''} compared"
    return Group(table, Text(f"{total}: {f'{wrong} not in order' if wrong else 'all in order'}."))
