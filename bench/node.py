"""A node and its clients, each a process: messages a second, processor time, memory, and what a lost node costs."""

from bench.harness import Figure, percentile
from bench.traffic import blocking
from bench.traffic.amqp import Peer, Receiver, Sender
from bench.traffic.brokers import Cluster, running_nodes
from bench.traffic.connections import MANY, failover, many_connections
from bench.traffic.flows import Flow, measure_flows
from bench.traffic.worker import Job

PRESETS = ((1000, 300), (100, 30))
KINDS = ((1024, False), (100, False), (1024, True), (100, True))
"""Sizes of messages, and whether they are settled by their sender."""
ROOM = "1GiB"


async def _flows(cluster: Cluster, job: Job, *, count: int, times: int) -> dict[str, Flow]:
    for number in range(len(cluster.nodes)):
        await cluster.client.apply(f"{job.destination}-{number}", limit=ROOM)
    return await measure_flows(
        job,
        count=count,
        times=times,
        brokers=[node.pid for node in cluster.nodes],
        store=cluster.store,
        ports=[node.port for node in cluster.nodes],
    )


async def _throughput(count: int, times: int) -> tuple[list[Figure], Flow]:
    """Return the figures of one node, and its way through at 1 KiB, unsettled."""
    figures: list[Figure] = []
    main = Flow()
    for credit, low in PRESETS:
        async with running_nodes(credit=credit, low_credit=low) as cluster:
            for size, settled in KINDS if credit == PRESETS[0][0] else KINDS[:2]:
                job = Job("amqp", "send", 0, f"flow-{size}-{settled:d}", size, credit, low, settled)
                flows = await _flows(cluster, job, count=count, times=times)
                what = f"{'1 KiB' if size == 1024 else '100 B'} {'pre-settled' if settled else 'unsettled'}"
                asked = size == 1024 and not settled and credit == PRESETS[0][0]
                for name, flow in flows.items():
                    both = asked and name == "through"
                    label = f"{name}, {what}, credit {credit}/{low}"
                    figures += flow.figures(label, rate=50_000 if asked else None, cost=13 if both else None)
                    main = flow if both else main
    return figures, main


async def _two_nodes(count: int, times: int, one: Flow) -> list[Figure]:
    async with running_nodes(2) as cluster:
        flows = await _flows(cluster, Job("amqp", "send", 0, "pair"), count=count, times=times)
    two = flows["through"]
    return [
        *two.figures("through 2 nodes, 2 pairs of clients, 1 KiB unsettled"),
        Figure.typical("  beside 1 node and 1 pair", [two.rate / one.rate], ""),
    ]


async def unblocked(samples: int, low: tuple[int, int] = PRESETS[1]) -> list[float]:
    """Return the milliseconds of unblocking over AMQP, with room for one message."""
    async with running_nodes(credit=low[0], low_credit=low[1]) as cluster:
        await cluster.client.apply("one", limit="1100")
        port = cluster.nodes[0].port
        sender = Sender(await Peer.connect("127.0.0.1", port), "one", blocking.SIZE)
        receiver = Receiver(await Peer.connect("127.0.0.1", port), "one", 1, 0, keep=True)
        await sender.attach()
        await receiver.attach()
        try:
            return await blocking.unblocking(sender, receiver, samples)
        finally:
            await sender.peer.close()
            await receiver.peer.close()


async def measure(*, quick: bool) -> list[Figure]:
    """Return what one node carries and costs, two nodes, idle connections, a lost node and unblocking."""
    count, times = (10_000, 1) if quick else (50_000, 3)
    figures, main = await _throughput(count, times)
    figures += await _two_nodes(count, times, main)
    figures += await many_connections(MANY // 4 if quick else MANY)
    figures += await failover(2 if quick else 5)
    waits = await unblocked(50 if quick else 400)
    return [
        *figures,
        Figure.typical("unblock p50", [percentile(waits, 0.5)], "ms"),
        Figure.typical("unblock p99", [percentile(waits, 0.99)], "ms", at_most=10),
    ]
