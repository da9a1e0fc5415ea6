"""The ledgers that tests leave, audited before they are deleted: whatever a test is about, promises hold in it."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any
from unittest.mock import patch

import redis

from headgate.redis.keys import Address
from headgate.redis.store import Store
from headgate_pipeline.audit.findings import Finding
from headgate_pipeline.audit.replay import Replay
from tests.support import leaks
from tests.support.rewriting import RewritingServer
from tests.support.servers import RedisServer

Entries = list[tuple[bytes, Any]]


def audit(entries: Entries) -> list[Finding]:
    """Return what is violated in a ledger, given as XRANGE answers."""
    replay = Replay()
    for entry_id, (_, text) in entries:
        part = text.decode().split(",")
        replay.step((
            int(entry_id.partition(b"-")[0]), int(part[1]), part[2], part[3], *map(int, part[4:7]), part[7],
            *map(int, part[8:]), int(part[0]), None,
        ))  # fmt: skip
    return [found for found in replay.finish() if found.finding == "violated"]


@contextmanager
def collected() -> Iterator[list[tuple[str, Entries]]]:
    """Collect every ledger as it is deleted, with its key: by a client of this process, by a fixture, with a server."""
    found: list[tuple[str, Entries]] = []
    remove, forget, stop = Store.remove, RewritingServer.forget, RedisServer.stop

    def look(client: Any, key: bytes) -> None:
        if key.endswith(b":ledger"):
            found.append((key.decode(), [(number, *fields.items()) for number, fields in client.xrange(key)]))

    async def ask(server: Any, address: Address) -> None:
        command = getattr(server, "command", None)
        if command is not None:  # else the server is a node, which does it
            key = address.shared[-1]
            with suppress(redis.RedisError, OSError):
                found.append((key.decode(), await command(key, "XRANGE", key, "-", "+")))

    async def removed(self: Store, address: Address, *, everything: bool) -> tuple[int, int]:
        if everything:
            await ask(self.server, address)
        return await remove(self, address, everything=everything)

    async def forgotten(self: RewritingServer, address: Address, *sessions: str) -> None:
        await ask(self, address)
        await forget(self, address, *sessions)

    def stopped(self: RedisServer) -> None:
        with suppress(redis.RedisError), redis.Redis.from_url(self.url, socket_timeout=0.2) as client:
            for key in client.scan_iter(match="hg:*:ledger", count=1000):
                look(client, key)
        stop(self)

    with ExitStack() as stack:
        stack.enter_context(patch.object(Store, "remove", removed))
        stack.enter_context(patch.object(RewritingServer, "forget", forgotten))
        stack.enter_context(patch.object(RedisServer, "stop", stopped))
        stack.enter_context(patch.object(leaks, "before_delete", look))
        yield found


@contextmanager
def audited() -> Iterator[list[str]]:
    """Yield a list of what the ledgers that are deleted in this block break; it is complete when the block ends."""
    said: list[str] = []
    with collected() as found:
        yield said
    for key, entries in found:
        said += [
            f"{key}: {one.promise} {one.what}: expected {one.expected}, found {one.found}\n"
            f"  {one.before}\n> {one.entry}"
            for one in audit(entries)
        ]
