"""The command `headgate status` shows all destinations of a namespace, and what they share; `headgate top`, live."""

import asyncio
from typing import Annotated, Final

import typer

import headgate
from headgate_coordinator.cli.options import Json, Namespace, Redis, connect, print_json, run_with, time_option
from headgate_coordinator.links.listing import first_links
from headgate_coordinator.operate import status as reporting
from headgate_coordinator.operate import top as live
from headgate_coordinator.operate.eviction import eviction
from headgate_coordinator.operate.status import StatusData
from headgate_coordinator.operate.terminal import console, show

MOST_LINKS: Final = 50
"""Links that a live picture reads."""
Sort = Annotated[str, typer.Option(metavar="BY", help=f"One of {', '.join(reporting.SORTS)}; the largest first.")]


def _sort(by: str) -> str:
    if by not in reporting.SORTS:
        raise headgate.InvalidValue(f"--sort {by!r}: use one of {', '.join(reporting.SORTS)}")
    return by


async def look(client: headgate.Client, most_links: int | None = None) -> StatusData:
    """Read all that there is to see; links only where this user may see who works on them, and so many."""
    found = await reporting.collect(client)
    try:
        links, total = await first_links(client, most_links)
    except headgate.AccessDenied:
        links, total = [], 0
    return StatusData(found, await client.stores(), await client.pools(), links, total)


def status(sort: Sort = "name", redis: Redis = None, namespace: Namespace = "default", as_json: Json = False) -> None:
    """Show all destinations: limits, what is pending and leased, who waits and why; limiters, pools, stores, links."""
    by = _sort(sort)

    async def work(client: headgate.Client) -> tuple[StatusData, str]:
        return await look(client), await eviction(client)

    picture, evicts = run_with(redis, namespace, work)
    if evicts:
        typer.echo(
            f"headgate: Redis deletes messages when its memory is full: its maxmemory-policy is {evicts}", err=True
        )
    if as_json:
        print_json([explanation.as_dict() for explanation in reporting.ordered(picture.found, by)])
    else:
        show(reporting.render(picture, namespace, by=by, width=console().width))


def top(
    sort: Sort = "blocked",
    interval: Annotated[float, time_option("Time between refreshes.", least=0.1, most=3600)] = 1.0,
    once: Annotated[
        bool, typer.Option("--once", help="Print one snapshot and exit; output into a pipe does so too.")
    ] = False,
    redis: Redis = None,
    namespace: Namespace = "default",
) -> None:
    """Watch all destinations live, limiters, pools, stores and links: n p l b c r u d sort, q or Ctrl-C ends."""
    by = _sort(sort)
    out = console()

    async def work() -> None:
        async with connect(redis, namespace) as client:
            if once or not out.is_terminal:
                show(live.frame(await look(client), namespace, by, width=out.width))
            else:
                await live.watch(lambda: look(client, MOST_LINKS), namespace, by=by, interval=interval, console=out)

    try:
        asyncio.run(work())
    except (KeyboardInterrupt, asyncio.CancelledError):
        return  # that is how one leaves it
