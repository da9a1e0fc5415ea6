"""The demo ends with Spark: it reads the ledger of what happened, proves that limits held, and draws it.

The pipeline is a process of its own: nodes and the pipeline do not know each other.
"""

import asyncio
import os
import shutil
import sys
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from headgate_coordinator.demo.check import Check

WITHIN: Final = 600.0
"""Seconds that it may take: half a minute where nothing else runs, and many times that where much does."""


@dataclass(frozen=True, slots=True)
class Audited:
    """`Audited` holds the pipeline's answer.

    Attributes:
        code: exit code of the audit; None when it did not end in time.
        verdicts: a line for each destination.
        trouble: the last of what it printed as errors.
        seconds: that it took, Spark's start included, and the page.
        report: the page that was written; None where none was asked for, or it failed.
    """

    code: int | None
    verdicts: tuple[str, ...]
    trouble: str
    seconds: float
    report: str | None

    def check(self) -> Check:
        """Return the check of it."""
        proven = bool(self.verdicts) and all(": proven (" in line for line in self.verdicts)  # the page comes after it
        if proven:
            words = "; ".join(self.verdicts[:3]) + ("; ..." if len(self.verdicts) > 3 else "")
            did = "replayed and drew" if self.report else "replayed"
            sentence = f"Spark {did} the ledgers in {self.seconds:.0f} s: {words}"
        else:
            words = "; ".join(self.verdicts) or self.trouble or "it printed nothing"
            sentence = f"the audit of the ledgers ended with {self.code}: {words}"
        return Check("audited", proven, sentence)


def why_no_pipeline() -> str | None:
    """Return why the ledger cannot be audited here; None when it can."""
    if find_spec("headgate_pipeline") is None or find_spec("pyspark") is None:
        return "Spark is an extra; install it with: pip install 'headgate[spark]'"
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java", path=f"{home}/bin" if home else None) is None:
        return "Spark needs Java 17 or newer, and there is none; on Debian: apt-get install openjdk-17-jre-headless"
    return None


async def audit(environment: dict[str, str], report: Path | None) -> Audited:
    """Have the ledgers of the namespace audited, and a page written about them.

    Args:
        environment: says where Redis is, and which namespace.
        report: the page; None for none.
    """
    began = time.monotonic()
    wanted = () if report is None else ("--report", str(report))
    _forget(report)
    code, printed, trouble = await _run(environment, "audit", *wanted)
    return Audited(code, tuple(printed), trouble, time.monotonic() - began, _written(report))


def _forget(report: Path | None) -> None:
    """Delete a page of an earlier run."""
    if report is not None:
        report.unlink(missing_ok=True)


def _written(report: Path | None) -> str | None:
    return str(report) if report is not None and report.exists() else None


async def _run(environment: dict[str, str], *arguments: str) -> tuple[int | None, list[str], str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", "headgate_pipeline", *arguments,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env=os.environ | environment, process_group=0,
    )  # fmt: skip
    try:
        async with asyncio.timeout(WITHIN):
            out, err = await process.communicate()
    except TimeoutError:
        return None, [], "it did not end in time"
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    lines = err.decode(errors="replace").strip().splitlines()
    return process.returncode, out.decode(errors="replace").strip().splitlines(), lines[-1] if lines else ""
