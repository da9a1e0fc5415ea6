"""`headgate pipeline ingest` writes ledgers to Parquet."""

from typing import Annotated

import typer

from headgate import InvalidValue
from headgate_pipeline.cli.options import Namespace, Redis

Output = Annotated[str, typer.Option(metavar="PATH", help="Folder for the tables `entries` and `problems`.")]
Checkpoint = Annotated[
    str | None,
    typer.Option(
        metavar="PATH", show_default="OUTPUT/_checkpoint", help="Folder that keeps how far it got; one per table."
    ),
]


def ingest(
    *,
    output: Output,
    redis: Redis = None,
    namespace: Namespace = "default",
    destination: Annotated[str, typer.Option(metavar="PATTERN", help="Pattern of destinations, as in a policy.")] = "#",
    checkpoint: Checkpoint = None,
    follow: Annotated[
        bool, typer.Option("--follow/--once", help="Keep following new entries, or stop at the current end.")
    ] = False,
    every: Annotated[int, typer.Option(metavar="SECONDS", min=1, help="Seconds between batches when following.")] = 10,
    max_rows: Annotated[int, typer.Option(metavar="N", min=1, help="Most entries per batch.")] = 2_000_000,
    trim: Annotated[
        bool, typer.Option("--trim", help="Delete entries from Redis once the checkpoint has them.")
    ] = False,
    master: Annotated[
        str | None, typer.Option(metavar="URL", show_default="local[*]", help="Spark master to run on.")
    ] = None,
) -> None:
    """Copy the ledgers to Parquet, by day, each entry once; the next run continues where this one ended."""
    if not redis:
        raise InvalidValue("which Redis? give --redis URL or set HEADGATE_URL")
    from headgate_pipeline.ingest.job import Ingest, run
    from headgate_pipeline.spark_session import session

    job = Ingest(
        source={"url": redis, "namespace": namespace, "destination": destination, "maxRows": str(max_rows)},
        output=output,
        checkpoint=checkpoint or f"{output.rstrip('/')}/_checkpoint",
        follow=follow,
        every=every,
        trim=trim,
    )
    job.check()
    try:
        rows = run(session("headgate ingest", master=master), job, typer.echo)
    except KeyboardInterrupt:
        typer.echo("headgate: interrupted; the next run goes on from the checkpoint", err=True)
        raise typer.Exit(130) from None
    typer.echo(f"{rows} rows written to {output}")
