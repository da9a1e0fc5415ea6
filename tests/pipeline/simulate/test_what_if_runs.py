"""What a replay says of a policy, against runs with that policy in force."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

import headgate
from headgate import policy
from headgate_pipeline.cli.main import app
from tests.pipeline.load import Load, run
from tests.support.leaks import delete_namespace

pytestmark = [pytest.mark.one_server, pytest.mark.xdist_group("spark")]
Rows = dict[tuple[str, str], dict[str, Any]]

KEPT = '[[destination]]\nmatch = "a.#"\nkind = "queue"\nledger_keep = 1_000_000\n'
LIMIT = f'{KEPT}limit = "48KiB"\n'
MOST_PAIRS = 7


class Runs:
    """The same load twice: under limits alone, and in a namespace of its own under the policy.

    Args:
        url: of the Redis.
        namespace: of the second run's, ``-before`` is added for the first.
        file: the policy.
        limit: of every destination in the first run.
        load: arguments of :func:`tests.pipeline.load.run`.
    """

    def __init__(self, url: str, namespace: str, file: Path, *, limit: str, **load: Any) -> None:
        self.url, self.namespace, self.file, self.limit, self.load = url, namespace, file, limit, load

    def both(self, names: Sequence[str]) -> tuple[Rows, list[Load]]:
        """Return what is said of the first run, and what senders of the second saw."""
        asyncio.run(self._run(f"{self.namespace}-before", names, self.limit))
        said = self.ask(f"{self.namespace}-before")
        asyncio.run(self._apply())
        return said, asyncio.run(self._run(self.namespace, names, None))

    def ask(self, namespace: str) -> Rows:
        where = ["--redis", self.url, "--namespace", namespace]
        told = CliRunner().invoke(
            app, ["what-if", *where, "--json", "--policy", str(self.file)], catch_exceptions=False
        )
        assert told.exit_code == 0, told.output
        return {(row["destination"], row["case"]): row for row in json.loads(told.stdout)["destinations"]}

    def forget(self) -> None:
        """Delete all that both runs left."""
        for namespace in (f"{self.namespace}-before", self.namespace):
            delete_namespace(self.url, namespace)

    async def _run(self, namespace: str, names: Sequence[str], limit: str | None) -> list[Load]:
        return await asyncio.gather(*(run(self.url, namespace, name, limit=limit, **self.load) for name in names))

    async def _apply(self) -> None:
        async with headgate.connect(self.url, namespace=self.namespace) as client:
            await client.apply_policy(policy.load(self.file))


@pytest.fixture
def place(redis_url: str, cleanup_namespace: str) -> Iterator[tuple[str, str]]:
    yield redis_url, cleanup_namespace
    delete_namespace(redis_url, f"{cleanup_namespace}-before")


def total(rows: Rows, case: str, value: str) -> float:
    return sum(float(row[value]) for (_, of), row in rows.items() if of == case)


@pytest.mark.soak  # test_what_if.py has rates and pools in small
@pytest.mark.alone
def test_a_rate_and_a_pool_are_told_before_they_are_in_force(
    place: tuple[str, str], spark: SparkSession, tmp_path: Path
) -> None:
    """Mutants: `send_rate` not replayed; members of a pool replayed each by itself; what waits not attributed."""
    file = tmp_path / "shop.toml"
    rate = '[[destination]]\nmatch = "a.paced"\nrate = { messages = 60, burst = 5 }\nlimit = "1MiB"\n'
    shared = '[[destination]]\nmatch = "a.pool.*"\nlimit = { bytes = "16KiB", scope = "shared" }\n'
    file.write_text(f"{KEPT}\n{rate}\n{shared}", encoding="utf-8")
    names = ["a.paced", "a.pool.x", "a.pool.y"]
    said, loads = Runs(*place, file, limit="64KiB", senders=2, bursts=1, burst=40, pause=0).both(names)
    assert said["a.paced", "what if"]["took"] > 0.9 * 1000 * (2 * 40 - 5) / 60, "as long as the rate says, or longer"
    by_clock = {name: load.waited * 1000 for name, load in zip(names, loads, strict=True)}
    told = {name: said[name, "what if"]["waited"] for name in names}
    assert 0.2 < told["a.paced"] / by_clock["a.paced"] < 2, (told, by_clock)
    pooled = (told[names[1]] + told[names[2]]) / (by_clock[names[1]] + by_clock[names[2]])
    assert 0.05 < pooled < 3, (told, by_clock)  # the clocks count the way to Redis, which is long on a busy machine
    causes = {name: set(said[name, "what if"]["causes"]) for name in names}
    assert causes == {"a.paced": {"rate"}, "a.pool.x": {"pool ~a.pool.~any"}, "a.pool.y": {"pool ~a.pool.~any"}}
    assert all(said[name, "what if"]["peak"] <= 16 * 1024 + 1 for name in names[1:])


@pytest.mark.soak
@pytest.mark.alone  # it compares two runs in time
@pytest.mark.parametrize(
    ("rules", "names", "cause", "tight"),
    [
        (f'{KEPT}limit = "16KiB"\n', 1, "bytes", ("waited", "peak", "delay", "took")),
        (f'{KEPT}limit = {{ bytes = "48KiB", messages = 20 }}\n', 1, "messages", ("waited", "peak", "delay", "took")),
        (f"{LIMIT}rate = {{ messages = 150, burst = 10 }}\n", 1, "rate", ("took", "peak")),
        (f"{LIMIT}producer = {{ rate = 60 }}\n", 1, "own rate", ("took",)),
        (f"{LIMIT}consumer = {{ shared_rate = 150 }}\n", 1, "bytes", ("waited", "peak", "delay", "took")),
        (f'{KEPT}limit = "32KiB"\nresume_at = "25%"\n', 1, "resume", ("waited", "peak", "delay", "took")),
        (f'{KEPT}limit = {{ bytes = "24KiB", scope = "shared" }}\n', 2, "pool ~a.~all", ("waited", "took")),
    ],
)
def test_the_replay_of_a_run_is_as_a_run_with_that_policy(
    place: tuple[str, str],
    spark: SparkSession,
    tmp_path: Path,
    rules: str,
    names: int,
    cause: str,
    tight: tuple[str, ...],
) -> None:
    """Each of what is ``tight`` within 0.6 to 1.6 of the fact, of all destinations together.

    Two runs differ where the machine was busy with something else in one of them: then the median of several pairs is
    taken.
    Senders that a rate makes wait tell no ledger, so what they waited is compared with their own clocks.
    Mutants: the rules asked about not used; consumers that are as fast as they ever were; rates not replayed.
    """
    file = tmp_path / "shop.toml"
    file.write_text(rules, encoding="utf-8")
    queues = ["a.one", "a.two"][:names]
    runs = Runs(*place, file, limit="48KiB", senders=3, bursts=3)
    pairs: list[dict[str, float]] = []
    while True:
        pairs.append(_ratios(runs, queues, cause, tight))
        medians = {what: median(pair[what] for pair in pairs) for what in pairs[0]}
        if len(pairs) % 2 and all(0.6 < ratio < 1.6 for ratio in medians.values()):
            return
        assert len(pairs) < MOST_PAIRS, (medians, pairs)
        runs.forget()


def _ratios(runs: Runs, queues: Sequence[str], cause: str, tight: Sequence[str]) -> dict[str, float]:
    """Run once more, and return how what is said is to what happened: with the policy, by clocks, and without it."""
    said, loads = runs.both(queues)
    assert all(cause in said[name, "what if"]["causes"] for name in queues)
    fact = runs.ask(runs.namespace)
    ratios = {value: total(said, "what if", value) / total(fact, "recorded", value) for value in tight}
    ratios["by clock"] = total(said, "what if", "waited") / (1000 * sum(load.waited for load in loads))
    for value in ("waited", "peak", "delay"):
        ratios[f"same rules: {value}"] = total(said, "same rules", value) / total(said, "recorded", value)
    return ratios


@pytest.mark.soak  # processes of Spark, one after the other
def test_the_commands_work_as_people_type_them(place: tuple[str, str], tmp_path: Path) -> None:
    """What is recommended is taken by `apply --dry-run` and by `what-if`. Mutant: a value that no policy takes."""
    url, namespace = place
    asyncio.run(run(url, namespace, "a.one", limit="16KiB", senders=3, bursts=6))
    environment = os.environ | {"HEADGATE_URL": url, "HEADGATE_NAMESPACE": namespace}

    def headgate(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "headgate_coordinator", *arguments]
        return subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert headgate("pipeline", "ingest", "--output", "ledger").returncode == 0
    told = headgate("pipeline", "recommend", "--input", "ledger", "--rates", "--output", "proposal.toml")
    assert told.returncode == 0, told.stderr
    dry = headgate("policy", "apply", "proposal.toml", "--dry-run")
    assert "limit.bytes: 16384 -> 32768 (a.one at proposal.toml:" in dry.stdout, dry.stderr
    asked = headgate("pipeline", "what-if", "--input", "ledger", "--policy", "proposal.toml")
    assert asked.returncode == 0, asked.stderr
    assert "a.one: 16 KiB -> 32 KiB" in asked.stdout
    (tmp_path / "wrong.toml").write_text('[[destination]]\nmatch = "a"\nlimt = "1MiB"\n', encoding="utf-8")
    wrong = headgate("pipeline", "what-if", "--input", "ledger", "--policy", "wrong.toml")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr.startswith("headgate: wrong.toml:3: destination[1].limt: unknown key"), wrong.stderr
