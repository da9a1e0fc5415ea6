"""`headgate pipeline report` writes a page about a period."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from headgate_pipeline.cli.options import Input, Namespace, Redis

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headgate_pipeline.audit.verdict import Verdict

TOP: Final = 12


def report(
    output: Annotated[Path, typer.Option(metavar="FILE", help="Page to write.")] = Path("report.html"),
    folder: Input = None,
    redis: Redis = None,
    namespace: Namespace = "default",
    audit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="JSON findings of an audit of the same entries.")
    ] = None,
    pictures: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the pictures as PNG too; needs Chromium.")
    ] = None,
    top: Annotated[int, typer.Option(min=1, max=100, metavar="N", help="Most destinations that get a picture.")] = TOP,
) -> None:
    """Write a page about a period: limits, pending, who waited and why, slow consumers, links, and what to do."""
    from headgate_pipeline.audit.verdict import read_verdict
    from headgate_pipeline.ledger.entries import entries
    from headgate_pipeline.spark_session import session

    verdict = read_verdict(audit) if audit else None
    rows = entries(session("headgate report"), folder, redis, namespace)
    write(rows, output, verdict, top=top, pictures=pictures)


def write(
    rows: "DataFrame",
    output: Path,
    verdict: "Verdict | None",
    *,
    top: int = TOP,
    pictures: Path | None = None,
    err: bool = False,
) -> None:
    """Write the page about a batch of entries, and its pictures where they are wanted; say so, as errors if ``err``."""
    from headgate_pipeline.report.report import render
    from headgate_pipeline.report.report_data import gather
    from headgate_pipeline.report.screenshots import save

    figures = gather(rows, top=top, verdict=verdict)
    output.write_text(render(figures), encoding="utf-8")
    typer.echo(f"{output}: {figures.entries:,} entries of {figures.count:,} destination(s)", err=err)
    if pictures:
        files = save(figures, pictures)
        typer.echo(f"{pictures}: {len(files)} picture(s)", err=err)
