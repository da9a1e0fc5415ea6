"""The command `headgate up` runs a private Redis, a broker node and its live page until Ctrl-C."""

import json
import os
from typing import Annotated

import typer

from headgate_coordinator.cli.node import TOKEN
from headgate_coordinator.cli.options import Json, Namespace, SiteHosts, SiteSecrets, StoreRoots, run
from headgate_coordinator.security.policy_reach import PolicyReach
from headgate_coordinator.service import up as embedded


def up(
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Loopback TCP port for Redis; 0 picks a free one.")
    ] = None,
    amqp_port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, show_default="5672, or the next free one", help="Port of the node; 0 picks a free one."
        ),
    ] = None,
    admin_port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, show_default="8161, or the next free one", help="Port of its page; 0 picks a free one."
        ),
    ] = None,
    node: Annotated[bool, typer.Option("--node/--no-node", help="Start a broker node and its page too.")] = True,
    site_secrets: SiteSecrets = None,
    site_hosts: SiteHosts = None,
    store_roots: StoreRoots = None,
    namespace: Namespace = "default",
    as_json: Json = False,
) -> None:
    """Start a private Redis, a broker node and its live page, print how to use them, and run until Ctrl-C.

    It keeps nothing on disk. Everything listens at loopback only. A port that is given must be free.
    """
    options = embedded.Options(
        namespace,
        port,
        amqp_port,
        admin_port,
        node,
        os.environ.get(TOKEN),
        PolicyReach(site_secrets, tuple(site_hosts or ()), tuple(store_roots or ())),
    )

    def tell(running: embedded.RunningParts) -> None:
        typer.echo(json.dumps(running.facts()) if as_json else embedded.welcome(running))

    run(embedded.up(options, tell))
    if not as_json:
        typer.echo("Stopped; nothing of it is left.")
