"""This bench shows what grows with what: fleets of 10 to 10,000 nodes in virtual time, and bytes of a session in Redis.

    python -m bench.beside.scale [--nodes 10 100 1000] [--sessions 10 100 1000] [--seconds 5] [--out FILE]

The client's machines run beside the plain model of destinations (tests/simulation/fleet); a call takes a master some
twice the time that `make bench` measures of Redis. So rates and waits are of that model, calls a message are the
machines' own.
"""

import argparse
import asyncio
import json
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import headgate
from tests.simulation.fleet.fleet import Fleet, Plan
from tests.simulation.fleet.masters import CALL, MESSAGE

NODES_A_MASTER = 300
LARGE = 1000
"""Nodes up to which a restart is measured too: the fleet lives for half a minute then."""


def wait_at(waits: list[float], share: float) -> float:
    """Return a quantile of waits, in ms."""
    ordered = sorted(waits)
    return round(1000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))], 2) if ordered else 0.0


def jain(shares: list[int]) -> float:
    """Return Jain's index of fairness."""
    return round(sum(shares) ** 2 / (len(shares) * sum(share * share for share in shares)), 4) if any(shares) else 0.0


def told(plan: Plan, then: float = 5.0) -> tuple[Fleet, dict[str, Any]]:
    """Let a fleet do what it plans, and count."""
    fleet, began = Fleet(plan), time.process_time()
    broken = fleet.tell(then)
    took, figures = time.process_time() - began, fleet.figures
    calls = sum((sum(master.calls.values()) for master in fleet.masters), 0)
    busiest = max(master.busy for master in fleet.masters)
    return fleet, {
        "sessions": plan.nodes * (plan.senders + plan.takers),
        "masters": plan.masters,
        "messages": figures.receipts,
        "calls a message": round(calls / max(1, figures.receipts), 2),
        "a master's share of a core": round(busiest / (plan.seconds + then), 3),
        "longest wait for a master, ms": round(1000 * max(master.longest for master in fleet.masters), 1),
        "send p50, ms": wait_at(figures.waits, 0.5),
        "send p99, ms": wait_at(figures.waits, 0.99),
        "fairness": jain(list(figures.by_sender.values())),
        "broken": broken[:3],
        "events a second of processor": round(fleet.events.happened / took),
    }


def by_nodes(nodes: list[int], seconds: float) -> list[dict[str, Any]]:
    """Measure fleets in which each node does the same."""
    rows = []
    for count in nodes:
        masters = max(1, -(-count // NODES_A_MASTER))
        plan = Plan(nodes=count, masters=masters, places=max(1, count // 2), seconds=seconds)
        rows.append({"nodes": count} | told(plan)[1])
        print(json.dumps(rows[-1]), flush=True)
    return rows


def by_sessions(sessions: list[int], seconds: float) -> list[dict[str, Any]]:
    """Measure one queue whose consumers are slower than those that send to it."""
    rows = []
    for count in sessions:
        plan = Plan(
            nodes=count // 10 or 1, masters=1, places=1, senders=10, takers=0, limit=100_000, every=0.5 * count / 100,
            seconds=seconds, timeout=1e6,
        )  # fmt: skip
        rows.append({"at one queue": count} | _at_one(plan))
        print(json.dumps(rows[-1]), flush=True)
    return rows


def _at_one(plan: Plan) -> dict[str, Any]:
    """Have ten consumers of one node take 160 messages a second of what others send at 200."""
    fleet = Fleet(plan)
    fleet.consume(node=0, takers=10, takes=1 / 16)
    fleet.tell(then=1.0)
    figures = fleet.figures
    calls = sum(fleet.masters[0].calls.values())
    return {
        "messages": figures.receipts,
        "calls a message": round(calls / max(1, figures.receipts), 2),
        "send p50, ms": wait_at(figures.waits, 0.5),
        "send p99, ms": wait_at(figures.waits, 0.99),
        "fairness": jain(list(figures.by_sender.values())),
    }


def after_a_restart(nodes: list[int], seconds: float) -> list[dict[str, Any]]:
    """Measure how long after a restart of all masters it takes until sends are served again."""
    rows = []
    for count in nodes:
        masters = max(1, -(-count // NODES_A_MASTER))
        plan = Plan(nodes=count, masters=masters, places=max(1, count // 2), seconds=seconds + 20)
        fleet = Fleet(plan)
        at = fleet.restart_all(after=seconds, away=1.0)
        fleet.tell(then=10.0)
        served = sorted(fleet.first_receipts(at + 1.0).values())
        rows.append({
            "nodes": count,
            "sessions": count * (plan.senders + plan.takers),
            "half served, s": round(served[len(served) // 2], 2),
            "99 % served, s": round(served[int(0.99 * len(served))], 2),
            "longest wait for a master, ms": round(1000 * max(master.longest for master in fleet.masters), 1),
        })  # fmt: skip
        print(json.dumps(rows[-1]), flush=True)
    return rows


async def bytes_a_session(count: int = 1000) -> dict[str, int]:
    """Return what a session that sends, and one that consumes, take of a real Redis at one queue."""
    found = {}
    async with headgate.connect() as client:
        await client.apply("orders", kind="queue", limit="64MiB")

        async def used() -> int:
            return int((await client.store.server.command(b"x", "INFO", "memory")).split(b"used_memory:")[1].split()[0])

        for kind in ("producer", "consumer"):
            sessions = [client.session(f"{kind}{number}") for number in range(count)]
            before = await used()
            for session in sessions:
                await getattr(session, kind)("orders")
            found[kind] = round((await used() - before) / count)
            await asyncio.gather(*(session.close() for session in sessions))
    return found


def main(options: argparse.Namespace) -> None:
    """Measure, and print."""
    found = {
        "a call, us; each message in it, us": [CALL * 1e6, MESSAGE * 1e6],
        "plan": asdict(replace(Plan(), seconds=options.seconds)),
        "bytes a session": asyncio.run(bytes_a_session()),
        "nodes": by_nodes(options.nodes, options.seconds),
        "sessions at one queue": by_sessions(options.sessions, 4 * options.seconds),
        "after a restart": after_a_restart([count for count in options.nodes if count <= LARGE], options.seconds),
    }
    print(json.dumps(found["bytes a session"]))
    if options.out:
        options.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--sessions", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--out", type=Path)
    main(parser.parse_args())
