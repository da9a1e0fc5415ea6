"""The commands `headgate policy ...` are defined here; documents are read by :mod:`headgate.policy`.

Commands that need only a file are here. Commands that talk to Redis belong below the line 'on a running system'.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from headgate import StoreState
from headgate import policy as documents
from headgate.core.names import given_name
from headgate.core.policy import Policy, Resolved
from headgate.errors import InvalidValue, PolicyConflict
from headgate.policy.compile import shown, title_of
from headgate.policy.document import schema as document_schema
from headgate.redis.keys import Address
from headgate.settings import KINDS
from headgate.units import parse_size
from headgate_coordinator.cli.exits import FAILED, USAGE
from headgate_coordinator.cli.options import Json, Namespace, Redis, connect, print_json, run
from headgate_coordinator.operate.terminal import show as print_table
from headgate_coordinator.policy.lint import Setup
from headgate_coordinator.policy.lint import lint as find_traps
from headgate_coordinator.policy.plan import Plan, plan
from headgate_coordinator.policy.trial import on_trial

app = typer.Typer(no_args_is_help=True, help="Check policy documents, and show what they set for a destination.")

File = Annotated[Path, typer.Argument(metavar="FILE", help="A policy in TOML, or in JSON if its name ends in .json.")]


def load(file: Path, *, as_json: bool = False) -> Policy:
    """Return the policy in a file; of one that cannot be used all that is wrong is printed, and the command ends."""
    try:
        return documents.load(file)
    except documents.BadDocument as error:
        if as_json:
            problems = [{"place": p.place, "key": p.key, "text": p.text} for p in error.problems]
            typer.echo(json.dumps({"problems": problems}, indent=2))
        for problem in error.problems:
            typer.echo(f"headgate: {problem}", err=True)
        raise typer.Exit(USAGE) from None


def _note(file: Path) -> None:
    if remark := documents.note(file):
        typer.echo(f"headgate: {remark}", err=True)


@app.command()
def lint(
    file: File,
    producers: Annotated[
        int, typer.Option(min=1, metavar="N", help="Producers that send to one destination at the same time.")
    ] = 1,
    largest: Annotated[str | None, typer.Option(metavar="SIZE", help="Size of the largest message, e.g. 1MiB.")] = None,
    mean: Annotated[str | None, typer.Option(metavar="SIZE", help="Average size of a message, e.g. 2KiB.")] = None,
    as_json: Json = False,
) -> None:
    """Report known traps, which are allowed and stall. Exits with 1 if there are any, 2 if the file is wrong."""
    sizes = {"--largest": largest, "--mean": mean}
    known = Setup(producers, *(parse_size(text, option) if text else None for option, text in sizes.items()))
    findings = find_traps(load(file, as_json=as_json), known)
    _note(file)
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


# -- Commands on a running system ------------------------------------------------------------------------------


@app.command()
def apply(
    file: File,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would change and which producers would block; apply nothing.")
    ] = False,
    expect: Annotated[
        int | None,
        typer.Option(min=0, metavar="VERSION", help="Apply only over this version; 0: only where there is none."),
    ] = None,
    shadow: Annotated[
        bool,
        typer.Option(
            "--shadow",
            help="Apply its limits as shadow limits: they are counted beside those in force and block nobody.",
        ),
    ] = False,
    redis: Redis = None,
    namespace: Namespace = "default",
    as_json: Json = False,
) -> None:
    """Put a policy in force: checked whole, switched at once, then applied to every destination there is.

    Exits with 1 if another version is in force than --expect says.
    """
    document = load(file, as_json=as_json)
    if dry_run:
        _note(file)

    async def work() -> tuple[Plan, int | None]:
        async with connect(redis, namespace) as client:
            policy, over = document, expect
            if shadow:
                current = await client.policy()
                policy, left_out = on_trial(current, document)
                over = current.version if expect is None else expect
                for text in left_out:
                    typer.echo(f"headgate: not tried: {text}", err=True)
            if dry_run:
                planned = await plan(client, policy)
                if expect not in (None, planned.version):
                    raise PolicyConflict(planned.version, expect or 0)
                return planned, None
            version = await client.apply_policy(policy, expected=over)
            for store in kept(await client.stores(), policy):
                typer.echo(
                    f"headgate: spool store {store.name!r} is no longer named, and is kept while it holds "
                    f"{store.segments} segment(s); apply again once they are gone",
                    err=True,
                )
            return Plan(version, True, len(await client.destinations()), ()), version

    planned, version = run(work())
    if as_json:
        applied = {"version": version, "destinations": planned.destinations, "source": document.source}
        print_json(planned.as_dict() if version is None else applied)
    elif version is None:
        typer.echo("\n".join(planned.lines()))
    else:
        what = f"{planned.destinations} destination(s)"
        if shadow:
            typer.echo(f"policy version {version}: limits of {document.source} are shadow limits beside those in force")
        else:
            typer.echo(f"policy version {version} of {document.source} is in force for {what}")


def kept(stores: Sequence[StoreState], policy: Policy) -> list[StoreState]:
    """Return the stores that earlier policies set and this one does not name: they are not empty yet."""
    named = {store.name for store in policy.stores}
    return [store for store in stores if store.origins and store.name not in named]


@app.command()
def show(
    destination: Annotated[
        str | None, typer.Argument(metavar="DEST", help="Name of a destination; without it, all rules are shown.")
    ] = None,
    file: Annotated[Path | None, typer.Option(metavar="FILE", help="Show what this file sets, applied or not.")] = None,
    kind: Annotated[
        str | None, typer.Option(metavar="KIND", help="Kind that the destination has, or would be made with.")
    ] = None,
    effective: Annotated[
        bool, typer.Option("--effective", help="Show settings that no rule sets too, at their defaults.")
    ] = False,
    redis: Redis = None,
    namespace: Namespace = "default",
    as_json: Json = False,
) -> None:
    """Show what a policy sets, in force or in a file: each value, and the rule and line that it comes from.

    Of a destination that exists, what was set by hand since is shown as that.
    """
    if destination is not None:
        given_name(destination)
    if kind is not None and kind not in KINDS:
        raise InvalidValue(f"--kind: {kind!r}; use {', '.join(KINDS)}")
    if file is not None:
        policy, fields = load(file, as_json=as_json), dict[str, str]()
    else:
        policy, fields = run(_in_force(redis, namespace, destination))
    if destination is None:
        if as_json:
            print_json(json.loads(policy.to_json()))
        else:
            print_table(render_rules(policy))
        return
    resolved = as_it_is(policy.resolve(destination, kind or fields.get("kind")), fields)
    if as_json:
        print_json(as_dict(destination, resolved, everything=effective))
    else:
        print_table(render(destination, resolved, everything=effective))


async def _in_force(url: str | None, namespace: str, destination: str | None) -> tuple[Policy, dict[str, str]]:
    """Return the policy in force, and the fields of a destination if it exists."""
    async with connect(url, namespace) as client:
        policy = await client.policy()
        snapshot = None
        if destination is not None:
            snapshot = await client.store.snapshot(Address.of(namespace, destination), waiters=0, consumers=1)
        return policy, snapshot.fields if snapshot else {}


def as_it_is(resolved: Resolved, fields: Mapping[str, str]) -> Resolved:
    """Return what holds for a destination with these fields: where they differ from the policy, somebody set them."""
    if not fields:
        return resolved
    values, origins = dict(resolved.fields), dict(resolved.origins)
    for name, value in resolved.fields.items():
        if fields.get(name, "") != value:
            values[name], origins[name] = fields.get(name, ""), "by hand@-"
    if "stopped" in fields:
        values["stopped"], origins["stopped"] = fields["stopped"], "by hand@-"
    return Resolved(resolved.kind, values, origins)


def render_rules(policy: Policy) -> Table:
    """Return all rules of a policy, for people."""
    title = f"version {policy.version} of {policy.source or 'no file'}" if policy.version else "no policy is in force"
    table = Table(title=title, title_justify="left", box=None)
    for column in ("rule", "kind", "setting", "value", "from"):
        table.add_column(column, overflow="fold")
    for row in (*_of_rules(policy), *_of_links(policy), *_of_proxies(policy)):
        table.add_row(*row)
    return table


def _of_rules(policy: Policy) -> Iterator[tuple[str, ...]]:
    for rule in policy.rules:
        for field, value in rule.fields.items():
            origin = rule.origins.get(field, "")
            yield rule.match, rule.kind or "any", title_of(field), shown(field, value) or "-", origin
    for kind, several in (("pool", policy.pools), ("store", policy.stores)):
        for named in several:
            for field, value in named.fields.items():
                yield named.name, kind, field, value, named.origins.get(field, "")


def _of_links(policy: Policy) -> Iterator[tuple[str, ...]]:
    for link in policy.links:
        for key, value in link.as_dict().items():
            if key not in ("kind", "name", "origin", "here"):
                yield link.name, link.kind, key, _shown(value), link.origin
    for channel in policy.channels:
        for key, value in channel.as_dict().items():
            if key not in ("name", "origin") and value != "":
                text = ", ".join(value) if isinstance(value, list) else str(value)
                yield channel.name, "channel", key, text, channel.origin


def _of_proxies(policy: Policy) -> Iterator[tuple[str, ...]]:
    for one in policy.descriptors:
        for key, value in one.as_dict().items():
            if key not in ("domain", "entries", "origin") and value != {}:
                text = ", ".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else str(value)
                yield str(one), "descriptor", title_of(key), shown(key, text), one.origin


def _shown(value: Any) -> str:
    return ", ".join(map(str, value.values())) if isinstance(value, dict) else str(value)


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
    for field, key, value, rule, place in _rows(resolved, everything=everything):
        table.add_row(key, shown(field, value) or "-", rule or "", place or "default")
    return table


def _rows(resolved: Resolved, *, everything: bool) -> list[tuple[str, str, str, str | None, str | None]]:
    rows = []
    for field, value in resolved.fields.items():
        rule, _, place = resolved.origins.get(field, "").partition("@")
        if rule or everything:
            rows.append((field, title_of(field), value, rule or None, place or None))
    return rows
