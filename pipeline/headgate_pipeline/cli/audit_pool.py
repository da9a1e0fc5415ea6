"""`headgate pipeline audit-pool` proves that a pool lent no more than its limit, also over several sites."""

import json
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Self
from urllib.parse import unquote

import typer

from headgate import InvalidValue
from headgate.core.names import encode_name, given_name, messages_pool, slices_pool
from headgate.units import parse_size
from headgate_pipeline.cli.options import Namespace
from headgate_pipeline.formatting import count, size

SHOWN = 10


class _Input(NamedTuple):
    """A site's ledgers, and what the pool is called there."""

    folder: str
    namespace: str
    pool: str

    @classmethod
    def parse(cls, text: str, namespace: str, pool: str) -> Self:
        """Return what an option says; what it leaves out is as of the other options."""
        folder, sign, name = (text, "=", "") if Path(text).is_dir() else text.rpartition("=")
        folder, name = (folder, name) if sign else (text, "")
        if "://" not in folder and not Path(folder).is_dir():
            raise InvalidValue(f"--input {folder}: there is no such folder; `headgate pipeline ingest` writes one")
        before, slash, after = name.partition("/")
        if slash and not (before and after):
            raise InvalidValue(f"--input {text}: after = comes [NAMESPACE/]POOL; within a name / is %2F and = is %3D")
        namespace, name = (unquote(before), after) if slash else (namespace, before)
        encode_name(namespace, "namespace")
        given_name(own := unquote(name) or pool, "pool")
        return cls(folder, namespace, own)


def audit_pool(
    name: Annotated[str, typer.Argument(metavar="POOL", help="Name of the pool, or of a destination with --slices.")],
    limit: Annotated[str, typer.Option("--limit", metavar="LIMIT", help="The highest that it had in the period.")],
    ledgers: Annotated[
        list[str],
        typer.Option(
            "--input",
            metavar="DIR[=[NAMESPACE/]POOL]",
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

    Exits with 1 if there is one. Where nothing is known of a site, nothing is proven.
    """
    from headgate_pipeline.audit.pools import above, holdings
    from headgate_pipeline.ledger.entries import entries
    from headgate_pipeline.spark_session import session

    most, unit = parse_size(limit, "limit"), slices or "bytes"
    of = {"bytes": slices_pool, "messages": messages_pool}[slices] if slices else str
    sites = [_Input.parse(text, namespace, name) for text in ledgers]
    for number, one in enumerate(sites):
        if one in sites[:number]:
            raise InvalidValue(f"--input {ledgers[number]}: it is given twice, and would be counted twice")
    spark = session("headgate audit-pool")
    frames = [(entries(spark, one.folder, None, one.namespace), of(one.pool)) for one in sites]
    held = holdings(frames, skew_ms=skew).localCheckpoint()
    grants = held.where("granted").count()
    known = {row["site"] for row in held.where("change != 0").select("site").distinct().collect()}
    silent = [one for number, one in enumerate(sites) if number not in known]
    # Whether one message may go above the limit alone, its slice's own ledger tells.
    over = above(held, most, alone=slices == "bytes")
    found = [row.asDict() | {"input": sites[row["site"]].folder} for row in over.collect()]
    violated = any(row["verdict"] == "violated" for row in found)
    word = "violated" if violated else "unproven" if found or silent or not grants else "proven"
    peak = max((row["held"] for row in held.groupBy().max("held").toDF("held").collect()), default=0) or 0
    if as_json:
        summary = {"pool": name, "verdict": word, "grants": grants, "most": peak, "above": found}
        typer.echo(json.dumps(summary | {"silent": [one._asdict() for one in silent]}, indent=2))
    else:
        shown = count if unit == "messages" else size
        typer.echo(f"{name}: {word} ({grants} grants, at most {shown(peak)} of {shown(most)} at once)")
        for one in silent:
            typer.echo(
                f"  unproven: {one.folder}: nothing there was lent by {one.pool!r} in namespace {one.namespace!r}"
            )
        for row in found[:SHOWN]:
            entry = f"{row['input']}, {row['destination']}, entry {row['seq']} of epoch {row['epoch']}"
            typer.echo(
                f"  {row['verdict']}: {entry}: {row['change']} {unit} more, and {row['held']} of {most} were held"
            )
    if violated:
        raise typer.Exit(1)
