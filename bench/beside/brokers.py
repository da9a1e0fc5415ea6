"""This bench shows what a message costs a node with its Redis, and what it costs other brokers, with one AMQP client.

    python -m bench.beside.brokers [--home rabbitmq=DIR] [--count 20000] [--times 3] [--out FILE]

Artemis and ActiveMQ Classic come from Maven Central; RabbitMQ takes part where `--home` names its distribution. All
keep messages in memory: the client's are not durable.
"""

import argparse
import asyncio
import json
import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from bench.harness import median
from bench.traffic.brokers import running_nodes
from bench.traffic.flows import Flow, measure_flows
from bench.traffic.worker import Job
from tests.kit.endpoint import Unusable
from tests.kit.starting import running

SIZE: Final = 1024
NAME: Final = "bench"
ADDRESS: Final = {"rabbitmq": f"/queues/{NAME}"}
"""A broker's address of the queue, where that is not its name."""


@dataclass(slots=True)
class Place:
    """A broker to measure.

    Attributes:
        port: where it listens.
        pids: its processes.
        store: that of the Redis behind it; None for none.
        address: of its queue.
        flows: what was measured, a round after the other.
    """

    port: int
    pids: Sequence[int]
    store: int | None
    address: str
    flows: dict[str, Flow]


def descendants(of: int) -> list[int]:
    """Return the processes that a process has started, and these, and so on."""
    parents: dict[int, list[int]] = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            stat = (place / "stat").read_text()
        except OSError:
            continue  # it has ended
        parents.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(place.name))
    found = parents.get(of, [])
    return found + [one for child in found for one in descendants(child)]


async def _round(place: Place, count: int) -> None:
    job = Job("amqp", "send", 0, place.address, SIZE, 1000, 300)
    flows = await measure_flows(job, count=count, times=1, ports=[place.port], brokers=place.pids, store=place.store)
    for name, flow in flows.items():
        kept = place.flows.setdefault(name, Flow())
        kept.rates += flow.rates
        kept.costs += flow.costs
        kept.stores += flow.stores
        kept.others += flow.others


def _row(place: Place) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for name, flow in place.flows.items():
        stores = flow.stores or [0.0] * len(flow.costs)
        whole = [cost + store for cost, store in zip(flow.costs, stores, strict=True)]
        row[name] = {
            "processor, us a message": round(median(whole), 1),
            "of it Redis": round(median(stores), 1),
            "least, us": round(min(whole), 1),
            "rate, 1/s": round(flow.rate),
            "processors that others had": round(median(flow.others), 2),
        }
    return row


async def measure(homes: dict[str, Path], count: int, times: int) -> dict[str, Any]:
    """Return what each of them costs, in turns."""
    places: dict[str, Place] = {}
    missing: dict[str, str] = {}
    with ExitStack() as stack:
        for name in ("rabbitmq", "artemis", "activemq"):
            before = set(descendants(os.getpid()))
            try:
                url = await asyncio.to_thread(stack.enter_context, running(name, homes.get(name)))
            except Unusable as error:
                missing[name] = str(error)
                continue
            pids = sorted(set(descendants(os.getpid())) - before)
            places[name] = Place(urlsplit(url).port or 0, pids, None, ADDRESS.get(name, NAME), {})
        async with running_nodes(credit=1000, low_credit=300) as cluster:
            await cluster.client.apply(f"{NAME}-0", limit="512MiB")
            places["headgate"] = Place(cluster.nodes[0].port, [cluster.nodes[0].pid], cluster.store, NAME, {})
            for _ in range(times):
                for name, place in places.items():
                    await _round(place, count)
                    print(name, json.dumps(_row(place)["through"]), flush=True)
    rows = {name: _row(place) for name, place in places.items()}
    best = min(row["through"]["processor, us a message"] for name, row in rows.items() if name != "headgate")
    ours = rows["headgate"]["through"]["processor, us a message"]
    return {"brokers": rows, "through, beside the best of the others (asked: 0.5)": round(ours / best, 3)} | (
        {"missing": missing} if missing else {}
    )


def main(options: argparse.Namespace) -> None:
    """Measure, and print."""
    homes = {name: Path(folder) for name, _, folder in (one.partition("=") for one in options.home)}
    load = os.getloadavg()[0]
    found = asyncio.run(measure(homes, options.count, options.times)) | {"load before": round(load, 2)}
    print(json.dumps(found, indent=1))
    if options.out:
        options.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", action="append", default=[])
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--out", type=Path)
    main(parser.parse_args())
