"""The report: what is computed from entries, and the page that is made of it."""

import asyncio
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from headgate import InvalidValue
from headgate.core import ledger
from headgate_pipeline.audit.verdict import Verdict, read_verdict
from headgate_pipeline.cli.main import app
from headgate_pipeline.formatting import size, span
from headgate_pipeline.report import page, timeline
from headgate_pipeline.report.advice import advise
from headgate_pipeline.report.report import labels_of, render
from headgate_pipeline.report.report_data import ReportData, gather
from headgate_pipeline.report.screenshots import save
from tests.pipeline.ledgers_of import Writer
from tests.pipeline.load import run
from tests.pipeline.rows import entry, frame

pytestmark = pytest.mark.xdist_group("spark")


def stalled(destination: str = "orders") -> list[dict[str, Any]]:
    """A waits from 1000 to 3500 for bytes and is served; B from 2000 and still waits at 5000, with room; C is slow."""
    full = {"pending_bytes": 900, "leased_bytes": 90, "pending_messages": 9, "leased_messages": 1}
    return [
        entry(1, 0, "apply", destination, detail="limits:1000:inf"),
        entry(2, 500, "publish", destination, session="a", bytes=900, messages=9, first=1, **full),
        entry(3, 1000, "acquire", destination, session="a", detail="block:a:500:1", **full),
        entry(4, 2000, "acquire", destination, session="b", detail="open:b;block:b:5:1", **full),
        entry(5, 3500, "settle", destination, session="c", bytes=600, messages=6,
              detail="unblock:a:2500;grant:a:1:1;slow:c;released:link~x:6", pending_bytes=300, leased_bytes=590),
        entry(6, 5000, "settle", destination, session="c", bytes=300, messages=3, detail="brisk:c"),
    ]  # fmt: skip


@pytest.fixture(scope="module")
def figures(spark: SparkSession) -> ReportData:
    gap = entry(9, 0, "-", "lost", time=None, problem="gap: 1-9")
    return gather(frame(spark, [*stalled(), *stalled("<img src=x onerror=alert(1)>"), gap]))


def row_of(figures: ReportData, name: str = "orders") -> Any:
    return next(row for row in figures.destinations if row["destination"] == name)


def test_what_has_limits_of_its_own_has_no_empty_picture(figures: ReportData) -> None:
    limiter = {
        **row_of(figures),
        "destination": "model-calls",
        "limit": float("inf"),
        "peak_held": 0.0,
        "published_messages": 0,
    }
    levels = {**figures.levels, ("shop", "model-calls"): figures.levels["shop", "orders"]}
    waits = replace(figures, destinations=(*figures.destinations, limiter), levels=levels)
    assert "model-calls" in render(waits)
    only = render(ReportData(entries=1, step=50, count=1, destinations=({**limiter, "waited": 0.0},)))
    assert "model-calls" not in only
    assert "pending" not in re.sub(r"<(script|style).*?</\1>", "", only, flags=re.DOTALL)


def test_a_limit_that_has_only_a_shadow_is_no_limit() -> None:
    """Mutant: the number stands there that Redis keeps for a limit that binds nothing."""
    numbers = dict.fromkeys(
        ("taken_p95", "full_ms", "waited_ms", "waits", "unserved", "refused", "held_p99_ms", "would_wait"), 0
    )
    limit = {"namespace": "shop", "destination": "llm", "limit": "tokens", "of": "all", "most": 2.0**52} | numbers
    page = render(ReportData(entries=1, step=50, count=1, limits=(limit,)))
    assert re.search(r"llm: tokens</td>\s*<td[^>]*>no limit</td>", page), page
    assert "4,503" not in page


def test_waits_are_summed_with_their_causes_and_those_still_waiting(figures: ReportData) -> None:
    """Mutants: sessions that still wait left out of `waits`; `_cause` compares with 0 instead of the room."""
    row = row_of(figures)
    assert (row["waited"], row["waited_bytes"], row["waited_turn"]) == (5500, 2500, 3000)
    assert (row["longest"], row["sessions"], row["gave_up"], row["limit"]) == (3000, 2, 0, 1000)
    assert row["peak_share"] == 0.99


def test_waiting_is_spread_over_the_windows_in_which_it_was(figures: ReportData) -> None:
    """Mutant: the whole wait put into the window in which it ends."""
    waited = {row["window"] % 10_000: row["waited"] for row in figures.blocked if row["cause"] == "bytes"}
    assert figures.step == 50
    assert set(waited) == set(range(1000, 3550, 50))
    assert {ms for at, ms in waited.items() if at < 3500} == {
        100
    }  # of two destinations, each of one session all the time


