"""Entries that are proven as columns: what is said of them is what the replay of one after the other says."""

from collections.abc import Sequence
from itertools import groupby
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate_pipeline.audit import proof
from headgate_pipeline.audit.columns import MISSING
from headgate_pipeline.audit.entry_runs import ROWS
from headgate_pipeline.audit.findings import ROW, Finding, Settings
from headgate_pipeline.audit.proof import DestinationAudit
from headgate_pipeline.audit.replay import Replay
from tests.pipeline import made
from tests.pipeline.faults import Fault, faults
from tests.pipeline.story import Row, of_bucket, of_queue
from tests.support.extent import WHOLE
from tests.support.rewriting import RewritingServer, virtual_clock


@pytest.fixture(autouse=True)
def runs_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof, "SHORT", 2)


OF_ONE_ENTRY = {"_bands", "_shadows", "_steps", "ms", "_new", "_handlers", "_violated"}


def batch(rows: Sequence[Row]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True) if rows else [()] * len(ROW)
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, ROWS, strict=True)], schema=ROWS
    )


def state(replay: Replay) -> dict[str, Any]:
    """Return all that the entries to come are compared with."""
    accounts = replay.accounts
    return {
        name: value
        for name, value in vars(replay).items()
        if not callable(value) and name not in {"accounts", "_of_account", "_others", "_columns", "row"}
        and name not in {"_freed", "_freed_m", "takes", "sends", "holds", "later", "overtaking", "tried"}
    } | {
        "of": {
            name: (one.granted, one.granted_m, one.held, one.held_m, one.doubted) for name, one in accounts.of.items()
        },
        "gone": list(accounts._gone.items()), "learning": accounts.learning,
        "whole": accounts.whole, "taken_over": accounts.taken_over,
        "later": (replay.later._waits, replay.later._whole), "takes": vars(replay.takes), "sends": vars(replay.sends),
        "holds": {name: value for name, value in vars(replay.holds).items() if name not in OF_ONE_ENTRY},
        "parts": [
            {name: value for name, value in vars(part).items() if name != "_violated"}
            for part in (
                replay.holds._bands, replay.holds._shadows, replay.holds._steps, replay.overtaking, replay.tried
            )
        ],
    }  # fmt: skip


def compared(rows: list[Row], settings: Settings | None, *cuts: int) -> tuple[list[Finding], int]:
    """Replay both ways, the one in batches; returns what is said and how many entries columns proved."""
    exact, quick = Replay(settings), DestinationAudit(settings)
    rows = sorted(rows, key=lambda row: (row[12] or 0, row[0]))
    for first, last in zip((0, *cuts), (*cuts, len(rows)), strict=True):
        for row in rows[first:last]:
            exact.step((*row[:-1], MISSING) if None in row[:-1] and row[-1] is None else row)
        quick.follow(batch(rows[first:last]))
        assert state(quick.replay) == state(exact)
    said = exact.finish()
    assert quick.finish() == said
    return said, quick.proven


KNOWN = Settings(enforce="with-consumers", oversize="allow-one", rate=50, send_rate=900, send_burst=60)


def faulty(rows: list[Row], at: int) -> Fault:
    """Return one fault of those near an entry, with the whole ledger around it."""
    first = max(0, min(at, len(rows) - 3))
    found = list(faults(rows[first : first + 3]))
    name, part = found[at * 7 % len(found)]
    return name, [*rows[:first], *part, *rows[first + 3 :]]


@given(seed=st.integers(0, 1 << 32), count=st.integers(3, 120), at=st.integers(0, 1 << 16), known=st.booleans())
@pytest.mark.parametrize("make", [made.queue, made.bucket])
def test_columns_and_single_entries_say_the_same_of_a_ledger_and_of_every_fault_in_it(
    make: Any, seed: int, count: int, at: int, known: bool
) -> None:
    """Mutants: each `doubt` of `_Run` left out of `proven`; `commit` keeps `next`, held, or what is in hand."""
    rows, settings = make(Random(seed), count), KNOWN if known else None
    cut = at % (count + 1)
    said, _ = compared(rows, settings, cut)
    assert known or [found.finding for found in said] == ["audited"], said
    name, broken = faulty(rows, at % len(rows))
    said, _ = compared(broken, settings, min(cut, len(broken)))
    assert len(said) > 1 or said[0].first_seq != 1 or at % len(rows) >= len(rows) - 2, name
    compared(broken[at % len(broken) :], settings)  # a period that begins in the middle


def test_columns_prove_all_but_what_is_rare() -> None:
    """Mutants: `_Run.proven` returns 0; what expired, or a topic that keeps nothing, is in doubt."""
    rows = made.queue(Random(1), 4000)
    rare = [row[2] in {"apply", "attach"} for row in rows]
    short = sum(length for odd, length in runs(rare) if not odd and length <= proof.SHORT)
    said, proven = compared(rows, None)
    assert [found.finding for found in said] == ["audited"]
    assert len(rows) - sum(rare) - short - 5 <= proven < len(rows) - sum(rare), "until the first grant claims are open"

    opened = ("acquire", "a", 90, 9, 0, "open:a;grant:a:90:9", 0, 0, 90, 9)
    topic = [("publish", "a", 10, 1, at, "", 0, 0, 90 - 10 * at, 9 - at) for at in range(1, 10)]
    assert compared(ledger(APPLY, opened, *topic), None)[1] == 8, "it has no subscriptions"


