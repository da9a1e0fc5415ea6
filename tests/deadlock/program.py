"""A program of its own: takes messages of one queue and passes each on to another once, then into ``done``.

A message begins with a blank, and with a star once it was passed on: it keeps its size.

python -m tests.deadlock.program <url> <namespace> <reads> <writes> [threads]
"""

import asyncio
import sys

import headgate
import headgate.sync


async def run(url: str, namespace: str, reads: str, writes: str) -> None:
    async with headgate.connect(url, namespace=namespace) as client, client.session(f"reads-{reads}") as session:
        consumer = await session.consumer(reads)
        producer, done = await session.producer(writes), await session.producer("done")
        print(session.id, flush=True)
        async for message in consumer:
            body = message.body
            assert isinstance(body, bytes)
            if body.startswith(b"*"):
                await done.send(body[1:], timeout=600)
            else:
                try:
                    await producer.send(b"*" + body[1:], timeout=600)
                except headgate.DeadlockDetected as error:
                    await done.send(body[1:], headers={"failed": str(error)}, timeout=600)
            await message.accept()


def run_in_a_thread(url: str, namespace: str, reads: str, writes: str) -> None:
    with headgate.sync.connect(url, namespace=namespace) as client, client.session(f"reads-{reads}") as session:
        consumer, producer, done = session.consumer(reads), session.producer(writes), session.producer("done")
        print(session.id, flush=True)
        for message in consumer:
            body = message.body
            assert isinstance(body, bytes)
            if body.startswith(b"*"):
                done.send(body[1:], timeout=600)
            else:
                try:
                    producer.send(b"*" + body[1:], timeout=600)
                except headgate.DeadlockDetected as error:
                    done.send(body[1:], headers={"failed": str(error)}, timeout=600)
            message.accept()


if __name__ == "__main__":
    if sys.argv[5:]:
        run_in_a_thread(*sys.argv[1:5])
    else:
        asyncio.run(run(*sys.argv[1:5]))
