"""`headgate pipeline measure`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headgate_pipeline.cli_source import Input, Namespace, Redis

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def measure(
    output: Annotated[Path, typer.Option("--output", metavar="DIR", help="Tables, in Parquet, a folder for each day.")],
    folder: Input = None,
    redis: Redis = None,
    namespace: Namespace = "default",
    window: Annotated[str, typer.Option("--window", metavar="LENGTH", help="Of a window: 10 seconds.")] = "10 seconds",
    stalled: Annotated[int, typer.Option("--stalled", min=0, metavar="MS", help="Waits that count as stalls.")] = 1000,
) -> None:
    """Write what flowed in windows of time: per destination, session, consumer and link; waits, stalls, fairness.

    A day that is there already is written anew.
    """
    from pyspark.sql import functions as F  # noqa: N812, as everybody calls them

    from headgate_pipeline.entries import entries
    from headgate_pipeline.session import session

    rows = entries(session("headgate measure"), folder, redis, namespace)
    for name, table in tables(rows, window, stalled).items():
        at = "began" if name == "stalls" else "start"
        table.withColumn("day", F.to_date(at)).write.mode("overwrite").option(
            "partitionOverwriteMode", "dynamic"
        ).partitionBy("day").parquet(str(output / name))
        typer.echo(f"{output / name}")


def tables(rows: "DataFrame", window: str, stalled: int) -> "dict[str, DataFrame]":
    """Return all tables of a batch of entries, by name."""
    from headgate_pipeline.measure import blocked, fairness, flow, parties
    from headgate_pipeline.stalls import stalls, with_limits

    told = parties(rows, window)
    return {
        "flow": flow(with_limits(rows), window),
        "parties": told,
        "fairness": fairness(told),
        "blocked": blocked(rows, window),
        "stalls": stalls(rows, stalled),
    }
