"""A node whose start or end is cancelled, wherever that waits, leaves no connection and no task."""

import asyncio

import pytest

import headgate
from headgate.core.links.link import Site
from headgate.redis.probing import Probe
from headgate.redis.url import parse_url
from headgate_coordinator.links.sites import Sites
from headgate_coordinator.node.options import NodeOptions
from headgate_coordinator.security import Users
from headgate_coordinator.security.policy_reach import PolicyReach
from headgate_coordinator.service.service import AdminOptions, RpcOptions, service
from tests.envoy.conftest import HERE
from tests.sdk.cancelling import SOCKETS, leaves_nothing

pytestmark = [
    pytest.mark.one_server,
    pytest.mark.timeout(120),
    pytest.mark.skipif(not SOCKETS.is_dir(), reason="no list of what this process has open"),
]
PARTS = {f"headgate {part}" for part in ("users", "lines", "quotas", "sweep", "takeovers", "deadlocks", "links")}
"""Tasks of a node's."""


@pytest.fixture
def everything() -> tuple[AdminOptions, RpcOptions | None]:
    """All that a node may listen at."""
    return AdminOptions(port=0), RpcOptions(envoy=True, keda=True, port=0) if HERE else None


@pytest.fixture
async def rpc_has_begun() -> object:
    """What gRPC opens for a whole process."""
    if not HERE:
        return None
    import grpc

    return grpc.aio.server()


async def test_a_node(
    redis_url: str,
    cleanup_namespace: str,
    everything: tuple[AdminOptions, RpcOptions | None],
    rpc_has_begun: object,
) -> None:
    """Mutants: a part is closed only once it has started; whoever is cancelled as it closes breaks that off."""

    async def work() -> None:
        async with (
            headgate.connect(redis_url, namespace=cleanup_namespace) as client,
            service(client, NodeOptions(port=0), Users.from_redis, *everything),
        ):
            pass

    await leaves_nothing(work)
    assert rpc_has_begun or not HERE


async def test_a_node_that_is_cancelled_again_and_again(redis_url: str, cleanup_namespace: str) -> None:
    """Its client is the caller's: nobody goes on to close that before the node is closed. Mutant: the second does."""
    runs, left = asyncio.Event(), list[set[str]]()

    async def work() -> None:
        async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
            try:
                async with service(client, NodeOptions(port=0), Users.from_redis, None):
                    assert _names() >= PARTS
                    runs.set()
                    await asyncio.Event().wait()
            finally:
                left.append(_names() & PARTS)

    task = asyncio.create_task(work())
    await runs.wait()
    while not left:
        task.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert left == [set()]


def _names() -> set[str]:
    return {task.get_name() for task in asyncio.all_tasks() if not task.done()}


async def test_a_client_of_another_site(
    redis_url: str, cleanup_namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutants: one that is cancelled as the site is asked its name stays open; so does one that was to be closed."""
    monkeypatch.setenv("HEADGATE_SITE_PARIS", redis_url)

    async def work() -> None:
        sites = Sites(cleanup_namespace, PolicyReach())
        try:
            await sites.client(Site("paris", "env:HEADGATE_SITE_PARIS"))
        finally:
            await sites.close()

    await leaves_nothing(work)


async def test_a_probe(redis_url: str) -> None:
    """Mutant: one that is cancelled as it is let in keeps its connection."""
    url = parse_url(redis_url)

    async def work() -> None:
        probe = await Probe.open(url, None if url.kind == "unix" else url.hosts[0])
        try:
            await probe.ask("PING")
        finally:
            await probe.close()

    await leaves_nothing(work)
