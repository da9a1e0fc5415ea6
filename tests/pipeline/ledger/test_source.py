"""The source without Spark: a reader is driven as Spark drives it."""

import json
import pickle
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from headgate.redis.bulk import BulkConnections
from headgate_pipeline.ledger import redis_ledgers as ledgers
from headgate_pipeline.ledger.redis_ledgers import COUNT, Ledgers
from headgate_pipeline.ledger.spark_source import LedgerReader, LedgerStreamReader, Options
from tests.pipeline.ledgers_of import Writer
from tests.support.shared import SharedServers

Row = dict[str, Any]


@pytest.fixture(autouse=True)
def connections_are_closed() -> Iterator[None]:
    yield
    ledgers.disconnect()


@pytest.fixture
def writer(redis_url: str, namespace: str) -> Iterator[Writer]:
    writer = Writer(redis_url, namespace)
    yield writer
    writer.clear()


@pytest.fixture
def cluster_writer(cluster_url: str, namespace: str) -> Iterator[Writer]:
    writer = Writer(cluster_url, namespace)
    yield writer
    writer.clear()


def options(writer: Writer, **more: object) -> Options:
    given = {"url": writer.url, "namespace": writer.namespace, "discoverySeconds": 0, **more}
    return Options.of({name: str(value) for name, value in given.items()})


def rows_of(reader: LedgerReader | LedgerStreamReader, parts: list[InputPartition]) -> list[Row]:
    return [row for part in parts for found in reader.read(part) for row in found.to_pylist()]


def batch(writer: Writer, **more: object) -> list[Row]:
    reader = LedgerReader(options(writer, **more))
    return rows_of(reader, reader.partitions())


class Stream:
    """A query: offsets go through JSON, and every second batch is planned by a reader that was started anew."""

    def __init__(self, writer: Writer, **more: object) -> None:
        self.options = options(writer, **more)
        self.reader = LedgerStreamReader(self.options)
        self.offset = self.reader.initialOffset()
        self.batches: list[list[Row]] = []

    def poll(self) -> list[Row]:
        """One batch."""
        limit = self.reader.getDefaultReadLimit()
        end = json.loads(json.dumps(self.reader.latestOffset(self.offset, limit)))
        assert list(end) == sorted(end)
        planner = LedgerStreamReader(self.options) if len(self.batches) % 2 else self.reader
        task = pickle.loads(pickle.dumps(planner))
        rows = [
            row
            for part in planner.partitions(self.offset, end)
            for found in task.read(part)
            for row in found.to_pylist()
        ]
        self.offset = end
        self.batches.append(rows)
        return rows

    def drain(self) -> list[Row]:
        """Batches until one is empty."""
        rows: list[Row] = []
        while found := self.poll():
            rows += found
        return rows


def seqs(rows: list[Row], name: str = "orders") -> list[int]:
    return [row["seq"] for row in rows if row["destination"] == name and row["problem"] is None]


def problems(rows: list[Row]) -> list[tuple[str, int, str]]:
    return [(row["destination"], row["seq"], row["problem"]) for row in rows if row["problem"]]


@pytest.mark.one_server
@pytest.mark.parametrize("count", [0, 1, COUNT - 1, COUNT, COUNT + 1, 3 * COUNT])
def test_every_entry_is_read_once(writer: Writer, count: int) -> None:
    """Mutant: the next call asks from the number that was read last."""
    writer.add("orders", count + 1)
    rows = batch(writer, rowsPerPartition=COUNT * 2)
    assert seqs(rows) == [row["bytes"] for row in rows] == list(range(1, count + 2))


