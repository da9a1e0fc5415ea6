"""Traps that the linter knows, walked into: under the first document something stalls, under its twin it does not."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final

import pytest

import headgate
from headgate import MessageTooLarge
from headgate.policy import loads
from headgate_coordinator.links.supervisor import Supervisor
from headgate_coordinator.policy.lint import Setup, lint
from tests.sdk.observing import GUARD, field, goes, waiting
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server
PATIENCE: Final = 0.4
"""Seconds after which a send that was seen in line has stalled, and a receipt that is to stall."""
RULE: Final = '[[destination]]\nmatch = "orders"\n'
POOL: Final = '[[pool]]\nname = "memory"\nlimit = "10KB"\n'
BILLS: Final = '[[destination]]\nmatch = "bills"\n'


@dataclass(frozen=True)
class Stage:
    """A session that sends, one that receives, and whether the document is the one that lays the trap."""

    client: headgate.Client
    out: headgate.Session
    into: headgate.Session
    bad: bool

    async def goes(self, producer: headgate.Producer, size: int, *, stalls: bool = True) -> bool:
        """Send. What should go gets all the time there is, though it stands in line for a while."""
        try:
            return await goes(self.client, producer, b"x" * size, patience=PATIENCE if stalls else GUARD)
        except MessageTooLarge:
            return False

    async def fill(self, name: str) -> headgate.Producer:
        producer = await self.out.producer(name, window=1000)
        for _ in range(12):
            if not await self.goes(producer, 900):
                break
        return producer

    async def grows(self, count: int) -> bool:
        """Tell whether so many go, as where the trap is they do."""
        producer = await self.out.producer("orders", window=1000)
        for _ in range(count):
            if not await self.goes(producer, 900, stalls=not self.bad):
                return False
        return True

    async def comes(self, consumer: headgate.Consumer) -> bool:
        return await consumer.receive(timeout=PATIENCE if self.bad else GUARD) is not None


Scene = Callable[[Stage], Awaitable[bool]]


async def others_starve(on: Stage) -> bool:
    """One takes all that its window lets it, and settles nothing: what it has begun goes to nobody else."""
    greedy = await on.into.consumer("orders")
    await on.fill("orders")
    while await greedy.receive(timeout=PATIENCE):
        pass
    return not await on.comes(await on.into.consumer("orders"))


async def waits_though_half_is_free(on: Stage) -> bool:
    producer = await on.fill("orders")
    consumer = await on.into.consumer("orders", window=10)
    for _ in range(5):
        message = await consumer.receive(timeout=GUARD)
        assert message is not None
        await message.accept(confirm=True)
    return not await on.goes(producer, 900, stalls=on.bad)


async def waits_below_its_own_limit(on: Stage) -> bool:
    await on.fill("orders")
    return not await on.goes(await on.out.producer("bills", window=1000), 900, stalls=on.bad)


async def grows_beyond_its_limit(on: Stage) -> bool:
    return await on.grows(15)


async def who_rejects_waits(on: Stage) -> bool:
    await on.fill("bills")
    producer = await on.out.producer("orders")
    consumer = await on.into.consumer("orders", window=1)
    for body in ("bad", "good"):
        await producer.send(body)
    message = await consumer.receive(timeout=GUARD)
    assert message is not None
    await message.reject("it is bad")
    return not await on.comes(consumer)


async def the_large_one_never_goes(on: Stage) -> bool:
    return not await on.goes(await on.out.producer("orders", window=1000), 15_000, stalls=on.bad)


async def nothing_goes(on: Stage) -> bool:
    return not await on.goes(await on.out.producer("orders", window=1000), 900, stalls=on.bad)


async def grows_while_the_target_is_full(on: Stage) -> bool:
    return await on.grows(40)


async def stops_with_room_in_the_store(on: Stage) -> bool:
    producer = await on.out.producer("orders")
    sending = [asyncio.ensure_future(producer.send(b"x" * 900, timeout=2 * GUARD)) for _ in range(500)]

    async def decided() -> bool:
        return all(one.done() for one in sending) or await waiting(on.client, "orders")

    await wait_until(decided, timeout=GUARD)
    went, stalled = await asyncio.wait(sending, timeout=PATIENCE if on.bad else GUARD)
    for one in stalled:
        one.cancel()
    await asyncio.wait(sending)
    assert all(one.exception() is None for one in went)
    return bool(stalled)


SPOOLS: Final = 'when_full = "spool"\nstore = "disk"\n[[store]]\nname = "disk"\nurl = "memory://lint"\nlimit = "1MB"\n'
LIMIT: Final = RULE + 'limit = "10KB"\n'
SHARED: Final = RULE + 'limit = "{0}"\npools = ["memory"]\n' + BILLS + 'limit = "{0}"\npools = ["memory"]\n' + POOL
DEAD: Final = RULE + 'dead_letter = "bills"\n' + BILLS + 'limit = "10KB"\n'
BRIDGED: Final = BILLS + 'limit = "10KB"\n[[bridge]]\nname = "b"\nfrom = "orders"\nto = "bills"\n'
TRAPS: Final[dict[str, tuple[Scene, str, str]]] = {
    "HG101": (
        others_starve,
        LIMIT + "consumer = { window = 'unlimited' }",
        LIMIT + 'consumer = { window = { bytes = "2KB" } }',
    ),
    "HG102": (waits_though_half_is_free, LIMIT + 'resume_at = "2%"', LIMIT + 'resume_at = "80%"'),
    "HG107": (waits_below_its_own_limit, SHARED.format("10KB"), SHARED.format("5KB")),
    "HG108": (grows_beyond_its_limit, LIMIT + 'enforce = "off"', LIMIT),
    "HG109": (who_rejects_waits, DEAD, DEAD + 'when_full = "drop"\n'),
    "HG113": (the_large_one_never_goes, LIMIT, LIMIT + 'oversize = "allow-one"'),
    "HG115": (grows_while_the_target_is_full, BRIDGED, LIMIT + BRIDGED),
    "HG117": (stops_with_room_in_the_store, LIMIT + 'limit_references = "10KB"\n' + SPOOLS, LIMIT + SPOOLS),
    "HG114": (nothing_goes, RULE + 'pools = ["memory"]', RULE + 'pools = ["memory"]\n' + POOL),
}
KNOWN: Final = {"HG113": Setup(largest=15_000), "HG117": Setup(mean=900)}


@pytest.fixture
def url(one_url: str) -> str:
    """A single server: traps are the same on a cluster."""
    return one_url


@pytest.mark.parametrize("trap", TRAPS)
@pytest.mark.parametrize("fixed", [False, True], ids=["walked into", "its twin"])
async def test_a_trap(client: headgate.Client, other: headgate.Client, trap: str, fixed: bool) -> None:
    scene, bad, good = TRAPS[trap]
    policy = loads(good if fixed else bad)
    found = {finding.code for finding in lint(policy, KNOWN.get(trap))}
    assert (trap in found) != fixed
    await client.apply_policy(policy)
    async with AsyncExitStack() as stack:
        out = await stack.enter_async_context(client.session("out"))
        into = await stack.enter_async_context(other.session("in"))
        supervisor = Supervisor(client, "node~00000001", ttl=2)  # forwards what the policy says
        await supervisor.start()
        stack.push_async_callback(supervisor.close)
        async with asyncio.timeout(60):
            assert await scene(Stage(client, out, into, bad=not fixed)) != fixed
    if trap == "HG108" and not fixed:
        assert await field(client, "orders", "pending_bytes") > 10_000


@pytest.mark.parametrize("document", [RULE + SPOOLS, LIMIT + SPOOLS], ids=["walked into", "its twin"])
async def test_without_a_limit_nothing_is_spooled(client: headgate.Client, document: str) -> None:
    policy = loads(document)
    trapped = "HG116" in {finding.code for finding in lint(policy)}
    await client.apply_policy(policy)
    async with client.session("out") as out:
        producer = await out.producer("orders", window=1000)
        assert all([await goes(client, producer, b"x" * 900, patience=GUARD) for _ in range(15)])
        assert (await field(client, "orders", "pending_bytes") > 10_000) == trapped
        assert ((await client.stores())[0].segments == 0) == trapped
