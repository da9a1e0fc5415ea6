"""Delta and Iceberg for real, each with its jars and a Spark that they are made for: days once, also under kill -9."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
HERE = Path(os.environ.get("HEADGATE_LAKE", ROOT / ".venv" / "lake"))
"""The Spark and the jars, as `.ci/ensure-lake` puts them there."""
pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        shutil.which("java") is None or not (HERE / "jars").is_dir(),
        reason="tables of Delta and Iceberg take their jars: run `.ci/ensure-lake`, which needs Java, Maven and pip",
    ),
]
BEFORE = sorted([f"2026-03-0{n % 2 + 1}", n] for n in range(40))
AFTER = sorted(
    [row for row in BEFORE if row[0] == "2026-03-01"] + [[f"2026-03-0{n % 2 + 2}", n] for n in range(100, 140)]
)
"""The second write has the days 2 and 3: it replaces one, and adds the other."""


def job(form: str, folder: Path, what: str, log: Path) -> "subprocess.Popen[str]":
    place = "lake.shop" if form == "iceberg" else str(folder / "tables")
    paths = [HERE / "spark", ROOT / "pipeline", ROOT / "sdk", ROOT / "coordinator"]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "SPARK_HOME": str(HERE / "spark" / "pyspark"),
        "PYSPARK_PYTHON": sys.executable,
    }
    command = [sys.executable, str(Path(__file__).with_name("lake_job.py"))]
    with log.open("a") as errors:
        return subprocess.Popen(
            [*command, form, str(folder), place, str(HERE / "jars"), what],
            stdout=subprocess.PIPE, stderr=errors, text=True, env=environment, start_new_session=True,
        )  # fmt: skip


def data(folder: Path) -> int:
    return sum(1 for _ in folder.rglob("*.parquet"))


def commits(folder: Path) -> int:
    """Count what says which files are the table's; Delta's log, Iceberg's metadata."""
    return sum(1 for where in ("_delta_log", "metadata") for _ in folder.rglob(f"{where}/*"))


@pytest.mark.parametrize("dies", [data, commits], ids=["writing", "committing"])
@pytest.mark.parametrize("form", ["iceberg", "delta"])
def test_days_are_written_once_though_the_process_dies_in_the_midst(
    tmp_path: Path, form: str, dies: Callable[[Path], int]
) -> None:
    """Mutants: `append`; the days that are there written over, before the new ones are whole."""
    log = tmp_path / "log"
    first = job(form, tmp_path, "begin", log)
    assert first.stdout is not None
    try:
        line = first.stdout.readline()
        assert line, log.read_text()[-3000:]
        assert json.loads(line) == BEFORE
        there = dies(tmp_path)
        while dies(tmp_path) <= there and first.poll() is None:
            time.sleep(0.002)
    finally:
        os.killpg(first.pid, signal.SIGKILL)  # with its JVM
    rest = first.communicate()[0]
    second = job(form, tmp_path, "again", log)
    seen = [json.loads(line) for line in second.communicate()[0].splitlines()]
    assert second.returncode == 0, log.read_text()[-3000:]
    assert seen[1:] == [AFTER, AFTER]
    if dies is data:
        assert rest == "", "it was done before it could be killed"
        assert seen[0] == BEFORE
    else:  # it may have been just before, or just after
        assert seen[0] in (BEFORE, AFTER)
