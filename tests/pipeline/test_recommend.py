"""Recommendations: what is worked out from a ledger, what is proposed, and the document that is made of it."""

import asyncio
import json
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

import headgate
from headgate.redis.keys import Address
from headgate_coordinator import policy
from headgate_coordinator.cli_commands import app as headgate_app
from headgate_pipeline import events
from headgate_pipeline.cli import app
from headgate_pipeline.needs import Need, round_trips, settles, tokens
from headgate_pipeline.recommend import Bounds, Proposal, document, propose
from tests.pipeline.load import run
from tests.pipeline.rows import entry, frame

KIB = 1024
NEED = Need(
    "orders", 5000, 0, 600_000, limit=100 * KIB, largest=1000, senders=2, windows=600, need=120 * KIB,
    need_confidence=0.95, rate=1024 * KIB, rate_confidence=0.95, taken=50 * KIB, waited=9, round_trip=10,
    round_trips=100, settle=2.0, settles=100,
)  # fmt: skip


WIDE = Bounds(step=10)


def proposals(need: Need = NEED, bounds: Bounds = WIDE, **fields: str) -> dict[str, Proposal]:
    return {proposal.key.split()[0]: proposal for proposal in propose(need, bounds, fields)}


def test_values_follow_from_what_was_seen() -> None:
    """Mutants: a window of one round trip instead of two; no room above the demand."""
    told = proposals(producer_window="16384")
    assert told["limit"].value == 150 * KIB  # 120 and a quarter more
    assert told["producer"].value == 21 * KIB  # 1 MiB/s for 2 * 10 ms
    assert told["consumer"].value == 100  # 11 would do; one step of 10 from 1000
    assert "confidence 95%" in told["limit"].reason
    assert proposals(consumer_window="20")["consumer"].value == 11


def test_no_value_is_further_than_a_step_or_beyond_the_ends() -> None:
    """Mutants: the step not kept to; the ends not kept to."""
    told = proposals(replace(NEED, need=9000 * KIB), Bounds(step=2))
    assert (told["limit"].value, told["producer"].value, told["consumer"].value) == (200 * KIB, 256 * KIB, 500)
    assert "look again" in told["limit"].reason
    assert proposals(replace(NEED, need=KIB), Bounds(step=2))["limit"].value == 50 * KIB
    assert proposals(bounds=Bounds(step=10, limit=(KIB, 120 * KIB)))["limit"].value == 120 * KIB
    assert proposals(replace(NEED, limit=None), Bounds(limit=(KIB, 130 * KIB)))["limit"].value == 130 * KIB


def test_windows_together_leave_half_of_the_limit() -> None:
    """Mutant: each window bounded by the limit alone."""
    told = proposals(replace(NEED, senders=50, need=80 * KIB), producer_window="4096")
    assert told["limit"].value is None  # as it is
    assert told["producer"].value == 1024


def test_nothing_is_made_smaller_on_little_evidence() -> None:
    """Mutant: confidence ignored."""
    few = replace(NEED, need=KIB, need_confidence=0.4, rate_confidence=0.4, settles=3)
    assert [proposal.value for proposal in proposals(few).values()] == [None, None, None]
    assert proposals(replace(few, need=500 * KIB))["limit"].value == 625 * KIB  # larger it may be


def test_a_delay_that_is_asked_for_caps_the_limit() -> None:
    told = proposals(bounds=Bounds(step=10, max_delay=1))["limit"]
    assert told.value == 50 * KIB
    assert "what consumers take in 1 s" in told.reason


def test_a_bucket_gets_a_rate() -> None:
    bucket = Need("emails", 9, 0, 1, tokens=100, tokens_confidence=0.99, limit=float("inf"))
    assert [(proposal.key, proposal.value) for proposal in propose(bucket, Bounds(), {"rate": "90"})] == [
        ("rate = %d", 125)
    ]


