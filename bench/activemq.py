"""The same work on ActiveMQ Classic and on a node, in turn in one run, with flow control on for both.

ActiveMQ is spoken to with STOMP: Debian's has no AMQP. A receipt for every send stands beside AMQP's unsettled
transfers, an ACK for every message beside its dispositions. Its persistent messages, which are on disk when the
receipt comes, stand beside a Redis that writes and syncs its log before it answers.
"""

import asyncio
from dataclasses import dataclass

from bench.harness import Figure, median, percentile
from bench.traffic import amqp, stomp
from bench.traffic.activemq_server import ActiveMQ, missing, running_activemq
from bench.traffic.blocking import LIMIT, SIZE, STREAM, Neighbour, blocked, neighbour, unblocking
from bench.traffic.brokers import Cluster, running_nodes
from bench.traffic.flows import Flow, measure_flows
from bench.traffic.worker import Job

SYNCED = {"appendonly": "yes", "appendfsync": "always"}
CREDIT, LOW = 1000, 300
ASKED = {"through, 1 KiB unsettled": 3.0}
"""How many times as much a node has to carry."""
COUNTED = 2 * SIZE
"""Bytes that ActiveMQ counts for a message of 1 KiB; with receipts it can be seen that 512 of them fill 1 MiB."""


@dataclass(slots=True)
class Blocked:
    """The work of a producer until it meets a full destination.

    Attributes:
        accepted: messages that the broker has.
        written: messages that the client has written to its socket.
        stored_past: bytes that were stored above the limit at any time; Redis tells, ActiveMQ does not.
        beside: another producer of the same connection, that sends elsewhere.
    """

    accepted: int
    written: int
    beside: Neighbour
    stored_past: float = 0


@dataclass(frozen=True, slots=True)
class Work:
    """The work of both: the one right after the other, so that the machine is as busy for both."""

    label: str
    destination: str
    room: str
    share: float = 1
    """Of the messages, where a disk is too slow for all of them."""
    settled: bool = False
    synced: bool = False
    only_through: bool = False

    async def theirs(self, server: ActiveMQ, count: int, times: int) -> dict[str, Flow]:
        """Let ActiveMQ do it."""
        job = Job("stomp", "send", 0, self.destination, SIZE, CREDIT, LOW, self.settled, self.synced)
        return await self._flows(job, count, times, ports=[server.port], brokers=[server.pid])

    async def ours(self, cluster: Cluster, count: int, times: int) -> dict[str, Flow]:
        """Let a node do it."""
        await cluster.client.apply(f"{self.destination}-0", limit=self.room)
        job = Job("amqp", "send", 0, self.destination, SIZE, CREDIT, LOW, self.settled)
        node = cluster.nodes[0]
        return await self._flows(job, count, times, ports=[node.port], brokers=[node.pid], store=cluster.store)

    async def _flows(
        self, job: Job, count: int, times: int, *, ports: list[int], brokers: list[int], store: int | None = None
    ) -> dict[str, Flow]:
        flows = await measure_flows(
            job,
            count=int(count * self.share),
            times=times,
            ports=ports,
            brokers=brokers,
            store=store,
            only_through=self.only_through,
        )
        return {f"{name}, {self.label}": flow for name, flow in flows.items()}


WORK = (
    Work("1 KiB unsettled", "memory-unsettled", "512MiB"),
    Work("1 KiB pre-settled", "memory-settled", "512MiB", settled=True),
    Work("1 KiB unsettled, 1 MiB of room", "tight.flow", "1MiB", only_through=True),
    Work("1 KiB unsettled, on disk", "disk-unsettled", "512MiB", share=0.1, synced=True),
)


async def _activemq_blocked(server: ActiveMQ, samples: int, *, receipts: bool) -> Blocked:
    """With receipts, ActiveMQ reads on and keeps all that has no room, unanswered; without, it stops to read."""
    peer = await stomp.Peer.connect(server.port)
    name, window = f"tight.full{receipts:d}", STREAM if receipts else None
    sender = stomp.Sender(peer, name, SIZE, window=window, persistent=False)
    other = stomp.Sender(peer, "free", SIZE, window=1, persistent=False)
    sender.push(STREAM)

    def written() -> int:  # what waits in the client's own buffer is not written
        return sender.written - peer.waiting // len(sender.message)

    await blocked(lambda: sender.accepted, written)
    accepted = sender.accepted if receipts else LIMIT // COUNTED
    full = Blocked(accepted, written(), await neighbour(other, samples))
    peer.close()
    return full


