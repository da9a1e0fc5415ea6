"""Masters of a queue with slices are killed, with what they wrote last, while senders wait for its rate: it holds."""

import asyncio
import random
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

import pytest

import headgate
from headgate.core.names import slice_name
from headgate.redis.keys import Address
from tests.faults.deployments import Replicated, ask, is_linked, is_master
from tests.faults.test_slices import node_of
from tests.faults.traffic import GUARD
from tests.lua.promises.test_p8_rates import most_beyond
from tests.sdk.workers import Worker
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server
MOST_SLICES, SESSIONS = 9, 3
RATES = {"send": (60, 5), "send_byte": (4000, 400)}
"""What the queue may be sent in a second, and at once."""
Entry = tuple[int, bytes, bytes]


class Arrivals:
    """Arrivals are what the ledgers of all slices ever said, also what a failover has forgotten since."""

    def __init__(self, client: headgate.Client) -> None:
        self._client = client
        self._seen = dict[Entry, None]()

    async def look(self) -> None:
        server = self._client.store.server
        for number in range(MOST_SLICES):
            key = Address.of(self._client.namespace, slice_name("orders", number)).shared[-1]
            with suppress(headgate.CoordinatorUnavailable):  # a master may be away
                for at, (_, text) in await server.command(key, "XRANGE", key, "-", "+"):
                    self._seen[number, at, text] = None

    def rows(self) -> list[list[str]]:
        """Return the entries of what was stored, in the order in which they were seen."""
        rows = [text.decode().split(",") for _, _, text in self._seen]
        return [row for row in rows if row[2] == "publish" and int(row[5]) > 0]

    async def more(self, count: int, sessions: set[str]) -> None:
        """Wait until so many more were stored, and some of each session."""
        await self.look()
        begun = len(self.rows())

        async def came() -> bool:
            await self.look()
            rest = self.rows()[begun:]
            return len(rest) >= count and sessions <= {row[3] for row in rest}

        await wait_until(came, timeout=2 * GUARD, description="all go on to send")

    def beyond(self, kind: str) -> float:
        """Return by how much the fullest window exceeds its bound; an entry tells its millisecond alone."""
        rate, burst = RATES[kind]
        found = [(int(row[1]) * 1000, int(row[5 if kind == "send" else 4])) for row in self.rows()]
        return most_beyond(found, rate, burst) - 0.002 * rate


@pytest.mark.soak  # histories of `rates of a cluster` have it in `make test`
@pytest.mark.parametrize("seed", range(1, 21))
async def test_no_master_that_is_lost_with_its_last_writes_lets_more_pass_than_the_rate(
    cluster: Replicated, cleanup_namespace: str, seed: int
) -> None:
    """Mutant: what a slice sends is not counted as spent."""
    dice, kind = random.Random(seed), ("send_byte", "send")[seed % 2]
    rate, burst = RATES[kind]
    async with headgate.connect(cluster.url, namespace=cleanup_namespace) as client:
        settings: dict[str, Any] = {
            f"{kind}_rate": f"{rate}/s" if kind == "send" else f"{rate}B/s",
            f"{kind}_burst": burst,
        }
        await client.apply("orders", kind="queue", slices=6, **settings)
        arrivals, ids = Arrivals(client), dict[Worker, set[str]]()
        with ExitStack() as stack:

            async def begin(number: int) -> None:
                worker = stack.enter_context(
                    Worker("sliced", cluster.url, client.namespace, "orders", 1, SESSIONS, number)
                )
                ids[worker] = set(await asyncio.to_thread(worker.ready))

            for number in range(2):
                await begin(number)
            pairs = list(zip(cluster.masters, cluster.replicas, strict=True))
            first = pairs.pop(node_of(Address.of(client.namespace, "orders").key))
            rounds = [first, dice.choice(pairs)] if seed > 1 else [first]
            dice.shuffle(rounds)
            for round_, (master, replica) in enumerate(rounds):
                await arrivals.more(10, set.union(*ids.values()))
                await wait_until(partial(is_linked, replica), timeout=GUARD)
                replica.sigstop()
                ask(master, "CLIENT", "KILL", "TYPE", "replica")  # from now on it hears of nothing
                await arrivals.more(dice.randrange(5, 20), set())
                for worker in ids:
                    worker.sigstop()
                await arrivals.look()
                master.kill9()
                replica.sigcont()
                for worker in ids:
                    worker.sigcont()
                if dice.random() < 0.5:
                    dead = next(iter(ids))
                    dead.kill9()
                    del ids[dead]
                    await begin(10 + round_)
                await wait_until(partial(is_master, replica), timeout=GUARD)
                await arrivals.more(10, set.union(*ids.values()))
                if seed % 4 > 1:
                    await client.apply("orders", slices=dice.choice([1, 3, 9]))
            await arrivals.more(10, set.union(*ids.values()))
            for worker in ids:
                worker.sigstop()
            await arrivals.look()
        assert arrivals.beyond(kind) <= 0
