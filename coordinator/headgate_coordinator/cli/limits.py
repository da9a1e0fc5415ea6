"""The command `headgate state` shows what is taken of limits; `headgate exec` runs a command while they admit it."""

from typing import Annotated

import typer

from headgate import Client, InvalidValue
from headgate.options import MAX_TTL, MIN_TTL
from headgate_coordinator.cli.options import Json, Namespace, Redis, print_json, run_with, time_option
from headgate_coordinator.operate.limits import as_dict, look, render
from headgate_coordinator.operate.run_admitted import amounts_of, run_admitted
from headgate_coordinator.operate.terminal import show


def state(
    name: Annotated[str, typer.Argument(help="Name of a limiter, a gate or a bucket.")],
    key: Annotated[str | None, typer.Option(metavar="KEY", help="Apply to this key only.")] = None,
    redis: Redis = None,
    namespace: Namespace = "default",
    as_json: Json = False,
) -> None:
    """Show how much of a limiter's, gate's or bucket's limits is taken, by which keys, and how many callers wait."""
    found, view = run_with(redis, namespace, lambda client: look(client, name, key))
    if as_json:
        print_json(as_dict(found, view))
    else:
        show(render(found, view))


def exec(  # noqa: A001 -- the command's name, as shells and containers have it
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND...", help="Command to run.")],
    gate: Annotated[str | None, typer.Option(metavar="NAME", help="Gate that has to admit it.")] = None,
    size: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Amount of the gate to take, in bytes or calls; 1 by default.")
    ] = None,
    limiter: Annotated[str | None, typer.Option(metavar="NAME", help="Limiter that has to admit it.")] = None,
    amount: Annotated[
        list[str] | None,
        typer.Option(metavar="LIMIT=NUMBER", help="Amount of one of the limiter's limits; may be given several times."),
    ] = None,
    key: Annotated[str | None, typer.Option(metavar="KEY", help="Key to take it for.")] = None,
    band: Annotated[int | None, typer.Option(min=0, max=7, help="Band to wait in: 0 goes first, 7 last.")] = None,
    wait: Annotated[float, time_option("How long to wait.")] = 30.0,
    ttl: Annotated[
        float, time_option("Time after which others have it if this process dies.", least=MIN_TTL, most=MAX_TTL)
    ] = 10.0,
    redis: Redis = None,
    namespace: Namespace = "default",
) -> None:
    """Run a command while a gate or a limiter admits it: it waits in line, and frees what it holds when it ends.

    Exits as the command does; 75 where it was not admitted in time, 127 where there is no such command, 126 where
    that cannot be run.
    """
    if (gate is None) == (limiter is None) or bool(amount) != (limiter is not None) or (limiter and size is not None):
        raise InvalidValue("say what admits it: --gate NAME with --size, or --limiter NAME with --amount LIMIT=NUMBER")
    amounts, name = amounts_of(amount or ()), gate or limiter or ""

    async def work(client: Client) -> int:
        return await run_admitted(
            client,
            name,
            command,
            size=(size if size is not None else 1) if gate else None,
            amounts=amounts,
            key=key,
            timeout=wait,
            ttl=ttl,
            band=band,
        )

    raise typer.Exit(run_with(redis, namespace, work))
