"""The example of a job that may have a part of what a fragile destination takes."""

import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[3]
EXAMPLE = str(ROOT / "examples" / "spark_fragile.py")

pytestmark = pytest.mark.xdist_group("spark")


def kept(said: str) -> bool:
    return said.count(": True\n") == 3 and "False" not in said


@pytest.mark.soak  # test_limited.py has it of rows
def test_a_job_keeps_to_its_share(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the session of the tests. Mutant: a task takes no tokens."""
    monkeypatch.setattr(spark, "stop", lambda: None)
    monkeypatch.setattr(sys, "argv", [EXAMPLE])
    runpy.run_path(EXAMPLE, run_name="__main__")
    said = capsys.readouterr().out
    assert kept(said), said


@pytest.mark.soak
@pytest.mark.timeout(180)
@pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java, and there is none here")
def test_the_example_runs_as_it_is() -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLE],
        check=False,
        capture_output=True,
        text=True,
        timeout=150,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(str(ROOT / part) for part in ("sdk", "coordinator", "pipeline")),
            "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        },
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert kept(done.stdout), done.stdout
