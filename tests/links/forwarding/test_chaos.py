"""Workers of a link die at every moment of every step, under load, with limits at both ends: nothing lost or doubled.

A worker on its own asks for the mark before it commits, and has one commit under way. So the deaths of one at a time do
not show that `link_commit` needs the look at the mark (two at once do, and lost answers in test_outages.py), nor that
it needs the predecessor, which is for commits that overtake each other: `docs/spec/Link.tla` and tests/lua show that.
"""

import itertools
import re
import secrets
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AsyncExitStack, ExitStack

import pytest

import headgate
from headgate.redis.keys import Address
from tests.links.chaos import SOURCE_LIMIT, TARGET_LIMIT, WITHIN, Breeder, Load, at_rest, look
from tests.links.worker_process import LINK, MOMENTS, POISONED, STEPS, Plan
from tests.support.extent import WHOLE, for_long
from tests.support.servers import RedisServer, two_servers
from tests.support.waiting import wait_until

pytestmark = pytest.mark.longest


@pytest.fixture
def servers() -> Iterator[tuple[RedisServer, RedisServer]]:
    """The source's, the newest there is, and the target's, the oldest, which has a replica."""
    newest, oldest = two_servers()
    with ExitStack() as stack:
        source = stack.enter_context(RedisServer.start(newest, persist=False))
        config = {"repl-diskless-sync-delay": "0"}
        target = stack.enter_context(RedisServer.start(oldest, port=0, persist=False, config=config))
        host, _, port = target.url.removeprefix("redis://").partition("/")[0].partition(":")
        stack.enter_context(RedisServer.start(oldest, persist=False, config={"replicaof": f"{host} {port}"}))
        yield source, target


@pytest.fixture
async def ends(
    servers: tuple[RedisServer, RedisServer], namespace: str
) -> AsyncIterator[tuple[headgate.Client, headgate.Client]]:
    source, target = servers
    async with (
        headgate.connect(source.url, namespace=namespace) as here,
        headgate.connect(target.url, namespace=namespace) as there,
    ):
        yield here, there


async def massacre(
    here: headgate.Client,
    there: headgate.Client,
    *,
    kills: int,
    seed: int,
    at_once: int = 1,
    kind: str = "queue",
    poison: int = 0,
) -> None:
    """Kill so many workers under load; so many of them work at once, and then none is fenced."""
    steps = POISONED if poison else STEPS
    await here.apply("orders", kind=kind, limit=SOURCE_LIMIT)
    await here.apply("dead", kind="queue")
    await there.apply("orders", kind="queue", limit=TARGET_LIMIT)
    plans = [
        Plan(
            here.redis_url, there.redis_url, here.namespace, kills // at_once, seed + number,
            steps=steps, fenced=at_once == 1, replicas=1, each_way=True,
        )
        for number in range(at_once)
    ]  # fmt: skip
    async with AsyncExitStack() as stack:
        breeders = [await stack.enter_async_context(Breeder(plan)) for plan in plans]

        async def opened() -> bool:
            return int((await look(here))["consumers"]) == 1

        await wait_until(opened, timeout=80)
        async with Load(here, there, poison=poison) as load:
            for breeder in breeders:

                def done(breeder: Breeder = breeder) -> bool:
                    load.watch()
                    return breeder.lasts.is_set()

                await wait_until(done, timeout=max(kills, WITHIN), description=f"{kills} kills")
            await load.drained()
        await at_rest(here)  # the last one still lets go of what the target has
        for breeder in breeders:
            await breeder.stop()
    census = sum((breeder.census for breeder in breeders), start=type(breeders[0].census)())
    print(f"seed {seed}: {sum(load.sent)} messages, {load.looks} looks, {dict(census)}")
    assert load.numbers() == load.expected(), f"seed {seed}"
    dead = [browsed.body async for browsed in here.browse("dead")]
    assert load.numbers(dead) == load.expected(poison=True), f"seed {seed}"
    assert sum(breeder.kills for breeder in breeders) >= kills
    assert not census["ended", "1"], "no worker failed"
    assert at_once == 1 or not census["ended", "0"], "none was fenced"
    missed = [way for way in itertools.product(steps, MOMENTS) if not census[way]]
    assert not missed, census
    if not poison:  # while messages go to the dead letters the target may never be full
        assert all([int((await look(side))["tickets"]) for side in (here, there)]), "both limits were felt"
    await at_rest(there)


