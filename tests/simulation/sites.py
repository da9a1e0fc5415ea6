"""Two sites of a world that share one limit: a home whose pool it is, and one that has a part of it."""

import contextlib
from collections.abc import AsyncIterator
from typing import Final

from headgate.client import Client
from headgate.policy import loads
from headgate_coordinator.links.sites import Sites
from headgate_coordinator.pools.supervisor import PoolSupervisor
from headgate_coordinator.security.policy_reach import PolicyReach
from tests.simulation.deployments import HOME, PART, THERE
from tests.simulation.drawing import SITE_CUT
from tests.simulation.judge.lease import TTL
from tests.simulation.nodes import Nodes
from tests.simulation.world import World

POOL: Final = 100
OF_PART: Final = 70
"""Bytes of these that the part may have."""
LEAST: Final = 20
"""Bytes that nobody else gets, in a quarter of histories."""
POLICIES: Final = {
    HOME: f"""
site_name = "{HOME}"
[[pool]]
name = "shared"
limit = {POOL}
sites = {{ {PART} = {{ most = {OF_PART}%s }} }}
[[destination]]
match = "q"
kind = "queue"
limit = 90
pools = ["shared"]
[[site]]
name = "{PART}"
url = "redis://{PART}:6379"
namespace = "sim"
""",
    PART: f"""
site_name = "{PART}"
[[pool]]
name = "shared"
site = "{HOME}"
[[destination]]
match = "{THERE}"
kind = "queue"
limit = 90
pools = ["shared"]
[[site]]
name = "{HOME}"
url = "redis://{HOME}:6379"
namespace = "sim"
""",
}


class Letters(Nodes):
    """What nodes of each site do for its pool, in processes of their own."""

    def __init__(self, world: World) -> None:
        super().__init__(world, 0)
        self.names = [f"node-{HOME}", f"node-{PART}"]

    def befall(self, what: str, which: int, seconds: float) -> None:
        """Have something happen to the node of one site; it may be cut off from the other."""
        if what != SITE_CUT:
            super().befall(what, which, seconds)
            return
        node, other = self.processes[self.names[which % 2]], self.world.deployment.servers[1 - which % 2]
        self.world.network.cut(node, other.process, self.world.loop.now + seconds)

    @contextlib.asynccontextmanager
    async def _serving(self, name: str) -> AsyncIterator[None]:
        async with self.world.client(name.partition("-")[2]) as client:
            clients = Sites("sim", PolicyReach(hosts=(f"{HOME}:6379", f"{PART}:6379")))
            work = PoolSupervisor(client, f"{name}~{self.world.secret.randrange(1 << 32):08x}", clients, ttl=TTL)
            try:
                await work.start()
                yield
            finally:
                await work.close()
                await clients.close()


def least_of(seed: int) -> int:
    """Return what nobody but the part gets of the pool."""
    return LEAST if seed % 4 == 2 else 0


async def govern(client: Client, site: str, least: int) -> None:
    """Put the policy of a site in force."""
    policy = POLICIES[site]
    if site == HOME:
        policy %= f", least = {least}" if least else ""
    await client.apply_policy(loads(policy, site))
