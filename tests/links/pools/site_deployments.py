"""Sites that share a pool, each with nodes as processes: their traffic, what they hold, and what is judged of that."""

import asyncio
import random
from contextlib import suppress
from signal import SIGCONT, SIGSTOP
from typing import Final

import headgate
from headgate.redis.keys import Address, PoolAddress, owned_keys
from headgate.redis.replies import record
from headgate.redis.stores.pools import PoolStore, Share, Slice
from tests.amqp.node_processes import NodeProcess
from tests.links.pools.pool_sites import in_use, shared
from tests.links.sites import SiteOf
from tests.support.waiting import wait_until

LIMIT: Final = 1000
MOST: Final = 600
BODY: Final = b"x" * 97
"""With what says what it is: 100 bytes."""
NAMES: Final = ("invoices", "letters")


class Deployment:
    """A site with two nodes, and what it makes of its part: it sends and consumes as chance has it."""

    def __init__(self, site: SiteOf, processes: list[NodeProcess], dice: random.Random) -> None:
        self.site, self.processes, self.dice = site, processes, dice
        self.client = site.client
        self.pool = PoolAddress.of(site.client.namespace, "orders")

    async def holder(self) -> str:
        """Return the id of the node that has the lease on the pool; empty where nobody has."""
        keys = owned_keys(self.client.namespace)
        flat = await self.client.store.server.command(keys[0], "HGETALL", keys[0])
        leases = {flat[i].decode(): flat[i + 1] for i in range(0, len(flat), 2)}
        (lease,) = [record(text) for name, text in leases.items() if name.startswith("pool-")] or [{"owner": ""}]
        return lease["owner"]

    async def working(self) -> NodeProcess:
        """Wait until a node has the lease, and return it."""

        async def held() -> bool:
            return self._named(await self.holder()) is not None

        await wait_until(held, timeout=60, description=f"a node works on the pool at {self.site.name}")
        found = self._named(await self.holder())
        assert found is not None
        return found

    def _named(self, holder: str) -> NodeProcess | None:
        return next((one for one in self.processes if one.name == holder.partition("~")[0]), None)

    async def fails(self, how: str) -> None:
        """Have the node that holds the lease die or freeze until another has it; then it is there again."""
        node, former = await self.working(), await self.holder()
        node.kill9() if how == "killed" else node.signal(SIGSTOP)

        async def taken_over() -> bool:
            return await self.holder() not in ("", former)

        await wait_until(taken_over, timeout=60, description=f"another node works at {self.site.name}")
        node.start() if how == "killed" else node.signal(SIGCONT)

    async def slices(self) -> list[Slice]:
        """Return what each destination has of the pool."""
        store = PoolStore(self.client.store.server)
        return [await store.slice(Address.of(self.client.namespace, name), "orders") for name in NAMES]

    async def traffic(self, name: str) -> None:
        """Send as much as there is room for, and take some of it, for ever."""
        async with self.client.session() as session:
            producer, consumer = await session.producer(name), await session.consumer(name, window=1)
            while True:
                for _ in range(self.dice.randint(1, 6)):
                    with suppress(headgate.CreditTimeout, headgate.CoordinatorUnavailable):
                        await producer.send(BODY, timeout=0.3)
                for _ in range(self.dice.randint(1, 6)):
                    if (message := await consumer.receive(timeout=0.05)) is not None:
                        await message.accept()

    async def empty(self) -> None:
        """Take all that is stored, however slowly it comes."""
        async with self.client.session() as session:
            consumers = [await session.consumer(name) for name in NAMES]
            while await in_use(self.site, NAMES):
                for consumer in consumers:
                    while (message := await consumer.receive(timeout=0.05)) is not None:
                        await message.accept(confirm=True)


async def share_of(berlin: Deployment) -> dict[str, int]:
    fields = await PoolStore(berlin.client.store.server).fields(berlin.pool)
    text = fields.get("share", "granted=0 returned=0").encode()
    return {name: int(value) for name, value in record(text).items() if name in ("granted", "returned")}


async def account_of(paris: Deployment) -> Share | None:
    members = await PoolStore(paris.client.store.server).members(paris.pool)
    assert sum(share.held for share in members) <= LIMIT
    assert all(share.held <= MOST for share in members if share.site)
    return next((share for share in members if share.site), None)


async def judge(paris: Deployment, berlin: Deployment) -> None:
    """See that the limit holds at this moment, though nobody can look at both servers at once.

    Totals only grow. So a part holds at least what it was granted before, less what it has returned after; and of two
    totals, that which the other follows is at least as large when it is looked at later.
    """
    slices = [*await paris.slices(), *await berlin.slices()]
    before, there, after = await share_of(berlin), await account_of(paris), await share_of(berlin)
    if there is None:
        assert before["granted"] == 0
    else:
        assert before["granted"] <= there.granted, "the part holds what the home does not know of"
        assert there.returned <= after["returned"], "the home lends again what the part holds"
    later = [*await paris.slices(), *await berlin.slices()]
    assert sum(one.granted - other.returned for one, other in zip(slices, later, strict=True)) <= LIMIT
    assert all(one.used <= one.held for one in (*slices, *later))


async def watch(paris: Deployment, berlin: Deployment) -> None:
    while True:
        await judge(paris, berlin)
        await asyncio.sleep(0.02)


async def served_afterwards(paris: Deployment, berlin: Deployment, least: int = 0) -> None:
    """See that nothing leaked: each side gets all that it may have, one after the other; berlin keeps its least."""
    for one in (paris, berlin):
        await one.empty()
    for _ in range(MOST // 100):
        await berlin.site.send("letters", BODY, timeout=60)
    for _ in range((LIMIT - MOST) // 100):
        await paris.site.send("invoices", BODY, timeout=60)
    await judge(paris, berlin)
    await berlin.empty()
    await paris.site.send("letters", *[BODY] * ((MOST - least) // 100), timeout=60)
    assert (await shared(paris.site))["@berlin"] == least
    await judge(paris, berlin)
