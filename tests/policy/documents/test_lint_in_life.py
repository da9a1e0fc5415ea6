"""Traps that the linter knows, walked into: under the first document something stalls, under its twin it does not."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Final

import pytest

import headgate
from headgate import CreditTimeout, MessageTooLarge
from headgate.policy import loads
from headgate_coordinator.links.supervisor import Supervisor
from headgate_coordinator.policy.lint import Known, lint
from tests.sdk.observing import GUARD, field

pytestmark = pytest.mark.one_server
PATIENCE: Final = 0.7
"""Seconds after which a send or a receipt has stalled; what does not stall takes some milliseconds."""
RULE: Final = '[[destination]]\nmatch = "orders"\n'
POOL: Final = '[[pool]]\nname = "memory"\nlimit = "10KB"\n'
BILLS: Final = '[[destination]]\nmatch = "bills"\n'
Scene = Callable[[headgate.Session, headgate.Session], Awaitable[bool]]


async def goes(producer: headgate.Producer, size: int) -> bool:
    try:
        await producer.send(b"x" * size, timeout=PATIENCE)
    except (CreditTimeout, MessageTooLarge):
        return False
    return True


async def fill(session: headgate.Session, name: str, size: int = 900) -> headgate.Producer:
    producer = await session.producer(name, window=1000)
    for _ in range(12):
        if not await goes(producer, size):
            break
    return producer


async def others_starve(out: headgate.Session, into: headgate.Session) -> bool:
    """One takes all that its window lets it, and settles nothing: what it has begun goes to nobody else."""
    greedy = await into.consumer("orders")
    await fill(out, "orders")
    while await greedy.receive(timeout=PATIENCE):
        pass
    return await (await into.consumer("orders")).receive(timeout=PATIENCE) is None


async def waits_though_half_is_free(out: headgate.Session, into: headgate.Session) -> bool:
    producer = await fill(out, "orders")
    consumer = await into.consumer("orders", window=10)
    for _ in range(5):
        message = await consumer.receive(timeout=GUARD)
        assert message is not None
        await message.accept(confirm=True)
    return not await goes(producer, 900)


async def waits_below_its_own_limit(out: headgate.Session, into: headgate.Session) -> bool:
    del into
    await fill(out, "orders")
    return not await goes(await out.producer("bills", window=1000), 900)


async def grows_beyond_its_limit(out: headgate.Session, into: headgate.Session) -> bool:
    del into
    producer = await out.producer("orders", window=1000)
    return all([await goes(producer, 900) for _ in range(15)])


async def who_rejects_waits(out: headgate.Session, into: headgate.Session) -> bool:
    await fill(out, "bills")
    producer = await out.producer("orders")
    consumer = await into.consumer("orders", window=1)
    for body in ("bad", "good"):
        await producer.send(body)
    message = await consumer.receive(timeout=GUARD)
    assert message is not None
    await message.reject("it is bad")
    return await consumer.receive(timeout=PATIENCE) is None


async def the_large_one_never_goes(out: headgate.Session, into: headgate.Session) -> bool:
    del into
    return not await goes(await out.producer("orders", window=1000), 15_000)


async def nothing_goes(out: headgate.Session, into: headgate.Session) -> bool:
    del into
    return not await goes(await out.producer("orders", window=1000), 900)


async def grows_while_the_target_is_full(out: headgate.Session, into: headgate.Session) -> bool:
    del into
    producer = await out.producer("orders", window=1000)
    return all([await goes(producer, 900) for _ in range(40)])


async def stops_with_room_in_the_store(out: headgate.Session, into: headgate.Session) -> bool:
    del into
    producer = await out.producer("orders")
    return not all(await asyncio.gather(*(goes(producer, 900) for _ in range(500))))


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
KNOWN: Final = {"HG113": Known(largest=15_000), "HG117": Known(mean=900)}


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
            assert await scene(out, into) != fixed
    if trap == "HG108" and not fixed:
        assert await field(client, "orders", "pending_bytes") > 10_000


@pytest.mark.parametrize("document", [RULE + SPOOLS, LIMIT + SPOOLS], ids=["walked into", "its twin"])
async def test_without_a_limit_nothing_is_spooled(client: headgate.Client, document: str) -> None:
    policy = loads(document)
    trapped = "HG116" in {finding.code for finding in lint(policy)}
    await client.apply_policy(policy)
    async with client.session("out") as out:
        producer = await out.producer("orders", window=1000)
        assert all([await goes(producer, 900) for _ in range(15)])
        assert (await field(client, "orders", "pending_bytes") > 10_000) == trapped
        assert ((await client.stores())[0].segments == 0) == trapped
