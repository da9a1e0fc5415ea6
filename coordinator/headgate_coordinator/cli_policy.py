"""The commands `headgate policy ...`; what they do is in :mod:`headgate_coordinator.policy`.

Commands that need only a file are here. Those that talk to Redis belong below the line 'on a running system'.
"""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from headgate.core.policy import Policy, Resolved
from headgate.errors import InvalidValue
from headgate.redis.keys import encode_name
from headgate.settings import KINDS
from headgate.units import parse_size
from headgate_coordinator import policy as documents
from headgate_coordinator.cli import FAILED, USAGE
from headgate_coordinator.policy.compile import key_of
from headgate_coordinator.policy.document import schema as document_schema
from headgate_coordinator.policy.lint import Known
from headgate_coordinator.policy.lint import lint as find_traps
from headgate_coordinator.terminal import show as print_table

app = typer.Typer(no_args_is_help=True, help="Check policy documents, and see what they say about a destination.")

File = Annotated[Path, typer.Argument(metavar="FILE", help="A policy in TOML, or in JSON if its name ends in .json.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


def load(file: Path, *, as_json: bool = False) -> Policy:
    """Return the policy in a file; of one that cannot be used all that is wrong is printed, and the command ends."""
    try:
        return documents.load(file)
    except documents.BadDocument as error:
        if as_json:
            told = [{"place": p.place, "key": p.key, "text": p.text} for p in error.problems]
            typer.echo(json.dumps({"problems": told}, indent=2))
        for problem in error.problems:
            typer.echo(f"headgate: {problem}", err=True)
        raise typer.Exit(USAGE) from None


@app.command()
def lint(
    file: File,
    producers: Annotated[
        int, typer.Option(min=1, metavar="N", help="That send to one destination at the same time.")
    ] = 1,
    largest: Annotated[
        str | None, typer.Option(metavar="SIZE", show_default=False, help="Of the largest message, e.g. 1MiB.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Report the known traps: what is allowed, and stalls. Exits with 1 if there are any, 2 if the file is wrong."""
    known = Known(producers, parse_size(largest, "--largest") if largest else None)
    findings = find_traps(load(file, as_json=as_json), known)
    if as_json:
        typer.echo(json.dumps({"findings": [finding.as_dict() for finding in findings]}, indent=2))
    else:
        for finding in findings:
            typer.echo(str(finding))
        typer.echo(f"{file.name}: {len(findings)} known trap(s)" if findings else f"{file.name}: no known traps")
    if findings:
        raise typer.Exit(FAILED)


@app.command()
def schema() -> None:
    """Print the JSON schema of policy documents, for editors."""
    typer.echo(schema_text(), nl=False)


@app.command()
def show(
    destination: Annotated[str, typer.Argument(metavar="DEST", help="Name of a destination.")],
    file: Annotated[Path, typer.Option("--file", metavar="FILE", help="What this file says, applied or not.")],
    kind: Annotated[
        str | None, typer.Option(metavar="KIND", show_default=False, help="That it has, or would be made with.")
    ] = None,
    effective: Annotated[bool, typer.Option("--effective", help="Also what no rule sets, at its default.")] = False,
    as_json: Json = False,
) -> None:
    """Show what a policy says about a destination: each value, and the rule and line that it comes from."""
    encode_name(destination)
    if kind is not None and kind not in KINDS:
        raise InvalidValue(f"--kind: {kind!r}; use {', '.join(KINDS)}")
    resolved = load(file, as_json=as_json).resolve(destination, kind)
    if as_json:
        typer.echo(json.dumps(as_dict(destination, resolved, everything=effective), indent=2))
    else:
        print_table(render(destination, resolved, everything=effective))


# -- Commands on a running system ------------------------------------------------------------------------------


def schema_text() -> str:
    """Return the schema as `docs/policy.schema.json` has it."""
    return json.dumps(document_schema(), indent=2) + "\n"


def as_dict(destination: str, resolved: Resolved, *, everything: bool) -> dict[str, Any]:
    """Return what holds for a destination, for JSON; ``rule`` and ``place`` are null where it is the default."""
    return {
        "destination": destination,
        "kind": resolved.kind,
        "settings": {
            field: {"key": key, "value": value, "rule": rule, "place": place}
            for field, key, value, rule, place in _rows(resolved, everything=everything)
        },
    }


def render(destination: str, resolved: Resolved, *, everything: bool) -> Table:
    """Return what holds for a destination, for people."""
    table = Table(title=f"{destination} ({resolved.kind or 'no kind'})", title_justify="left", box=None)
    for column in ("setting", "value", "rule", "from"):
        table.add_column(column, overflow="fold")
    for _, key, value, rule, place in _rows(resolved, everything=everything):
        table.add_row(key, value or "-", rule or "", place or "default")
    return table


def _rows(resolved: Resolved, *, everything: bool) -> list[tuple[str, str, str, str | None, str | None]]:
    rows = []
    for field, value in resolved.fields.items():
        rule, _, place = resolved.origins.get(field, "").partition("@")
        if rule or everything:
            rows.append((field, key_of(field), value, rule or None, place or None))
    return rows