def test_the_document_is_a_policy_whatever_names_are(tmp_path: Path) -> None:
    """Mutants: quotes not escaped; the document of before dropped."""
    names = ["orders", 'a"b', "ü.é😀", "x y", "a..b"]
    needs = [*(replace(NEED, name=name) for name in names), Need("idle", 3, 0, 1)]
    base = '[[destination]]\nmatch = "#"\nlimit = "1GiB"\n\n[[bridge]]\nname = "b"\nfrom = "orders"\nto = "billing"\n'
    text = document(needs, Bounds(), base=base)
    told = tomllib.loads(text)
    assert [rule["match"] for rule in told["destination"]] == ["#", *names[:4]]
    assert "# a..b: no rule can name it" in text
    assert "# idle: no messages and no tokens were seen" in text
    file = tmp_path / "proposal.toml"
    file.write_text(text, encoding="utf-8")
    loaded = policy.load(file)
    assert loaded.resolve("orders", "queue").fields["limit_bytes"] == str(150 * KIB)
    assert loaded.links
    assert "no entries" in document([], Bounds())


@pytest.mark.xdist_group("spark")
def test_round_trips_settle_times_and_tokens(spark: SparkSession) -> None:
    """Mutants: the trip counted to any later entry; the time of a consumer that had nothing counted too."""
    rows = [
        entry(1, 0, "settle", session="c", detail="unblock:a:9;unblock:b:9;settled:0:0;fetched:100:10"),
        entry(2, 3, "acquire", session="a"),
        entry(3, 7, "publish", session="a", bytes=10, messages=1),
        entry(4, 20, "settle", session="c", messages=10, detail="settled:100:10;fetched:0:0"),
        entry(5, 90, "settle", session="c", detail="settled:0:0;fetched:10:1"),
        entry(6, 92, "settle", session="c", messages=1, detail="settled:10:1;fetched:0:0"),
        *(entry(n, 500 * n, "take", "emails", bytes=n, messages=1) for n in range(4)),
    ]
    prepared = events.prepare(frame(spark, rows))
    assert [(row["round_trip"], row["round_trips"]) for row in round_trips(prepared).collect()] == [(8, 1)]
    assert [(row["settle"], row["settles"]) for row in settles(prepared).collect()] == [(2, 2)]
    (asked,) = tokens(prepared).collect()
    assert asked["tokens"] == 2 + 1 + 3 + 1
    assert asked["tokens_confidence"] == pytest.approx(1 - 0.99**2)


@pytest.mark.one_server
@pytest.mark.xdist_group("spark")
def test_a_proposal_of_a_run_is_what_apply_accepts_and_changes_nothing_by_itself(
    redis_url: str, cleanup_namespace: str, spark: SparkSession, tmp_path: Path
) -> None:
    """Mutant: the proposal applied."""
    asyncio.run(run(redis_url, cleanup_namespace, "orders", limit="16KiB", senders=3, bursts=2))
    where = ["--redis", redis_url, "--namespace", cleanup_namespace]
    file = tmp_path / "proposal.toml"
    told = CliRunner().invoke(app, ["recommend", *where, "--output", str(file)], catch_exceptions=False)
    assert told.exit_code == 0, told.output
    assert tomllib.loads(file.read_text())["destination"][0]["limit"] == {"bytes": 32 * KIB}, file.read_text()

    async def state() -> tuple[int, str]:
        async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
            found = await client.store.snapshot(Address.of(cleanup_namespace, "orders"), waiters=0, consumers=1)
            assert found
            return (await client.policy()).version, found.fields["limit_bytes"]

    assert asyncio.run(state()) == (0, str(16 * KIB))
    dry = CliRunner().invoke(headgate_app, ["policy", "apply", str(file), "--dry-run", "--json", *where])
    assert dry.exit_code == 0, dry.output
    assert "limit_bytes" in json.dumps(json.loads(dry.stdout))
