"""`headgate pipeline measure` writes throughput per time window, with waits and fairness."""

from typing import TYPE_CHECKING, Annotated

import typer

from headgate_pipeline.cli.options import Input, Namespace, Redis

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def measure(
    output: Annotated[str, typer.Option(metavar="PATH", help="Folder of the tables; for Iceberg, CATALOG.NAMESPACE.")],
    folder: Input = None,
    redis: Redis = None,
    namespace: Namespace = "default",
    window: Annotated[str, typer.Option(metavar="LENGTH", help="Length of a window, e.g. 10 seconds.")] = "10 seconds",
    stalled: Annotated[
        int, typer.Option(min=0, metavar="MS", help="Shortest wait that counts as a stall, in ms.")
    ] = 1000,
    form: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="NAME",
            help="Table format: parquet, or delta or iceberg where the Spark session has it.",
        ),
    ] = "parquet",
) -> None:
    """Write throughput per time window, of destinations, sessions, consumers, links and limiters; waits and fairness.

    A day that is there already is written anew.
    """
    from pyspark.sql import functions as F  # noqa: N812, as everybody calls them

    from headgate_pipeline.ledger.entries import entries
    from headgate_pipeline.measure import daily_tables as daily
    from headgate_pipeline.spark_session import session

    spark = session("headgate measure")
    daily.check(spark, form, output)
    rows = entries(spark, folder, redis, namespace)
    for name, table in tables(rows, window, stalled).items():
        at = "began" if name == "stalls" else "start"
        typer.echo(daily.write(table.withColumn(daily.DAY, F.to_date(at)), output, name, form))


def tables(rows: "DataFrame", window: str, stalled: int) -> "dict[str, DataFrame]":
    """Return all tables of a batch of entries, by name; but for limiters, slices of a destination are one."""
    from headgate_pipeline.ledger.events import in_whole, with_limits
    from headgate_pipeline.measure.limiters import limiter_keys, limiters
    from headgate_pipeline.measure.measure import blocked, fairness, flow, of_destinations, parties
    from headgate_pipeline.measure.session_waits import stalls

    whole = in_whole(rows)
    shares = parties(whole, window)
    return {
        "flow": of_destinations(flow(with_limits(rows), window)),
        "parties": shares,
        "fairness": fairness(shares),
        "blocked": blocked(whole, window),
        "stalls": in_whole(stalls(rows, stalled)),
        "limiters": limiters(rows, window),
        "limiter_keys": limiter_keys(rows, window),
    }
