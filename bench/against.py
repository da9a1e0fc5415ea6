"""The cost of a change: the paths of another checkout and of this one, in turn on the same machine.

Usage: python -m bench.against CHECKOUT [--rounds N] [--only PART]

Each checkout runs its own Headgate, with the parts of its own bench, in its own process on its own Redis. They take
turns, and who begins changes every round, so that a busy machine slows both. Costs are microseconds: of Redis for
scripts, of the client's processor for what a client does, which others disturb less than they do the time on the clock.
Below 1.00 this checkout is cheaper.
"""

# ruff: noqa: SLF001  (the parts of the bench by the names that they have in older checkouts)

import argparse
import asyncio
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]
CALLS = 1_000
MESSAGES = 20_000
"""Through a node, each way."""
Cost = Callable[[], Awaitable[dict[str, float]]]


def _processor_seconds(pid: int) -> float:
    """Return the processor time of a process of one thread, to the nanosecond: a round takes a few dozen ticks."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


async def _serve() -> None:  # noqa: C901, PLR0915 -- a function for each part
    """Take one measurement for every line read, the name of the part; answer with its costs as JSON."""
    from redis.asyncio import Redis

    from bench import admissions, scripts, throughput

    try:
        from bench.traffic import brokers, flows, worker
    except ImportError:  # an older checkout
        from bench import brokers, flows, worker  # type: ignore[attr-defined,no-redef]
    flows.cpu_seconds = _processor_seconds  # type: ignore[attr-defined]  # as it imported it
    from bench.harness import private_client
    from headgate.redis.keys import Address

    async with private_client() as (client, server):
        redis = Redis(unix_socket_path=server.url.removeprefix("unix://").split("?")[0], protocol=2)
        meter = scripts.Meter(redis)
        numbers = itertools.count()

        async def anew() -> Address:
            name = f"script-{next(numbers)}"  # a session's receipts outlive a destination, and would be in the way
            await client.apply(name, limit=1 << 40)
            return Address.of("default", name)

        async def one() -> dict[str, float]:
            publish, settle = await scripts._publish_settle(client.store, meter, await anew(), [b"x" * 1024], CALLS)
            return {"publish, 1 message": publish, "settle and fetch, 1 message": settle}

        async def many() -> dict[str, float]:
            bodies = [b"x" * 1024] * 64
            publish, settle = await scripts._publish_settle(client.store, meter, await anew(), bodies, CALLS // 10)
            return {"publish, 64 messages": publish, "settle and fetch, 64 messages": settle}

        async def acquire() -> dict[str, float]:
            return {"acquire, renewing": await scripts._acquire(client.store, meter, await anew(), CALLS)}

        async def send(session: Any) -> float:
            return await throughput._send(session, b"x" * 1024)

        async def flow() -> dict[str, float]:
            costs = {}
            async with client.session("flow") as session:
                for name, start in (("send", send), ("receive", throughput._receive)):
                    await redis.config_resetstat()
                    began = time.process_time()
                    rate = await start(session)
                    costs[f"{name}: client, a message"] = (time.process_time() - began) * 1e6 / throughput.MESSAGES
                    stats = await redis.info("commandstats")
                    usec = sum(stats[name]["usec"] for name in ("cmdstat_evalsha", "cmdstat_fcall") if name in stats)
                    costs[f"{name}: scripts, a message"] = usec / throughput.MESSAGES
                    costs[f"{name}: on the clock, a message"] = 1e6 / rate
            return costs

        async def admit() -> dict[str, float]:
            costs = {}
            async with client.session("gate") as session:
                gate = await session.gate("gate")
                for name, work in (("async with admit", admissions._admit), ("try_admit", admissions._try_admit)):
                    began = time.process_time()
                    await work(gate)
                    costs[f"{name} and release"] = (time.process_time() - began) * 1e6 / admissions.FAST
            return costs

        async def node() -> dict[str, float]:
            async with brokers.running_nodes() as cluster:
                await cluster.client.apply("node-0", limit="1GiB")
                job = worker.Job("amqp", "send", 0, "node")
                measured = await flows.measure_flows(
                    job, count=MESSAGES, times=1, brokers=[one.pid for one in cluster.nodes],
                    ports=[one.port for one in cluster.nodes],
                )  # fmt: skip
            return {f"{name}: node, a message": way.cost for name, way in measured.items()}

        await client.apply("bench", limit="1GiB")
        await client.apply("gate", kind="gate", limit="1MiB")
        parts: dict[str, Cost] = {
            "one": one, "many": many, "acquire": acquire, "flow": flow, "admit": admit, "node": node,
        }  # fmt: skip
        print(json.dumps(list(parts)), flush=True)
        while line := (await asyncio.to_thread(sys.stdin.readline)).strip():
            print(json.dumps(await parts[line]()), flush=True)
        await redis.aclose()


class Checkout:
    """A process that measures one checkout."""

    def __init__(self, root: Path) -> None:
        path = os.pathsep.join(str(root / part) for part in ("sdk", "coordinator", "."))
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__, "--serve"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root, env={**os.environ, "PYTHONPATH": path},
        )  # fmt: skip
        self.parts: list[str] = self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout
        return json.loads(self._process.stdout.readline())

    def costs(self, part: str) -> Any:
        """Measure one part once; returns costs by name."""
        assert self._process.stdin
        print(part, file=self._process.stdin, flush=True)
        return self._answer()

    def close(self) -> None:
        """End the process."""
        self._process.communicate("\n")


def main() -> None:
    """Print what each part costs in both checkouts, and the median of the ratios of the pairs."""
    parser = argparse.ArgumentParser(prog="python -m bench.against", description="Compare with another checkout.")
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default="", metavar="PART", help="one, many, acquire, flow, admit or node")
    options = parser.parse_args()
    old, new = Checkout(options.checkout.resolve()), Checkout(HERE)
    pairs: dict[str, list[tuple[float, float]]] = {}
    for part in [options.only] if options.only else new.parts:
        for number in range(options.rounds + 1):
            order = (old, new) if number % 2 else (new, old)
            costs = {who: who.costs(part) for who in order}
            for name in costs[new] if number else ():  # the first round warms up
                pairs.setdefault(name, []).append((costs[old][name], costs[new][name]))
    old.close()
    new.close()
    print(f"{f'microseconds, least of {options.rounds}':36}{'there':>9}{'here':>9}{'of pairs':>10}{'of least':>10}")
    for name, both in pairs.items():
        there, here = (min(side) for side in zip(*both, strict=True))
        ratio = statistics.median(new_cost / old_cost for old_cost, new_cost in both)
        print(f"{name:36}{there:9.3g}{here:9.3g}{ratio:10.2f}{here / there:10.2f}")


if __name__ == "__main__":
    if sys.argv[1:] == ["--serve"]:
        asyncio.run(_serve())
    else:
        main()
