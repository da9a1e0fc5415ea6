"""Reading through ``format("headgate")``."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.streaming.query import StreamingQuery

import headgate.sync
from headgate import AccessDenied, InvalidValue
from headgate.redis.store import Store
from headgate_pipeline.exchange import drained, register
from headgate_pipeline.exchange.browse import BrowseReader
from headgate_pipeline.exchange.numbers import number_of, numbers_of, ranges
from headgate_pipeline.exchange.options import Options
from headgate_pipeline.exchange.stream import StreamReader
from tests.links.traces import PARENT
from tests.pipeline.spark_workers import python_workers
from tests.support.servers import newest_server
from tests.support.shared import SharedServers
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(300)]


@pytest.fixture
def said(shared_servers: SharedServers, cleanup_namespace: str) -> dict[str, str]:
    url = shared_servers.standalone(newest_server())
    return {"url": url, "namespace": cleanup_namespace, "destination": "orders", "ttl": "1", "idle": "0.3"}


@pytest.fixture
def client(said: dict[str, str]) -> Iterator[headgate.sync.Client]:
    with headgate.sync.connect(said["url"], namespace=said["namespace"]) as client:
        yield client


@pytest.fixture
def reader(said: dict[str, str]) -> Iterator[StreamReader]:
    reader = StreamReader(Options.of(said | {"window": "10"}))
    yield reader
    reader.stop()


def send(client: headgate.sync.Client, *bodies: str) -> None:
    with client.session("writer") as session:
        producer = session.producer("orders")
        for body in bodies:
            producer.send(body, headers={"n": len(body)})


def left(client: headgate.sync.Client) -> list[str]:
    return [str(message.body) for message in client.browse("orders")]


def bodies(reader: StreamReader, start: dict[str, object], end: dict[str, object]) -> list[str]:
    found = [batch for part in reader.partitions(start, end) for batch in reader.read(part)]
    return [body.decode() for batch in found for body in batch.column("body").to_pylist()]


def test_ranges_are_told_and_read_back() -> None:
    there = {number_of("2:7-100"), number_of("2:8-100"), number_of("47:1-1")}
    for numbers, text in (set(), ""), ({7}, "7"), ({3, 4, 5, 9, 11, 12}, "3-5,9,11-12"), ({9} | there, "9,2:7-8,47:1"):
        assert ranges(numbers) == text
        assert numbers_of(text) == numbers


@pytest.mark.parametrize(
    "wrong",
    [
        {"destination": ""},
        {"url": ""},
        {"url_env": "URL"},
        {"colour": "red"},
        {"window": "pull"},
        {"destination": "orders.#"},
        {"limit": "0"},
    ],
)
def test_options_that_cannot_be_used_are_refused_before_a_job_begins(wrong: dict[str, str]) -> None:
    with pytest.raises(InvalidValue):
        StreamReader(Options.of({"url": "redis://nowhere", "destination": "orders"} | wrong))


def test_a_url_is_read_where_it_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATE", "redis://there")
    (tmp_path / "url").write_text("redis://here\n")
    assert Options.of({"destination": "orders", "url_env": "GATE"}).where() == "redis://there"
    assert Options.of({"destination": "orders", "url_file": str(tmp_path / "url")}).where() == "redis://here"
    with pytest.raises(InvalidValue, match="executors need it too"):
        Options.of({"destination": "orders", "url_env": "NOWHERE"}).where()


def test_a_window_of_one_batch_is_no_deadlock(client: headgate.sync.Client, reader: StreamReader) -> None:
    """Spark asks for the next batch before it says that one was committed. Mutant: only `commit` settles."""
    send(client, *(str(n) for n in range(25)))
    start, got = reader.initialOffset(), list[str]()
    while (end := reader.latestOffset(start, ReadAllAvailable())) != start:
        assert len(left(client)) == 25 - len(got), "what was read is settled, and no more"
        got += bodies(reader, start, end)
        start = end
    assert got == [str(n) for n in range(25)]
    assert left(client) == []


def test_a_batch_that_was_not_committed_comes_again_and_one_that_was_does_not(
    client: headgate.sync.Client, said: dict[str, str]
) -> None:
    """Two batches are planned, the second is not committed, and the query dies with newer messages at hand.

    Mutants: what the last committed batch had is given out again; a window full of newer ones keeps the old away.
    """
    with contextlib.ExitStack() as stack:
        reader, again, after = (StreamReader(Options.of(said | {"window": window})) for window in ("3", "3", "10"))
        for one_of in (reader, again, after):
            stack.callback(one_of.stop)
        send(client, *"abc")
        none = reader.initialOffset()
        one = reader.latestOffset(none, ReadAllAvailable())
        assert bodies(reader, none, one) == list("abc")
        send(client, *"ghi")  # which fill its window: it takes none of those that come
        two = reader.latestOffset(one, ReadAllAvailable())
        assert bodies(reader, one, two) == list("ghi")
        assert left(client) == list("ghi")

        send(client, *"jklm")
        newer = again._messages()
        wait_for(lambda: newer.fresh(most=0, wait=0) or newer.held == 3)
        reader.stop()  # only now does the new query get what the old one had
        assert bodies(again, one, two) == list("ghi")
        three = again.latestOffset(two, ReadAllAvailable())
        rest = list("jklm")
        for body in bodies(again, two, three):
            rest.remove(body)
        again.stop()
        start = three
        while rest or left(client):
            end = after.latestOffset(start, ReadAllAvailable())
            for body in bodies(after, start, end):
                rest.remove(body)  # and nothing that was in a batch behind it
            start = end


def test_what_is_owed_of_earlier_batches_is_known_to_the_next_process(
    client: headgate.sync.Client, reader: StreamReader, said: dict[str, str]
) -> None:
    """The lease of a batch ends before it is accepted, another batch begins, and the process dies."""
    send(client, *"abc")
    none = reader.initialOffset()
    one = reader.latestOffset(none, ReadAllAvailable())
    assert bodies(reader, none, one) == list("abc")
    send(client, "d")
    intake = reader._messages()
    intake._connection.run(stand_still(2 * float(said["ttl"])))
    two = reader.latestOffset(one, ReadAllAvailable())
    while two == one:
        two = reader.latestOffset(one, ReadAllAvailable())
    assert bodies(reader, one, two) == ["d"]
    owed, again = numbers_of(two["owed"]), StreamReader(Options.of(said | {"window": "10"}))
    assert owed | {number for number in (1, 2, 3) if str("abc"[number - 1]) not in left(client)} == {1, 2, 3}
    reader.stop()
    send(client, "e")
    three = again.latestOffset(two, ReadAllAvailable())
    while three == two:
        three = again.latestOffset(two, ReadAllAvailable())
    assert bodies(again, two, three) == ["e"]
    again.latestOffset(three, ReadAllAvailable())
    wait_for(lambda: again.latestOffset(three, ReadAllAvailable()) == three and not left(client))
    again.stop()


def test_a_batch_behind_whose_process_died_is_accepted_however_late_it_comes_again(
    client: headgate.sync.Client, said: dict[str, str]
) -> None:
    """Newer messages make a batch before it does. Mutants: only the batch that is behind counts; nothing of it does."""
    died, again, other = (StreamReader(Options.of(said | {"window": window})) for window in ("3", "10", "10"))
    send(client, *"abc")
    none = died.initialOffset()
    one = died.latestOffset(none, ReadAllAvailable())
    assert bodies(died, none, one) == list("abc")  # and written; nobody says so to the process that has them
    send(client, *"def")
    two = again.latestOffset(one, ReadAllAvailable())
    assert numbers_of(two["owed"]) == {1, 2, 3}
    again.stop()
    died.stop()
    assert bodies(other, one, two) == list("def")  # as the next process begins it, for it was not committed
    wait_for(lambda: other.latestOffset(two, ReadAllAvailable()) == two and not left(client))
    other.stop()
    last = StreamReader(Options.of(said))
    send(client, "g")
    assert last.latestOffset(two, ReadAllAvailable())["owed"] == ""
    last.stop()


def test_a_stream_reads_all_slices_of_a_queue_and_keeps_the_order_of_each_sender(
    client: headgate.sync.Client, said: dict[str, str]
) -> None:
    """A process dies with a batch that is behind, and one that is not. Mutant: slices have the numbers of the first."""
    client.apply("orders", kind="queue", slices=3)
    died, again = (StreamReader(Options.of(said | {"window": "8", "limit": "6"})) for _ in range(2))
    for sender in "abcd":
        send(client, *(f"{sender}{number}" for number in range(5)))
    none, got = died.initialOffset(), list[str]()
    one = died.latestOffset(none, ReadMaxRows(6))
    got += bodies(died, none, one)
    two = died.latestOffset(one, ReadMaxRows(6))
    second = bodies(died, one, two)
    assert len(got) + len(second) == len(set(got + second)) >= 7
    died.stop()
    assert bodies(again, one, two) == second, "it is the same batch"
    got += second
    start = two
    while (end := again.latestOffset(start, ReadMaxRows(6))) != start or left(client):
        got += bodies(again, start, end)
        start = end
    assert {sender: [body for body in got if body[0] == sender] for sender in "abcd"} == {
        sender: [f"{sender}{number}" for number in range(5)] for sender in "abcd"
    }
    again.stop()


def test_a_run_that_takes_what_there_is_takes_that_of_every_slice(
    client: headgate.sync.Client, said: dict[str, str]
) -> None:
    client.apply("orders", kind="queue", slices=3)
    for sender in "abcdef":
        send(client, f"{sender}0")
    reader = StreamReader(Options.of(said))
    reader.prepareForTriggerAvailableNow()
    for sender in "ghi":
        send(client, f"{sender}1")
    start, got = reader.initialOffset(), list[str]()
    while (end := reader.latestOffset(start, ReadAllAvailable())) != start:
        got += bodies(reader, start, end)
        start = end
    assert sorted(got) == ["a0", "b0", "c0", "d0", "e0", "f0"]
    reader.stop()
    assert sorted(left(client)) == ["g1", "h1", "i1"]


@pytest.mark.parametrize("more", [{}, {"parts": "4"}, {"limit": "7"}, {"limit": "7", "parts": "4"}])
def test_a_look_is_at_every_slice(client: headgate.sync.Client, said: dict[str, str], more: dict[str, str]) -> None:
    client.apply("orders", kind="queue", slices=4)
    with client.session("to the first") as session:
        session.producer("orders").send("settled")
    client.purge("orders")
    for sender in "abc":  # and nothing is at the first
        send(client, *(f"{sender}{number}" for number in range(4)))
    look = BrowseReader(Options.of(said | more))
    found = [batch for part in look.partitions() for batch in look.read(part)]
    there = [body.decode() for batch in found for body in batch.column("body").to_pylist()]
    assert there == [f"{sender}{number}" for sender in "abc" for number in range(4)][: int(more.get("limit", 12))]


def test_whoever_may_consume_and_not_browse_owes_what_is_behind(
    client: headgate.sync.Client, said: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutant: it cannot go on, for it may not see what is stored."""

    async def refuse(*_: object, **__: object) -> None:
        raise AccessDenied("may not browse")

    monkeypatch.setattr(Store, "browse", refuse)
    died, again = (StreamReader(Options.of(said | {"window": window})) for window in ("3", "10"))
    send(client, *"abc")
    one = died.latestOffset(died.initialOffset(), ReadAllAvailable())
    send(client, "d")
    two = again.latestOffset(one, ReadAllAvailable())
    assert numbers_of(str(two["owed"])) == {1, 2, 3}
    died.stop()
    assert bodies(again, one, two) == ["d"]
    again.stop()


