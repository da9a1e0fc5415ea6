"""Every way to lose a master, with work going on: nothing is lost untold, and what it cost is measured.

With HEADGATE_FAULT_FIGURES=<file> each run appends its figures to it, a line of JSON.
"""

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, Self

import pytest
from redis.crc import key_slot

import headgate
from headgate.redis.keys import Address
from headgate_coordinator.security.acl import acl_line
from tests.faults.deployments import (
    Replicated,
    Watched,
    hand_over,
    is_master,
    move_slot,
    replicated,
    watched,
)
from tests.faults.traffic import GUARD, Holder, Inside, Receiver, Sender
from tests.support.servers import available_servers
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]
TTL: Final = 5.0
SEEDS: Final = range(5)
LIMIT: Final = 8
NAMES: Final = ("orders", "door", "llm")


@dataclass
class Work:
    """A sender, a receiver and holders of a gate and of a limiter, of two services, at one deployment.

    In a cluster it is the master of ``hit`` that is lost.
    """

    url: str
    told: list[headgate.StateLoss] = field(default_factory=list)
    hit: str = "orders"
    inside: Inside = field(default_factory=Inside)
    limited: Inside = field(default_factory=Inside)
    holders: list[Holder] = field(default_factory=list)
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    began: float | None = None
    granted: float | None = None

    async def __aenter__(self) -> Self:
        enter = self.stack.enter_async_context
        self.clients = [await enter(headgate.connect(self.url, namespace="shop")) for _ in range(2)]
        await self.clients[0].apply("orders", kind="queue", limit="1 MiB")
        await self.clients[0].apply("door", kind="gate", limit=LIMIT)
        await self.clients[0].apply("llm", kind="limiter", limits={"slots": {"at_once": LIMIT}})
        for number, client in enumerate(self.clients):
            client.on_state_loss(self.told.append)
            session = await enter(client.session(f"s{number}", ttl=TTL))
            gate = await session.gate("door")
            limiter = await session.limiter("llm")
            slots = SimpleNamespace(admit=partial(limiter.admit, slots=1))
            self.holders += [await enter(Holder(gate, self.inside)) for _ in range(LIMIT)]
            self.holders += [await enter(Holder(slots, self.limited)) for _ in range(LIMIT)]
            if number:
                self.receiver = await enter(Receiver(await session.consumer("orders")))
            else:
                self.sender = await enter(Sender(await session.producer("orders")))
        await self.go_on()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stack.aclose()

    async def go_on(self) -> None:
        """Wait until there are sends, receives and admissions that begin from now on."""
        await asyncio.gather(*(worker.goes_on() for worker in (self.sender, self.receiver, *self.holders)))

    async def goes_on_at(self, serves: Callable[[], bool]) -> None:
        """Wait until another server is in charge, and note how long the next send and the first grant take then."""
        await wait_until(serves, timeout=GUARD, description="another server is in charge")
        start = time.monotonic()
        granted = asyncio.create_task(self.is_granted())
        await self.sender.goes_on(more=1)
        self.began = round(time.monotonic() - start, 2)
        async with asyncio.timeout(GUARD):
            await granted
        self.granted = round(time.monotonic() - start, 2)

    async def is_granted(self) -> None:
        """Send with a session that holds nothing: it is granted something new once the others have claimed."""
        while True:
            with suppress(headgate.CreditTimeout, headgate.CoordinatorUnavailable):
                async with self.clients[0].session("new", ttl=TTL) as session:
                    await (await session.producer("orders")).send("0", timeout=GUARD)
                    return
            await asyncio.sleep(0.01)

    def slot(self, name: str) -> int:
        slot: int = key_slot(Address.of("shop", name).key.encode())
        return slot

    async def ends(self, name: str) -> dict[str, Any]:
        """Wait until all that is there was received; returns the figures."""
        await self.go_on()
        await self.sender.end()

        async def drained() -> bool:
            with suppress(headgate.CoordinatorUnavailable):
                return (await self.clients[1].recount("orders")).stored[1] == 0
            return False

        await wait_until(drained, timeout=GUARD, description="all was received")
        lost = set(self.sender.sent) - set(self.receiver.got)
        seen = list(dict.fromkeys(self.receiver.got))
        figures: dict[str, Any] = {
            "scenario": name, "sent": len(self.sender.sent), "lost": len(lost),
            "told": sum(loss.lost for loss in self.told if loss.destination == "orders"), "epochs": len(self.told),
            "again": len(self.receiver.got) - len(seen), "in_order": seen == sorted(seen), "gate": self.inside.most,
            "hit": self.hit, "limiter": self.limited.most,
            "without_sends_s": round(self.sender.stood, 2), "without_deliveries_s": round(self.receiver.stood, 2),
            "first_send_at_new_master_s": self.began, "first_grant_at_new_master_s": self.granted,
            "without_admissions_s": round(max(holder.stood for holder in self.holders), 2),
        }  # fmt: skip
        if path := os.environ.get("HEADGATE_FAULT_FIGURES"):
            await asyncio.to_thread(append, Path(path), json.dumps(figures))
        assert figures["lost"] <= figures["told"], figures
        assert figures["gate"] <= LIMIT, figures
        assert figures["limiter"] <= LIMIT, figures
        return figures