async def _node_blocked(cluster: Cluster, samples: int) -> Blocked:
    await cluster.client.apply("full", limit=LIMIT)
    await cluster.client.apply("free", limit=LIMIT)
    peer = await amqp.Peer.connect("127.0.0.1", cluster.nodes[0].port)
    sender, other = amqp.Sender(peer, "full", SIZE), amqp.Sender(peer, "free", SIZE)
    await asyncio.gather(sender.attach(), other.attach())
    sender.push(STREAM)
    await blocked(lambda: sender.accepted, lambda: sender.unanswered)
    beside = await neighbour(other, samples)
    peak = int((await cluster.client.explain("full")).fields["peak_bytes"])
    full = Blocked(sender.accepted, sender.accepted + sender.unanswered, beside, max(0, peak - LIMIT))
    await peer.close()
    return full


async def _activemq_unblocked(server: ActiveMQ, samples: int) -> list[float]:
    sending, receiving = await stomp.Peer.connect(server.port), await stomp.Peer.connect(server.port)
    sender = stomp.Sender(sending, "one.message", SIZE, window=CREDIT, persistent=False)
    receiver = stomp.Receiver(receiving, "one.message", 1, settled=False, keep=True)
    waits = await unblocking(sender, receiver, samples)
    sending.close()
    receiving.close()
    return waits


async def _node_unblocked(cluster: Cluster, samples: int) -> list[float]:
    await cluster.client.apply("one", limit=SIZE + 76)
    port = cluster.nodes[0].port
    sender = amqp.Sender(await amqp.Peer.connect("127.0.0.1", port), "one", SIZE)
    receiver = amqp.Receiver(await amqp.Peer.connect("127.0.0.1", port), "one", 1, 0, keep=True)
    await asyncio.gather(sender.attach(), receiver.attach())
    waits = await unblocking(sender, receiver, samples)
    await sender.peer.close()
    await receiver.peer.close()
    return waits


def _side_by_side(name: str, theirs: list[float], ours: list[float], unit: str) -> list[Figure]:
    return [
        Figure.typical(f"{name}: ActiveMQ", theirs, unit),
        Figure.typical(f"{name}: Headgate", ours, unit),
    ]


def _compare(theirs: dict[str, Flow], ours: dict[str, Flow]) -> list[Figure]:
    figures: list[Figure] = []
    for name, flow in theirs.items():
        figures += _side_by_side(name, flow.rates, ours[name].rates, "1/s")
        whole = [cost + store for cost, store in zip(ours[name].costs, ours[name].stores, strict=True)]
        figures += [
            Figure.typical(
                f"  Headgate / ActiveMQ, {name}", [ours[name].rate / flow.rate], "", at_least=ASKED.get(name)
            ),
            *_side_by_side("  CPU a message, Redis included", flow.costs, whole, "us"),
            Figure.typical("  ActiveMQ / Headgate", [flow.cost / median(whole)], ""),
            *_side_by_side("  processors that others had", flow.others, ours[name].others, ""),
        ]
    return figures


def _blocked_figures(who: str, full: Blocked) -> list[Figure]:
    beside = full.beside
    past = full.written - full.accepted
    return [
        Figure(f"1 MiB full: messages stored: {who}", full.accepted, ""),
        Figure(f"  messages of {SIZE} B written beyond what is stored: {who}", past, ""),
        Figure(f"  other sends over the same connection that are answered within 1 s: {who}", beside.answered, ""),
        Figure(f"    of so many: {who}", beside.sent, ""),
        Figure.typical(f"    p50: {who}", [percentile(beside.waits, 0.5)], "ms"),
        Figure.typical(f"    p99: {who}", [percentile(beside.waits, 0.99)], "ms"),
    ]


async def measure(*, quick: bool) -> list[Figure]:
    """Return both brokers' figures side by side; nothing, and a word why, where ActiveMQ is not installed."""
    if reason := missing():
        print(f"activemq: skipped, {reason}")
        return []
    count, times, samples = (10_000, 1, 50) if quick else (30_000, 3, 400)
    figures: list[Figure] = []
    async with (
        running_activemq() as server,
        running_nodes(credit=CREDIT, low_credit=LOW) as cluster,
        running_nodes(credit=CREDIT, low_credit=LOW, config=SYNCED) as synced,
    ):
        for work in WORK:
            theirs = await work.theirs(server, count, times)
            figures += _compare(theirs, await work.ours(synced if work.synced else cluster, count, times))
        their_waits, our_waits = await _activemq_unblocked(server, samples), await _node_unblocked(cluster, samples)
        full = await _node_blocked(cluster, samples // 4)
    for receipts in (False, True):
        async with running_activemq() as server:  # another one: what is held up is never let go
            theirs_full = await _activemq_blocked(server, samples // 4, receipts=receipts)
        figures += _blocked_figures(f"ActiveMQ, {'receipts' if receipts else 'no receipts'}", theirs_full)
    figures += _blocked_figures("Headgate", full)
    figures.append(
        Figure("  bytes stored past the limit: Headgate", full.stored_past, "B", "<= 0", full.stored_past <= 0)
    )
    for name, share in (("unblock p50", 0.5), ("unblock p99", 0.99)):
        figures += _side_by_side(name, [percentile(their_waits, share)], [percentile(our_waits, share)], "ms")
    return figures
