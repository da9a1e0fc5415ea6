"""A node from its start to its end: SIGTERM drains it, a second one, or SIGINT, ends it at once."""

import asyncio
import signal
from collections.abc import Callable

from headgate.client import Client
from headgate_coordinator.node.node import Node
from headgate_coordinator.node.options import NodeOptions
from headgate_coordinator.security import Users


async def run(client: Client, options: NodeOptions, users: Users, tell: Callable[[Node], None]) -> None:
    """Serve until told to stop.

    Args:
        client: of the Redis; it is opened and closed here.
        options: of the node.
        users: who may come.
        tell: called once it listens.

    Raises:
        CoordinatorUnavailable: Redis does not answer at the start; later on, the node waits for it.
        OSError: the port cannot be had.
    """
    loop, stop, hurry = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()

    def told(at_once: bool) -> None:  # noqa: FBT001 -- called by the loop
        if stop.is_set() or at_once:
            hurry.set()
        stop.set()

    loop.add_signal_handler(signal.SIGTERM, told, False)
    loop.add_signal_handler(signal.SIGINT, told, True)
    async with client:
        node = Node(client, options, users)
        await node.start()
        try:
            tell(node)
            await stop.wait()
            if not hurry.is_set():
                drained, hurried = asyncio.create_task(node.drain()), asyncio.create_task(hurry.wait())
                await asyncio.wait((drained, hurried), return_when=asyncio.FIRST_COMPLETED)
                drained.cancel()
                hurried.cancel()
        finally:
            await node.close()
