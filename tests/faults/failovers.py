"""Ways in which a replica takes a master's place at an address, after something was done that may be lost with it."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
import redis

from headgate.redis.keys import Address
from headgate_coordinator.security.acl import Role, acl_line
from headgate_pipeline.audit.findings import Finding
from tests.faults.deployments import ask, at, is_linked, is_master
from tests.faults.traffic import GUARD
from tests.links.forwarding.test_failovers import Pair
from tests.support.audited import audit
from tests.support.servers import RedisServer
from tests.support.waiting import wait_until

Work = Callable[[], Awaitable[None]]


def put_in_front(pair: Pair, server: RedisServer) -> None:
    """Have a server answer at the address of a pair."""
    pair.proxy._upstream = urlsplit(server.url)
    pair.proxy.reset()


async def hand_over(pair: Pair, before: RedisServer, after: RedisServer) -> None:
    """Have one server of a pair hand over to the other, as asked for."""
    await wait_until(partial(is_linked, after), timeout=GUARD)
    ask(before, "FAILOVER", "TO", *at(after))
    await wait_until(lambda: is_master(after) and is_linked(before), timeout=GUARD)
    put_in_front(pair, after)


async def hands_over(pair: Pair, work: Work) -> None:
    """A handover that was asked for: nothing is lost."""
    await work()
    await hand_over(pair, pair.primary, pair.replica)


async def dies(pair: Pair, work: Work) -> None:
    """The master dies, and its replica has heard nothing of the work."""
    pair.part()
    await work()
    pair.fail_over()


async def comes_back(pair: Pair, work: Work) -> None:
    """A -> B -> A: A handed over to B, and is in charge again without having heard of the work at B."""
    await hand_over(pair, pair.primary, pair.replica)
    ask(pair.primary, "REPLICAOF", "NO", "ONE")
    await work()
    put_in_front(pair, pair.primary)


each_failover: Final = pytest.mark.parametrize(
    "fault",
    [dies, *(pytest.param(fault, marks=pytest.mark.soak) for fault in (hands_over, comes_back))],
    ids=lambda fault: fault.__name__,
)
"""Runs a test with each; `make test` with the one that loses most."""


def as_user(pair: Pair, namespace: str, role: Role, *, functions: bool = False) -> str:
    """Return the URL of a pair for a user that has the rights of a role, perhaps those on functions, and no more."""
    line = acl_line(role, namespace, password="secret", functions=functions)
    _, name, *rules = line.split()
    for server in (pair.primary, pair.replica):
        ask(server, "ACL", "SETUSER", name, *rules)
    return pair.proxy.url.replace("://", f"://{name}:secret@")


def ledger_of(url: str, namespace: str, name: str) -> list[tuple[bytes, Any]]:
    """Return all entries of a destination's ledger."""
    with redis.Redis.from_url(url) as server:
        found: Any = server.xrange(Address.of(namespace, name).shared[-1])
    return [(number, *fields.items()) for number, fields in found]


def violated(pair: Pair, namespace: str, *names: str) -> list[Finding]:
    """Return what the ledgers break that the server in charge has."""
    url = pair.proxy._upstream.geturl()
    return [found for name in names for found in audit(ledger_of(url, namespace, name))]
