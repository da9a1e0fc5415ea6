"""Bands, orders, priorities, retries and shadow limits go on and off by a policy while some wait and some are held."""

import asyncio
from typing import Final

import pytest

import headgate
from headgate.policy import loads
from tests.policy.live import settles
from tests.sdk.observing import GUARD, counts
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server

AS_THEY_CAME: Final = ["first", "batch", "usual", "late batch", "hurried", "last"]
LIMITER: Final[dict[str, tuple[str, list[str] | None]]] = {
    "bands": ('[limiter.band]\n"batch-*" = 6', ["first", "batch", "usual", "hurried", "last", "late batch"]),
    "aging": ("aging = 60", AS_THEY_CAME),
    "order": ('order = "deadline"', None),
    "reserve": ("reserve = { 3 = 0.5 }", AS_THEY_CAME),
    "shed": ("shed = { 6 = 0.5 }", AS_THEY_CAME),
    "fail if late": ("fail_if_late = true", AS_THEY_CAME),
    "shadow": ('[[limiter.limit]]\nname = "slots"\nat_once = 1\nenforce = "shadow"', AS_THEY_CAME),
}
"""What is switched on, and who goes in which order; None where moments decide."""


@pytest.mark.parametrize("switch", LIMITER)
async def test_at_a_limiter(switch: str, client: headgate.Client, other: headgate.Client) -> None:
    rule, expected = LIMITER[switch]
    without = '[[limiter]]\nmatch = "llm"\n[[limiter.limit]]\nname = "slots"\nat_once = 2\n'
    with_it = (
        f"{without}{rule}\n" if rule[0] == "[" else without.replace("[[limiter.limit]]", f"{rule}\n[[limiter.limit]]")
    )
    await client.apply_policy(loads(without))
    limiter = await client.session("s").limiter("llm", in_hand=False)
    order, calls = list[str](), list[asyncio.Task[None]]()

    async def call(name: str, key: str, band: int | None, timeout: float) -> None:
        async with limiter.admit(slots=2, key=key, band=band, timeout=timeout):
            order.append(name)

    async def all_wait() -> bool:
        return (await limiter.state()).waiting == len(calls)

    async def wait(name: str, key: str, band: int | None = None, timeout: float = GUARD) -> None:
        calls.append(asyncio.create_task(call(name, key, band, timeout)))
        await wait_until(all_wait)

    async with limiter.admit(slots=2):
        await wait("batch", "batch-1")
        await wait("usual", "x")
        await wait("first", "z", band=0)
        await other.apply_policy(loads(with_it))
        await settles(client, "llm", policy_version="2")
        await wait("late batch", "batch-2")
        await wait("hurried", "y", timeout=GUARD - 5)
        await other.apply_policy(loads(without))
        await settles(client, "llm", policy_version="3")
        await wait("last", "w")
    await asyncio.gather(*calls)
    assert sorted(order) == sorted(AS_THEY_CAME)
    assert expected in (None, order)
    assert (await limiter.state()).waiting == 0


QUEUE: Final = {
    "priority": 'fair_by = "priority"',
    "window": 'fair_by = "priority"\nmax_overtaken = 16',
    "retry": 'retry = { delay = "20ms", factor = 2 }',
    "shadow": 'limit.messages = 2\nenforce = "shadow"',
}


@pytest.mark.parametrize("switch", QUEUE)
async def test_at_a_queue(switch: str, client: headgate.Client, other: headgate.Client) -> None:
    """Of what is held, waits in line and waits for its time at each switch, each is delivered, and accepted once."""
    policy = '[[destination]]\nmatch = "orders"\n{}\n'
    await client.apply_policy(loads(policy.format("max_attempts = 9")))
    sent, got = list[str](), list[str]()
    async with client.session("s") as session:
        producer, holder = await session.producer("orders"), await session.consumer("orders", window=3)

        async def send() -> None:
            for priority in (1, 4, 9):
                for delay in (0, 0.05):
                    sent.append(f"{len(sent)}-{priority}")
                    await producer.send(sent[-1], priority=priority, delay=delay, timeout=GUARD)

        async def take() -> headgate.Message:
            message = await holder.receive(timeout=GUARD)
            assert message is not None
            return message

        await send()
        for version, rule in ((2, QUEUE[switch]), (3, ""), (4, QUEUE[switch]), (5, "")):
            held = [await take() for _ in range(3)]
            await other.apply_policy(loads(policy.format(f"{rule}\nmax_attempts = 9")))
            await settles(client, "orders", policy_version=str(version))
            await send()
            await held[0].modify()
            await held[1].release()
            await held[2].accept(confirm=True)
            got.append(str(held[2].body))
        while len(got) < len(sent):
            message = await take()
            got.append(str(message.body))
            await message.accept(confirm=True)
    assert sorted(got) == sorted(sent)
    assert await counts(client, "orders") == (0, 0)