async def stand_still(seconds: float) -> None:
    """Keep the loop from renewing leases, as a process does that is stopped."""
    time.sleep(seconds)  # noqa: ASYNC251 (that is the point)


def stream(spark: SparkSession, said: dict[str, str], folder: Path) -> StreamingQuery:
    rows = (
        spark.readStream.format("headgate").options(**said).load().selectExpr("cast(body as string)", "headers['n'] n")
    )
    writing = rows.writeStream.format("json").option("checkpointLocation", str(folder / "checkpoint"))
    return writing.trigger(availableNow=True).start(str(folder / "out"))


def test_a_stream_reads_each_message_once_over_its_restarts(
    spark: SparkSession, client: headgate.sync.Client, said: dict[str, str], tmp_path: Path
) -> None:
    """The last batch of a run is never committed to the source; the next run knows it. Mutant: it is read again."""
    register(spark)
    out, sent = str(tmp_path / "out"), list[str]()
    while len(read := [row.body for row in spark.read.schema("body string").json(out).collect()] if sent else []) < 16:
        if len(sent) < 16:
            fresh = [f"{len(sent)}.{n}" for n in range(8)]
            send(client, *fresh)
            sent += fresh
        stream(spark, said | {"window": "5", "parts": "2"}, tmp_path).awaitTermination()
    assert sorted(read) == sorted(sent)


