"""The work that brokers are compared by: messages in, out, and through, with what they cost in processor time."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from bench.harness import Figure, cpu_seconds, machine_seconds, median
from bench.traffic.worker import Job, Worker, working


@dataclass(slots=True)
class Flow:
    """Measurements of one kind of work, a number for every round.

    Attributes:
        rates: messages a second.
        costs: microseconds of the broker's processor for a message.
        stores: microseconds of the processor of the Redis behind it, where there is one.
        others: processors that were busy with something else meanwhile.
    """

    rates: list[float] = field(default_factory=list)
    costs: list[float] = field(default_factory=list)
    stores: list[float] = field(default_factory=list)
    others: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """The median of the rates."""
        return median(self.rates)

    @property
    def cost(self) -> float:
        """The median of the costs."""
        return median(self.costs)

    def figures(self, label: str, *, rate: float | None = None, cost: float | None = None) -> list[Figure]:
        """Return its figures: medians, because others share the machine."""
        figures = [
            Figure.typical(label, self.rates, "1/s", at_least=rate),
            Figure.typical("  broker CPU a message", self.costs, "us", at_most=cost),
        ]
        if self.stores:
            figures.append(Figure.typical("  Redis CPU a message", self.stores, "us"))
        return [*figures, Figure.typical("  processors that others had", self.others, "")]


async def _timed(flow: Flow, work: Sequence[Worker], count: int, brokers: Sequence[int], store: int | None) -> None:
    """Add a round: every worker does ``count``; half of them make the messages where some take them meanwhile."""
    stores = [store] if store else []
    groups = (brokers, stores, [worker.pid for worker in work])
    before, machine = [sum(map(cpu_seconds, group)) for group in groups], machine_seconds()
    times = await asyncio.gather(*(worker.run(count) for worker in work))
    used = [sum(map(cpu_seconds, group)) - ago for group, ago in zip(groups, before, strict=True)]
    seconds = max(ended for _, ended in times) - min(began for began, _ in times)
    flow.costs.append(used[0] * 1e6)
    if store:
        flow.stores.append(used[1] * 1e6)
    flow.others.append(max(0.0, (machine_seconds() - machine - sum(used)) / seconds))
    flow.rates.append(1 / seconds)


async def measure_flows(
    job: Job, *, count: int, times: int, ports: Sequence[int], brokers: Sequence[int], store: int | None = None,
    only_through: bool = False,
) -> dict[str, Flow]:  # fmt: skip
    """Return ``in``, ``out`` and ``through``, after a round that does not count.

    Args:
        job: what the clients do, whatever their role.
        count: messages of a round and pair.
        times: rounds.
        ports: one for each pair of clients; the n-th pair's destination is the job's name, "-" and n.
        brokers: ids of the processes whose processor time counts.
        store: that of their Redis.
        only_through: whether there is no room for all messages of a round.
    """
    pairs = [replace(job, port=port, destination=f"{job.destination}-{number}") for number, port in enumerate(ports)]
    senders = [replace(pair, role="send") for pair in pairs]
    receivers = [replace(pair, role="receive") for pair in pairs]
    async with working(*senders, *receivers) as workers:
        steps = {"in": workers[: len(pairs)], "out": workers[len(pairs) :], "through": workers}
        if only_through:
            steps = {"through": workers}
        flows = {name: Flow() for name in steps}
        for number in range(times + 1):
            for name, who in steps.items():
                await _timed(flows[name] if number else Flow(), who, count, brokers, store)
    messages = count * len(pairs)
    for flow in flows.values():
        flow.rates = [rate * messages for rate in flow.rates]
        flow.costs = [cost / messages for cost in flow.costs]
        flow.stores = [cost / messages for cost in flow.stores]
    return flows
