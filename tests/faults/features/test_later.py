"""Messages for later and retries with a delay, over failovers and deaths: none before its time, and none forgotten."""

import asyncio
import os
import random
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

import headgate
from headgate.redis.keys import Address
from tests.faults.failovers import as_user, each_failover, hands_over, ledger_of, violated
from tests.faults.features import delaying
from tests.faults.traffic import GUARD
from tests.links.forwarding.test_failovers import Pair
from tests.support.audited import audit
from tests.support.forked import PIPE, Forked
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server
TTL: Final = 2.0
RETRY: Final = 0.2


@each_failover
async def test_what_waits_for_its_time_waits_over_a_failover(
    pair: Pair, cleanup_namespace: str, fault: Callable[..., Any]
) -> None:
    """All servers have one clock here. What failed at a master that is lost comes again untried."""
    told: list[headgate.StateLoss] = []
    due: dict[str, float] = {}
    got: dict[str, list[int]] = {}
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        await enter(pair.proxy)
        admin = await enter(headgate.connect(pair.proxy.url, namespace=cleanup_namespace))
        await admin.apply("jobs", kind="queue", retry_delay=RETRY, max_attempts=5, dead_letter="dead")
        url = as_user(pair, cleanup_namespace, "sdk")
        client = await enter(headgate.connect(url, namespace=cleanup_namespace))
        client.on_state_loss(told.append)
        session = await enter(client.session(ttl=TTL))
        producer, consumer = await session.producer("jobs"), await session.consumer("jobs", window=8)
        lossless = fault is hands_over

        async def send(*names: str, delay: float) -> None:
            for name in names:
                due[name] = time.time() + delay
                await producer.send(name, delay=delay, timeout=GUARD)

        async def drain() -> None:
            async for message in consumer:
                name, now = str(message.body), time.time()
                assert now >= due[name], name
                got.setdefault(name, []).append(message.delivery_count)
                if message.delivery_count == 0 and "fails" in name:
                    due[name] = now + RETRY if lossless else 0
                    await message.modify()
                else:
                    await message.accept()

        await send("far", "far fails", delay=3)
        await send("near", "near fails", delay=0.05)
        task = asyncio.create_task(drain())
        await wait_until(lambda: {"near", "near fails"} <= set(got), timeout=GUARD)

        async def work() -> None:
            await send("new", "new fails", delay=3.5)
            await send("now", "now fails", delay=0)
            await wait_until(lambda: {"now", "now fails"} <= set(got), timeout=GUARD)

        await fault(pair, work)
        kept = {"far", "far fails"} if not lossless else {"far", "far fails", "new", "new fails"}
        await send("after", "after fails", delay=0.1)
        kept |= {"after", "after fails"}
        await wait_until(lambda: kept <= set(got), timeout=GUARD, description="all that is kept comes")

        async def empty() -> bool:
            return (await client.recount("jobs")).stored[1] == 0

        await wait_until(empty, timeout=GUARD, description="nothing is left")
        task.cancel()
        assert (await client.recount("jobs")).equal
        for name in kept:
            assert got[name] == ([0, 1] if "fails" in name else [0]), (name, got)
        assert violated(pair, cleanup_namespace, "jobs") == []
        assert (sum(loss.lost for loss in told if loss.destination == "jobs") > 0) == (not lossless)


@pytest.mark.parametrize(
    ("seed", "kills"), [(1, 3), *(pytest.param(seed, 12, marks=pytest.mark.soak) for seed in range(2, 7))]
)
async def test_processes_that_are_killed_have_none_delivered_early_and_none_forgotten(
    redis_url: str, cleanup_namespace: str, tmp_path: Path, seed: int, kills: int
) -> None:
    """Judges are what they wrote down by Redis' clock, and the ledger."""
    dice, path = random.Random(seed), tmp_path / "witness"
    started = 0
    with ExitStack() as stack:

        async def start() -> Forked:
            nonlocal started
            started += 1
            arguments = (delaying.__name__, redis_url, cleanup_namespace, str(path), f"{seed}/{started}", str(TTL / 2))
            process = stack.enter_context(Forked(*arguments, environment=os.environ, stdin=PIPE, stdout=PIPE))
            stack.callback(process.kill)
            assert process.stdout is not None
            assert (await asyncio.to_thread(process.stdout.readline)).split() == ["ready"]
            return process

        async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
            await client.apply(
                "jobs", kind="queue", retry_delay=RETRY, retry_factor=2, retry_max=1, ledger_keep=10_000_000
            )
            processes = [await start() for _ in range(3)]
            for _ in range(kills):
                await asyncio.sleep(dice.random() * 0.6)
                number = dice.randrange(len(processes))
                processes[number].kill()
                processes[number] = await start()
            for process in processes:
                assert process.stdin is not None
                process.stdin.close()

            async def empty() -> bool:
                await client.store.reap(Address.of(client.namespace, "jobs"))
                return (await client.recount("jobs")).stored[1] == 0

            await wait_until(empty, timeout=GUARD, description="nothing is left")
            assert (await client.recount("jobs")).equal
    due: dict[str, int] = {}
    sent, got = set[str](), set[str]()
    for line in path.read_text().splitlines():
        what, name, *moment = line.split()
        if what == "due":
            due[name] = max(int(moment[0]), due.get(name, 0))
        elif what == "got":
            assert int(moment[0]) >= due[name], line
            got.add(name)
        else:
            sent |= {name} if what == "sent" else set()
    assert sent <= got
    assert len(sent) > kills
    assert audit(ledger_of(redis_url, cleanup_namespace, "jobs")) == []
