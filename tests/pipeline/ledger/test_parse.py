"""Entries of a ledger to columns: what the real scripts wrote, and everything that they did not."""

import gc
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema

import headgate
from headgate.core.ledger import LAYOUTS
from headgate.redis.bulk import BulkConnections
from headgate.redis.keys import Address
from headgate_pipeline.ledger import parse as ledger
from headgate_pipeline.ledger.schema import ENTRY

GOOD = b"1,1763600000123,publish,s~1,5,1,7,unblock:s~1:4;grant:s~1:9:2,10,2,4,1,1763600000000"


def entry(seq: int, text: bytes = GOOD) -> list[Any]:
    return [b"%d-0" % seq, [b"e", text]]


def decoded(entries: list[Any], first: int, last: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = ledger.decode("ns", "orders", entries, first, last).to_pylist()
    return rows


def test_the_columns_are_those_that_spark_demands() -> None:
    """Mutant: time in ms instead of us; Spark refuses any other type."""
    assert to_arrow_schema(ENTRY, timezone="UTC") == ledger.SCHEMA


@pytest.mark.one_server
async def test_what_the_scripts_wrote(redis_url: str, namespace: str) -> None:
    """Mutant: two columns of the layout exchanged."""
    async with headgate.connect(redis_url, namespace=namespace) as client:
        await client.apply("orders / eu", limit=1000)
        async with client.session("service") as session:
            producer = await session.producer("orders / eu")
            for number in range(5):
                await producer.send(b"x" * (number + 1))
            consumer = await session.consumer("orders / eu")
            for _ in range(5):
                message = await consumer.receive()
                assert message is not None
                await message.accept()
        key = Address.of(namespace, "orders / eu").key + ":ledger"
        direct = BulkConnections(redis_url)
        entries: Any = direct.home(key.encode()).xrange(key)
        direct.close()
        await client.remove("orders / eu")
    fast = ledger.decode(namespace, "orders / eu", entries, 1, len(entries))
    assert fast.schema == ledger.SCHEMA
    rows = fast.to_pylist()
    for seq, (row, (_, (_, text))) in enumerate(zip(rows, entries, strict=True), 1):
        version, ms, op, session_id, *rest = text.decode().split(",")
        counters = [row[name] for name in LAYOUTS[1][8:]]
        assert (row["namespace"], row["destination"], row["seq"]) == (namespace, "orders / eu", seq)
        assert (row["version"], row["op"], row["session"]) == (int(version), op, session_id)
        assert row["time"] == datetime.fromtimestamp(int(ms) / 1000, UTC).replace(microsecond=int(ms) % 1000 * 1000)
        assert [row["bytes"], row["messages"], row["first"]] == [int(part) for part in rest[:3]]
        assert [row["detail"], *map(str, counters)] == rest[3:]
        assert row["problem"] is row["raw"] is None
    published = [row for row in rows if row["op"] == "publish"]
    assert (len(published), sum(row["messages"] for row in published)) == (5, 5)
    assert {"apply", "publish", "attach", "settle"} <= {row["op"] for row in rows}
    assert ledger._at_once(namespace, "orders / eu", entries, 1) is not None
    assert (
        rows
        == pa.RecordBatch.from_pylist(
            list(ledger._one_by_one(namespace, "orders / eu", entries, 1, len(entries))), schema=ledger.SCHEMA
        ).to_pylist()
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"", "malformed: 1 columns, not 13"),
        (b"1,2,3", "malformed: 3 columns, not 13"),
        (GOOD + b",more", "malformed: 14 columns, not 13"),
        (GOOD.replace(b",5,", b",five,"), "malformed: bytes is 'five'"),
        (GOOD.replace(b",5,", b",,"), "malformed: bytes is ''"),
        (GOOD.replace(b"publish", b"\xff"), "malformed: op is '\N{REPLACEMENT CHARACTER}'"),
        (GOOD.replace(b"1763600000123", b"9223372036854775807"), "malformed: time is 9223372036854775807"),
        (GOOD.replace(b",5,", b",9223372036854775808,"), "malformed: bytes is '9223372036854775808'"),
        (b"2" + GOOD[1:], "version: 2"),
        (b"9,anything", "version: 9"),
        (b"0,anything", "version: 0"),
        (b"9" * 20 + b",anything", "version: " + "9" * 20),
        (b"9" * 5000, "version: " + "9" * 40),
    ],
)
def test_what_cannot_be_read_is_a_row_of_its_own(text: bytes, problem: str) -> None:
    """Mutant: a version above ours is read as ours."""
    before, bad, after = decoded([entry(6), entry(7, text), entry(8)], 6, 8)
    assert (bad["seq"], bad["problem"], bad["raw"]) == (7, problem, text.decode("utf-8", "replace"))
    assert bad["op"] is None
    assert (before["seq"], after["seq"], before["problem"], after["problem"]) == (6, 8, None, None)
    assert before["bytes"] == after["bytes"] == 5


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        ([b"7-3", [b"e", GOOD]], "malformed: its id is 7-3, not <number>-0"),
        ([b"7-0", [b"x", GOOD]], "malformed: it has fields other than e"),
        ([b"7-0", [b"e", GOOD, b"f", b"g"]], "malformed: it has fields other than e"),
        ([b"7-0", None], "malformed: it has fields other than e"),
    ],
)
def test_an_entry_of_another_hand_is_a_row_of_its_own(found: list[Any], problem: str) -> None:
    """Mutant: the names of fields and the second half of ids are not looked at."""
    _, bad, _ = decoded([entry(6), found, entry(8)], 6, 8)
    assert bad["problem"] == problem


