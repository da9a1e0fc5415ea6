"""The cost of connections to a node, and how long a client is away when its node is killed."""

import asyncio
import json
import resource
import signal
import sys
import time
from asyncio.subprocess import PIPE

from bench.harness import Figure, cpu_seconds
from bench.traffic.amqp import Peer, Receiver, Sender
from bench.traffic.brokers import Cluster, Node, running_nodes
from bench.traffic.worker import Worker

MANY = 2_000
AT_ONCE = 50
DESTINATIONS = 20
FILES = 8_192


def raise_files() -> None:
    """Let this process and its children open as many files as many connections take, where that is allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < FILES:
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (FILES if hard == resource.RLIM_INFINITY else min(FILES, hard), hard)
        )


async def _open(port: int, number: int, sessions: int, gate: asyncio.Semaphore) -> tuple[Peer, Sender, Receiver]:
    async with gate:
        peer = await Peer.connect("127.0.0.1", port)
        if sessions == 1:
            peer.share_session()
        name = f"idle-{number % DESTINATIONS}"
        sender, receiver = Sender(peer, name, 100), Receiver(peer, name, 100, 30)
        await asyncio.gather(sender.attach(), receiver.attach())
        receiver.link.set_credit(100)
        peer.flush()
        return peer, sender, receiver


async def hold(port: int, count: int, sessions: int) -> None:
    """Open so many connections with two links in so many sessions, say how long that took, then send over each."""
    raise_files()
    gate = asyncio.Semaphore(AT_ONCE)
    began = time.perf_counter()
    held = await asyncio.gather(*(_open(port, number, sessions, gate) for number in range(count)))
    print(json.dumps(time.perf_counter() - began), flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    await asyncio.gather(*(sender.run(1) for _, sender, _ in held))  # they are all alive
    print(sum(sender.accepted for _, sender, _ in held), flush=True)
    await asyncio.to_thread(sys.stdin.readline)


async def _settled_memory(node: Node) -> int:
    """Return the node's memory once it does not change any more."""
    last = 0
    while last != (last := node.resident):  # noqa: ASYNC110 -- another process's memory has no event
        await asyncio.sleep(0.5)
    return last


async def many_connections(count: int) -> list[Figure]:
    """Return the memory of idle connections, how fast they are made, and how many work: with one session and two."""
    return [figure for sessions in (1, 2) for figure in await _many(count, sessions)]


async def _many(count: int, sessions: int) -> list[Figure]:
    raise_files()
    async with running_nodes() as cluster:
        node = cluster.nodes[0]
        for number in range(DESTINATIONS):
            await cluster.client.apply(f"idle-{number}", limit="1MiB")
        # what the node loads and allocates with the first connections is not what each further one costs
        memory, setups, cost, alive = [], 0.0, 0.0, 0
        for number, batch in enumerate((50, count)):
            before, used = await _settled_memory(node), cpu_seconds(node.pid)
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "bench.traffic.connections", str(node.port), str(batch), str(sessions),
                stdin=PIPE, stdout=PIPE,
            )  # fmt: skip
            worker = Worker(process)
            assert process.stdin
            try:
                seconds = json.loads(await worker.line())
                if number:
                    setups = batch / seconds
                    cost = (cpu_seconds(node.pid) - used) * 1e6 / batch
                    memory.append((await _settled_memory(node) - before) / batch)
                process.stdin.write(b"\n")
                alive = json.loads(await worker.line())
            finally:
                process.kill()
                await process.wait()
    links = f"2 links in {'a session' if sessions == 1 else '2 sessions'}"
    return [
        Figure.typical(
            f"memory of an idle connection with {links}", [size / 1024 for size in memory], "KiB", at_most=30
        ),
        Figure.typical("connections at once, each sending a message", [alive], "", at_least=count),
        Figure.typical(f"connections opened, with {links}", [setups], "1/s"),
        Figure.typical("  node CPU a connection", [cost], "us"),
    ]


async def _attach(node: Node, kind: type[Sender] | type[Receiver]) -> Sender | Receiver:
    peer = await Peer.connect("127.0.0.1", node.port)
    end = Sender(peer, "away", 1024) if kind is Sender else Receiver(peer, "away", 100, 30)
    await end.attach()
    return end


async def _away(cluster: Cluster, number: int) -> tuple[float, float]:
    """Kill a node; returns seconds until its sender was accepted, and its receiver served, by another node."""
    dying, other = cluster.nodes[number : number + 2]
    sender, receiver = await _attach(dying, Sender), await _attach(dying, Receiver)
    await asyncio.gather(sender.run(10), receiver.run(10))
    began = time.perf_counter()
    dying.process.send_signal(signal.SIGKILL)

    async def move(end: Sender | Receiver) -> float:
        await end.peer.until(lambda: end.peer.lost or end.peer.over)
        new = await _attach(other, type(end))
        await new.run(1)
        took = time.perf_counter() - began
        await new.peer.close()
        return took

    away = await asyncio.gather(move(sender), move(receiver))
    return away[0], away[1]


async def failover(times: int) -> list[Figure]:
    """Return how long a client that knows two hosts is away after kill -9 of its node.

    Where the limit is no more than what a node keeps in hand, the dead one's credit is missed until its lease ends.
    """
    figures = []
    for limit, asked in (("64MiB", 2.0), ("1MiB", None)):
        async with running_nodes(times + 1) as cluster:
            await cluster.client.apply("away", limit=limit)
            away = [await _away(cluster, number) for number in range(times)]
        label = f"limit {limit.replace('M', ' M')}, kill -9"
        figures += [
            Figure.typical(f"{label}: until accepted at another node", [one for one, _ in away], "s", at_most=asked),
            Figure.typical("  until received from there", [one for _, one in away], "s", at_most=asked),
            Figure.typical("  the longest", [max(max(both) for both in away)], "s"),
        ]
    return figures


if __name__ == "__main__":
    asyncio.run(hold(*map(int, sys.argv[1:])))
