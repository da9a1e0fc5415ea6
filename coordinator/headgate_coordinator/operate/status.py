"""`headgate status`: all destinations, pools and spool stores of a namespace at a glance."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headgate import Client, Explanation, PolicyError, PoolState, StoreState
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
AT_ONCE: Final = 32
"""Destinations asked about at a time."""


MOST_LINKS: Final = 8
"""Links that are shown where lines are few; those that do not move come first."""


class LinkLine(Protocol):
    """A link, as far as a line of a table needs it."""

    @property
    def source(self) -> str:
        """Where it takes messages from."""

    @property
    def target(self) -> str:
        """Where it puts them."""

    @property
    def kind(self) -> str:
        """``bridge``, ``route`` or ``channel``; empty for one that ends."""

    @property
    def state(self) -> str:
        """``works``, ``stalled``, ``nobody`` or ``ending``."""

    @property
    def backlog(self) -> int | None:
        """Messages that it has to settle."""

    @property
    def backlog_bytes(self) -> int | None:
        """Bytes of these."""

    @property
    def trouble(self) -> str:
        """Why nothing moves, in a sentence."""


@dataclass(frozen=True, slots=True)
class Picture:
    """All destinations of a namespace, and what is beside them.

    Attributes:
        found: the destinations.
        stores: spool stores.
        pools: limits that they share.
        links: of the policy, and those that end.
    """

    found: Sequence[Explanation]
    stores: Sequence[StoreState] = ()
    pools: Sequence[PoolState] = ()
    links: Sequence[LinkLine] = ()


def _pending(one: Explanation) -> int:
    return one.limits[0].pending if one.limits else 0


def _used(one: Explanation) -> float:
    if one.limiter is not None:
        return one.limiter.used
    shares = [(part.pending + part.leased) / part.limit for part in one.limits if part.limit]
    return max(shares, default=0.0)


SORTS: Final[dict[str, Callable[[Explanation], Any]]] = {
    "name": lambda one: one.destination,
    "pending": lambda one: -_pending(one),
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
    picture: Picture, namespace: str, *, by: str = "name", width: int = WIDE, most: int | None = None
) -> RenderableType:
    """Return them as a table, and under it why those that are not open are not.

    Args:
        picture: the destinations; limiters, pools, stores and links have tables of their own.
        namespace: theirs.
        by: one of :data:`SORTS`.
        width: columns that there is room for; where it is narrow, what is least missed is left out.
        most: lines that there is room for; what does not fit is counted in the last one.
    """
    found, pools, stores = picture.found, picture.pools, picture.stores
    links = sorted(picture.links, key=lambda one: one.state == "works")[: MOST_LINKS if most is not None else None]
    in_order = ordered(found, by)
    fair = (*bands(in_order), *turns(in_order, width))
    shared = (*limiters(in_order, width, NARROW), *fair, *_pools(pools, width), *_stores(stores, width))
    shared += (*_links(links, len(picture.links), width),)
    if not found:
        return Group(Text(f"There are no destinations in namespace {namespace!r}."), *shared)
    if most is not None and shared:
        views = [one.limiter for one in found if one.limiter is not None]
        limits = [limit for view in views for limit in view.limits]
        named = [use for view in views for use in view.bands]
        in_turn = [one for one in found if one.turns is not None]
        most = max(6, most - sum(len(some) + 3 for some in (limits, named, in_turn, pools, stores, links) if some))
    shown = ordered(found, by)
    held_up = [one for one in shown if one.state != "open"]
    if most is not None:
        reasons = min(len(held_up), most // 3)
        shown, held_up = shown[: max(1, most - 5 - reasons)], held_up[:reasons]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 0 if width < NARROW else 1, 0, 0))
    table.add_column("destination", overflow="fold", min_width=10)
    left_out = ("kind", "leased", "out/s") if width < TIGHT else ("kind",) if width < NARROW else ()
    names = [name for name in COLUMNS if name not in left_out]
    if any(_spooled(one) for one in found):
        at = names.index("limit") + 1
        names[at:at] = ["spooled", "references"] if width >= NARROW else ["spooled"]
    if any(one.later for one in found):
        names.insert(names.index("limit") + 1, "later")
    for name in names:
        table.add_column(name, justify="left" if name in ("kind", "state") else "right", no_wrap=True)
    for one in shown:
        row = _row(one)
        table.add_row(Text(one.destination), *(row.get(name, "") for name in names))
    hidden = len(found) - len(shown)
    more = [Text(f"and {hidden} more", style="dim")] if hidden else []
    cycles = dict.fromkeys(str(one.deadlock) for one in shown if one.deadlock)
    whole = most is None
    return Group(
        table,
        *more,
        *shared,
        *(_why(one, whole=whole) for one in held_up),
        *(_deadlock(text, whole=whole) for text in cycles),
    )


def _spooled(one: Explanation) -> int:
    return int(one.fields.get("spooled_bytes", 0))


def _table(what: str, columns: Sequence[str], width: int) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 0 if width < NARROW else 1, 0, 0))
    table.add_column(what, overflow="fold", min_width=10)
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _pools(pools: Sequence[PoolState], width: int) -> list[RenderableType]:
    """Return the table of pools; none where there are none."""
    if not pools:
        return []
    names = ("used", "lent", "limit", "full", *(() if width < TIGHT else ("members",)), "waiting")
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
    return [table]


def _stores(stores: Sequence[StoreState], width: int) -> list[RenderableType]:
    """Return the table of spool stores; none where there are none."""
    if not stores:
        return []
    table = _table("store", ("held", "limit", "leased", "segments", "waiting"), width)
    if width >= TIGHT:
        table.add_column("url", overflow="fold")
    for store in stores:
        waiting = Text(str(store.waiting), style=STYLES["blocked"] if store.waiting else "")
        limit = size_of(store.limit) if store.limit is not None else "unlimited"
        table.add_row(
            Text(store.name),
            size_of(store.held),
            limit,
            size_of(store.leased),
            str(store.segments),
            waiting,
            *([Text(store.url)] if width >= TIGHT else []),
        )
    return [table]


def _links(links: Sequence[LinkLine], total: int, width: int) -> list[RenderableType]:
    """Return the table of links, and how many are not in it; none where there are none."""
    if not links:
        return []
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
    hidden = total - len(links)
    return [table, *([Text(f"and {hidden} more links", style="dim")] if hidden else [])]


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
    if one.kind == "bucket":
        return row | {"limit": f"{float(fields['rate']):g}/s" if "rate" in fields else "unlimited"}
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
        "out/s": f"{one.settled_per_second:.3g}" if one.settled_per_second is not None else "-",
    }
