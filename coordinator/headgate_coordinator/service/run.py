"""A node runs from its start to its end: SIGTERM drains it, a second one, or SIGINT, ends it at once.

A worker gets the same from its supervisor.
"""

import asyncio
import signal
from collections.abc import Callable

from headgate.client import Client
from headgate_coordinator.node.node import Node
from headgate_coordinator.node.options import NodeOptions
from headgate_coordinator.security import Users
from headgate_coordinator.service.garbage import ShortCollections
from headgate_coordinator.service.service import AdminOptions, RpcOptions, service
from headgate_coordinator.workers.notify import READY, STOPPING, notify
from headgate_coordinator.workers.worker import Order, Worker


async def run(
    client: Client,
    options: NodeOptions,
    users: Callable[[Client], Users],
    admin: AdminOptions | None,
    tell: Callable[[Node], None],
    rpc: RpcOptions | None = None,
    worker: Worker | None = None,
) -> None:
    """Serve until a signal stops it.

    Args:
        client: of the Redis; it is opened and closed here.
        options: of the node.
        users: makes those who may come from the client.
        admin: of its admin HTTP; None for none.
        tell: called once it listens.
        rpc: of its gRPC port; None for none.
        worker: that this process is; None where it is alone at its address.

    Raises:
        CoordinatorUnavailable: Redis does not answer at the start; later on, the node waits for it.
        InvalidValue: AMQP, admin HTTP or the gRPC port cannot listen where it should.
    """
    if worker is not None:
        await worker.start()
    async with client, service(client, options, users, admin, rpc, worker) as node:
        collections = ShortCollections()
        collections.start()
        tell(node)
        notify(READY)
        try:
            await until_asked_to_stop(node, worker)
        finally:
            collections.stop()
    if worker is not None:
        await worker.leave()


async def until_asked_to_stop(node: Node, worker: Worker | None = None) -> None:
    """Wait for a signal or for the supervisor's order, and drain the node if there is time for that."""
    loop, end, hurry = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()

    def on_signal(at_once: bool) -> None:  # noqa: FBT001 -- called by the loop
        if end.is_set() or at_once:
            hurry.set()
        end.set()

    loop.add_signal_handler(signal.SIGTERM, on_signal, False)
    loop.add_signal_handler(signal.SIGINT, on_signal, True)
    if worker is not None:

        def on_order(order: Order) -> None:
            node.address_ends = order == "leave"
            if order == "end" or not end.is_set():  # a signal may have ordered the same
                on_signal(order == "end")

        worker.obey(on_order)
    await end.wait()
    notify(STOPPING)
    if not hurry.is_set():
        drained, hurried = asyncio.create_task(node.drain()), asyncio.create_task(hurry.wait())
        await asyncio.wait((drained, hurried), return_when=asyncio.FIRST_COMPLETED)
        drained.cancel()
        hurried.cancel()