def runs(marks: list[bool]) -> list[tuple[bool, int]]:
    return [(mark, len(list(same))) for mark, same in groupby(marks)]


APPLY = ("apply", "-", 0, 0, 0, "limits:100:inf", 0, 0, 0, 0)


def ledger(*entries: Any) -> list[Row]:
    return [(at, made.BEGIN, *entry, made.BEGIN, 1, None) for at, entry in enumerate(entries, 1)]


def test_what_nobody_holds_and_totals_of_an_account_in_doubt() -> None:
    """Mutants: `_credit` lets a grant be of nothing, or more be spent than is held, or doubts no account."""
    opened = ("acquire", "a", 50, 9, 0, "open:a;grant:a:50:9", 0, 0, 50, 9)
    other = ("acquire", "b", 9, 9, 0, "open:b;grant:b:9:9", 0, 0, 59, 18)
    same = ("acquire", "a", 50, 9, 0, "block:a:1:1", 0, 0, 59, 18)
    of_nothing = ("acquire", "a", 50, 9, 0, "grant:a:50:9", 0, 0, 59, 18)
    too_many = ("publish", "a", 5, 10, 1, "", 5, 10, 54, 8)
    too_much = ("acquire", "a", 50, 9, 0, "return:51:0", 0, 0, 8, 18)
    less = ("acquire", "a", 49, 10, 0, "grant:a:49:10", 0, 0, 58, 19)
    twice = ("acquire", "a", 7, 1, 0, "open:a;grant:a:7:1", 0, 0, 66, 19)
    for wrong, promise in ((of_nothing, "P2"), (too_many, "P2"), (too_much, "P2"), (less, "P2"), (twice, "P5")):
        then = ("acquire", "b", 9, 9, 0, "block:b:1:1", *wrong[6:])
        (found, _), proven = compared(ledger(APPLY, opened, other, same, same, same, wrong, then, then, then), None)
        assert (found.seq, found.promise) == (7, promise)
        assert proven >= 3
    left = ("leave", "a", 50, 9, 0, "", 0, 0, 9, 9)
    late = ("acquire", "a", 50, 9, 0, "block:a:1:1", 0, 0, 9, 9)
    said, _ = compared(ledger(APPLY, opened, other, same, same, same, left, late, late), None)
    assert [(found.seq, found.promise) for found in said[:-1]] == [(8, "P4")]

    rows, later = ledger(APPLY, opened, other, *[same] * 3), made.BEGIN + 5
    more = ("acquire", "a", 60, 9, 0, "grant:a:60:9", 0, 0, 66, 18)
    after = ledger(*[same] * 6, more, *[("acquire", "a", 60, 9, 0, "", 0, 0, 66, 18)] * 4)
    anew = [(seq, later, *rest, later, 1, None) for seq, _, *rest, _, _, _ in after]
    said, _ = compared([*rows, *[(len(rows) + row[0], *row[1:]) for row in anew]], None)
    assert [found.finding for found in said] == ["audited"], "a claim that changed nothing was not told"


@pytest.mark.one_server
async def test_the_ledger_of_every_operation_and_its_faults(redis_url: str, namespace: str) -> None:
    server = RewritingServer(redis_url, virtual_clock)
    await server.open()
    ledgers = [await of_queue(server, namespace), await of_bucket(server, namespace)]
    await server.close()
    random = Random(3)
    for rows in ledgers:
        compared(rows, None)
        for _, broken in random.sample(list(faults(rows)), 150 if WHOLE else 50):
            compared(broken, None, random.randrange(len(broken)))


def test_what_cannot_be_read_is_said_and_no_more() -> None:
    """Mutants: `Columns` takes what is no number for 0; nulls are read as nothing."""
    rows = made.queue(Random(5), 60)
    for broken in (
        (*rows[30][:7], "grant:s~1:five:6", *rows[30][8:]),
        (*rows[30][:7], "grant:s~1", *rows[30][8:]),
        (*rows[30][:7], "fetched:0x1F:1", *rows[30][8:]),
        (*rows[30][:7], f"expired:{'9' * 30}:1", *rows[30][8:]),
        (*rows[30][:4], None, *rows[30][5:]),
        (*rows[30][:3], None, *rows[30][4:]),
        (rows[30][0], *[None] * 13, "malformed: 4 columns"),
        (*rows[30][:2], "party", *rows[30][3:]),
        (*rows[30][:4], 1 << 60, *rows[30][5:]),
        (*rows[30][:13], 2, None),
        (*rows[30][:7], f"{rows[30][7]};expired:x:0", *rows[30][8:]),
        (*rows[30][:6], None, *rows[30][7:]),
    ):
        said, _ = compared([*rows[:30], broken, *rows[31:]], None, 20)
        assert len(said) > 1, broken
        assert len(compared([*rows[:30], broken], None)[0]) > 1, "and as the last of a batch"
