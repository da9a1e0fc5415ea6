"""Recommendations: what is worked out from a ledger, what is proposed, and the document that is made of it."""

import asyncio
import json
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

import headgate
from headgate import policy
from headgate.redis.keys import Address
from headgate_coordinator.cli.commands import command_line
from headgate_pipeline.cli.main import app
from headgate_pipeline.ledger import events
from headgate_pipeline.recommend.demand import DestinationDemand, _in_messages, round_trips, settles, tokens
from headgate_pipeline.recommend.policy_document import document
from headgate_pipeline.recommend.proposals import Bounds, Proposal, propose
from headgate_pipeline.recommend.sliced_demand import together
from headgate_pipeline.simulate import bucket_model as takes
from headgate_pipeline.simulate import gate_demand as gates
from headgate_pipeline.simulate.flow import replay
from headgate_pipeline.simulate.model import Period
from tests.pipeline.load import run
from tests.pipeline.rows import entry, frame

KIB = 1024
NEED = DestinationDemand(
    "orders", 5000, 0, 600_000, kind="queue", limit=100 * KIB, largest=1000, senders=2, windows=600, need=120 * KIB,
    need_m=123, confidence=0.95, rate=1024 * KIB, rate_m=800, rate_confidence=0.95, sent_m=1230, taken=50 * KIB,
    waited=9, round_trip=10, round_trips=100, settle=2.0, settles=100, small=900, large=1000, mean_size=1000,
)  # fmt: skip


WIDE = Bounds(step=10)


def proposals(need: DestinationDemand = NEED, bounds: Bounds = WIDE, **fields: str) -> dict[str, Proposal]:
    return {proposal.key: proposal for proposal in propose(need, bounds, fields)}


def test_values_follow_from_what_was_seen() -> None:
    """Mutants: a window of one round trip instead of two; no room above the demand."""
    told = proposals(producer_window="16384")
    assert told["limit.bytes"].value == 150 * KIB  # 120 and a quarter more
    assert told["producer.window"].value == 21 * KIB  # 1 MiB/s for 2 * 10 ms
    assert told["consumer.window.messages"].value == 100  # 11 would do; one step of 10 from 1000
    assert "confidence 95%" in told["limit.bytes"].reason
    assert proposals(consumer_window="20")["consumer.window.messages"].value == 11


def test_no_value_is_further_than_a_step_or_beyond_the_ends() -> None:
    """Mutants: the step not kept to; the ends not kept to."""
    told = proposals(replace(NEED, need=9000 * KIB), Bounds(step=2))
    assert (told["limit.bytes"].value, told["producer.window"].value, told["consumer.window.messages"].value) == (
        200 * KIB,
        256 * KIB,
        500,
    )
    assert "look again" in told["limit.bytes"].reason
    assert proposals(replace(NEED, need=KIB), Bounds(step=2))["limit.bytes"].value == 50 * KIB
    assert proposals(bounds=Bounds(step=10, limit=(KIB, 120 * KIB)))["limit.bytes"].value == 120 * KIB
    assert proposals(replace(NEED, limit=None), Bounds(limit=(KIB, 130 * KIB)))["limit.bytes"].value == 130 * KIB


def test_windows_together_leave_half_of_the_limit() -> None:
    """Mutant: each window bounded by the limit alone."""
    told = proposals(replace(NEED, senders=50, need=80 * KIB), producer_window="4096")
    assert told["limit.bytes"].value is None  # as it is
    assert told["producer.window"].value == 1024


def test_nothing_is_made_smaller_on_little_evidence() -> None:
    """Mutant: confidence ignored."""
    few = replace(NEED, need=KIB, confidence=0.4, rate_confidence=0.4, settles=3)
    assert [proposal.value for proposal in proposals(few).values()] == [None, None, None]
    assert proposals(replace(few, need=500 * KIB))["limit.bytes"].value == 625 * KIB  # larger it may be


def test_a_delay_that_is_asked_for_caps_the_limit() -> None:
    told = proposals(bounds=Bounds(step=10, max_delay=1))["limit.bytes"]
    assert told.value == 50 * KIB
    assert "what consumers take in 1 s" in told.reason


