"""`headgate state`."""

from typing import Annotated

import typer

from headgate_coordinator.cli.options import Json, Namespace, Redis, print_json, run_with
from headgate_coordinator.operate.limits import as_dict, look, render
from headgate_coordinator.operate.terminal import show


def state(
    name: Annotated[str, typer.Argument(help="Of a limiter, a gate or a bucket.", show_default=False)],
    key: Annotated[str | None, typer.Option(metavar="KEY", show_default=False, help="And of this key.")] = None,
    redis: Redis = None,
    namespace: Namespace = "default",
    as_json: Json = False,
) -> None:
    """Show how much of the limits of a limiter, gate or bucket is taken, which keys have most, and how many wait."""
    found, view = run_with(redis, namespace, lambda client: look(client, name, key))
    if as_json:
        print_json(as_dict(found, view))
    else:
        show(render(found, view))
