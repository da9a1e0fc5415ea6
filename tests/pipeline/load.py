"""A load of a known shape, whose ledger jobs read: senders that burst against a limit, a consumer of a steady pace."""

import asyncio
from dataclasses import dataclass

import headgate

BODY = 1000
"""Bytes of a message's body."""


@dataclass
class Load:
    """What the senders of a run saw, by their own clocks.

    Attributes:
        waited: seconds that sends took, all senders together.
        sent: messages.
    """

    waited: float = 0.0
    sent: int = 0


async def run(
    url: str,
    namespace: str,
    name: str,
    *,
    limit: str | None,
    senders: int = 2,
    bursts: int = 4,
    burst: int = 60,
    pause: float = 0.25,
    pace: float = 0.002,
    window: str | None = "4KiB",
) -> Load:
    """Send bursts of messages and settle them one by one, each in ``pace`` seconds; all are settled when it returns.

    Args:
        limit: of the destination; None leaves its settings to the policy in force.
        senders: each of a session of its own.
        bursts: of each sender.
        burst: messages of one.
        pause: seconds between the bursts of a sender.
        pace: seconds that the consumer takes for a message.
        window: of each producer; None as the settings say.
    """
    load, total = Load(), senders * bursts * burst
    loop = asyncio.get_running_loop()
    async with headgate.connect(url, namespace=namespace) as client:
        if limit is not None:
            await client.apply(name, kind="queue", limit=limit, ledger_keep=1_000_000)

        async def send(session: headgate.Session) -> None:
            producer = await session.producer(name, window=window)
            for _ in range(bursts):
                for _ in range(burst):
                    began = loop.time()
                    await producer.send(b"x" * BODY, timeout=60)
                    load.waited += loop.time() - began
                    load.sent += 1
                await asyncio.sleep(pause)

        async def settle() -> None:
            async with client.session("consumer") as session:
                consumer = await session.consumer(name, window=20)
                next_at = loop.time()
                for _ in range(total):
                    message = await consumer.receive(timeout=60)
                    assert message
                    next_at = max(next_at, loop.time()) + pace
                    await asyncio.sleep(max(0.0, next_at - loop.time()))
                    await message.accept()

        consuming = asyncio.create_task(settle())
        sessions = [client.session(f"sender-{n}") for n in range(senders)]
        await asyncio.gather(*(send(session) for session in sessions))
        await consuming
        for session in sessions:
            await session.close()
    return load