@pytest.mark.one_server
def test_replies_are_short(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long reply keeps Redis from its other callers. Mutant: XRANGE without COUNT."""
    writer.add("orders", 3 * COUNT)
    sizes = []
    inner = Ledgers._range

    def watched(self: Ledgers, key: bytes, first: int, last: int, count: int) -> list[Any]:
        found = inner(self, key, first, last, count)
        sizes.append(len(found))
        return found

    monkeypatch.setattr(Ledgers, "_range", watched)
    batch(writer)
    assert max(sizes) == COUNT <= 500
    assert sum(sizes) == 3 * COUNT


@pytest.mark.one_server
def test_only_what_the_pattern_says(writer: Writer) -> None:
    for name in ("orders", "orders.eu", "bills", "näme/with:all"):
        writer.add(name, 2)
    assert Counter(row["destination"] for row in batch(writer)) == dict.fromkeys(
        ("orders", "orders.eu", "bills", "näme/with:all"), 2
    )
    assert {row["destination"] for row in batch(writer, destination="orders.#")} == {"orders", "orders.eu"}
    assert {row["destination"] for row in batch(writer, destination="bills")} == {"bills"}
    assert batch(writer, destination="nothing") == []
    for name in ("bills#1", "bills#12"):  # slices of it, whether or not there is one between
        writer.add(name, 2)
    for pattern in ("bills", "*"):
        names = {row["destination"] for row in batch(writer, destination=pattern)}
        assert {"bills", "bills#1", "bills#12"} <= names, "mutant: a slice is a destination of another name"


def test_all_primaries_of_a_cluster(cluster_writer: Writer, shared_servers: SharedServers) -> None:
    """Mutant: SCAN on one server."""
    names = [f"orders.{number}" for number in range(12)]
    for name in names:
        cluster_writer.add(name, 3)
    for url in shared_servers.cluster().urls:
        cluster_writer.url = url
        assert Counter(row["destination"] for row in batch(cluster_writer)) == dict.fromkeys(names, 3)
    stream = Stream(cluster_writer, maxRows=5)
    assert len(stream.drain()) == 36
    assert {len(rows) for rows in stream.batches[:-1]} <= {5, 1}
    for name in names:
        cluster_writer.add(name, 4, first=4)
    rows = stream.drain()
    assert all(seqs(rows, name) == [4, 5, 6, 7] for name in names)


def test_slots_that_moved_are_found_again(
    cluster_writer: Writer, shared_servers: SharedServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutant: MOVED is an error."""
    names = [f"orders.{number}" for number in range(6)]
    for name in names:
        cluster_writer.add(name, 3)
    found = Ledgers(cluster_writer.direct, cluster_writer.namespace)
    inner, wrong = BulkConnections.home, 0

    def home(self: BulkConnections, key: bytes) -> Any:
        nonlocal wrong
        right = inner(self, key)
        if wrong % 3 == 2:
            return right
        wrong += 1
        return next(client for client in self.primaries() if client is not right)

    monkeypatch.setattr(BulkConnections, "home", home)
    assert {name: there and there.last for name, there in found.look(dict.fromkeys(names)).items()} == dict.fromkeys(
        names, 3
    )
    wrong = 0
    rows = [row for name in names for part in found.read(name, 1, 3) for row in part.to_pylist()]
    assert all(seqs(rows, name) == [1, 2, 3] for name in names)
    assert wrong == 2


def test_a_stream_begins_with_the_oldest(writer: Writer) -> None:
    writer.add("orders", 300)
    writer.do("orders", "XTRIM", "MINID", "101-0")
    stream = Stream(writer)
    stream.offset = {name: {"epoch": 0, "seq": 100} for name in stream.offset}
    assert stream.reader.initialOffset() == stream.offset
    assert seqs(stream.drain()) == list(range(101, 301))
    assert problems(batch(writer)) == []


@pytest.mark.one_server
def test_a_limit_is_shared_in_proportion(writer: Writer) -> None:
    stream = Stream(writer, maxRows=100)
    writer.add("orders", 900)
    writer.add("bills", 100)
    rows = stream.poll()
    assert (len(seqs(rows)), len(seqs(rows, "bills"))) == (90, 10)
    rows = [*rows, *stream.drain()]
    assert [len(found) for found in stream.batches] == [100] * 10 + [0]
    assert (seqs(rows), seqs(rows, "bills")) == (list(range(1, 901)), list(range(1, 101)))
    assert stream.reader.reportLatestOffset() == {
        "bills": {"epoch": 7, "seq": 100},
        "orders": {"epoch": 7, "seq": 900},
    }


@pytest.mark.one_server
def test_no_limit_where_spark_says_so(writer: Writer) -> None:
    reader = LedgerStreamReader(options(writer, maxRows=5))
    writer.add("orders", 20)
    assert reader.latestOffset({}, ReadMaxRows(5))["orders"]["seq"] == 5
    assert reader.latestOffset({}, ReadAllAvailable())["orders"]["seq"] == 20


@pytest.mark.one_server
def test_new_ledgers_are_picked_up_and_removed_ones_forgotten(writer: Writer) -> None:
    """Mutant: a destination that is gone stays in the offset."""
    writer.add("orders", 5)
    stream = Stream(writer)
    assert seqs(stream.drain()) == [1, 2, 3, 4, 5]
    writer.add("bills", 3)
    assert [(row["destination"], row["seq"]) for row in stream.drain()] == [("bills", 1), ("bills", 2), ("bills", 3)]
    writer.remove("orders")
    assert stream.drain() == []
    assert list(stream.offset) == ["bills"]
    writer.add("orders", 7, epoch=9)
    assert seqs(stream.drain()) == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.one_server
def test_what_was_trimmed_before_it_was_read_is_a_row(writer: Writer) -> None:
    """Mutant: reading goes on with the oldest entry, and says nothing."""
    writer.add("orders", 10)
    stream = Stream(writer)
    stream.drain()
    writer.add("orders", 990, first=11)
    writer.do("orders", "XTRIM", "MINID", "800-0")
    rows = stream.drain()
    assert problems(rows) == [("orders", 799, "gap: 11-799")]
    assert seqs(rows) == list(range(800, 1001))


@pytest.mark.one_server
def test_what_is_lost_while_it_is_read_is_a_row(writer: Writer) -> None:
    writer.add("orders", 10)
    reader = LedgerReader(options(writer))
    parts = reader.partitions()
    writer.lose("orders", 6)
    rows = rows_of(reader, parts)
    assert (seqs(rows), problems(rows)) == ([1, 2, 3, 4, 5, 6], [("orders", 10, "gap: 7-10")])


@pytest.mark.one_server
@pytest.mark.parametrize("written", [1, 5, 12, 700])
def test_a_failover_that_lost_the_end_doubles_and_hides_nothing(writer: Writer, written: int) -> None:
    """However much was written since. Mutant: what follows the old number is taken for what follows the old entry."""
    writer.add("orders", 20)
    stream = Stream(writer)
    assert len(stream.drain()) == 20
    writer.lose("orders", 12)
    assert stream.drain() == []  # nothing new yet
    writer.add("orders", written, first=13, epoch=9)
    rows = stream.drain()
    assert problems(rows) == [("orders", 12, "back: 20-13")]
    assert [(row["seq"], row["epoch"]) for row in rows[1:]] == [(seq, 9) for seq in range(13, 13 + written)]
    writer.add("orders", 3, first=13 + written, epoch=11)  # a failover that lost nothing
    assert problems(stream.drain()) == []


@pytest.mark.one_server
@pytest.mark.parametrize("written", [1, 20, 30])
def test_a_destination_that_was_made_again_is_read_from_its_first_entry(writer: Writer, written: int) -> None:
    writer.add("orders", 20)
    stream = Stream(writer, maxRows=8)
    assert len(stream.drain()) == 20
    writer.remove("orders")
    writer.add("orders", written, epoch=9)
    rows = stream.drain()
    assert problems(rows) == [("orders", 0, "back: 20-1")]
    assert seqs(rows) == list(range(1, written + 1))


@pytest.mark.one_server
def test_available_now_ends_with_what_there_was(writer: Writer) -> None:
    """Mutant: the target is not kept to."""
    stream = Stream(writer, maxRows=4)
    writer.add("orders", 10)
    stream.reader.prepareForTriggerAvailableNow()
    writer.add("orders", 10, first=11)
    writer.add("bills", 10)
    ends = [stream.reader.latestOffset({}, ReadMaxRows(4))]
    while len(ends) < 2 or ends[-1] != ends[-2]:
        ends.append(stream.reader.latestOffset(ends[-1], ReadMaxRows(4)))
    assert ends[-1] == {"orders": {"epoch": 7, "seq": 10}}


@pytest.mark.one_server
def test_a_plan_is_the_same_after_all_is_gone(writer: Writer) -> None:
    """A batch that was planned is planned again after a crash, whatever Redis has then."""
    writer.add("orders", 10)
    start, end = {"orders": {"epoch": 7, "seq": 4}}, {"orders": {"epoch": 7, "seq": 10}}
    reader = LedgerStreamReader(options(writer))
    before = [part.value for part in reader.partitions(start, end)]
    writer.remove("orders")
    assert [part.value for part in reader.partitions(start, end)] == before
    rows = rows_of(reader, reader.partitions(start, end))
    assert problems(rows) == [("orders", 10, "gap: 5-10")]


@pytest.mark.one_server
def test_there_may_be_nothing(writer: Writer) -> None:
    assert batch(writer) == []
    reader = LedgerReader(options(writer))
    assert list(reader.read(InputPartition(None))) == []  # as Spark asks where there are no partitions
    assert Stream(writer).drain() == []


@pytest.mark.one_server
def test_trimming_deletes_what_was_read_and_keeps_the_newest(writer: Writer) -> None:
    """Mutant: trims up to the newest; or a ledger that is not the one that was read."""
    writer.add("orders", 5000)
    writer.add("bills", 1000)
    found = Ledgers(writer.direct, writer.namespace)
    read = {"orders": {"epoch": 7, "seq": 3000}, "bills": {"epoch": 6, "seq": 500}, "gone": {"epoch": 7, "seq": 5}}
    assert found.trim(read) == 5000 - writer.do("orders", "XLEN")
    there = found.look({"orders": 3000, "bills": None})
    assert there["orders"] is not None
    assert there["bills"] is not None
    assert 2800 < there["orders"].first <= 3000
    assert there["orders"].at == 7
    assert there["bills"].first == 1
    found.trim({"orders": {"epoch": 7, "seq": 5000}})
    assert 100 <= writer.do("orders", "XLEN") <= 300
    assert found.trim({"orders": {"epoch": 7, "seq": 5000}}) == 0
