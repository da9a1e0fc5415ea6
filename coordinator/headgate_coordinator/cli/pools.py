"""The command `headgate pool forget-site` counts all that a site holds of a pool as given back."""

from typing import Annotated

import typer

import headgate
from headgate.namespace.pool_sites import forget_site
from headgate.redis.keys import PoolAddress
from headgate_coordinator.cli.options import Namespace, Redis, run_with

app = typer.Typer(no_args_is_help=True, help="Give up what a lost site holds of a pool.")


@app.callback()
def pool() -> None:
    """Mend pools over sites; `headgate status` shows all pools."""


@app.command("forget-site")
def forget(
    name: Annotated[str, typer.Argument(help="Name of the pool.")],
    site: Annotated[str, typer.Argument(metavar="SITE", help="Site that is gone for good.")],
    gone: Annotated[
        bool, typer.Option("--gone", help="Confirm that nothing at that site uses what it holds any more.")
    ] = False,
    redis: Redis = None,
    namespace: Namespace = "default",
) -> None:
    """Take all that a site holds of a pool for given back; what is in use there comes on top of the limit."""

    async def work(client: headgate.Client) -> int:
        return await forget_site(client.store.server, PoolAddress.of(client.namespace, name), site)

    if not gone:
        raise typer.BadParameter(
            f"what site {site} uses comes on top of the limit until it has heard of this; where nothing there uses any "
            "of it, say --gone"
        )
    size = run_with(redis, namespace, work)
    typer.echo(
        f"headgate: {size} bytes of pool {name} that site {site} held are free; should it come back, it hears of that"
    )
