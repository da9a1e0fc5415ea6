"""`headgate state`: how much is taken of a limiter, a gate or a bucket, of all keys and of those that have most."""

import re
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headgate import Client, HeadgateError
from headgate.core.limiting.amounts import encode_key
from headgate.core.names import decode_name
from headgate.limiting.by_key import read_state
from headgate.limiting.levels import LimiterState, LimitState
from headgate.redis.keys import Address
from headgate.redis.stores.limiters import NO_KEY, LimiterStore

MOST: Final = 1000
"""Keys, holds and waiters that are read; beyond, those that are shown are some of them."""
TOP: Final = 10
_HELD: Final = re.compile(r"(\w+):(\d+)")


@dataclass(slots=True)
class KeyUse:
    """One key's part of a limiter; ``key`` is None for admissions without one.

    Attributes:
        key: its name.
        held: of limits of what is held at once, by name.
        holds: how many.
        waiting: admissions in line.
    """

    key: str | None
    held: dict[str, int] = field(default_factory=dict)
    holds: int = 0
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class LimiterView:
    """A limiter at one instant, and those of its keys that have most.

    Attributes:
        state: of its limits.
        top: the keys.
    """

    state: LimiterState
    top: list[KeyUse]

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        s = self.state
        return {
            "name": s.name, "key": s.key, "waiting": s.waiting, "keys": s.keys, "held_off": s.held_off,
            "reason": s.reason, "learning": s.learning,
            "limits": [asdict(limit) for limit in s.limits.values()],
            "key_limits": [asdict(limit) for limit in s.key_limits.values()],
            "top": [asdict(use) for use in self.top],
        }  # fmt: skip


async def look(client: Client, name: str, key: str | None) -> LimiterView:
    """Read a limiter, a gate or a bucket, and one of its keys.

    Raises:
        HeadgateError: there is none of that name.
        InvalidValue: no key is spelled so.
    """
    address = Address.of(client.namespace, name)
    server = client.store.server
    levels = await LimiterStore(server).levels(address, key=encode_key(key), most=MOST)
    read = (LimiterState.of(name, key, levels), levels) if levels else await read_state(server, address, key, MOST)
    if read is None:
        where = f"in the namespace {client.namespace!r}; see headgate status"
        raise HeadgateError(f"there is no limiter, gate or bucket {name!r} {where}")
    state, levels = read
    uses: dict[str, KeyUse] = {}
    for encoded, record in levels.records.items():
        uses[encoded] = KeyUse(_name(encoded), {held: int(number) for held, number in _HELD.findall(record)})
    count = Counter((record.split(" ")[4], record[0]) for record in levels.holds.values())
    for (encoded, mark), number in count.items():
        use = uses.setdefault(encoded, KeyUse(_name(encoded)))
        if mark == "W":
            use.waiting = number
        else:
            use.holds = number
    most = {limit.name: max(limit.limit, 1) for limit in state.limits.values()}

    def share(use: KeyUse) -> tuple[float, int, int]:
        return max((number / most.get(held, 1) for held, number in use.held.items()), default=0), use.waiting, use.holds

    return LimiterView(state, sorted(uses.values(), key=share, reverse=True)[:TOP])


def render(view: LimiterView) -> RenderableType:
    """Return it for people."""
    state = view.state
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("limit", "of", "form"):
        table.add_column(column)
    for column in ("taken", "most", "left", "whole again"):
        table.add_column(column, justify="right")
    for limit in state.limits.values():
        table.add_row(*_row(limit, "all"))
    for limit in state.key_limits.values():
        table.add_row(*_row(limit, f"key {state.key}"))
    parts: list[RenderableType] = [Text(f"{state.name}: {state.waiting} waiting, {state.keys} keys in use"), table]
    if state.held_off:
        parts.append(Text(f"held off for {state.held_off:.3g} s more: {state.reason or 'no reason was given'}"))
    if state.learning:
        parts.append(Text(f"learns for {state.learning:.3g} s more what is held: Redis may have lost state"))
    if view.top:
        parts.append(_keys(view.top))
    return Group(*parts)


def _row(limit: LimitState, owner: str) -> list[str]:
    whole = f"{limit.reset_after:.3g} s" if limit.reset_after else "-"
    return [limit.name, owner, limit.form, str(limit.taken), str(limit.limit), str(limit.remaining), whole]


def _keys(top: list[KeyUse]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("key", "holds", "waiting", "held at once"):
        table.add_column(column, justify="right" if column in ("holds", "waiting") else "left")
    for use in top:
        held = ", ".join(f"{name} {number}" for name, number in sorted(use.held.items()))
        table.add_row(use.key if use.key is not None else "(none)", str(use.holds), str(use.waiting), held or "-")
    return table


def _name(encoded: str) -> str | None:
    return None if encoded == NO_KEY else decode_name(encoded)
