"""`headgate top` in terminals of any size: each part has some lines, and nothing falls off at the end."""

import io
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.console import Console

from headgate import Explanation, PoolState
from headgate.explain.views import Limit
from headgate_coordinator.operate.fitting import LEAST, shares
from headgate_coordinator.operate.status import StatusData
from headgate_coordinator.operate.top import frame

pytestmark = pytest.mark.one_server


@given(st.lists(st.integers(1, 100), min_size=1, max_size=8), st.integers(3, 120))
@example([1, 3], 3)  # a table that fits only in part, and is left out
def test_lines_are_shared_out(wanted: list[int], room: int) -> None:
    """Mutants: no line is left to name what is left out; the first takes all; what one does not want is nobody's."""
    lines = shares(wanted, room)
    named = int(0 in lines)
    shown = lines.index(0) if named else len(lines)
    used = sum(lines) + named
    assert used == min(room, sum(wanted)) or (named and used < room and lines[:shown] == wanted[:shown])
    assert all(share <= want for share, want in zip(lines, wanted, strict=True))
    assert lines[0] >= min(wanted[0], room // 2 - 1)
    assert not any(lines[shown:])
    assert all(share >= min(want, LEAST) for share, want in zip(lines[1:shown], wanted[1:], strict=False))


def destination(name: str, state: str = "open") -> Explanation:
    limits = (Limit("bytes", 1000, 0, 0), Limit("messages", 10, 0, 0))
    fields = {"consumers": "0", "spooled_bytes": "0"}
    return cast(Explanation, SimpleNamespace(
        destination=name, kind="queue", state=state, reason="because", limits=limits, fields=fields, blocked=0,
        limiter=None, later=0, turns=None, deadlock=None, settled_per_second=None, dropped_messages=0, shadows=(),
    ))  # fmt: skip


def pool(name: str) -> PoolState:
    return PoolState(name, 1000, 0, 0, 0, 0, 0, "", False, {})


def link(at: int) -> Any:
    return SimpleNamespace(
        source=f"s{at}", target=f"t{at}", kind="bridge", state="works" if at else "nobody", backlog=at,
        backlog_bytes=at, trouble="",
    )  # fmt: skip


@pytest.mark.parametrize("height", [12, 24, 40, 60])
@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_a_picture_of_very_many_rows_has_a_part_of_each_and_its_keys(width: int, height: int) -> None:
    """Mutants: rows are cut off at the end; those that are left out are not counted; links that move come first."""
    found = [destination(f"q{at:03}", "open" if at % 50 else "blocked") for at in range(300)]
    pools = [pool(f"pool{at}") for at in range(30)]
    text = io.StringIO()
    picture = StatusData(found, (), pools, [link(at) for at in range(50)], 400)
    console = Console(width=width, file=text)
    console.print(frame(picture, "shop", "blocked", width=width, most=height, keys=True))
    lines = text.getvalue().splitlines()
    assert len(lines) <= height
    assert lines[-1].startswith("q quit")
    assert max(map(len, lines)) <= width
    first = next(at for at, line in enumerate(lines) if line.startswith("q0"))
    rows = sum(line.startswith("q") for line in lines[first:-1] if "because" not in line)
    assert f"and {300 - rows} more destinations" in lines
    assert rows >= height // 4 - 3
    if height >= 24:
        assert any(line.startswith("q000: because") for line in lines)
    if height >= 40:
        assert any(line.startswith("s0 > t0") for line in lines)
        shown = sum(" > " in line for line in lines)
        assert f"and {400 - shown} more links" in lines
        assert sum(line.startswith("pool") for line in lines) >= 3
    else:
        assert any(("no room for" in line and "400 links" in line) or line.endswith("…") for line in lines)