@pytest.mark.soak
def test_a_stream_whose_source_is_killed_reads_each_message_once(
    spark: SparkSession, client: headgate.sync.Client, said: dict[str, str], tmp_path: Path
) -> None:
    """All Python processes of Spark die while the query has messages at hand; it is started again."""
    register(spark)
    sent = [str(n) for n in range(60)]
    send(client, *sent)
    rows = spark.readStream.format("headgate").options(**said, window="5").load().selectExpr("cast(body as string)")
    writing = rows.writeStream.format("json").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writing.start(str(tmp_path / "out"))
    wait_for(lambda: len(left(client)) < 50, timeout=240)
    for pid in python_workers():
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not query.isActive, timeout=240)
    out, read = str(tmp_path / "out"), list[str]()
    while len(read) < len(sent):
        stream(spark, said, tmp_path).awaitTermination()
        read = [row.body for row in spark.read.schema("body string").json(out).collect()]
    assert sorted(read) == sorted(sent)


def test_a_job_that_drains_settles_when_it_succeeds(
    spark: SparkSession, client: headgate.sync.Client, said: dict[str, str]
) -> None:
    """Mutant: the block settles as it raises."""
    send(client, *"abcde")
    with pytest.raises(ZeroDivisionError), drained(spark, **said) as frame:
        _ = frame.count() // 0
    assert left(client) == list("abcde")
    with drained(spark, **said, limit=3) as frame:
        assert [(row.body, row.headers) for row in frame.collect()] == [
            (b"a", {"n": "1"}),
            (b"b", {"n": "1"}),
            (b"c", {"n": "1"}),
        ]
    assert left(client) == list("de")


