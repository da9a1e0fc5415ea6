"""`headgate pipeline audit-pool` proves that a pool lent no more than its limit, also over several sites."""

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from headgate import InvalidValue
from headgate.core.names import messages_pool, slices_pool
from headgate.units import parse_size
from headgate_pipeline.cli.options import Namespace
from headgate_pipeline.formatting import count, size

SHOWN = 10


def audit_pool(
    name: Annotated[str, typer.Argument(metavar="POOL", help="Name of the pool, or of a destination with --slices.")],
    limit: Annotated[str, typer.Option("--limit", metavar="LIMIT", help="The highest that it had in the period.")],
    ledgers: Annotated[
        list[str],
        typer.Option(
            "--input",
            metavar="DIR[=POOL]",
            help="Folder of ingested entries; of each site one, with the pool's name there where that is another.",
        ),
    ],
    skew: Annotated[int, typer.Option("--skew", min=0, metavar="MS", help="How far clocks may be from the time.")] = 50,
    slices: Annotated[
        Literal["bytes", "messages"] | None,
        typer.Option(
            "--slices", help="Audit what the slices of a destination share of its limit in bytes, or messages."
        ),
    ] = None,
    namespace: Namespace = "default",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,  # noqa: FBT002
) -> None:
    """Sum up what all destinations of a pool held, at all sites, and name grants above its limit.

    Exits with 1 if there is one.
    """
    from headgate_pipeline.audit.pools import above, holdings
    from headgate_pipeline.ledger.entries import entries
    from headgate_pipeline.spark_session import session

    most, unit = parse_size(limit, "limit"), slices or "bytes"
    of = {"bytes": slices_pool, "messages": messages_pool}[slices] if slices else str
    parts = [(folder, of(pool or name)) for folder, _, pool in (text.partition("=") for text in ledgers)]
    for folder, _ in parts:
        if "://" not in folder and not Path(folder).is_dir():
            raise InvalidValue(f"--input {folder}: there is no such folder; `headgate pipeline ingest` writes one")
    spark = session("headgate audit-pool")
    frames = [(entries(spark, folder, None, namespace), pool) for folder, pool in parts]
    held = holdings(frames, skew_ms=skew).localCheckpoint()
    grants = held.where("granted").count()
    found = [row.asDict() | {"input": parts[row["site"]][0]} for row in above(held, most).collect()]
    violated = any(row["verdict"] == "violated" for row in found)
    word = "violated" if violated else "unproven" if found or not grants else "proven"
    peak = max((row["held"] for row in held.groupBy().max("held").toDF("held").collect()), default=0) or 0
    if as_json:
        typer.echo(
            json.dumps({"pool": name, "verdict": word, "grants": grants, "most": peak, "above": found}, indent=2)
        )
    else:
        shown = count if unit == "messages" else size
        typer.echo(f"{name}: {word} ({grants} grants, at most {shown(peak)} of {shown(most)} at once)")
        for row in found[:SHOWN]:
            entry = f"{row['input']}, {row['destination']}, entry {row['seq']} of epoch {row['epoch']}"
            typer.echo(
                f"  {row['verdict']}: {entry}: {row['change']} {unit} more, and {row['held']} of {most} were held"
            )
    if violated:
        raise typer.Exit(1)
