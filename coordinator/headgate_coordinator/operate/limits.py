"""The command line shows limiters: in `headgate state`, with gates and buckets, and in the table of `status`."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any, Final

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headgate import Client, Explanation, LimitState, PolicyError, ShadowState
from headgate.errors import UnknownDestination
from headgate.explain.limiter_view import BandUse, KeyUse, LimiterView
from headgate.explain.limiter_words import duration, shown
from headgate.explain.limiters import explain_limiter
from headgate.figures import rounded
from headgate.limiting.by_key import read_state
from headgate.redis.keys import Address
from headgate.redis.stores.limiters import LimiterStore
from headgate_coordinator.operate.terminal import number

LOOKED_AT: Final = 1000
"""Keys and holds that `headgate state` looks at."""
NAMED: Final = 3
"""Keys that a table of limiters names."""


async def look(client: Client, name: str, key: str | None) -> tuple[Explanation, LimiterView]:
    """Read a limiter, a gate or a bucket, and one of its keys.

    Raises:
        UnknownDestination: there is none of that name.
        PolicyError: it is a queue or a topic.
        InvalidName: no key is spelled so.
    """
    address, server = Address.given(client.namespace, name), client.store.server
    snapshot = await client.store.snapshot(address, waiters=0, consumers=1)
    if snapshot is not None and snapshot.fields["kind"] == "limiter":
        found = await explain_limiter(LimiterStore(server), address, snapshot.fields, key=key, most=LOOKED_AT)
        if found.limiter is not None:
            return found, found.limiter
    elif snapshot is not None and (read := await read_state(server, address, key, LOOKED_AT)) is not None:
        state, levels = read
        view = replace(
            LimiterView.of(levels, key, snapshot.fields.get("key_limits", "")),
            limits=tuple(state.limits.values()), key_limits=tuple(state.key_limits.values()), waiting=state.waiting,
            held_off=state.held_off, off_reason=state.reason, learning=state.learning,
        )  # fmt: skip
        found = await client.explain(name)
        counts = {f"{one.level.name} of all": one.would_wait for one in found.shadows if one.would_wait}
        would = int(found.fields.get("would_wait", 0))
        return found, replace(view, shadows=found.shadows, would_wait=would, shadowed=counts)
    if snapshot is None:
        raise UnknownDestination(name, client.namespace)
    kind = snapshot.fields["kind"]
    raise PolicyError(f"{name!r} is a {kind}, not a limiter, gate or bucket; see headgate explain {name}")


def as_dict(found: Explanation, view: LimiterView) -> dict[str, Any]:
    """Return a limiter as JSON has it; ``reason`` is that of its hold-off."""
    parts = asdict(view)
    reason = parts.pop("off_reason")
    return {
        "name": found.destination, "state": found.state, "cause": found.cause, "why": found.reason, "reason": reason,
        **parts,
    }  # fmt: skip


def render(found: Explanation, view: LimiterView) -> RenderableType:
    """Return a limiter for people."""
    table = _table("limit", "of", "form", right=("taken", "most", "left", "withheld", "whole again"))
    for limit in view.limits:
        table.add_row(*_row(limit, "all"))
    for limit in view.key_limits:
        table.add_row(*_row(limit, shown(view.key)))
    for shadow in view.shadows:
        owner = "all" if shadow.rule == "all" else shown(view.key)
        table.add_row(*_row(shadow.level, f"shadow, {owner}"))
    parts: list[RenderableType] = [
        Text(f"{found.destination}: {view.waiting} waiting, {view.keys} keys in use; {found.reason}"), table,
    ]  # fmt: skip
    if view.shadows:
        counts = ", ".join(f"{of} {times}" for of, times in view.shadowed.items())
        parts.append(Text(f"shadow limits would have kept {view.would_wait} waiting, or refused them: {counts or '-'}"))
    if view.held_off:
        parts.append(Text(f"held off for {rounded(view.held_off)} s more: {view.off_reason or 'no reason was given'}"))
    if view.learning:
        parts.append(Text(f"learning for {rounded(view.learning)} s more what is held: Redis may have lost state"))
    if view.bands:
        parts.append(_bands(view.bands))
    if view.top:
        parts.append(_keys(view.top))
    if view.seen:
        parts.append(Text(f"looked at: {view.seen}", style="dim"))
    return Group(*parts)


def _table(*left: str, right: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in left:
        table.add_column(column)
    for column in right:
        table.add_column(column, justify="right")
    return table


def _row(limit: LimitState, owner: str) -> list[str]:
    whole = duration(limit.reset_after) if limit.reset_after else "-"
    amounts = (limit.taken, limit.limit, limit.remaining, limit.withheld)
    if limit.is_unlimited:
        return [limit.name, owner, limit.form, str(limit.taken), "unlimited", "-", "-", whole]
    return [limit.name, owner, limit.form, *map(str, amounts), whole]


def _keys(top: Sequence[KeyUse]) -> Table:
    table = _table("key", right=("holds", "waiting"))
    table.add_column("has")
    for use in top:
        has = [f"{name} {amount}" for name, amount in sorted({**use.taken, **use.held}.items())]
        has += [f"held off for {rounded(use.held_off)} s"] if use.held_off else []
        table.add_row("(none)" if use.key is None else use.key, str(use.holds), str(use.waiting), ", ".join(has) or "-")
    return table


def _bands(bands: Sequence[BandUse]) -> Table:
    table = _table("band", right=("waiting", "admitted", "shed"))
    for use in bands:
        table.add_row(str(use.band), str(use.waiting), str(use.admitted), str(use.shed))
    return table


def limiters(found: Sequence[Explanation], width: int, narrow: int) -> list[RenderableType]:
    """Return the table of limiters, a line for each limit."""
    named = [(one, one.limiter) for one in found if one.limiter is not None]
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 0 if width < narrow else 1, 0, 0))
    table.add_column("limiter", overflow="fold", min_width=10, max_width=max(14, width // 4))
    table.add_column("limit", no_wrap=True)  # a line of each column is one limit's
    later = () if width < narrow else ("whole again",)
    withholds = any(limit.withheld for _, view in named for limit in view.limits)
    for column in ("taken + withheld" if withholds else "taken", "of", *later, "waiting"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("top keys", no_wrap=True, overflow="ellipsis", max_width=max(16, width - 80))
    for one, view in named:
        lines = [_line(limit, view, later=bool(later)) for limit in view.limits]
        lines += [_shadow(shadow, later=bool(later)) for shadow in view.shadows]
        name = Text(one.destination)
        if view.held_off:
            name.append(f"\nheld off {duration(view.held_off)}", style="bold red")
        top = "\n".join(str(use).removeprefix("key ") for use in view.top[:NAMED])
        table.add_row(name, *(Text("\n").join(column) for column in zip(*lines, strict=True)), Text(top))
    return [table]


def bands(found: Sequence[Explanation]) -> list[RenderableType]:
    """Return the table of limiters whose callers name bands, a line for each band."""
    named = [(one.destination, one.limiter.bands) for one in found if one.limiter is not None and one.limiter.bands]
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("bands", overflow="fold", min_width=10)
    for column in ("band", "waiting", "admitted", "shed"):
        table.add_column(column, justify="right", no_wrap=True)
    for name, uses in named:
        rows = [(use.band, use.waiting, use.admitted, use.shed) for use in uses]
        table.add_row(Text(name), *("\n".join(map(str, column)) for column in zip(*rows, strict=True)))
    return [table]


def turns(found: Sequence[Explanation], width: int) -> list[RenderableType]:
    """Return the table of queues whose keys take turns."""
    named = [(one.destination, one.turns) for one in found if one.turns is not None]
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("keys take turns", overflow="fold", min_width=10, max_width=max(14, width // 4))
    for column in ("ready", "keys"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("top keys and their shares", no_wrap=True, overflow="ellipsis", max_width=max(16, width - 50))
    for name, view in named:
        top = (f"{one.name}: {one.waiting}, {one.share:.0%}" for one in view.first[:NAMED])
        table.add_row(Text(name), str(view.waiting), str(view.keys), Text("; ".join(top)))
    return [table]


def _line(limit: LimitState, view: LimiterView, *, later: bool) -> tuple[Text, ...]:
    form = {"rate": "", "at_once": " at once", "quota": " quota"}[limit.form]
    waiting = view.waiting_for.get(limit.name, 0)
    withheld = f" + {number(limit.withheld)}" if limit.withheld else ""
    return (
        Text(f"{limit.name}{form}"), Text(f"{number(limit.taken)}{withheld}"),
        Text("-" if limit.is_unlimited else number(limit.limit)),
        *([Text(duration(limit.reset_after) if limit.reset_after else "-")] if later else []),
        Text(str(waiting) if waiting else "-", style="bold red" if waiting else ""),
    )  # fmt: skip


def _shadow(shadow: ShadowState, *, later: bool) -> tuple[Text, ...]:
    level = shadow.level
    count = f"{shadow.would_wait} would" if shadow.would_wait else "-"
    return (
        Text(f"{level.name} (shadow)", style="dim"), Text(number(level.taken)), Text(number(level.limit)),
        *([Text(duration(level.reset_after) if level.reset_after else "-")] if later else []),
        Text(count, style="yellow" if shadow.would_wait else ""),
    )  # fmt: skip