def test_windows_keep_the_least_and_the_most(figures: ReportData, spark: SparkSession) -> None:
    """Mutant: `held_max` is that of the last entry."""
    levels = timeline.levels(frame(spark, stalled()).selectExpr("*", "unix_millis(time) ms", "1e3 limit_bytes"), 10_000)
    (row,) = levels.collect()
    assert (row["held_min"], row["held_max"], row["pending"], row["settled"]) == (0, 990, 0, 900)


def test_slices_are_one_destination(spark: SparkSession) -> None:
    """Mutants: each has a row and a picture; a slice without entries in a window has nothing there."""
    sliced = [*stalled(), *stalled("orders#11")]
    sliced[-1] = entry(6, 6000, "settle", "orders#11", session="c", bytes=100, messages=1, pending_bytes=200)
    figures = gather(frame(spark, sliced))
    assert figures.count == 1
    (whole,) = figures.destinations
    assert (whole["destination"], whole["published"], whole["peak_held"], whole["pending"]) == (
        "orders",
        1800,
        1980,
        200,
    )
    assert (whole["limit"], whole["peak_share"], whole["waits"]) == (1000, 1.0, 4)
    (windows,) = figures.levels.values()
    held = {row["window"] % 10_000: (row["held_max"], row["published"], row["limit"]) for row in windows}
    assert (held[500], held[5000], held[6000]) == ((1980, 1800, 1000), (890, 0, 1000), (200, 0, 1000))
    assert {row["destination"] for row in (*figures.producers, *figures.consumers, *figures.blocked_by)} == {"orders"}


def test_slow_consumers_and_links_are_told(figures: ReportData) -> None:
    slow = next(row for row in figures.consumers if row["destination"] == "orders")
    assert (slow["consumer"], slow["slow"], slow["messages"]) == ("c", 1500, 9)
    (link,) = figures.links
    assert (link["number"], link["newest"], link["behind"]) == (6, 9, 3)
    assert [row["behind"] for row in figures.lags["link~x"]] == [3]
    said = " ".join(advise(figures, labels_of(figures)))
    assert "consumer c was slow for 1.5 s" in said
    assert "1 part(s) of the ledger are missing" in said


@pytest.mark.soak  # what is told of consumers and links is told the same way
def test_gates_buckets_drops_and_limits_in_messages_are_told_as_what_they_are(spark: SparkSession) -> None:
    """Mutants: a gate said to have consumers; refused tokens not told; a limit in messages told in bytes."""
    few = {"pending_messages": 5, "leased_messages": 0, "pending_bytes": 50}
    rows = [
        entry(1, 0, "apply", "door", detail="limits:3:inf"),
        entry(2, 10, "acquire", "door", session="a", detail="block:a:3:1", leased_bytes=3),
        entry(3, 900, "acquire", "door", session="a", detail="unblock:a:890", leased_bytes=3),
        entry(1, 0, "take", "emails", session="a", bytes=30, messages=12),
        entry(1, 0, "apply", "small", detail="limits:9000:5"),
        entry(2, 5, "publish", "small", session="a", bytes=50, messages=5, **few),
        entry(3, 10, "acquire", "small", session="a", detail="block:a:3:1", **few),
        entry(4, 15, "drop", "small", session="b", bytes=20, messages=2, **few),
        entry(5, 990, "settle", "small", session="c", bytes=10, messages=1, detail="unblock:a:980"),
        entry(6, 995, "publish", "small", session="a", bytes=5, messages=1, detail="would-block:bytes:1:7"),
    ]
    told = gather(frame(spark, rows))
    said = advise(told, labels_of(told))
    assert any("It is a gate of 3 B: its permits were held by others" in line for line in said)
    assert any("of 42 tokens that were asked for, 12 were refused, or more" in line for line in said)
    assert any("small: 2 message(s) were dropped" in line for line in said)
    assert any("small: the shadow limit bytes would have kept 1 waiting, at most 7 above it" in line for line in said)
    assert any("It was the limit of 5 messages" in line for line in said)
    assert not any("consumers took" in line for line in said if line.startswith("door"))


def test_the_page_needs_nothing_else_and_names_are_escaped(figures: ReportData) -> None:
    """Mutant: a title of a picture not escaped."""
    html = render(replace(figures, verdict=Verdict(False, ("P1 </script><script>alert(1)</script>",))))
    told = re.sub(r"<script>.*?</script>", "", html, flags=re.DOTALL)  # plotly's own text
    assert not re.search(r"<(img|iframe|link|object)\b|\b(src|href)\s*=\s*[\"']?http|url\(", told, re.IGNORECASE)
    assert "default-src 'none'" in told
    assert "&lt;img src=x onerror=alert(1)&gt;" in told
    assert "A promise did not hold." in told
    data = re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', told)
    assert len(data) == 5
    titles = {json.loads(text)["layout"]["title"]["text"] for text in data}
    assert "&lt;img src=x onerror=alert(1)&gt;" in titles


