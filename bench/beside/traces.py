"""The cost of OpenTelemetry where nothing is traced: clients that find its API, and one that does not, in turn.

All are in one process on one Redis, and each round's figures are compared with those of the same round, so that a busy
machine disturbs both. Costs are of this process' processor.
"""

import asyncio
import contextlib
import itertools
import sys
import time
from collections.abc import Iterator

from opentelemetry import metrics, trace
from opentelemetry.sdk.trace import TracerProvider

import headgate
from bench.harness import Figure, median
from headgate.redis.embedded import EmbeddedRedis

ROUNDS = 30
MESSAGES = 4_096
AT_A_TIME = 256
KINDS = ("without the API", "the API without a provider", "a provider")


@contextlib.contextmanager
def _hidden() -> Iterator[None]:
    """Have the API not imported for a block: redis-py imports it wherever it is installed."""
    names = (trace.__name__, metrics.__name__)
    modules = {name: sys.modules.pop(name) for name in names}
    try:
        yield
    finally:
        sys.modules.update(modules)


async def _flow(client: headgate.Client, name: str) -> float:
    """Return the microseconds that a message takes to be sent, received and settled."""
    body = b"x" * 1024
    async with client.session("flow") as session:
        producer, consumer = await session.producer(name), await session.consumer(name)

        async def some() -> None:
            for _ in range(MESSAGES // AT_A_TIME):
                await producer.send(body)

        began = time.process_time()
        await asyncio.gather(*(some() for _ in range(AT_A_TIME)))
        for _ in range(MESSAGES):
            await (await anext(consumer)).accept()
        await consumer.flush()
        return (time.process_time() - began) / MESSAGES * 1e6


async def measure(*, quick: bool) -> list[Figure]:
    """Return the cost with the API beside that without, and with a provider for comparison."""
    costs: dict[str, list[float]] = {kind: [] for kind in KINDS}
    with EmbeddedRedis.start() as redis:
        async with contextlib.AsyncExitStack() as stack:
            clients: dict[str, headgate.Client] = {}
            for kind in KINDS:
                if kind == KINDS[2]:
                    trace.set_tracer_provider(TracerProvider())
                with _hidden() if kind == KINDS[0] else contextlib.nullcontext():
                    client = headgate.connect(redis.url, namespace=f"b{len(clients)}")
                    clients[kind] = await stack.enter_async_context(client)
                await clients[kind].apply("bench", limit="1GiB")
                await _flow(clients[kind], "bench")
            orders = itertools.cycle(itertools.permutations(KINDS))
            for _ in range(ROUNDS // (5 if quick else 1)):
                for kind in next(orders):
                    costs[kind].append(await _flow(clients[kind], "bench"))
    bare, idle, traced = (costs[kind] for kind in KINDS)
    ratios, more = ([b / a for a, b in zip(bare, other, strict=True)] for other in (idle, traced))
    return [
        Figure("a message sent, received and settled, without the API", median(bare), "us", rounds=bare),
        Figure.typical("beside that, with the API and no provider", ratios, "", at_most=1.01),
        Figure("beside that, with a provider that keeps nothing", median(more), "", rounds=more),
    ]
