"""`headgate status` shows all destinations, pools and spool stores of a namespace at a glance."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final, Literal

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headgate import Client, Explanation, PolicyError, PoolState, StoreState
from headgate.figures import plain, rounded
from headgate_coordinator.operate.fitting import Fitted, Section
from headgate_coordinator.operate.limits import bands, limiters, turns
from headgate_coordinator.operate.terminal import WIDE, number
from headgate_coordinator.operate.terminal import size as size_of

STYLES: Final = {
    "open": "green", "full": "yellow", "blocked": "bold red", "stopped": "bold red", "learning": "magenta",
    "unknown": "red",
}  # fmt: skip
LINK_STYLES: Final = {"works": "green", "stalled": "yellow", "nobody": "bold red", "ending": "magenta"}
COLUMNS: Final = ("kind", "state", "pending", "limit", "leased", "blocked", "consumers", "out/s")
NARROW: Final = 100
"""Columns of a terminal below which the table is drawn closely."""
TIGHT: Final = 76
"""Columns below which only what says how full something is, and who waits, is shown."""
TINY: Final = 50
"""Columns below which that is its name, its state, what is pending and who waits."""
AT_ONCE: Final = 32
"""Destinations asked about at a time."""


State = Literal["works", "stalled", "nobody", "ending"]


@dataclass(frozen=True, slots=True)
class LinkState:
    """A link state shows one link.

    Attributes:
        kind: ``bridge``, ``route`` or ``channel``; empty when the policy no longer names it.
        name: of its table in the policy; empty likewise.
        link: the name that it is known by.
        source: where it takes messages from.
        target: where it puts them; with its site, ``<site>:<name>``, where that is another one; of a channel,
            ``<group>:<port>``.
        state: ``works``; ``stalled`` when nothing moves, also while it begins; ``nobody`` when no node that is there
            has its lease; ``ending`` when the policy no longer names it, and nobody has ended it yet.
        owner: id of the node that has its lease; empty when none that is there has.
        mark: number, at the source, of the last message that the target has; None where it has none. Of a link to
            another site or to a channel, of the last that left the source. Of a source with slices, theirs added up.
        backlog: messages at the source that it has to settle, with those that other consumers of a queue may get; None
            where there is no source, or it is not a subscription of it yet.
        backlog_bytes: of these, about: as messages at the source are on average.
        trouble: why nothing moves, or that it spools, in a sentence; empty otherwise.
        origin: where its table is written.
    """

    kind: str
    name: str
    link: str
    source: str
    target: str
    state: State
    owner: str
    mark: int | None
    backlog: int | None
    backlog_bytes: int | None
    trouble: str
    origin: str

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class StatusData:
    """All destinations of a namespace, and what is beside them.

    Attributes:
        found: the destinations.
        stores: spool stores.
        pools: limits that they share.
        links: of the policy, and those that end; those that were read.
        links_in_all: how many there are, where not all were read.
    """

    found: Sequence[Explanation]
    stores: Sequence[StoreState] = ()
    pools: Sequence[PoolState] = ()
    links: Sequence[LinkState] = ()
    links_in_all: int = 0


def _used(one: Explanation) -> float:
    if one.limiter is not None:
        return one.limiter.used
    shares = [(part.pending + part.leased) / part.limit for part in one.limits if part.limit]
    return max(shares, default=0.0)


SORTS: Final[dict[str, Callable[[Explanation], Any]]] = {
    "name": lambda one: one.destination,
    "pending": lambda one: -(one.limits[0].pending if one.limits else 0),
    "leased": lambda one: -(one.limits[0].leased if one.limits else 0),
    "blocked": lambda one: (-one.blocked, one.state == "open"),
    "consumers": lambda one: -int(one.fields.get("consumers", 0)),
    "rate": lambda one: -(one.settled_per_second or 0.0),
    "used": lambda one: -_used(one),
    "dropped": lambda one: -one.dropped_messages,
}
"""Columns to sort by; the largest first, and equal ones by name."""


async def collect(client: Client) -> list[Explanation]:
    """Return the state of every destination, by name.

    Raises:
        CoordinatorUnavailable: Redis does not answer.
    """
    names = sorted(await client.destinations())
    found: list[Explanation] = []
    for start in range(0, len(names), AT_ONCE):
        explained = await asyncio.gather(*(_explain(client, name) for name in names[start : start + AT_ONCE]))
        found += [one for one in explained if one is not None]
    return found


async def _explain(client: Client, name: str) -> Explanation | None:
    try:
        return await client.explain(name)
    except PolicyError:
        return None  # removed since it was listed


def ordered(found: Sequence[Explanation], by: str) -> list[Explanation]:
    """Return them sorted by one of :data:`SORTS`."""
    return sorted(found, key=lambda one: (SORTS[by](one), one.destination))


def render(
    picture: StatusData, namespace: str, *, by: str = "name", width: int = WIDE, most: int | None = None
) -> RenderableType:
    """Return them as a table, and under it why those that are not open are not.

    Args:
        picture: the destinations; limiters, pools, stores and links have tables of their own.
        namespace: theirs.
        by: one of :data:`SORTS`.
        width: columns that there is room for; where it is narrow, what is least missed is left out.
        most: lines that there is room for; of each part those rows are shown that fit, and the others are counted.
    """
    shown = ordered(picture.found, by)
    waiting = [one for one in shown if one.state != "open"]
    cycles = list(dict.fromkeys(str(one.deadlock) for one in shown if one.deadlock))
    whole = most is None
    first = Section("destinations", shown, partial(_destinations, picture.found, width))
    reasons = (
        Section("that are not open", waiting, lambda part: (_why(one, whole=whole) for one in part)),
        Section("deadlocks", cycles, lambda part: (_deadlock(text, whole=whole) for text in part)),
    )
    links = sorted(picture.links, key=lambda one: one.state == "works")
    shared = (
        Section("limiters", [one for one in shown if one.limiter], lambda part: limiters(part, width, NARROW)),
        Section("limiters with bands", [one for one in shown if one.limiter and one.limiter.bands], bands),
        Section("queues with keys", [one for one in shown if one.turns], lambda part: turns(part, width)),
        Section("pools", picture.pools, lambda part: _pools(part, width)),
        Section("stores", picture.stores, lambda part: _stores(part, width)),
        Section("links", links, lambda part: _links(part, width), picture.links_in_all),
    )
    nothing = [] if shown else [Text(f"There are no destinations in namespace {namespace!r}.")]
    if most is not None:
        return Group(*nothing, Fitted((first, *reasons, *shared), most - len(nothing)))
    return Group(*nothing, *(part.drawn() for part in (first, *shared, *reasons) if part.items))


def _destinations(found: Sequence[Explanation], width: int, shown: Sequence[Explanation]) -> Iterator[RenderableType]:
    """Yield the table of some destinations, with the columns that one of all of them needs."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 0 if width < NARROW else 1, 0, 0))
    table.add_column("destination", overflow="fold", min_width=10)
    names = [name for name in COLUMNS if name not in _left_out(width)]
    if any(_spooled(one) for one in found):
        at = names.index("pending") + 1 + ("limit" in names)
        names[at:at] = ["spooled", "references"] if width >= NARROW else ["spooled"]
    if any(one.later for one in found):
        names.insert(names.index("pending") + 1 + ("limit" in names), "later")
    if any(one.shadows for one in found):
        names.append("would wait")
    for name in names:
        table.add_column(name, justify="left" if name in ("kind", "state") else "right", no_wrap=True)
    for one in shown:
        row = _row(one)
        table.add_row(Text(one.destination), *(row.get(name, "") for name in names))
    yield table


