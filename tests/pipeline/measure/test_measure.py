"""Windows of what flowed: small frames whose sums are plain, and the same function on a stream."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.testing import assertDataFrameEqual
from typer.testing import CliRunner

from headgate_pipeline.cli.main import app
from headgate_pipeline.cli.measure import tables
from headgate_pipeline.ledger.events import with_limits
from headgate_pipeline.ledger.schema import ENTRY
from headgate_pipeline.measure.measure import blocked, fairness, flow, parties
from headgate_pipeline.measure.session_waits import stalls

pytestmark = pytest.mark.xdist_group("spark")

BEGIN = datetime(2026, 3, 1, 12, tzinfo=UTC)

FREED = "expired:50:1;expired:50:1;grant:bob:300:2;unblock:bob:4000;slow:eve.1;settled:200:2;fetched:400:4"


def row(
    seq: int, ms: int, op: str, session: str, size: int, messages: int, detail: str, *counters: int
) -> tuple[Any, ...]:
    return (
        "tests", "orders", seq, 1, BEGIN + timedelta(milliseconds=ms), op, session, size, messages, 0, detail,
        *counters, 1, None, None,
    )  # fmt: skip


ROWS = (
    row(1, 0, "apply", "-", 0, 0, "limits:1000:inf", 0, 0, 0, 0),
    row(2, 100, "publish", "ann", 300, 3, "open:ann;grant:ann:600:6", 300, 3, 300, 3),
    row(3, 200, "publish", "bob", 100, 1, "", 400, 4, 300, 3),
    row(4, 300, "acquire", "bob", 100, 1, "block:bob:200:1", 400, 4, 300, 3),
    row(5, 400, "acquire", "cid", 0, 0, "block:cid:-5:0", 400, 4, 300, 3),
    row(6, 4_300, "settle", "eve.1", 200, 2, FREED, 100, 0, 500, 5),
    row(7, 5_300, "acquire", "cid", 0, 0, "giveup:cid:4900", 100, 0, 500, 5),
    row(8, 12_000, "publish", "link~a~1", 500, 5, "committed:link~a~1:9", 600, 5, 0, 0),
    row(9, 12_500, "settle", "link~b~1.1", 100, 1, "settled:100:1;fetched:0:0;released:link~b~1:3", 500, 4, 0, 0),
    row(10, 13_000, "acquire", "dan", 0, 0, "block:dan:700:1;block:fay:1:1", 500, 4, 0, 0),
    row(11, 15_000, "remove", "-", 500, 4, "purge:500:4", 0, 0, 0, 0),
    row(12, 15_000, "detach", "eve.1", 0, 0, "purge:red:7:1;reopen:fay:0:0", 0, 0, 0, 0),
    ("tests", "orders", 20, *[None] * 13, "gap: 13-20", None),
)  # fmt: skip


SLICED = tuple(
    (*each[:1], name, *each[2:])
    for name, each in (
        ("orders", row(1, 0, "apply", "-", 0, 0, "limits:1000:inf", 0, 0, 0, 0)),
        ("orders", row(2, 100, "publish", "ann", 300, 3, "", 300, 3, 300, 3)),
        ("orders", row(3, 900, "settle", "eve.1", 300, 3, "unblock:ann:800;settled:300:3;fetched:300:3", 0, 0, 0, 0)),
        ("orders#11", row(1, 0, "apply", "-", 0, 0, "limits:1000:inf", 0, 0, 0, 0)),
        ("orders#11", row(2, 500, "publish", "bob", 300, 3, "", 300, 3, 0, 0)),
        ("orders#11", row(3, 9_000, "acquire", "dan", 0, 0, "block:dan:700:1;unblock:bob:200", 300, 3, 250, 0)),
        ("orders#11", row(4, 9_900, "settle", "eve.1", 100, 1, "settled:100:1;fetched:300:3", 200, 2, 0, 0)),
    )
)


def test_slices_are_one_destination(spark: SparkSession) -> None:
    """Mutants: each has rows of its own in a table; a sum of shares is above the limit that holds."""
    found = {
        name: table.collect() for name, table in tables(spark.createDataFrame(SLICED, ENTRY), "10 seconds", 0).items()
    }
    for name in ("flow", "parties", "fairness", "blocked", "stalls"):
        assert {each.destination for each in found[name]} == {"orders"}, name
    (whole,) = found["flow"]
    assert (whole.entries, whole.admitted_bytes, whole.settled_messages) == (7, 600, 4)
    assert (whole.held_bytes, whole.utilisation) == (600 + 550, 1.0)
    assert whole.delay_ms == pytest.approx((1.0 + 2.0) * 10_000 / 4)
    (reader,) = (each for each in found["parties"] if each.role == "consumer")
    assert (reader.party, reader.settled_messages, reader.calls) == ("eve.1", 4, 2)
    assert [(each.producers, each.jain) for each in found["fairness"]] == [(2, 1.0)]
    assert [(each.waits, each.max_ms) for each in found["blocked"]] == [(2, 800)]


@pytest.fixture(scope="module")
def entries(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(ROWS, ENTRY)


def at(seconds: int) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


def test_what_a_destination_admitted_and_settled_and_how_much_of_its_limit_was_in_use(entries: DataFrame) -> None:
    """Mutant: `_amounts` takes the first of several events."""
    found = flow(with_limits(entries)).drop("namespace", "destination", "end")
    spark = entries.sparkSession
    assertDataFrameEqual(
        found.select(
            "start", "entries", "admitted_bytes", "admitted_messages", "settled_bytes", "settled_messages",
            "expired_bytes", "expired_messages", "purged_bytes", "purged_messages", "held_bytes", "slow", "refused",
        ),
        spark.createDataFrame(
            [(at(0), 7, 400, 4, 200, 2, 100, 2, 0, 0, 700, 1, 0), (at(10), 5, 500, 5, 100, 1, 0, 0, 507, 5, 600, 0, 0)],
            "start timestamp, entries long, admitted_bytes long, admitted_messages long, settled_bytes long, "
            "settled_messages long, expired_bytes long, expired_messages long, purged_bytes long, "
            "purged_messages long, held_bytes long, slow long, refused long",
        ),
        ignoreNullable=True,
    )  # fmt: skip
    told = {row.start: row for row in found.select("start", "utilisation", "delay_ms").collect()}
    assert [row.utilisation for row in told.values()] == [0.7, 0.6]
    first = flow(entries).orderBy("start").head()
    assert first is not None
    assert (first.utilisation, round(first.delay_ms)) == (None, round(15 / 7 * 10_000 / 2)), "L over lambda"


def test_who_did_it(entries: DataFrame) -> None:
    told = parties(entries)
    found = {
        (row.role, row.party): (row.admitted_bytes, row.delivered_messages, row.settled_bytes) for row in told.collect()
    }
    assert found == {
        ("producer", "ann"): (300, 0, 0), ("producer", "bob"): (100, 0, 0), ("consumer", "eve.1"): (0, 4, 200),
        ("link", "link~a~1"): (500, 0, 0), ("link", "link~b~1"): (0, 0, 100),
    }  # fmt: skip
    (even,) = fairness(told).collect()
    assert (even.producers, even.jain) == (2, 400**2 / (2 * (300**2 + 100**2)))


def test_who_waited_and_why(entries: DataFrame) -> None:
    """Mutant: `_events` leaves out `reopen`."""
    (first,) = blocked(entries).collect()
    assert (first.waits, first.given_up, first.sessions, first.total_ms) == (2, 1, 2, 8900)
    assert (first.p50_ms, first.p99_ms, first.max_ms) == (4000, 4900, 4900)
    found = {row.session: (row.end, row.cause, row.ms, row.lacking_bytes) for row in stalls(entries).collect()}
    assert found == {
        "bob": ("unblock", "bytes", 4000, 200),
        "cid": ("giveup", "turn", 4900, -5),
        "dan": ("waits", "bytes", 2000, 700),
    }
    assert stalls(entries, 4500).count() == 1


@pytest.mark.soak
@pytest.mark.parametrize(
    ("name", "function"),
    [
        pytest.param("flow", flow, marks=pytest.mark.soak),
        pytest.param("blocked", blocked, marks=pytest.mark.soak),
        ("parties", parties),
    ],
)
def test_a_stream_says_the_same(
    spark: SparkSession, entries: DataFrame, tmp_path: Path, name: str, function: Callable[..., DataFrame]
) -> None:
    source = str(tmp_path / "entries")
    entries.repartition(3).write.parquet(source)
    stream = spark.readStream.schema(ENTRY).option("maxFilesPerTrigger", 1).parquet(source)
    query = (
        function(stream, "10 seconds", "1 hour").writeStream.format("memory").queryName(name).outputMode("update")
        .option("checkpointLocation", str(tmp_path / name)).trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    keys = [key for key in ("start", "role", "party") if key in spark.table(name).columns]
    newest = {tuple(row[key] for key in keys): row for row in spark.table(name).collect()}
    assert sorted(newest.values()) == sorted(function(entries).collect())


@pytest.mark.soak  # test_daily has how tables are written, and those above have what is in them
def test_the_command_writes_tables_by_day(entries: DataFrame, tmp_path: Path) -> None:
    """That a day is there once, though it is written again, has test_daily."""
    entries.write.parquet(str(tmp_path / "entries"))
    run = CliRunner().invoke(
        app, ["measure", "--input", f"{tmp_path}/entries", "--output", f"{tmp_path}/out", "--namespace", "tests"]
    )
    assert run.exit_code == 0, run.output
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "flow", "parties", "fairness", "blocked", "stalls", "limiters", "limiter_keys",
    }  # fmt: skip
    written = entries.sparkSession.read.parquet(f"{tmp_path}/out/flow")
    assert [str(row.day) for row in written.select("day").collect()] == ["2026-03-01"] * 2
