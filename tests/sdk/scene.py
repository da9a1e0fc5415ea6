"""One destination, played by calls of the store: nothing happens that the test does not say."""

from dataclasses import dataclass
from typing import Any

import redis.asyncio

import headgate
from headgate.redis.keys import Address
from headgate.redis.replies import Account
from headgate.redis.store import Store

TTL_MS = 10_000


@dataclass
class Scene:
    """One destination, played by calls of the store: nothing happens that the test does not say."""

    client: headgate.Client
    direct: "redis.asyncio.Redis"
    name: str = "orders"

    def __post_init__(self) -> None:
        self.address = Address.of(self.client.namespace, self.name)
        self.accounts: dict[str, Account] = {}

    @property
    def store(self) -> Store:
        return self.client.store

    async def make(self, kind: str = "queue", **fields: str) -> None:
        await self.store.apply(self.address, {"kind": kind} | fields, mode="ensure", ttl_ms=TTL_MS)

    async def fields(self, **fields: object) -> None:
        await self.direct.hset(self.address.key, mapping={name: str(value) for name, value in fields.items()})

    async def part(self, part: str, **fields: str) -> None:
        for field, value in fields.items():
            await self.direct.hset(f"{self.address.key}:{part}", field, value)

    async def rewrite(self, session: str, name: str, value: object) -> None:
        """Change one number of a session's record."""
        record = await self.record(session) | {name: str(value)}
        parts = (f"{name}={value}" for name, value in record.items())
        await self.direct.hset(f"{self.address.key}:sessions", session, " ".join(parts))

    async def record(self, session: str) -> dict[str, str]:
        """Return a session's record."""
        record: Any = await self.direct.hget(f"{self.address.key}:sessions", session)
        return dict(part.split("=") for part in record.decode().split())

    async def lease(self, session: str, size: int, messages: int = 1, *, ttl_ms: int = TTL_MS) -> None:
        """Let a session hold credit."""
        account = Account(session, 1, 0, want=size, want_m=messages)
        answer = await self.store.acquire(self.address, account, ttl_ms=ttl_ms)
        assert (answer.granted, answer.granted_m) == (size, messages), answer
        self.accounts[session] = Account(session, 1, answer.epoch, answer.granted, answer.granted_m)

    async def send(self, session: str, *sizes: int) -> None:
        """Let a session ask for credit and use all of it."""
        await self.lease(session, sum(sizes), len(sizes))
        account = self.accounts[session]
        answer = await self.store.publish(
            self.address,
            Account(session, 1, account.epoch, need=account.granted, need_m=account.granted_m),
            seq=1,
            bodies=[b"x" * size for size in sizes],
            ttl_ms=TTL_MS,
        )
        assert answer.code == "OK"

    async def wait(self, session: str, size: int) -> None:
        """Let a session wait for a message of that size."""
        account = Account(session, 1, 0, need=size, need_m=1, want=size, want_m=1, size=size)
        answer = await self.store.acquire(self.address, account, ttl_ms=TTL_MS)
        assert answer.granted < size, answer

    async def consume(
        self, session: str, window: str, messages: int = 0, *, subscription: str = "queue", durable: bool = False
    ) -> None:
        """Attach a consumer that holds so many messages."""
        code, _ = await self.store.attach(
            self.address, session, number=1, subscription=subscription, durable=durable, window=window, ttl_ms=TTL_MS
        )
        assert code == "OK"
        if messages:
            answer = await self.store.settle(
                self.address, session, f"{session}.1", ttl_ms=TTL_MS, fetch=1, max_messages=messages, max_bytes=1 << 30
            )
            assert len(answer.messages) == messages

    async def settle(self, session: str, count: int, fetch: int = 1) -> None:
        """Let its consumer receive and accept so many."""
        answer = await self.store.settle(
            self.address, session, f"{session}.1", ttl_ms=TTL_MS, fetch=fetch, max_messages=count, max_bytes=1 << 30
        )
        accepted = [identifier for identifier, _, _ in answer.messages]
        await self.store.settle(self.address, session, f"{session}.1", ttl_ms=TTL_MS, accepted=accepted)

    async def us(self) -> int:
        seconds, micros = await self.direct.time()
        return int(seconds * 1_000_000 + micros)