def _left_out(width: int) -> tuple[str, ...]:
    if width < TINY:
        return ("kind", "limit", "leased", "consumers", "out/s")
    return ("kind", "leased", "out/s") if width < TIGHT else ("kind",) if width < NARROW else ()


def _spooled(one: Explanation) -> int:
    return int(one.fields.get("spooled_bytes", 0))


def _table(what: str, columns: Sequence[str], width: int) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 0 if width < NARROW else 1, 0, 0))
    table.add_column(what, overflow="fold", min_width=10)
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _pools(pools: Sequence[PoolState], width: int) -> list[RenderableType]:
    """Return the table of pools."""
    names = ("used", "lent", "limit", "full", *(() if width < TIGHT else ("members",)), "waiting")
    names = ("full", "waiting") if width < TINY else names
    table = _table("pool", names, width)
    if width >= TIGHT:
        table.add_column("held most by", overflow="fold")
    for pool in pools:
        row: dict[str, RenderableType] = {
            "used": size_of(pool.used),
            "lent": size_of(pool.granted),
            "limit": size_of(pool.limit) if pool.limit is not None else "unlimited",
            "full": f"{100 * pool.used / pool.limit:.0f} %" if pool.limit else "-",
            "waiting": Text(str(pool.waiting), style=STYLES["blocked"] if pool.waiting else ""),
            "members": str(pool.members),
        }
        most = Text(", ".join(f"{name} {size_of(held)}" for name, held in pool.holders[:3]))
        table.add_row(Text(pool.name), *(row[name] for name in names), *([most] if width >= TIGHT else []))
    return [table, *(Text(line) for pool in pools for line in _over_sites(pool))]


