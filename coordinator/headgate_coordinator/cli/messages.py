"""The command `headgate message` lists, moves and deletes single messages of a destination."""

from typing import Annotated, Final

import typer

import headgate
from headgate import Browsed, MessageFormatError
from headgate.core.printable import printable
from headgate_coordinator.cli.options import Json, Namespace, Redis, print_json, run_with
from headgate_coordinator.operate.terminal import size

MOST: Final = 1000
SHOWN: Final = 60
"""Characters of a body in a list for people; in JSON ten times as many."""
app = typer.Typer(no_args_is_help=True, help="List, move and delete single messages.")
Name = Annotated[str, typer.Argument(help="Name of the destination.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="Id of the message, as `list` shows it.")]


@app.callback()
def message() -> None:
    """Look at single messages, move and delete them."""


@app.command("list")
def listing(
    name: Name,
    limit: Annotated[int, typer.Option(min=1, max=MOST, metavar="N", help="Show at most N messages.")] = 20,
    after: Annotated[str | None, typer.Option(metavar="ID", help="Show only messages after this id.")] = None,
    redis: Redis = None,
    namespace: Namespace = "default",
    as_json: Json = False,
) -> None:
    """Show stored messages, oldest first, delivered or not, without taking any."""

    async def work(client: headgate.Client) -> list[Browsed]:
        await client.explain(name)  # says so when there is no such destination
        return [one async for one in client.browse(name, after=after, limit=limit)]

    found = run_with(redis, namespace, work)
    if as_json:
        print_json([_as_dict(one) for one in found])
        return
    for one in found:
        typer.echo(f"{one.id:<24} {size(one.size):>10}  {_shown(one, SHOWN)}")
    if len(found) == limit:
        typer.echo(f"headgate: there may be more: --after {found[-1].id}", err=True)


@app.command()
def move(
    name: Name,
    message_id: Id,
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="Queue to move it to, or a topic that has subscriptions.")
    ],
    redis: Redis = None,
    namespace: Namespace = "default",
) -> None:
    """Move one message of a queue to another destination, such as a dead letter back to where it came from."""
    run_with(redis, namespace, lambda client: client.move_message(name, message_id, target))
    typer.echo(f"Moved message {message_id} of {name} to {target}.")


@app.command()
def delete(name: Name, message_id: Id, redis: Redis = None, namespace: Namespace = "default") -> None:
    """Delete one message, unless a consumer or a link has it in hand."""
    run_with(redis, namespace, lambda client: client.delete_message(name, message_id))
    typer.echo(f"Deleted message {message_id} of {name}.")


def _as_dict(one: Browsed) -> dict[str, object]:
    shown: dict[str, object] = {"id": one.id, "bytes": one.size, "text": _shown(one, 10 * SHOWN)}
    return shown | {"expires_ms": one.expires_ms, "due_ms": one.due_ms}


def _shown(one: Browsed, most: int) -> str:
    try:
        body = one.body
    except MessageFormatError as error:
        return f"({error})"
    return printable(body if isinstance(body, str) else body[: 4 * most].decode(errors="backslashreplace"), most)
