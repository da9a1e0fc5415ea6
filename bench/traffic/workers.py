"""Workers behind one address: processor time a message with one and with two, in turn, and messages a second."""

import contextlib
from pathlib import Path
from typing import Final

from bench.harness import Figure
from bench.traffic.brokers import Cluster, running_nodes
from bench.traffic.flows import Flow, measure_flows
from bench.traffic.worker import Job

PAIRS: Final = 4
"""Clients that send, and as many that receive, each a process with a connection: the system spreads these."""
ROOM: Final = "1GiB"


def _workers(cluster: Cluster) -> list[int]:
    pid = cluster.nodes[0].pid
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


async def _flows(cluster: Cluster, count: int) -> dict[str, Flow]:
    for number in range(PAIRS):
        await cluster.client.apply(f"flow-{number}", limit=ROOM)
    job = Job("amqp", "send", 0, "flow", 1024, 1000, 300)
    return await measure_flows(
        job, count=count, times=1, brokers=_workers(cluster), store=cluster.store,
        ports=[cluster.nodes[0].port] * PAIRS, only_through=True,
    )  # fmt: skip


async def measure(*, quick: bool) -> list[Figure]:
    """Return what a message costs and how many pass, through one worker and through two, round by round."""
    count, times = (2_000, 3) if quick else (20_000, 9)
    found: dict[int, Flow] = {1: Flow(), 2: Flow()}
    async with contextlib.AsyncExitStack() as stack:
        clusters = {n: await stack.enter_async_context(running_nodes(workers=n)) for n in found}
        for _ in range(times):
            for number, cluster in clusters.items():
                flow = (await _flows(cluster, count))["through"]
                for mine, theirs in ((found[number].rates, flow.rates), (found[number].costs, flow.costs)):
                    mine.extend(theirs)
                found[number].stores.extend(flow.stores)
                found[number].others.extend(flow.others)
    one, two = found[1], found[2]
    costs = [b / a for a, b in zip(one.costs, two.costs, strict=True)]
    return [
        *one.figures(f"through 1 worker, {PAIRS} pairs, 1 KiB unsettled"),
        *two.figures(f"through 2 workers, {PAIRS} pairs, 1 KiB unsettled"),
        Figure.typical("  processor time a message beside one worker", costs, "", at_most=1.25),
    ]
