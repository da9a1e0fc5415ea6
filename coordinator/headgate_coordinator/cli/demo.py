"""The command `headgate demo`."""

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
    seconds: Annotated[
        float,
        typer.Option(min=MIN_SECONDS, max=MAX_SECONDS, help="How long it takes, about."),
    ] = 20.0,
    limit: Annotated[str, typer.Option(metavar="SIZE", help="Of the queue, e.g. 2MiB.")] = "2MiB",
    source: Annotated[
        Path | None,
        typer.Option(
            "--input",
            metavar="DIR|FILE",
            show_default=False,
            help="Whose files to send. By default those of Python's standard library.",
        ),
    ] = None,
    pipeline: Annotated[
        bool,
        typer.Option("--pipeline/--no-pipeline", help="Have Spark audit the ledger in the end."),
    ] = True,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", show_default=False, help="Also have Spark write a page about it.")
    ] = None,
    redis: Redis = None,
    as_json: Json = False,
) -> None:
    """See it work, and check it: real messages between processes and over two nodes, and `kill -9` to one of each.

    Uses a private Redis, or, of the one that is given, a namespace of its own, which it removes again.
    """
    wanted = Options.of(seconds=seconds, limit=limit, source=source, url=redis, pipeline=pipeline, report=report)
    view = table.Silent() if as_json else table.view_for(console())
    result = run(demonstration.run(wanted, view))
    if as_json:
        print_json(result.as_dict())
    else:
        show(result.render())
    if not result.passed:
        raise typer.Exit(FAILED)
