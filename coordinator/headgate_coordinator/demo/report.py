"""The demo ends with a report."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headgate_coordinator.demo.check import Check
from headgate_coordinator.demo.verdict import Facts


@dataclass(frozen=True, slots=True)
class Report:
    """A report shows the observations and the verdict."""

    seconds: float
    source: str
    facts: Facts
    checks: Sequence[Check]

    @property
    def passed(self) -> bool:
        """Whether every check passed."""
        return all(check.passed for check in self.checks)

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data, for JSON."""
        return {
            "passed": self.passed,
            "seconds": self.seconds,
            "input": self.source,
            "checks": [
                {"name": check.name, "passed": check.passed, "sentence": check.sentence} for check in self.checks
            ],
            "facts": self.facts.summary(),
        }

    def render(self) -> RenderableType:
        """Return it for people: a line a check, and the verdict."""
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for check in self.checks:
            word = Text("ok", style="green") if check.passed else Text("FAILED", style="bold red")
            table.add_row(word, Text(check.name, style="bold"), Text(check.sentence))
        failed = sum(not check.passed for check in self.checks)
        verdict = (
            Text(f"FAILED: {failed} of {len(self.checks)} checks", style="bold red")
            if failed
            else Text(f"PASSED: {len(self.checks)} of {len(self.checks)} checks", style="bold green")
        )
        left_out = [Text(f"nodes were left out: {self.facts.no_node}", style="dim")] if self.facts.no_node else []
        if self.facts.no_pipeline:
            left_out.append(Text(f"the pipeline was left out: {self.facts.no_pipeline}", style="dim"))
        if self.facts.audited and self.facts.audited.report:
            left_out.append(Text(f"a page about it: {self.facts.audited.report}"))
        return Group(Text(), table, Text(), *left_out, verdict)
