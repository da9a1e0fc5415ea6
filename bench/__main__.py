"""Measure everything, print a table, keep the numbers.

Usage: python -m bench [--quick] [--no-write] [--label WORD] [NAME ...]
"""

import argparse
import asyncio
import importlib
import json
import os
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.harness import Figure

PARTS = (
    *(
        "admissions",
        "limiters",
        "decided",
        "peers",
        "estimates",
        "bands",
        "throughput",
        "scripts",
        "latency",
        "tight",
        "policy",
        "explain",
        "deadlock",
        "sites",
        "links",
        "node",
        "workers",
        "leases",
        "proxies",
    ),
    *(
        "walks",
        "blocked",
        "doors",
        "http",
        "traces",
        "spool",
        "durability",
        "pipeline",
        "pipeline_audit",
        "pipeline_backlog",
        "activemq",
    ),
)
"""Modules of this package with a function ``measure``. Each is imported when it is its turn: one needs Spark."""
ROOMS = {
    **dict.fromkeys(("pipeline", "pipeline_audit", "pipeline_backlog"), "spark."),
    **dict.fromkeys(("decided", "peers", "bands", "http", "traces", "estimates"), "beside."),
    **dict.fromkeys(("leases", "proxies", "workers", "sites"), "traffic."),
}
"""The rooms of those that have one."""
RESULTS = Path(__file__).parent / "results"


def _row(figure: Figure) -> tuple[str, str, str, str]:
    value = f"{figure.value:,.0f}" if abs(figure.value) >= 1000 else f"{figure.value:.3g}"
    verdict = {True: "[green]met[/]", False: "[red]missed[/]", None: ""}[figure.met]
    return figure.name, f"{value} {figure.unit}".strip(), figure.target, verdict


def show(name: str, figures: list[Figure]) -> None:
    """Print a table."""
    table = Table(title=name, title_justify="left")
    for column in ("what", "measured", "asked", ""):
        table.add_column(column, justify="right" if column == "measured" else "left")
    for figure in figures:
        table.add_row(*_row(figure))
    Console().print(table)


def main() -> int:
    """Run the parts that are named, or all; 0 when every target that was measured is met."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure Headgate on this machine.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(PARTS)}; all when none is given")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    parser.add_argument("--no-write", action="store_true", help="do not keep the numbers in bench/results")
    parser.add_argument("--label", default="", metavar="WORD", help="keep them in DATE-WORD.json, beside the others")
    options = parser.parse_args()
    if unknown := set(options.names) - set(PARTS):
        parser.error(f"{', '.join(sorted(unknown))}: there is {', '.join(PARTS)}")
    names = options.names or list(PARTS)
    console = Console()
    measured: dict[str, list[Figure]] = {}
    load = os.getloadavg()[0]
    for name in names:
        console.print(f"measuring {name} ...", style="dim")
        part = importlib.import_module(f"bench.{ROOMS.get(name, '')}{name}")
        measured[name] = asyncio.run(part.measure(quick=options.quick))
        show(name, measured[name])
    if not options.no_write:
        keep(measured, command=f"python -m bench {' '.join(sys.argv[1:])}".strip(), label=options.label, load=load)
    missed = [figure.name.strip() for figures in measured.values() for figure in figures if figure.met is False]
    console.print(f"bench: {'all targets met' if not missed else 'missed: ' + ', '.join(missed)}")
    return 1 if missed else 0


def keep(measured: dict[str, list[Figure]], *, command: str, label: str, load: float) -> Path:
    """Write the numbers, the command, the machine and how busy it was before to bench/results; returns the file."""
    RESULTS.mkdir(exist_ok=True)
    now = datetime.now(UTC)
    machine = {
        "python": platform.python_version(),
        "system": platform.system(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "load": round(load, 2),
    }
    body = {
        "command": command,
        "taken": now.isoformat(timespec="seconds"),
        "machine": machine,
        "figures": {
            name: [
                {
                    "name": figure.name,
                    "value": round(figure.value, 4),
                    "unit": figure.unit,
                    "target": figure.target,
                    "met": figure.met,
                    "rounds": [round(number, 4) for number in figure.rounds],
                }
                for figure in figures
            ]
            for name, figures in measured.items()
        },
    }
    path = RESULTS / f"{now:%Y-%m-%d}{label and '-' + label}.json"
    path.write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")
    return path


if __name__ == "__main__":
    raise SystemExit(main())