def append(path: Path, line: str) -> None:
    with path.open("a") as file:
        file.write(f"{line}\n")


async def planned(cluster: Replicated, work: Work) -> None:
    for master, replica in {cluster.pair_of(work.slot(name)) for name in NAMES}:
        await hand_over(master, replica)


async def slots_move(cluster: Replicated, work: Work) -> None:
    for slot in {work.slot(name) for name in NAMES}:
        source, _ = cluster.pair_of(slot)
        target, *others = [node for node in cluster.masters if node is not source]
        await asyncio.to_thread(move_slot, slot, source, target, *others)


async def killed(cluster: Replicated, work: Work) -> None:
    master, replica = cluster.pair_of(work.slot(work.hit))
    master.kill9()
    await work.goes_on_at(lambda: is_master(replica))


async def hangs(cluster: Replicated, work: Work) -> None:
    master, replica = cluster.pair_of(work.slot(work.hit))
    master.sigstop()
    try:
        await work.goes_on_at(lambda: is_master(replica))
        await work.go_on()
    finally:
        master.sigcont()


async def there_and_back(cluster: Replicated, work: Work) -> None:
    """A -> B as asked for, then B dies and A is back."""
    master, replica = cluster.pair_of(work.slot(work.hit))
    await hand_over(master, replica)
    await work.go_on()
    replica.kill9()
    await work.goes_on_at(lambda: is_master(master))


async def watched_killed(deployment: Watched, work: Work) -> None:
    before = deployment.master
    before.kill9()
    await work.goes_on_at(lambda: deployment.master is not before)


async def watched_hangs(deployment: Watched, work: Work) -> None:
    before = deployment.master
    before.sigstop()
    try:
        await work.goes_on_at(lambda: deployment.master is not before)
        await work.go_on()
    finally:
        before.sigcont()


async def replaced(deployment: Watched, work: Work) -> None:
    """The Sentinels put another in charge although the master lives, and goes on being one for seconds."""
    before = deployment.master
    deployment.fail_over()
    await work.goes_on_at(lambda: deployment.master is not before)
    await wait_until(lambda: not is_master(before), timeout=GUARD, description="it was demoted")


async def none(deployment: Any, work: Work) -> None:
    """What the machine itself costs."""


LOSSLESS: Final = {"planned", "slots_move", "none"}
"""Nothing is lost, nothing comes again, all is in order. Where a machine is busy, an epoch may begin all the same."""


def judged(name: str, figures: dict[str, Any]) -> None:
    if name in LOSSLESS:
        assert (figures["lost"], figures["again"], figures["in_order"]) == (0, 0, True), figures


@pytest.mark.one_server
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("fault", [none, planned, slots_move, killed, hangs, there_and_back], ids=lambda f: f.__name__)
async def test_a_cluster_through_each_fault(fault: Callable[[Replicated, Work], Awaitable[None]], seed: int) -> None:
    with replicated() as cluster:
        async with Work(cluster.url, hit=NAMES[seed % 2]) as work:
            await fault(cluster, work)
            judged(fault.__name__, await work.ends(f"cluster {fault.__name__} {seed}"))


@pytest.mark.one_server
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("fault", [none, watched_killed, watched_hangs, replaced], ids=lambda f: f.__name__)
async def test_sentinels_through_each_fault(fault: Callable[[Watched, Work], Awaitable[None]], seed: int) -> None:
    with watched() as deployment:
        async with Work(deployment.url) as work:
            await fault(deployment, work)
            judged(fault.__name__, await work.ends(f"sentinels {fault.__name__} {seed}"))


@pytest.mark.parametrize("binary", available_servers(), ids=lambda binary: binary.name)
async def test_sentinels_of_each_version_with_users(binary: Any) -> None:
    """The service is a user with the ACL of its role and no more; Redis 6.2 where there is one."""
    line = acl_line("sdk", "shop", password="secret").removeprefix("user ")
    with watched(binary, user=line) as deployment:
        url = deployment.url.replace("://", "://hg-shop-sdk:secret@")
        async with Work(url) as work:
            await watched_killed(deployment, work)
            await work.ends(f"sentinels with users killed {binary.name}")