def test_an_entry_with_an_end_of_line_does_not_shift_the_others() -> None:
    rows = decoded([entry(1, GOOD + b"\n2," + GOOD), entry(2), entry(3)], 1, 3)
    assert [row["problem"] is None for row in rows] == [False, True, True]


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ([1, 2, 3], {}),
        ([3, 4, 8], {2: "gap: 1-2", 7: "gap: 5-7", 10: "gap: 9-10"}),
        ([], {10: "gap: 1-10"}),
        ([1, 2, 4, 5, 6, 7, 8, 9, 10], {3: "gap: 3-3"}),
    ],
)
def test_missing_numbers_are_rows(numbers: list[int], expected: dict[int, str]) -> None:
    """Mutant: no row for what is missing at the end."""
    rows = decoded([entry(number) for number in numbers], 1, 10 if expected else 3)
    assert [row["seq"] for row in rows] == sorted([*numbers, *expected])
    assert {row["seq"]: row["problem"] for row in rows if row["problem"]} == expected


OLD = b"0,1763600000123,publish,s~1,5,grant:s~1:9:2,10,2,1763600000000"


@pytest.fixture
def older_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layout 0 that never was: without the columns that count messages, and the epoch elsewhere."""
    columns = ("version", "time", "op", "session", "bytes", "detail", "pending_bytes", "leased_bytes", "epoch")
    monkeypatch.setitem(LAYOUTS, 0, columns)


@pytest.mark.parametrize("others", [[], [GOOD, b"2,1763600000124,a,layout,of,tomorrow"]])
def test_entries_of_an_older_layout_are_read(older_layout: None, others: list[bytes]) -> None:
    """At once, and among others while scripts of both are at work. Mutants: the newest layout is taken for all of them;
    what an old one lacks is 0.
    """
    texts = [OLD, OLD, *others]
    entries = [entry(seq, text) for seq, text in enumerate(texts, 1)]
    rows = decoded(entries, 1, len(texts))
    assert (ledger._at_once("ns", "orders", entries, 1) is None) == bool(others)
    new = decoded([entry(1)], 1, 1)[0]
    lacking = dict.fromkeys(("messages", "first", "pending_messages", "leased_messages"))
    assert rows[0] == new | {"version": 0, "detail": "grant:s~1:9:2", "leased_bytes": 2, "pending_bytes": 10} | lacking
    assert rows[1] == rows[0] | {"seq": 2}
    assert [row["problem"] for row in rows[2:]] == [None, "version: 2"][: len(others)]
    assert rows[2:3] == ([new | {"seq": 3}] if others else [])
    assert ledger.epoch_of(entry(1, OLD)) == 1763600000000


def test_layouts_are_of_columns_that_there_are() -> None:
    for layout in LAYOUTS.values():
        assert layout[0] == "version"
        assert {"epoch", *layout} <= set(ENTRY.names)
        assert len(set(layout)) == len(layout)


@given(st.lists(st.one_of(st.just(GOOD), st.binary(max_size=60), st.text(max_size=60).map(str.encode)), max_size=6))
def test_any_bytes_give_one_row_an_entry(texts: list[bytes]) -> None:
    rows = decoded([entry(seq, text) for seq, text in enumerate(texts, 1)], 1, len(texts))
    assert [row["seq"] for row in rows] == list(range(1, len(texts) + 1))
    assert [row["problem"] is None for row in rows] == [text == GOOD for text in texts]


def test_the_epoch_of_an_entry() -> None:
    assert ledger.epoch_of(entry(1)) == 1763600000000
    assert ledger.epoch_of(entry(1, b"9")) is ledger.epoch_of(None) is ledger.epoch_of([b"1-0", None]) is None


def test_the_garbage_collector_runs_again_afterwards() -> None:
    with ledger.no_garbage_collection():
        assert not gc.isenabled()
    assert gc.isenabled()
