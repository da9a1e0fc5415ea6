"""A process that sends for later, takes, and gives back for later, and writes down what it did by Redis' clock.

Run as a module: its URL, namespace, the file of its witness, a seed, and the TTL of its session. It ends when its
standard input does: then it sends no more, and goes on taking until it is killed.
"""

import asyncio
import os
import random
import sys
from typing import Final

import headgate
from headgate.redis.keys import Address

QUEUE: Final = "jobs"
WAITS: Final = (0.0, 0.02, 0.2, 0.7)
"""Seconds by which a message is sent, or given back, for later."""


class Witness:
    """Writes a line of each step; what is written is there although its process is killed."""

    def __init__(self, client: headgate.Client, path: str) -> None:
        self._client = client
        self._key = Address.of(client.namespace, QUEUE).shared[0]
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def now(self) -> int:
        """Return the ms of Redis' clock."""
        seconds, microseconds = await self._client.store.server.command(self._key, "TIME")
        return int(seconds) * 1000 + int(microseconds) // 1000

    def writes(self, *words: object) -> None:
        os.write(self._file, f"{' '.join(map(str, words))}\n".encode())


async def _send(producer: headgate.Producer, witness: Witness, dice: random.Random, seed: str) -> None:
    number = 0
    while True:
        number += 1
        name, delay = f"{seed}.{number}", dice.choice(WAITS)
        witness.writes("due", name, await witness.now() + round(delay * 1000))
        await producer.send(name, delay=delay, timeout=60)
        witness.writes("sent", name)
        await asyncio.sleep(dice.random() / 20)


async def _take(consumer: headgate.Consumer, witness: Witness, dice: random.Random) -> None:
    async for message in consumer:
        name = str(message.body)
        witness.writes("got", name, await witness.now())
        await asyncio.sleep(dice.choice((0, 0, 0.05)))
        try:
            if dice.random() < 0.4:
                after = dice.choice(WAITS)
                due = await witness.now() + round(after * 1000)
                await message.modify(after=after, failed=dice.random() < 0.5, confirm=True, timeout=60)
                witness.writes("due", name, due)
            else:
                await message.accept(confirm=True, timeout=60)
        except headgate.SessionExpired:
            witness.writes("late", name)


async def _main(url: str, namespace: str, path: str, seed: str, ttl: str) -> None:
    dice, ended = random.Random(seed), asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), ended.set)
    async with headgate.connect(url, namespace=namespace) as client, client.session("p", ttl=float(ttl)) as session:
        witness = Witness(client, path)
        sending = asyncio.create_task(_send(await session.producer(QUEUE), witness, dice, seed))
        taking = asyncio.create_task(_take(await session.consumer(QUEUE, window=6), witness, dice))
        print("ready", flush=True)
        await ended.wait()
        sending.cancel()
        await taking


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
