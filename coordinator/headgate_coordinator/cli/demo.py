"""The command `headgate demo` shows Headgate at work, and checks it."""

from pathlib import Path
from typing import Annotated

import typer

from headgate_coordinator.cli.exits import FAILED
from headgate_coordinator.cli.options import Json, Redis, print_json, run
from headgate_coordinator.demo import run as demonstration
from headgate_coordinator.demo import table
from headgate_coordinator.demo.options import MAX_SECONDS, MIN_SECONDS, Options
from headgate_coordinator.operate.terminal import console, show


def demo(
    seconds: Annotated[float, typer.Option(min=MIN_SECONDS, max=MAX_SECONDS, help="Approximate duration.")] = 20.0,
    limit: Annotated[str, typer.Option(metavar="SIZE", help="Limit of the queue, e.g. 2MiB.")] = "2MiB",
    source: Annotated[
        Path | None,
        typer.Option(
            "--input", metavar="DIR|FILE", help="Folder whose files are sent; by default Python's standard library."
        ),
    ] = None,
    pipeline: Annotated[
        bool, typer.Option("--pipeline/--no-pipeline", help="Have Spark audit the ledger at the end.")
    ] = True,
    report: Annotated[Path | None, typer.Option(metavar="FILE", help="Have Spark write a report page too.")] = None,
    redis: Redis = None,
    as_json: Json = False,
) -> None:
    """Show it at work, and check it: real messages between processes and over two nodes, and a `kill -9` of each.

    Uses a private Redis, or, of the one that is given, a namespace of its own, which it removes again.
    """
    wanted = Options.of(seconds=seconds, limit=limit, source=source, url=redis, pipeline=pipeline, report=report)
    view = table.View() if as_json else table.view_for(console())
    result = run(demonstration.run(wanted, view))
    if as_json:
        print_json(result.as_dict())
    else:
        show(result.render())
    if not result.passed:
        raise typer.Exit(FAILED)