async def test_workers_that_are_killed_lose_and_double_nothing(
    ends: tuple[headgate.Client, headgate.Client],
) -> None:
    """Mutants: a release of what was read, not of what is secured; the credit of an earlier lease that is not freed."""
    await massacre(*ends, kills=100 if WHOLE else 25, seed=1)


@pytest.mark.soak  # test_outages.py has its mutant
async def test_two_workers_at_once_of_which_none_is_fenced_lose_and_double_nothing(
    ends: tuple[headgate.Client, headgate.Client],
) -> None:
    """Mutant: `link_commit` without `seq > mark`."""
    await massacre(*ends, kills=100, seed=2, at_once=2)


@pytest.mark.soak  # as the queue, with a subscription
async def test_a_topic_loses_and_doubles_nothing_either(ends: tuple[headgate.Client, headgate.Client]) -> None:
    await massacre(*ends, kills=100, seed=3, kind="topic")


@pytest.mark.whole
async def test_what_never_fits_goes_to_the_dead_letters_once_whenever_the_worker_dies(
    ends: tuple[headgate.Client, headgate.Client],
) -> None:
    """Mutant: `LinkWorker._copy` under a link id of each worker's own, so that copies have no mark that others find."""
    await massacre(*ends, kills=60 if WHOLE else 30, seed=5, poison=7)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("at_once", "kind"), [(1, "queue"), (2, "queue"), (1, "topic")])
async def test_up_to_a_thousand_workers_that_are_killed_lose_and_double_nothing(
    ends: tuple[headgate.Client, headgate.Client], at_once: int, kind: str
) -> None:
    await massacre(*ends, kills=for_long(1000), seed=secrets.randbelow(1 << 30), at_once=at_once, kind=kind)


def told(ledger: Iterable[str]) -> list[tuple[int, int]]:
    """Return which messages a ledger says that a link lost: after the one number, up to the other."""
    found = (re.search(rf"regressed:{LINK}:(\d+):(\d+)", entry) for entry in ledger)
    return [(int(match[1]), int(match[2])) for match in found if match]


@pytest.mark.whole
async def test_what_a_target_that_restarts_empty_lost_is_told_and_the_rest_goes_on(
    servers: tuple[RedisServer, RedisServer], ends: tuple[headgate.Client, headgate.Client]
) -> None:
    """Once while workers are killed, once while one lives on, who has in hand what comes after what was lost.

    Mutant: a `Forwarder` that goes on from what left the source, and tells nobody (no `lost=True`).
    """
    here, there = ends
    await here.apply("orders", kind="queue", limit=SOURCE_LIMIT)
    await there.apply("orders", kind="queue", limit=TARGET_LIMIT)
    there.parts.registry._ttl_ms = 500  # for which a destination learns that clients made again
    steps = tuple(step for step in STEPS if step != "secure")  # nothing is: replicas are not waited for
    plan = Plan(here.redis_url, there.redis_url, here.namespace, 40 if WHOLE else 20, 4, steps=steps)
    losses: list[tuple[int, int]] = []
    async with Breeder(plan) as breeder, Load(here, there, sent=[0]) as load:

        async def full() -> bool:
            load.watch()
            return int((await look(there))["pending_bytes"]) > TARGET_LIMIT // 2

        async def regressed() -> bool:
            load.watch()
            seen = await there.store.snapshot(Address.of(there.namespace, "orders"), entries=100)
            found = told(seen.ledger) if seen else []
            losses.extend(found)
            return bool(found)

        for last in (False, True):
            if last:
                await breeder.lasts.wait()
            await load.moves(50)
            load.reads.clear()
            await wait_until(full)
            servers[1].restart(empty=True)
            load.reads.set()
            await wait_until(regressed, timeout=80)
            await load.moves(50)
        await load.enough()
        await at_rest(here)
        await at_rest(there)
        came = load.numbers()[0]
    lost = set(range(load.sent[0])) - set(came)
    assert lost, "what was at the target and had not been consumed"
    assert lost <= {seq - 1 for mark, released in losses for seq in range(mark + 1, released + 1)}
    assert sum(later <= one for one, later in itertools.pairwise(came)) <= 2, "in order, and anew after each loss"
