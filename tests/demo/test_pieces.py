"""What the demo sends, what it writes down, and what it shows."""

import os
from collections import Counter
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
from rich.console import Console

from headgate import InvalidValue
from headgate_coordinator.demo import PRODUCERS
from headgate_coordinator.demo.corpus import (
    MIN_LIMIT,
    OVERHEAD,
    PIECE,
    Piece,
    find_files,
    messages,
    read_pieces,
    share_of,
    standard_library,
)
from headgate_coordinator.demo.journal import Accepted, Journal, Received, Record
from headgate_coordinator.demo.table import Frame, Lines, LiveTable, Rate, Row, line, table, view_for
from headgate_coordinator.demo.watch import Sample
from headgate_coordinator.operate.terminal import size


def test_the_standard_library_has_hundreds_of_sizes() -> None:
    """Debian's leaves out its tests, which are the most of it."""
    files = find_files(standard_library())
    assert len(files) > 500
    assert len({file.stat().st_size for file in files}) > 400
    assert files == find_files(standard_library())


@pytest.mark.parametrize("limit", [MIN_LIMIT, 2 << 20, 1 << 40])
@pytest.mark.parametrize("length", [0, 1, 12_000, 300_000, 5_000_000])
def test_a_file_is_sent_whole_or_in_pieces_that_fit(tmp_path: Path, limit: int, length: int) -> None:
    content = os.urandom(length)
    (tmp_path / "file").write_bytes(content)
    pieces = list(read_pieces(tmp_path / "file", "file", limit))
    assert b"".join(piece.body for piece in pieces) == content
    assert [piece.part for piece in pieces] == list(range(len(pieces)))
    assert all(len(piece.body) + OVERHEAD <= limit for piece in pieces)
    assert len(pieces) == 1 or all(len(piece.body) <= PIECE for piece in pieces)


def test_a_file_that_is_gone_yields_nothing(tmp_path: Path) -> None:
    assert list(read_pieces(tmp_path / "gone", "gone", 1 << 20)) == []


def test_producers_share_the_files_and_begin_anew(tmp_path: Path) -> None:
    for number in range(7):
        (tmp_path / str(number)).write_text(f"content {number}")
    (tmp_path / "link").symlink_to(tmp_path / "0")
    sent = [list(islice(messages(tmp_path, i, 3, 1 << 20), 12)) for i in range(3)]
    assert {piece.path for pieces in sent for piece in pieces} == {str(number) for number in range(7)}
    once = Counter(path for pieces in sent for path in {piece.path for piece in pieces})
    assert set(once.values()) == {1}


def test_too_few_files_are_sent_by_everybody(tmp_path: Path) -> None:
    (tmp_path / "only").write_text("content")
    for source in (tmp_path, tmp_path / "only"):
        for index in range(len(PRODUCERS)):
            assert next(messages(source, index, len(PRODUCERS), 1 << 20)) == Piece("only", 0, b"content")
    assert share_of([tmp_path], 2, 3) == [tmp_path]


