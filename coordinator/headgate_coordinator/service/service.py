"""One process runs all of a node: AMQP, admin HTTP, its place in the registry, its share of sweeps and of links."""

import asyncio
import contextlib
import functools
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

from headgate._util.tasks import stop
from headgate.client import Client
from headgate.errors import HeadgateError, InvalidValue
from headgate_coordinator.admin.app import create_app
from headgate_coordinator.admin.serve import AdminServer
from headgate_coordinator.deadlock.detector import Detector
from headgate_coordinator.fleet.registry import NodeRegistry
from headgate_coordinator.fleet.reports import Siblings
from headgate_coordinator.links.supervisor import Supervisor
from headgate_coordinator.node.node import Node
from headgate_coordinator.node.options import NodeOptions, place
from headgate_coordinator.pools.supervisor import PoolSupervisor
from headgate_coordinator.security import Users
from headgate_coordinator.service.spool_sweep import SpoolSweep
from headgate_coordinator.service.sweep import Sweep, SweepTurn, within
from headgate_coordinator.service.takeovers import give_way

if TYPE_CHECKING:  # it takes an extra of its own
    from headgate_coordinator.envoy.server import RateLimits


@dataclass(frozen=True, slots=True)
class AdminOptions:
    """Admin options are the settings of admin HTTP.

    Attributes:
        host: interface to listen at.
        port: 0 takes a free one.
        token: that requests must bear; None for none, which only loopback may do without.
        shared: whether other workers listen there too.
        read_token: of who may read and change nothing; None for none.
    """

    host: str = "127.0.0.1"
    port: int = 8161
    token: str | None = None
    shared: bool = False
    read_token: str | None = None


@dataclass(frozen=True, slots=True)
class RpcOptions:
    """RPC options are the settings of the gRPC port, for proxies and autoscalers.

    Attributes:
        envoy: whether proxies are answered, as the descriptors of the policy have it.
        keda: whether autoscalers are answered.
        host: interface to listen at.
        port: 0 takes a free one.
        token: that requests must bear; None for none, which only loopback may do without.
        shared: whether other workers listen there too.
    """

    envoy: bool = False
    keda: bool = False
    host: str = "127.0.0.1"
    port: int = 8181
    token: str | None = None
    shared: bool = False


