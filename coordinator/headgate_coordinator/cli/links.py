"""The command `headgate links` shows the links of the policy, and ends links for good."""

from typing import Annotated

import typer

import headgate
from headgate_coordinator.cli.options import Json, Namespace, Redis, print_json, run_with
from headgate_coordinator.links.listing import list_links, render
from headgate_coordinator.links.removal import give_up
from headgate_coordinator.operate.status import LinkState
from headgate_coordinator.operate.terminal import show


def links(
    redis: Redis = None,
    namespace: Namespace = "default",
    as_json: Json = False,
    end: Annotated[
        str | None,
        typer.Option(
            metavar="LINK", help="Give up this link, whose site left the policy: its messages go back to their source."
        ),
    ] = None,
) -> None:
    """Show the links of the policy: the node that works on each, how far it got, its backlog, and what it waits for."""

    async def work(client: headgate.Client) -> list[LinkState]:
        if end is not None:
            await give_up(client, end)
        return await list_links(client)

    found = run_with(redis, namespace, work)
    if end is not None:
        typer.echo(
            f"headgate: the link {end} has ended; what its target has already may be at its source too", err=True
        )
    if as_json:
        print_json([one.as_dict() for one in found])
    else:
        show(render(found, namespace))