def test_a_limit_in_messages_where_one_binds_or_sizes_differ() -> None:
    """Mutants: always proposed; the demand in bytes taken."""
    assert "limit.messages" not in proposals()
    told = proposals(replace(NEED, small=100, large=5000))["limit.messages"]
    assert told.value == 160  # 123 and a quarter more, in two digits
    assert "messages have 100 B to 4.88 KiB, so bytes do not say how many wait" in told.reason
    told = proposals(replace(NEED, limit_m=50, waited_m=2000), Bounds())["limit.messages"]
    assert (told.value, told.now) == (100, 50)
    assert "senders waited 2 s for this limit" in told.reason
    assert proposals(replace(NEED, limit_m=None), limit_messages="100")["limit.messages"].now == 100
    slow = proposals(replace(NEED, limit_m=50), Bounds(max_delay=1))["limit.messages"]
    assert slow.value is None  # 52 in a second is as good as 50


def test_rates_where_they_are_set_or_asked_for() -> None:
    """Mutants: proposed where none is set; a rate that was reached taken for all the demand there is."""
    assert not {"rate.messages", "producer.rate", "consumer.shared_rate"} & set(proposals())
    told = proposals(bounds=Bounds(rates=True))
    assert [told[key].value for key in ("rate.messages", "producer.rate", "consumer.shared_rate")] == [1600, 1000, 1600]
    assert "confidence 95%" in told["producer.rate"].reason
    told = proposals(send_rate="1240", producer_rate="8000.0")
    assert told["rate.messages"].value == 1600
    assert "it was reached (1,230/s)" in told["rate.messages"].reason
    assert told["producer.rate"].value == 1000  # within a step of 10


def test_a_gate_gets_what_was_held_and_waited_for() -> None:
    """Mutant: what is held alone."""
    gate = DestinationDemand(
        "billing", 90, 0, 60_000, kind="gate", limit=8, windows=60, need=10, confidence=0.95, mean=6, lacked=1.5
    )
    (told,) = propose(gate, Bounds())
    assert (told.key, told.value, told.now) == ("limit.bytes", 13, 8)
    assert "Little's law" in told.reason


def test_a_gate_that_is_limited_in_calls_gets_no_limit_in_bytes() -> None:
    """Mutant: what sessions have in hand is proposed."""
    gate = DestinationDemand(
        "g",
        90,
        0,
        60_000,
        kind="gate",
        limit=float("inf"),
        limit_m=4,
        windows=400,
        need=9e6,
        confidence=0.95,
        mean=6,
        lacked=0,
    )
    assert [(told.key, told.value, told.now) for told in propose(gate, Bounds())] == [("limit.messages", None, 4)]


def test_of_a_limiter_with_slices_it_is_said_that_it_is_not_judged() -> None:
    """Mutant: nothing was admitted."""
    parts = [DestinationDemand(name, 9, 0, 60_000, kind="limiter") for name in ("llm", "llm#1")]
    (whole,) = together(parts)
    assert "# llm: a limiter with slices is not judged" in document([whole], Bounds())
    assert "# llm: nothing was" in document(parts[:1], Bounds())


def test_slices_of_a_destination_are_one() -> None:
    """Mutants: each slice gets a limit, under a name that no policy may have; what one of them needed is all."""
    parts = [replace(NEED, name=name, first_ms=first, tried={"bytes": (2, first)})
             for name, first in (("orders", 5), ("orders#1", 3), ("orders#2", 9))]  # fmt: skip
    other = replace(NEED, name="bills")
    whole, alone = together([*parts[:2], other, parts[2]])
    assert alone == other
    assert (whole.name, whole.kind, whole.need, whole.taken, whole.sent_m) == (
        "orders", "queue", 3 * 120 * KIB, 3 * 50 * KIB, 3 * 1230,
    )  # fmt: skip
    assert (whole.limit, whole.largest, whole.rate, whole.mean_size) == (100 * KIB, 1000, 1024 * KIB, 1000)
    assert (whole.first_ms, whole.senders, whole.entries) == (3, 6, 15_000)
    assert whole.confidence == pytest.approx(0.85), "each of the three holds"
    assert whole.tried == {"bytes": (6, 9)}
    assert proposals(whole)["limit.bytes"].value == 450 * KIB
    assert together([replace(NEED, name="orders#4")])[0].name == "orders"


