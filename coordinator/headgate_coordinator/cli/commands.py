"""This module declares the commands and their options; the work of each is done elsewhere."""

from copy import copy
from importlib import import_module
from importlib.metadata import entry_points
from typing import Annotated, Final

import typer

import headgate
from headgate_coordinator.cli.exits import FAILED
from headgate_coordinator.cli.options import Commands, Json, Namespace, Redis
from headgate_coordinator.cli.options import print_json as _print_json
from headgate_coordinator.cli.options import run_with as _run_with
from headgate_coordinator.operate import audit as auditing
from headgate_coordinator.operate import audit_index, audit_stores
from headgate_coordinator.operate.audit_index import IndexFinding
from headgate_coordinator.operate.audit_stores import StoreFinding
from headgate_coordinator.operate.terminal import show

_COMMANDS: Final = {
    "node": "node",
    "status": "watching",
    "top": "watching",
    "links": "links",
    "state": "limits",
    "exec": "limits",
    "deadlocks": "deadlocks",
    "doctor": "doctor",
    "acl": "users",
    "demo": "demo",
    "up": "up",
}
"""The module of each command that has one of its own."""
_GROUPS: Final = {
    "import": "imports",
    "message": "messages",
    "policy": "policy",
    "pool": "pools",
    "multicast": "multicast",
    "user": "users",
}
"""The same of each group of commands."""
app = typer.Typer(
    name="headgate",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # a traceback with local variables could show a password
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 1 a check failed, 2 wrong usage, 3 Redis is unavailable, 130 interrupted.",
)
Name = Annotated[str, typer.Argument(help="Name of the destination.")]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"headgate {headgate.__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Flow control for messages over a whole cluster: credits, byte budgets and rates in Redis, and AMQP nodes."""


@app.command()
def explain(
    name: Annotated[str, typer.Argument(help="Name of the destination.")] = "",
    producer: Annotated[str, typer.Option(metavar="SESSION", help="Explain as this session sees it.")] = "",
    consumer: Annotated[str, typer.Option(metavar="ID", help="Explain as this consumer sees it.")] = "",
    key: Annotated[str | None, typer.Option(metavar="KEY", help="Explain as this key of a limiter sees it.")] = None,
    link: Annotated[
        str,
        typer.Option(
            metavar="LINK", help="Explain a link instead of a destination: its bridge's name, SOURCE>TARGET, or its id."
        ),
    ] = "",
    redis: Redis = None,
    namespace: Namespace = "default",
    as_json: Json = False,
) -> None:
    """Explain a destination's state or a link: which limit binds, who set it, who waits, and who holds what."""
    if not name and not link:
        raise typer.BadParameter("give a destination or --link")
    explanation = _run_with(
        redis, namespace, lambda client: client.explain(name, producer=producer, consumer=consumer, link=link, key=key)
    )
    if as_json:
        _print_json(explanation.as_dict())
    else:
        typer.echo(str(explanation))


@app.command()
def block(
    name: Name,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="The reason shown to those who wait.")],
    redis: Redis = None,
    namespace: Namespace = "default",
) -> None:
    """Stop all sends to a destination until `unblock`; consumers go on."""
    _run_with(redis, namespace, lambda client: client.block(name, reason))
    typer.echo(f"{name} is stopped: {reason}. `headgate unblock {name}` lets it go on.")


@app.command()
def unblock(name: Name, redis: Redis = None, namespace: Namespace = "default") -> None:
    """Undo `headgate block`."""

    async def work(client: headgate.Client) -> headgate.Explanation:
        await client.unblock(name)
        return await client.explain(name)

    result = _run_with(redis, namespace, work)
    typer.echo(f"{name} is not stopped; it is {result.state}: {result.reason}.")


@app.command()
def purge(name: Name, redis: Redis = None, namespace: Namespace = "default", as_json: Json = False) -> None:
    """Remove all messages of a destination, delivered or not; producers that wait for room are served."""

    async def work(client: headgate.Client) -> int:
        await client.explain(name)  # says so when there is no such destination
        return await client.purge(name)

    count = _run_with(redis, namespace, work)
    if as_json:
        _print_json({"destination": name, "purged": count})
    else:
        typer.echo(f"Removed {count} message{'' if count == 1 else 's'} of {name}.")


@app.command()
def audit(
    repair: Annotated[
        bool,
        typer.Option(
            "--repair", help="Correct counters that differ from what was counted, and delete orphaned segments."
        ),
    ] = False,
    redis: Redis = None,
    namespace: Namespace = "default",
    as_json: Json = False,
) -> None:
    """Recount every destination from its messages and sessions; check spool stores and the index of topics too.

    Exits with 1 if any differ and were not repaired; a payload that is missing cannot be.
    """

    async def work(client: headgate.Client) -> tuple[list[auditing.Finding], list[StoreFinding], list[IndexFinding]]:
        found = await auditing.audit(client, repair=repair)
        spooled = await audit_stores.audit_stores(client, repair=repair)
        return found, spooled, await audit_index.audit_index(client, repair=repair)

    findings, stores, entries = _run_with(redis, namespace, work)
    every: list[auditing.Finding | StoreFinding | IndexFinding] = [*findings, *stores, *entries]
    if as_json:
        _print_json([finding.as_dict() for finding in every])
    else:
        show(auditing.render(findings, namespace))
        if stores:
            show(audit_stores.render(stores))
        if entries:
            show(audit_index.render(entries))
    if not all(finding.sound for finding in every):
        raise typer.Exit(FAILED)


def command_line(word: str = "") -> typer.Typer:
    """Return all commands, or that of a name alone: to load and make all of them takes longer than most of them run."""
    own = [str(getattr(info.callback, "__name__", "")) for info in app.registered_commands]
    alone = word in {*own, *_COMMANDS, *_GROUPS, "--version"}
    others = () if alone else entry_points(group="headgate.commands")
    alone = alone or word in {command.name for command in others}
    made = copy(app)
    made.registered_commands, made.registered_groups = [], []
    for name, module in _COMMANDS.items():
        if name == word or not alone:
            made.command()(getattr(import_module(f"headgate_coordinator.cli.{module}"), name))
    made.registered_commands += [
        info for name, info in zip(own, app.registered_commands, strict=True) if name == word or not alone
    ]
    for name, module in _GROUPS.items():
        if name == word or not alone:
            made.add_typer(import_module(f"headgate_coordinator.cli.{module}").app, name=name)
    for command in others:
        if command.name == word or not alone:
            made.add_typer(command.load(), name=command.name)
    return made
