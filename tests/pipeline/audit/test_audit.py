"""The audit as a Spark job: each destination by itself, however its entries are spread."""

import asyncio
import json
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

import headgate
from headgate_pipeline.audit.audit import audit, verdicts
from headgate_pipeline.cli.audit import as_line
from headgate_pipeline.cli.main import app
from headgate_pipeline.ledger.schema import ENTRY
from tests.pipeline.faults import faults
from tests.pipeline.story import Row, entry, of_queue
from tests.support.rewriting import RewritingServer, virtual_clock

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.one_server]


@pytest.fixture
async def ledger(redis_url: str, namespace: str) -> AsyncIterator[list[Row]]:
    server = RewritingServer(redis_url, virtual_clock)
    await server.open()
    yield await of_queue(server, namespace)
    await server.close()


def test_the_faulty_are_told_from_the_sound(spark: SparkSession, ledger: list[Row], tmp_path: Path) -> None:
    """Mutant: `audit` keeps the replay when the destination changes."""
    chosen = random.Random(4).sample(list(faults(ledger)), 6)  # test_replay has all of them
    rows = [entry(f"sound {n}", row) for n in range(3) for row in ledger]
    rows += [entry(name, row) for name, faulty in chosen for row in faulty]
    rows += [entry("gap", row) for row in ledger[:20] + ledger[30:]]
    lost = next(n for n, row in enumerate(ledger) if row[2] == "acquire" and n > 5)
    told = [(*row[:7], f"{row[7]};lost:12".strip(";"), *row[8:]) if n == lost else row for n, row in enumerate(ledger)]
    rows += [entry("lossy", row) for row in told]
    rows += [("tests", "gap", 30, *[None] * 13, "gap: 21-30", None)]
    random.Random(5).shuffle(rows)
    spark.createDataFrame(rows, ENTRY).repartition(5).write.parquet(str(tmp_path / "entries"))
    findings = audit(spark.read.parquet(str(tmp_path / "entries"))).cache()
    said = {row.destination: row for row in verdicts(findings).collect()}
    assert {name for name, row in said.items() if row.verdict == "proven"} == {f"sound {n}" for n in range(3)}
    assert (said["sound 1"].entries, said["sound 1"].first_seq, said["sound 1"].excused) == (len(ledger), 1, 1)
    assert said["gap"].verdict == "unproven", "what is missing proves nothing, and accuses nobody"
    assert (said["lossy"].verdict, said["lossy"].lost, said["lossy"].promise) == ("lost", 12, "P3")
    assert as_line(said["lossy"].asDict()).startswith("lossy: lost 12 (entries 1 to ")
    violated = findings.where("finding = 'violated'").collect()
    assert all(row.entry and row.promise in {"P1", "P2", "P4", "P5", "P8"} for row in violated)

    # Of what is proven, tests/conformance/test_product.py runs the command.
    run = CliRunner().invoke(app, ["audit", "--input", str(tmp_path / "entries"), "--namespace", "tests", "--json"])
    assert run.exit_code == 1
    assert {row["finding"] for row in json.loads(run.output)} == {"violated", "unproven", "lost", "audited"}


async def lives(url: str, namespace: str) -> None:
    """Let clients send, wait, be granted above a limit that does not bind, and take tokens."""
    async with headgate.connect(url, namespace=namespace) as client:
        await client.apply("orders", kind="queue", limit="4KiB")
        await client.apply("open", kind="gate", limit="1KiB", enforce="off")
        await client.apply("calls", kind="bucket", rate="200/s", burst=50)
        async with client.session("shop") as shop, client.session("desk") as desk:
            producer, consumer = await shop.producer("orders", window="1KiB"), await desk.consumer("orders", window=4)
            sending = asyncio.create_task(send(producer, 30))
            for _ in range(30):
                message = await consumer.receive(timeout=20)
                assert message is not None
                await message.accept()
            await sending
            gate = await shop.gate("open")
            async with gate.admit(4000):
                pass
            bucket = await shop.bucket("calls")
            for _ in range(5):
                await bucket.take(3)


async def send(producer: headgate.Producer, count: int) -> None:
    for _ in range(count):
        await producer.send(b"x" * 700, timeout=20)


@pytest.mark.soak  # test_k05 audits a live Redis, too
def test_a_live_redis_is_audited_and_its_settings_are_asked_for(
    spark: SparkSession, redis_url: str, cleanup_namespace: str, tmp_path: Path
) -> None:
    """And the page is written in the same session. Mutant: it goes without the verdict."""
    asyncio.run(lives(redis_url, cleanup_namespace))
    page = tmp_path / "report.html"
    arguments = ["audit", "--redis", redis_url, "--namespace", cleanup_namespace, "--report", str(page)]
    run = CliRunner().invoke(app, arguments)
    assert run.exit_code == 0, run.output
    assert "3 destination(s)" in run.stderr
    assert "3 destination(s), " in page.read_text()
    assert "entries were replayed." in page.read_text()
    lines = run.stdout.splitlines()
    assert [line.split(" (")[0] for line in lines] == ["calls: proven", "open: proven", "orders: proven"]
    assert "above the limit as a setting allows" in lines[1]