def test_a_name_that_is_not_text_becomes_text(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff")).write_bytes(b"odd")
    piece = next(messages(tmp_path, 0, 1, 1 << 20))
    assert piece.path.encode()


def test_nothing_to_send(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="no file in it"):
        find_files(tmp_path)
    with pytest.raises(InvalidValue, match="no such file"):
        find_files(tmp_path / "gone")


def test_a_journal_is_read_as_it_grows_and_a_torn_line_is_left_out(tmp_path: Path) -> None:
    accepted = Accepted("1-5", "fast", 1, "aa", 5, "päth")
    received = Received("1-5", "fast", 1, "aa", "aa", 5, 0)
    path = tmp_path / "journal"
    record = Record(path)
    record.update()
    assert record.messages == 0
    with Journal(path) as journal:
        journal.write("session", "s~1")
        journal.write("accepted", "1-5", "fast", 1, "aa", 5, "päth")
        record.update()
        assert (record.session, record.accepted, record.size) == ("s~1", [accepted], 5)
        journal.write("received", "1-5", "fast", 1, "aa", "aa", 5, 0)
        journal.write("error", "it broke")
    with path.open("ab") as torn:
        torn.write(b'["accepted", "2-')
    record.update()
    assert (record.received, record.error, record.messages, record.size) == ([received], "it broke", 2, 10)
    with path.open("ab") as rest:
        rest.write(b'9", "fast", 2, "bb", 9, "p"]\n')
    record.update()
    assert record.accepted[1].id == "2-9"


FRAME = Frame(
    elapsed=12.3,
    seconds=20,
    limit=2 << 20,
    sample=Sample(pending=1_900_000, pending_messages=90, leased=180_000, peak=2 << 20, blocked=2),
    rows=[
        Row("producer medium", "1234567", 99_999, 150_000_000, 3210.5, 99_000_000.0, "1023 KiB", "waits 12.3 s"),
        Row("consumer slow", "", 0, 0, 0.0, 0.0, "0 msgs", "not started yet"),
    ],
    events=[(0.1, "the limit is reached: producers wait until there is room"), (4.2, "x " * 60)],
    page="http://127.0.0.1:65535/",
)


@pytest.mark.parametrize(("width", "narrow"), [(80, True), (110, False)])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_the_table_fits_its_terminal(width: int, narrow: bool, ascii_only: bool) -> None:
    console = Console(width=width, color_system=None)
    with console.capture() as captured:
        console.print(table(FRAME, narrow=narrow, ascii_only=ascii_only))
    text = captured.get()
    for expected in (
        "2 blocked",
        "pending 1.81 MiB in 90 messages",
        "leased 176 KiB",
        "waits 12.3 s",
        "not started yet",
        "live page: http://127.0.0.1:65535/",
    ):
        assert expected in text
    for figure in ("99999", "3210", "94.4 MiB/s", "1023 KiB"):
        assert figure in text
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width


@pytest.mark.parametrize("width", [80, 110])
def test_the_live_table_shows_as_many_events_as_its_terminal_has_room_for(width: int) -> None:
    console = Console(width=width, height=24, color_system=None, force_terminal=True)
    with console.capture() as captured, LiveTable(console) as view:
        events = [(float(n), f"event {n}, {'x' * 50}") for n in range(20)]
        view.show(replace(FRAME, rows=[*FRAME.rows] * 5, events=events, waiting="waiting for Spark, for 9 s so far"))
    last = captured.get().split("Headgate demo")[-1]
    assert "event 19" in last
    assert "event 15" not in last
    assert "waiting for Spark, for 9 s" in last
    assert last.count("\n") <= 24
    assert "..." not in last  # which is how a table that is too high would end


def test_without_a_terminal_there_is_a_line_a_second(capsys: pytest.CaptureFixture[str]) -> None:
    view = view_for(Console(width=200, force_terminal=False))
    assert isinstance(view, Lines)
    with view:
        for tenths in range(31):
            view.show(Frame(tenths / 10, 20, 2 << 20, FRAME.sample, FRAME.rows))
        view.tell(3.05, "something happened")
    shown = capsys.readouterr().out.splitlines()
    assert [text.split(" s ")[0].strip() for text in shown] == ["1.0", "2.0", "3.0", "3.0"]
    assert shown[0].endswith(line(FRAME))
    assert shown[-1].endswith("* something happened")


def test_while_something_alone_is_awaited_only_that_is_said_and_seldom(capsys: pytest.CaptureFixture[str]) -> None:
    view = Lines(Console(width=200, force_terminal=False))
    for second in range(20, 41):
        view.show(replace(FRAME, elapsed=second + 0.5, waiting=f"waiting for Spark, for {second - 20} s so far"))
    shown = capsys.readouterr().out.splitlines()
    assert [text.split(" s  ")[1] for text in shown] == [
        f"waiting for Spark, for {seconds} s so far" for seconds in (0, 5, 10, 15, 20)
    ]


def test_rates_are_those_of_the_last_two_seconds() -> None:
    rate = Rate()
    assert rate.update(0.0, 0, 0) == (0.0, 0.0)
    assert rate.update(1.0, 100, 1000) == (100.0, 1000.0)
    assert rate.update(2.0, 100, 1000) == (50.0, 500.0)
    assert rate.update(3.5, 100, 1000) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (2 << 20, "2.00 MiB"),
        (150 << 10, "150 KiB"),
        (1 << 40, "1.00 TiB"),
    ],
)
def test_sizes_as_people_read_them(count: int, text: str) -> None:
    assert size(count) == text
