"""Two sites, paris and berlin, each with its own Redis and nodes' workers in this process; and a third, rome."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import headgate
from headgate.backends import place_of
from headgate.policy import loads
from headgate.redis.keys import Address
from headgate_coordinator.links.listing import list_links
from headgate_coordinator.links.supervisor import Supervisor
from headgate_coordinator.operate.status import LinkState
from headgate_coordinator.security.policy_reach import PolicyReach
from tests.support.leaks import delete_namespace
from tests.support.waiting import wait_until

TTL = 2.0


@dataclass
class SiteOf:
    """One site.

    Attributes:
        name: its name.
        client: of its Redis.
        url: likewise.
        supervisors: what its nodes forward with.
        reach: where its nodes go at the word of a policy.
    """

    name: str
    client: headgate.Client
    url: str
    supervisors: list[Supervisor] = field(default_factory=list)
    reach: PolicyReach = field(default_factory=PolicyReach)

    async def govern(self, policy: str, *others: "SiteOf") -> None:
        """Apply a policy; others are the sites that it may name."""
        sites = "".join(
            f"[[site]]\nname = '{one.name}'\nurl = '{one.url}'\nnamespace = '{one.client.namespace}'\n"
            for one in others
        )
        await self.client.apply_policy(loads(f"site_name = '{self.name}'\n{policy}{sites}", self.name))

    @contextlib.asynccontextmanager
    async def working(self, count: int = 1) -> AsyncIterator[list[Supervisor]]:
        """Have so many nodes' workers for as long as the block takes."""
        async with contextlib.AsyncExitStack() as stack:
            for number in range(count):
                supervisor = Supervisor(self.client, f"{self.name}-{number}~{number:08x}", ttl=TTL, reach=self.reach)
                await supervisor.start()
                stack.push_async_callback(supervisor.close)
                self.supervisors.append(supervisor)
            yield self.supervisors
            self.supervisors = []

    async def send(self, name: str, *bodies: bytes, timeout: float = 60, **headers: object) -> None:
        async with self.client.session() as session:
            producer = await session.producer(name)
            for body in bodies:
                await producer.send(body, headers=headers or None, timeout=timeout)

    async def stored(self, name: str) -> list[bytes | str]:
        return [browsed.body async for browsed in self.client.browse(name)]

    async def has(self, name: str, count: int) -> None:
        """Wait until so many messages are pending there."""

        async def there() -> bool:
            return await self.pending(name) == count

        await wait_until(there, timeout=60, description=f"{count} messages in {name} at {self.name}")

    async def pending(self, name: str) -> int:
        snapshot = await self.client.store.snapshot(Address.of(self.client.namespace, name))
        return int(snapshot.fields["pending_messages"]) if snapshot else 0

    async def field(self, name: str, key: str) -> str:
        snapshot = await self.client.store.snapshot(Address.of(self.client.namespace, name))
        return snapshot.fields.get(key, "") if snapshot else ""

    async def link(self, number: int = 0) -> LinkState:
        return (await list_links(self.client))[number]

    async def routed(self, *names: str) -> None:
        """Wait until links have subscribed to these topics: before, nothing would be kept for them."""
        for name in names:

            async def subscribed(name: str = name) -> bool:
                return await self.field(name, "subscriptions") not in ("", "0")

            await wait_until(subscribed, timeout=60, description=f"a link of {name} at {self.name}")


def reach_of(*urls: str) -> PolicyReach:
    """Return what lets a policy name these URLs."""
    ends = (end for url in urls for end in place_of(url).ends)
    return PolicyReach(hosts=tuple(end if isinstance(end, str) else "{}:{}".format(*end) for end in ends))


def route(site: str, what: str, more: str = "") -> str:
    return f"[[route]]\nname = 'to {site}'\nto = '{site}'\n{what}\n{more}\n"


async def next_of(consumer: headgate.Consumer) -> headgate.Message:
    message = await consumer.receive(timeout=60)
    assert message is not None
    return message


async def send_all(producer: headgate.Producer, bodies: list[bytes]) -> None:
    for body in bodies:
        await producer.send(body, timeout=60)


async def stalls(site: SiteOf, why: str) -> bool:
    return any(
        fact.trouble and why in fact.trouble.text for supervisor in site.supervisors for fact in supervisor.facts()
    )


@contextlib.asynccontextmanager
async def three_sites_of(urls: list[str], namespace: str) -> AsyncIterator[list[SiteOf]]:
    """Paris, berlin and rome; of two servers, the first and the last share one."""
    places = (("paris", urls[-1], "-p"), ("berlin", urls[0], "-b"), ("rome", urls[-1], "-r"))
    made = [
        SiteOf(name, await headgate.connect(url, namespace=namespace + suffix), url, reach=reach_of(*urls))
        for name, url, suffix in places
    ]
    yield made
    for site in made:
        await site.client.close()
        delete_namespace(site.url, site.client.namespace)