def test_a_trace_goes_through_a_job(spark: SparkSession, client: headgate.sync.Client, said: dict[str, str]) -> None:
    """Its source gives the context of a trace, and its sink takes it."""
    register(spark)
    with client.session("writer") as session:
        session.producer("orders").send("a", headers={"traceparent": PARENT})
    with drained(spark, **said) as frame:
        writing = frame.selectExpr("body", "headers").write.format("headgate").mode("append")
        writing.options(**(said | {"destination": "billing"})).save()
    assert [message.headers["traceparent"] for message in client.browse("billing")] == [PARENT]


def test_a_look_takes_nothing(spark: SparkSession, client: headgate.sync.Client, said: dict[str, str]) -> None:
    register(spark)
    looking = spark.read.format("headgate")
    client.apply("orders", kind="queue")
    assert looking.options(**said).load().count() == 0
    send(client, *(str(n) for n in range(30)))
    with client.session("reader") as session:
        consumer = session.consumer("orders", window=5)
        for _ in range(5):
            message = consumer.receive()
            assert message is not None
            message.accept(confirm=True)
        whole = looking.options(**said, parts="3").load()
        assert sorted(int(row.body) for row in whole.collect()) == list(range(5, 30))
        assert looking.options(**said, limit="7").load().count() == 7
    assert len(left(client)) == 25
