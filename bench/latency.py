"""How long a blocked producer in another process waits after room was made: from the settlement to its receipt."""

import asyncio
import time

from bench.harness import Figure, at_most, percentile, private_client

SAMPLES = 400


async def measure(*, quick: bool) -> list[Figure]:
    """Return p50 and p99 of unblocking, in ms; the message fills the whole limit, so every send must wait."""
    samples = SAMPLES // 4 if quick else SAMPLES
    async with private_client() as (client, _):
        await client.apply("bench", limit="1100")
        waits: list[float] = []
        settled_at = 0.0
        async with client.session("sender") as sending, client.session("receiver") as receiving:
            producer = await sending.producer("bench", window="1KiB")
            consumer = await receiving.consumer("bench", window=1)

            async def send() -> None:
                for number in range(samples):
                    await producer.send(b"x" * 1024)
                    if number:
                        waits.append((time.perf_counter() - settled_at) * 1000)

            task = asyncio.create_task(send())
            for _ in range(samples):
                message = await consumer.receive(timeout=10)
                if message is None:
                    break
                await asyncio.sleep(0.005)  # the sender is in line by now: what is measured is its way out
                settled_at = time.perf_counter()
                await message.accept()
            await task
    return [
        at_most("unblock p50", [percentile(waits, 0.5)], "ms"),
        at_most("unblock p99", [percentile(waits, 0.99)], "ms", 10),
    ]
