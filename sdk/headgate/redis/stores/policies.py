"""The policy of a namespace is kept in Redis, and switched there."""

from dataclasses import dataclass, field
from typing import Literal

from headgate.redis.backend import Backend, call
from headgate.redis.keys import policy_key


@dataclass(frozen=True, slots=True)
class StoredPolicy:
    """A stored policy is the one in Redis; it has version 0 and no document where there is none.

    Attributes:
        version: its number. One that a failover lost may be given to another policy.
        document: as its author's client wrote it, with its version.
        applied_ms: when Redis put it in force: with the version, this says which policy it is, and which one is newer.
    """

    version: int = 0
    document: str = ""
    applied_ms: int = field(default=0, compare=False)


class PolicyStore:
    """A policy store keeps the policy of one namespace, switched whole or not at all."""

    def __init__(self, server: Backend, namespace: str) -> None:
        self._server = server
        self._key = policy_key(namespace).encode()

    async def stamp(self) -> tuple[int, int]:
        """Return the version in force, 0 for none, and when it was put in force, in ms."""
        version, applied_ms = await self._server.command(self._key, "HMGET", self._key, "version", "applied_ms")
        return int(version or 0), int(applied_ms or 0)

    async def read(self) -> StoredPolicy:
        """Return what is in force."""
        words = ("HMGET", self._key, "version", "document", "applied_ms")
        version, document, applied_ms = await self._server.command(self._key, *words)
        return StoredPolicy(int(version), document.decode(), int(applied_ms or 0)) if version else StoredPolicy()

    async def switch(
        self, document: str, *, version: int, expected: int | Literal["lost"], source: str, came_ms: int = 0
    ) -> tuple[bool, int]:
        """Put a document in force if the version in force is the expected one; returns whether it is, and the version.

        Args:
            document: the policy, with its version.
            version: that it gets.
            expected: the version that must be in force, 0 for none; ``"lost"`` for any older one: Redis lost this one.
            source: where it came from, for people.
            came_ms: when a lost one had come into force.
        """
        reply = await call(
            self._server, "policy", (self._key,), expected=expected, version=version, document=document,
            source=source, came_ms=came_ms,
        )  # fmt: skip
        return reply[0] == b"OK", int(reply[1])
