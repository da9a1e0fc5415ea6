"""The example of a job that may have a part of what a fragile destination takes."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java, and there is none here")


@pytest.mark.timeout(180)
def test_a_job_keeps_to_its_share() -> None:
    """Mutant: a task takes its tokens from a bucket of its own."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "spark_fragile.py")],
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
    assert done.stdout.count("True") == 3, done.stdout
    assert "False" not in done.stdout