def test_no_name_ends_the_script_that_holds_a_picture() -> None:
    """Mutant: the JSON of a picture written with `json.dumps`."""
    drawn = page.picture(go.Figure(layout={"title": "</script><b>"}))
    assert drawn.count("</script>") == 1
    assert "<b>" not in drawn


@pytest.mark.soak
@pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium on PATH: run .ci/ensure-chromium as root")
def test_pictures_are_drawn_as_png(figures: ReportData, tmp_path: Path) -> None:
    """Mutant: the page of a picture without what draws it, which leaves it blank."""
    (png,) = save(replace(figures, levels={}, links=()), tmp_path)
    assert png.name == "blocked.png"
    assert png.read_bytes().startswith(b"\x89PNG")
    assert png.stat().st_size > 8000


def test_an_empty_ledger_makes_a_page_that_says_so(spark: SparkSession) -> None:
    html = render(gather(frame(spark, [])))
    assert "The ledger is empty" in html
    assert len(html) < 20_000


@pytest.mark.soak
def test_of_many_destinations_those_where_most_waited_are_drawn(spark: SparkSession) -> None:
    """Mutant: destinations drawn in the order of their names."""
    rows = [entry(1, 0, "apply", f"d{n:04}", detail="limits:1000:inf") for n in range(1000)]
    rows += [entry(2, 10 * n, "acquire", f"d{n:04}", detail=f"giveup:a:{n}") for n in range(1000)]
    figures = gather(frame(spark, rows), top=3)
    assert figures.count == 1000
    assert {name for _, name in figures.levels} == {"d0997", "d0998", "d0999"}
    assert "the 3 of 1,000 where most waited" in render(figures)


@pytest.mark.parametrize(("span_ms", "step"), [(0, 1), (1000, 5), (3_600_000, 30_000), (10**10, 43_200_000)])
def test_windows_are_round_and_few(span_ms: int, step: int) -> None:
    assert timeline.step_for(span_ms) == step
    assert span_ms / step <= timeline.POINTS


def test_numbers_in_words() -> None:
    assert [span(ms) for ms in (7, 1500, 320_000, 7_500_000, 273_600_000)] == [
        "7 ms",
        "1.5 s",
        "5 min 20 s",
        "2 h 5 min",
        "3 d 4 h",
    ]
    assert [size(value) for value in (512, 1536, float("inf"), None)] == ["512 B", "1.5 KiB", "no limit", "not known"]


@pytest.mark.one_server
@pytest.mark.soak
def test_the_command_reports_a_run_from_its_redis(
    redis_url: str, cleanup_namespace: str, spark: SparkSession, tmp_path: Path
) -> None:
    """It has the waits of the ledger, which are no more than what senders measured: that has the way to Redis too."""
    load = asyncio.run(run(redis_url, cleanup_namespace, "orders", limit="16KiB", bursts=2))
    file = tmp_path / "report.html"
    arguments = ["report", "--redis", redis_url, "--namespace", cleanup_namespace, "--output", str(file)]
    told = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert told.exit_code == 0, told.output
    html = file.read_text()
    assert ">orders<" in html
    entries: Any = Writer(redis_url, cleanup_namespace).do("orders", "XRANGE", "-", "+")
    told_by_ledger = [
        int(arguments[1])
        for _, (_, text) in entries
        for name, arguments in ledger.events(text.decode().split(",")[7])
        if name in ("unblock", "giveup")
    ]
    assert len(told_by_ledger) > 10
    assert sum(told_by_ledger) < 1100 * load.waited
    assert f"<dt>waited for room</dt><dd>{span(sum(told_by_ledger))}</dd>" in html


def test_a_verdict_is_read_as_the_audit_writes_it(tmp_path: Path) -> None:
    """Mutant: what is unproven taken for violated."""
    found = [
        {"finding": "unproven", "destination": "a", "promise": "P4", "seq": 3, "what": "begun before."},
        {"finding": "audited", "destination": "a", "first_seq": 1, "seq": 9, "entries": 9},
    ]
    file = tmp_path / "audit.json"
    file.write_text(json.dumps({"findings": found}))
    verdict = read_verdict(file)
    assert (verdict.held, verdict.lines) == (
        True,
        ("1 destination(s), 9 entries were replayed.", "a, entry 3: unproven (P4): begun before."),
    )
    file.write_text(
        json.dumps(
            [*found, {"finding": "violated", "destination": "b", "promise": "P1", "seq": 4, "what": "too much."}]
        )
    )
    assert not read_verdict(file).held
    file.write_text("{}")
    with pytest.raises(InvalidValue, match="no findings"):
        read_verdict(file)
