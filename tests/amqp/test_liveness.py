"""Whatever consumers do: while messages are there and somebody has credit for them, some are delivered.

Consumers that work, poll, idle, close or are killed, and receivers over AMQP that settle one by one or all at once,
share one queue whose limit is small. Where one of them is not woken, or keeps what others wait for, nothing moves.
"""

import asyncio
import random
import time

import pytest

import headgate
from headgate import Window
from tests.amqp.rhea_client import Rhea
from tests.sdk.observing import counts, look
from tests.sdk.workers import Worker

pytestmark = pytest.mark.one_server
STALL = 30.0
"""Seconds without any settlement that are called a standstill, whatever else the machine does."""
WINDOWS: tuple[Window | int | str, ...] = (1, 2, 10, 1000, "pull", "unlimited")


class Crowd:
    """Those who take messages from one queue until it is empty and nobody sends any more."""

    def __init__(self, client: headgate.Client, dice: random.Random) -> None:
        self.client = client
        self.dice = dice
        self.over = False

    async def works(self) -> None:
        """Take one message after the other, and open anew now and then."""
        async with self.client.session() as session:
            while not self.over:
                consumer = await session.consumer("orders", window=self.dice.choice(WINDOWS))
                for _ in range(self.dice.randint(1, 60)):
                    if message := await consumer.receive(timeout=self.dice.choice((0, 0.01, 0.5))):
                        await asyncio.sleep(self.dice.choice((0, 0, 0.02)))
                        await message.accept(confirm=self.dice.random() < 0.3)
                    await asyncio.sleep(0.001)
                await consumer.close()

    async def idles(self) -> None:
        """Fetch ahead, and begin one message for a long time, or none."""
        async with self.client.session() as session:
            consumer = await session.consumer("orders", window=self.dice.choice(WINDOWS))
            begun = await consumer.receive(timeout=0.2) if self.dice.random() < 0.5 else None
            while not self.over:
                await asyncio.sleep(self.dice.random())
                if begun and self.dice.random() < 0.3:
                    await begun.accept()
                    begun = None
            await consumer.close()

    async def dies(self) -> None:
        """Hold some messages in a process that is killed, again and again."""
        arguments = ("orders", 1.0, self.dice.randint(1, 5))
        while not self.over:
            with Worker("consumer", self.client.redis_url, self.client.namespace, *arguments) as worker:
                holding = asyncio.create_task(asyncio.to_thread(worker.next_line))
                await asyncio.wait((holding,), timeout=3)
                worker.kill9()
                await holding

    async def receives(self, rhea: Rhea, name: str) -> None:
        """Take messages over AMQP, settle them one by one or all at once, and open anew now and then.

        No two links have one name: what is counted is what ever came over the name.
        """
        number = 0
        while not self.over:
            number, link, settled = number + 1, f"{name}-{number}", 0
            await rhea.receiver(link, "orders", credit_window=self.dice.choice((1, 5, 30)))
            goal = self.dice.randint(1, 60)  # who ends before anything came would have everybody wait for what it held
            while settled < goal and not self.over:
                if count := len(rhea.messages(link)) - settled:
                    count = self.dice.choice((1, count))
                    rhea.do("settle", link=link, how="accept", count=count)
                    settled += count
                await asyncio.sleep(0.02)
            rhea.do("close", link=link, drop=True)

    async def sends(self, total: int) -> None:
        """Send in bursts, with pauses in which consumers find nothing."""
        async with self.client.session() as session:
            producer = await session.producer("orders")
            while total:
                burst = min(total, self.dice.randint(1, 60))
                await asyncio.gather(*(producer.send(b"x" * 100, timeout="unlimited") for _ in range(burst)))
                total -= burst
                await asyncio.sleep(self.dice.choice((0, 0.05, 0.3)))

    async def until_empty(self, sending: "asyncio.Task[None]") -> None:
        """Return when all is settled; fail where nothing is, for long."""
        settled, since = -1, time.monotonic()
        while True:
            now = await look(self.client, "orders")
            left = int(now.fields["pending_messages"])
            if sending.done() and not left:
                self.over = True
                return
            before, settled = settled, int(now.fields["message_seq"]) - left
            if settled != before or not left:
                since = time.monotonic()
            assert time.monotonic() - since < STALL, f"{left} messages, and nobody gets any: {now.consumers}"
            await asyncio.sleep(0.05)


async def play(client: headgate.Client, rhea: Rhea, seed: int, total: int, *, killed: int) -> None:
    dice = random.Random(seed)
    crowd = Crowd(client, dice)
    await client.apply("orders", limit=dice.choice((2_000, 100_000)))
    sending = asyncio.create_task(crowd.sends(total))
    takers = [crowd.works() for _ in range(dice.randint(0, 2))]
    takers += [
        crowd.receives(rhea, f"r{number} of {seed}") for number in range(0 if takers and dice.random() < 0.3 else 2)
    ]
    takers += [crowd.idles() for _ in range(dice.randint(0, 3))]
    takers += [crowd.dies() for _ in range(killed)]
    tasks = [sending, *(asyncio.create_task(taker) for taker in takers)]
    watching = asyncio.create_task(crowd.until_empty(sending))
    try:
        done, _ = await asyncio.wait((watching, *tasks), return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()
    finally:
        crowd.over = True
        for task in (watching, *tasks):
            task.cancel()
        await asyncio.gather(watching, *tasks, return_exceptions=True)
    assert await counts(client, "orders") == (0, 0)


async def test_what_is_there_is_delivered(client: headgate.Client, rhea_there: Rhea) -> None:
    seed = random.getrandbits(32)
    print(f"seed {seed}")  # shown where it fails
    await play(client, rhea_there, seed, 150, killed=0)


@pytest.mark.soak
@pytest.mark.timeout(3600)
async def test_what_is_there_is_delivered_for_minutes(client: headgate.Client, rhea_there: Rhea) -> None:
    until = time.monotonic() + 300
    while time.monotonic() < until:
        seed = random.getrandbits(32)
        print(f"seed {seed}")
        await play(client, rhea_there, seed, 600, killed=seed % 3)
        await client.remove("orders")
