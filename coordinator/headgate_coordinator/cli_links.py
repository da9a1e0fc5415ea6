"""`headgate links`."""

from headgate_coordinator.cli_options import Json, Namespace, Redis, connect, print_json, run
from headgate_coordinator.links.listing import LinkState, list_links, render
from headgate_coordinator.terminal import show


def links(redis: Redis = None, namespace: Namespace = "default", as_json: Json = False) -> None:
    """Show the links of the policy: the node that works on each, how far it got, its backlog, and what it waits for."""

    async def work() -> list[LinkState]:
        async with connect(redis, namespace) as client:
            return await list_links(client)

    found = run(work())
    if as_json:
        print_json([one.as_dict() for one in found])
    else:
        show(render(found, namespace))