def _over_sites(pool: PoolState) -> Iterator[str]:
    """Yield what a pool has of another site, and sites of it."""
    if (part := pool.part_of) is not None:
        most = "" if part.most is None else f" of at most {size_of(part.most)}"
        state = "" if part.confirmed else "; not confirmed since a loss here"
        why = f", for {part.trouble}" if part.trouble else ""
        state = (
            f"; {'cut off' if part.stranded else 'stuck'}{why}: no more can be had" if part.stranded or why else state
        )
        held = f"{size_of(part.held)}{most} of {part.pool} at site {part.site}"
        yield f"{pool.name} holds {held}, {_heard(part.heard)}{state}"
    for one in pool.sites:
        kept = f" and {size_of(one.kept)} kept for it" if one.kept else ""
        state = "; cut off: it cannot be taken back" if one.stranded else ""
        state += f"; {one.trouble}: {one.remedy}" if one.trouble else ""
        most = size_of(one.most) if one.most else "nothing: it is not named any more"
        least = f", at least {size_of(one.least)}" if one.least else ""
        weight = "" if one.weight == 1 else f", weight {one.weight}"
        held = f"{size_of(one.held)}{kept} of at most {most}{least}{weight}"
        yield f"{pool.name} lent site {one.site} {held}, {_heard(one.heard)}{state}"


def _heard(seconds: float | None) -> str:
    return "never heard of" if seconds is None else f"heard of {seconds:.0f} s ago"


def _stores(stores: Sequence[StoreState], width: int) -> list[RenderableType]:
    """Return the table of spool stores."""
    names = ("held", "waiting") if width < TINY else ("held", "limit", "leased", "segments", "waiting")
    table = _table("store", names, width)
    if width >= TIGHT:
        table.add_column("url", overflow="fold")
    for store in stores:
        row: dict[str, RenderableType] = {
            "held": size_of(store.held),
            "limit": size_of(store.limit) if store.limit is not None else "unlimited",
            "leased": size_of(store.leased),
            "segments": str(store.segments),
            "waiting": Text(str(store.waiting), style=STYLES["blocked"] if store.waiting else ""),
        }
        url = [Text(store.url)] if width >= TIGHT else []
        table.add_row(Text(store.name), *(row[name] for name in names), *url)
    return [table]


def _links(links: Sequence[LinkState], width: int) -> list[RenderableType]:
    """Return the table of links."""
    names = ("state", "backlog") if width < NARROW else ("kind", "state", "backlog", "bytes")
    table = _table("link", names, width)
    table.add_column("trouble", overflow="ellipsis", no_wrap=True)
    for one in links:
        row: dict[str, RenderableType] = {
            "kind": one.kind or "-",
            "state": Text(one.state, style=LINK_STYLES[one.state]),
            "backlog": "-" if one.backlog is None else str(one.backlog),
            "bytes": "-" if one.backlog_bytes is None else size_of(one.backlog_bytes),
        }
        table.add_row(Text(f"{one.source} > {one.target}"), *(row[name] for name in names), Text(one.trouble))
    return [table]


def _why(one: Explanation, *, whole: bool) -> Text:
    line = Text(overflow="fold" if whole else "ellipsis", no_wrap=not whole)
    line.append(one.destination, style=STYLES[one.state])
    line.append(f": {one.reason}")
    return line


def _deadlock(cycle: str, *, whole: bool) -> Text:
    line = Text(overflow="fold" if whole else "ellipsis", no_wrap=not whole)
    line.append("a deadlock", style="bold red")
    line.append(f": {cycle}")
    return line


def _row(one: Explanation) -> dict[str, RenderableType]:
    fields = one.fields
    row: dict[str, RenderableType] = {"kind": one.kind, "state": Text(one.state, style=STYLES[one.state])}
    if one.shadows:
        would = fields.get("would_wait", "0")
        row["would wait"] = Text(would, style="yellow" if would != "0" else "")
    if one.kind == "bucket":
        return row | {"limit": f"{plain(float(fields['rate']))}/s" if "rate" in fields else "unlimited"}
    if one.limiter is not None:
        return row | {"limit": f"{one.limiter.used:.0%} taken", "blocked": str(one.blocked)}
    in_bytes, in_messages = one.limits
    gate = one.kind == "gate"  # it counts what its callers count: bytes, or calls of size 1
    size, msg = (number, "calls") if gate else (size_of, "msg")
    limits = [size(in_bytes.limit)] if in_bytes.limit is not None else []
    limits += [f"{in_messages.limit} {msg}"] if in_messages.limit is not None else []
    by_messages = in_bytes.limit is None and limits
    return row | {
        "pending": f"{in_messages.pending} {msg}" if by_messages else size(in_bytes.pending),
        "limit": "\n".join(limits) or "unlimited",
        "spooled": size_of(_spooled(one)),
        "references": size_of(int(fields.get("reference_bytes", 0))),
        "later": str(one.later),
        "leased": f"{in_messages.leased} {msg}" if by_messages else size(in_bytes.leased),
        "blocked": str(one.blocked),
        "consumers": fields["consumers"],
        "out/s": rounded(one.settled_per_second) if one.settled_per_second is not None else "-",
    }