class _Parts(contextlib.AsyncExitStack):
    """Parts are closed in turn to the end, whoever is cancelled meanwhile; nobody goes on before: not to the client."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        closing = asyncio.create_task(super().__aexit__(kind, error, trace), name="headgate closes a node")
        cancelled: asyncio.CancelledError | None = None
        while not closing.done():
            try:
                await asyncio.wait([closing])
            except asyncio.CancelledError as now:
                cancelled = now
        try:
            return closing.result()
        finally:
            if cancelled is not None:
                raise cancelled


@contextlib.asynccontextmanager
async def service(
    client: Client, options: NodeOptions, users: Callable[[Client], Users], admin: AdminOptions | None,
    rpc: RpcOptions | None = None, siblings: Siblings | None = None,
) -> AsyncIterator[Node]:  # fmt: skip
    """Run a node for as long as the block takes.

    Args:
        client: connected; it stays the caller's.
        options: of the node.
        users: makes those who may come from the client; started and closed here.
        admin: of its admin HTTP; None for none.
        rpc: of its gRPC port; None for none.
        siblings: the workers that it is one of; None where it is alone at its address.

    Raises:
        BadDocument: the file of users cannot be used.
        InvalidValue: AMQP, admin HTTP or the gRPC port cannot listen where it should, or not without a token.
    """
    async with _Parts() as stack:
        client.parts.registry.spooling.spools.check_url = options.reach.check_store
        known = users(client)
        stack.push_async_callback(known.close)  # here and below: before it starts, which may be broken off
        await known.start()
        node = Node(client, options, known)
        await node.start()
        stack.push_async_callback(node.close)
        proxies = await _begin_rpc(stack, node, rpc) if rpc is not None else None
        if admin is not None:
            names = (options.public.rpartition(":")[0].strip("[]"), admin.host) if options.public else (admin.host,)
            app = create_app(
                client,
                node,
                token=admin.token,
                read_token=admin.read_token,
                hosts=names,
                users=known,
                rate_limits=proxies.answer_json if proxies else None,
                charge=node.quotas.charge,
                quota=node.quotas.quota_of_holds,
                siblings=siblings,
            )
            server = AdminServer(app, token=admin.token, host=admin.host, port=admin.port, shared=admin.shared)
            stack.push_async_callback(server.close)
            port = await server.start()
            node.admin = f"http://{place(admin.host, port)}"
        registry = NodeRegistry(client)
        node.another = functools.partial(another, node, registry)
        sweep, spooled = Sweep(client, registry, node.id, node.reply_queues), SweepTurn()

        def hand_out(parts: list[int]) -> None:
            sweep.turn.add(parts)
            spooled.add(parts)

        async def left_alone() -> list[str]:
            parts = spooled.take()
            return within(parts, await client.destinations()) if parts else []

        tasks = [
            asyncio.create_task(registry.keep(node, hand_out), name="headgate beats"),
            asyncio.create_task(sweep.run(), name="headgate sweep"),
            asyncio.create_task(give_way(node, registry), name="headgate takeovers"),
            asyncio.create_task(SpoolSweep(client, node.id, left_alone).run(), name="headgate sweep of spool stores"),
        ]
        stack.push_async_callback(_leave, tasks, registry, node.id)
        detector = Detector(client, node.id, ttl=options.ttl)
        node.deadlocks = detector.facts
        stack.push_async_callback(detector.close)
        await detector.start()
        if options.forwarding:
            supervisor = Supervisor(client, node.id, ttl=options.ttl, reach=options.reach)
            node.bridges = supervisor.facts
            stack.push_async_callback(supervisor.close)
            await supervisor.start()
            over_sites = PoolSupervisor(client, node.id, supervisor.sites, ttl=options.ttl)
            stack.push_async_callback(over_sites.close)
            await over_sites.start()
        yield node


async def _begin_rpc(stack: contextlib.AsyncExitStack, node: Node, rpc: RpcOptions) -> "RateLimits | None":
    """Serve what is asked over gRPC; returns what answers proxies, None where nothing does."""
    try:
        from headgate_coordinator.envoy.decisions import Decisions
        from headgate_coordinator.envoy.server import RateLimits
        from headgate_coordinator.keda.scaler import Scaler
        from headgate_coordinator.rpc import RpcServer
        from headgate_coordinator.security.strangers import UnauthenticatedConnections
    except ImportError as error:
        raise InvalidValue(f"--envoy and --keda need headgate[envoy]; import says: {error}") from None
    proxies, services, strangers = None, [], UnauthenticatedConnections()
    if rpc.envoy:
        proxies = RateLimits(Decisions(node.client), rpc.token, strangers.know)
        stack.push_async_callback(proxies.close)
        services.append(proxies.handler)
    options = node.options
    server = RpcServer(
        services,
        token=rpc.token,
        host=rpc.host,
        port=rpc.port,
        certificate=options.certificate,
        key=options.key,
        shared=rpc.shared,
        strangers=strangers,
    )
    stack.push_async_callback(server.close)
    if rpc.keda:
        scaler = Scaler(node.client, node.users, rpc.token, strangers.know)
        stack.callback(scaler.close)  # before the server, which waits for what is under way
        services.append(scaler.handler)
    await server.start()
    node.rpc = place(rpc.host, server.port)
    return proxies


async def another(node: Node, registry: NodeRegistry) -> tuple[str, int] | None:
    """Return host and port of a node that takes clients; None where there is no other."""
    others = [entry for entry in await registry.list() if entry.id != node.id and entry.state == "ready"]
    ready = [entry for entry in others if entry.address != node.address] if node.address_ends else others
    host, _, port = random.choice(ready).address.rpartition(":") if ready else ("", "", "")  # noqa: S311 -- no secret
    return (host.strip("[]"), int(port)) if port.isdecimal() else None


async def _leave(tasks: "list[asyncio.Task[None]]", registry: NodeRegistry, node: str) -> None:
    for task in tasks:
        await stop(task)
    with contextlib.suppress(HeadgateError):
        await registry.leave(node)