def test_of_too_little_nothing_is_proposed_and_why_is_said() -> None:
    """Mutant: fewer windows only told as less confidence."""
    told = proposals(replace(NEED, windows=19, confidence=0.17, settles=3, limit_m=9), Bounds(rates=True))
    assert len(told) == 7
    assert {proposal.value for proposal in told.values()} == {None}
    assert "only 19 windows were seen, and 20 are the least" in told["limit.bytes"].reason
    gate = DestinationDemand("g", 9, 0, 60_000, kind="gate", windows=3, need=10, confidence=0.03, mean=6, lacked=0)
    assert propose(gate, Bounds())[0].value is None
    text = document([replace(NEED, windows=19, settles=3)], Bounds())
    assert "[[destination]]" not in text
    assert "# limit.bytes = 102,400 stays: only 19 windows" in text


def test_a_bucket_gets_a_rate() -> None:
    """Mutants: the burst in force left to the default; what was refused not told."""
    bucket = DestinationDemand(
        "emails", 9, 0, 1, kind="bucket", tokens=100, windows=400, confidence=0.99, limit=float("inf"), refused=7
    )
    told = propose(bucket, Bounds(), {"rate": "90", "burst": "12"})
    assert [(proposal.key, proposal.value) for proposal in told] == [("rate", 130), ("burst", 12)]
    assert "which is all that it gives, 7 in all were refused" in told[0].reason
    assert "all that it gives" not in propose(bucket, Bounds(), {"rate": "200"})[0].reason
    assert "Calls that took nothing are not in the ledger" in told[0].reason


def test_a_shadow_limit_says_what_it_would_have_done_and_nothing_is_proposed_for_it() -> None:
    """Mutant: a shadow limit that kept nobody is passed over in silence."""
    need = replace(NEED, tried={"bytes": (12, 400)})
    told = proposals(need, shadow="bytes at_once 1000;rate rate 5.0 20")
    assert [(told[key].value, told[key].now) for key in ("shadow.bytes", "shadow.rate")] == [(None, 1000), (None, 5.0)]
    assert told["shadow.bytes"].reason == "it would have kept 12 waiting, at most 400 above it"
    assert told["shadow.rate"].reason == "it would have kept nobody waiting"


def test_the_document_is_a_policy_whatever_names_are(tmp_path: Path) -> None:
    """Mutants: quotes not escaped; the document of before dropped."""
    names = ["orders", 'a"b', "ü.é😀", "x y", "a..b"]
    needs = [*(replace(NEED, name=name) for name in names), DestinationDemand("idle", 3, 0, 1)]
    bucket = DestinationDemand("emails", 9, 0, 1, kind="bucket", tokens=100, windows=400, confidence=0.99)
    needs += [bucket, replace(bucket, name="bridge to billing: messages/s")]
    base = '[[destination]]\nmatch = "#"\nlimit = "1GiB"\n\n[[bridge]]\nname = "b"\nfrom = "orders"\nto = "billing"\n'
    settings = {need.name: {"rate": "90"} for need in needs[-2:]}
    text = document(needs, Bounds(), settings, base)
    told = tomllib.loads(text)
    assert [rule["match"] for rule in told["destination"]] == ["#", *names[:4], "emails"]
    assert "# a..b: no rule can name it" in text
    assert "# bridge to billing:" in text
    assert "# rate = 130, now 90: 100 tokens" in text
    assert "# idle: nothing was sent, granted, taken or admitted" in text
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
        entry(4, 2000, "publish", "mail", detail="would-block:bytes:2:10;would-block:rate:1:5"),
        entry(5, 2001, "publish", "mail", detail="would-block:bytes:3:7"),
    ]
    prepared = events.prepare(frame(spark, rows))
    above = events.above_shadows(prepared).orderBy("limit").collect()
    assert [(row["destination"], row["limit"], row["times"], row["over"]) for row in above] == [
        ("mail", "bytes", 5, 10), ("mail", "rate", 1, 5)
    ]  # fmt: skip
    assert [(row["round_trip"], row["round_trips"]) for row in round_trips(prepared).collect()] == [(8, 1)]
    assert [(row["settle"], row["settles"]) for row in settles(prepared).collect()] == [(2, 2)]
    (asked,) = tokens(prepared).collect()
    assert asked["tokens"] == 2 + 1 + 3 + 1
    assert (asked["refused"], asked["windows"]) == (4, 2)
    assert asked["confidence"] == pytest.approx(1 - 0.99**2)


