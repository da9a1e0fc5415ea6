"""`headgate pipeline audit` proves that the promises held, or names the entry that broke one."""

import asyncio
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from headgate_pipeline.cli.options import Input, Namespace, Redis

SHOWN = 10
"""Findings that are shown with their neighbours."""


def audit(
    folder: Input = None,
    redis: Redis = None,
    namespace: Namespace = "default",
    as_json: Annotated[bool, typer.Option("--json", help="Print all findings as JSON.")] = False,  # noqa: FBT002
    page: Annotated[
        Path | None, typer.Option("--report", metavar="FILE", help="Write the page of `report` too.")
    ] = None,
) -> None:
    """Replay the ledgers, and prove that the promises held in the period, or name the entry that broke one.

    With --redis, also beside --input, the rates of senders are read there and judged.
    Exits with 1 if a promise was broken.
    """
    from headgate_pipeline.audit.audit import audit as audited
    from headgate_pipeline.audit.audit import audit_folder, verdicts
    from headgate_pipeline.audit.known_settings import settings
    from headgate_pipeline.audit.shared_rates import over_slices
    from headgate_pipeline.audit.verdict import Verdict
    from headgate_pipeline.cli.report import write
    from headgate_pipeline.ledger.entries import entries
    from headgate_pipeline.spark_session import session

    spark = session("headgate audit")
    known = asyncio.run(settings(redis, namespace)) if redis else None
    if folder is not None:
        findings = audit_folder(spark, folder, namespace, known)
    else:
        findings = audited(entries(spark, None, redis, namespace), known)
    if known:
        findings = findings.union(over_slices(entries(spark, folder, redis, namespace), known))
    findings = findings.localCheckpoint()
    rows = [row.asDict() for row in verdicts(findings).orderBy("namespace", "destination").collect()]
    if as_json:
        typer.echo(json.dumps([row.asDict() for row in findings.collect()], indent=2))
    else:
        for row in rows:
            typer.echo(as_line(row))
        for found in findings.where("finding = 'violated'").orderBy("destination", "seq").head(SHOWN):
            typer.echo(as_lines(found.asDict()))
    if page:
        verdict = Verdict.of(row.asDict() for row in findings.collect())
        write(entries(spark, folder, redis, namespace), page, verdict, err=True)  # findings as JSON stay that
    if any(row["verdict"] == "violated" for row in rows):
        raise typer.Exit(1)


def as_line(verdict: dict[str, Any]) -> str:
    """Return a verdict in words."""
    period = f"entries {verdict['first_seq']} to {verdict['last_seq']}"
    also = "".join(
        f", {verdict[name]} {text}"
        for name, text in (
            *([] if verdict["verdict"] == "lost" else [("lost", "messages lost")]),
            ("excused", "above the limit as a setting allows"),
            ("taken_over", "taken over from before"),
        )
        if verdict[name]
    )
    why = f"; first at entry {verdict['at']}: {verdict['promise']}, {verdict['what']}" if verdict["what"] else ""
    word = f"lost {verdict['lost']}" if verdict["verdict"] == "lost" else verdict["verdict"]
    return f"{verdict['destination']}: {word} ({period}{also}){why}"


def as_lines(finding: dict[str, Any]) -> str:
    """Return a finding with its neighbours."""
    numbers = f": expected {finding['expected']}, found {finding['found']}" if finding["expected"] else ""
    lines = [f"{finding['destination']} {finding['finding']} {finding['promise']}: {finding['what']}{numbers}"]
    lines += [
        f"  {sign} {finding[name]}" for sign, name in ((" ", "before"), (">", "entry"), (" ", "after")) if finding[name]
    ]
    return "\n".join(lines)
