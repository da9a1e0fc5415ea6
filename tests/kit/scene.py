"""The scene of one row: its destination at the endpoint, and senders and receivers there."""

import asyncio
import contextlib
from dataclasses import dataclass, field, replace

from headgate.amqp.link import Link
from tests.kit.endpoint import STILL, Client, Endpoint, Inbox


@dataclass(slots=True)
class Scene:
    """The destination of one row, and the connections that are made to it.

    Attributes:
        endpoint: that is tried.
        address: of the destination.
        kind: `queue` or `topic`.
    """

    endpoint: Endpoint
    address: str
    kind: str = "queue"
    _clients: list[Client] = field(default_factory=list)

    @property
    def patience(self) -> float:
        return self.endpoint.patience

    async def client(self, user: str | None = None) -> Client:
        """Return a connection of its own; of a user, whose password is the name."""
        endpoint = self.endpoint if user is None else replace(self.endpoint, user=user, password=user)
        self._clients.append(await endpoint.connect(f"headgate-kit-{self.address}-{len(self._clients)}"))
        return self._clients[-1]

    async def reads(self, credit: int, name: str = "r") -> Inbox:
        """Return a receiver on a connection of its own."""
        return await (await self.client()).reads(self.address, credit, kind=self.kind, name=name)

    async def writes(self) -> tuple[Client, Link]:
        """Return a sender on a connection of its own."""
        client = await self.client()
        return client, await client.writes(self.address, kind=self.kind)

    async def store(self, count: int) -> None:
        """Have so many messages there, named by their numbers."""
        client, link = await self.writes()
        accepted = await client.put_all(link, [str(number) for number in range(count)])
        assert accepted == count, f"{accepted} of {count} messages are accepted"

    async def empty(self) -> None:
        """Take what is there from before."""
        if self.kind == "queue":
            inbox = await self.reads(1000)
            while count := await inbox.is_still():
                inbox.settle(count)
                inbox.bodies.clear()
                inbox.allow(1000)
            await inbox.client.close()

    async def close(self) -> None:
        """Close all connections."""
        for client in self._clients:
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(STILL):
                    await client.close()
            client.abort()