def test_what_is_held_of_a_gate_counts_with_what_waits_for_it() -> None:
    """3 are leased for 1 s, then 5 while 4 more wait for 2 s. Mutants: waits counted at their begin only; the mean of
    entries instead of that over time.
    """
    at, leased = takes.arrays([0, 1000, 3000, 10_000], [3, 5, 5, 1])
    began, ended, lacked = takes.arrays([1000], [3000], [4])
    told = gates.demand(at, leased, leased, began, ended, lacked)
    assert (told["windows"], told["need"]) == (101, 9)
    assert told["mean"] == pytest.approx((3 + 2 * 5 + 7 * 5) / 10)
    assert told["lacked"] == pytest.approx(4 * 2 / 10)
    assert gates.demand(at, leased, leased, began[:0], ended[:0], lacked[:0])["need"] == 5


def test_messages_that_would_have_been_held_are_told_in_order() -> None:
    """Two large ones, then ten small ones: when the large ones are gone, ten are left. Mutant: all of the mean size."""
    cells, messages = np.zeros((1, 20)), np.zeros((1, 20))
    cells[0, :2], messages[0, :2] = (1000, 1000), (2, 10)
    zeros, ones = np.zeros(20), np.ones(20)
    seen = Period(10, cells, cells[0], ones * 100, ones, ones, 0, 0, 0, messages)
    held = _in_messages(seen, replay(seen, float("inf")).levels)
    assert held[9] == pytest.approx(10)
    assert held[14] == pytest.approx(5)
    assert zeros.sum() == held[-1]


async def a_gate_and_a_bucket(url: str, namespace: str) -> None:
    """Six at a gate for three, for a while; and a bucket."""
    async with headgate.connect(url, namespace=namespace) as client:
        await client.apply("door", kind="gate", limit=3)
        await client.apply("emails", kind="bucket", rate=100, burst=7)

        async def go() -> None:
            async with client.session() as session:
                gate = await session.gate("door")
                for _ in range(120):
                    async with gate.admit(1, timeout=30):
                        await asyncio.sleep(0.01)

        await asyncio.gather(*(go() for _ in range(6)))
        async with client.session() as session:
            await (await session.bucket("emails")).take(5)


@pytest.mark.one_server
@pytest.mark.xdist_group("spark")
@pytest.mark.soak
def test_a_proposal_of_a_run_is_what_apply_accepts_and_changes_nothing_by_itself(
    redis_url: str, cleanup_namespace: str, spark: SparkSession, tmp_path: Path
) -> None:
    """Mutants: the proposal applied; what was set by hand taken for not set."""

    async def work() -> None:
        queue = run(redis_url, cleanup_namespace, "orders", limit="16KiB", senders=3, bursts=6)
        await asyncio.gather(queue, a_gate_and_a_bucket(redis_url, cleanup_namespace))

    asyncio.run(work())
    where = ["--redis", redis_url, "--namespace", cleanup_namespace]
    file = tmp_path / "proposal.toml"
    told = CliRunner().invoke(app, ["recommend", *where, "--rates", "--output", str(file)], catch_exceptions=False)
    assert told.exit_code == 0, told.output
    text = file.read_text(encoding="utf-8")
    door, orders = tomllib.loads(text)["destination"]
    assert orders["limit"]["bytes"] == 32 * KIB, text
    assert {"messages"} == set(orders["rate"]) == set(orders["consumer"]["window"]), text
    assert (door["match"], door["limit"]["bytes"]) == ("door", 6), text
    assert "rate = 100 stays: only " in text

    async def state() -> tuple[int, str]:
        async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
            found = await client.store.snapshot(Address.of(cleanup_namespace, "orders"), waiters=0, consumers=1)
            assert found
            return (await client.policy()).version, found.fields["limit_bytes"]

    assert asyncio.run(state()) == (0, str(16 * KIB))
    dry = CliRunner().invoke(command_line(), ["policy", "apply", str(file), "--dry-run", "--json", *where])
    assert dry.exit_code == 0, dry.output
    planned = {change["destination"]: change for change in json.loads(dry.stdout)["changes"]}
    assert {"limit_bytes", "send_rate", "delivery_rate"} <= {told["field"] for told in planned["orders"]["changes"]}
    assert [(told["old"], told["new"]) for told in planned["door"]["changes"]] == [("3", "6")]
