"""Where a namespace keeps its policy."""

from dataclasses import dataclass
from typing import Literal

from headgate.redis.backend import Backend
from headgate.redis.keys import policy_key
from headgate.redis.scripts import script


@dataclass(frozen=True, slots=True)
class StoredPolicy:
    """What Redis has; version 0 and no document where there is none."""

    version: int = 0
    document: str = ""


class PolicyStore:
    """The policy of one namespace, switched whole or not at all."""

    def __init__(self, server: Backend, namespace: str) -> None:
        self._server = server
        self._key = policy_key(namespace).encode()

    async def version(self) -> int:
        """Return the version in force, 0 for none."""
        return int(await self._server.command(self._key, "HGET", self._key, "version") or 0)

    async def read(self) -> StoredPolicy:
        """Return what is in force."""
        version, document = await self._server.command(self._key, "HMGET", self._key, "version", "document")
        return StoredPolicy(int(version), document.decode()) if version else StoredPolicy()

    async def switch(
        self, document: str, *, version: int, expected: int | Literal["lost"], source: str
    ) -> tuple[bool, int]:
        """Put a document in force if the version in force is the expected one; returns whether it is, and the version.

        Args:
            document: the policy, with its version.
            version: that it gets.
            expected: the version that must be in force, 0 for none; ``"lost"`` for any older one: Redis lost this one.
            source: where it came from, for people.
        """
        op = script("policy")
        argv = op.argv({"expected": expected, "version": version, "document": document, "source": source})
        reply = await self._server.call(op, (self._key,), argv)
        return reply[0] == b"OK", int(reply[1])
