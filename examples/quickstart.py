"""A queue of 64 KiB, a fast sender and a slow receiver: the sender is held back, and nothing is lost.

python examples/quickstart.py [URL]        without a URL on a private Redis
"""

import asyncio
import sys

import headgate

MESSAGES = 200


async def send(session: headgate.Session) -> None:
    producer = await session.producer("quickstart", window="16KiB")
    for number in range(MESSAGES):
        await producer.send(f"message {number:03} ".ljust(1024, "."), timeout=30)
    print(f"sent {MESSAGES}")


async def receive(session: headgate.Session) -> None:
    consumer = await session.consumer("quickstart", window=headgate.Window(messages=20, bytes="32KiB"))
    received = 0
    async for message in consumer:
        await asyncio.sleep(0.001)  # the work
        await message.accept()
        received += 1
        if received == MESSAGES:
            await consumer.flush()
            break
    print(f"received and accepted {received}, the last one {message.body[:11]!r}")


async def main() -> None:
    async with headgate.connect(sys.argv[1] if len(sys.argv) > 1 else None) as client:
        await client.apply("quickstart", kind="queue", limit="64KiB")
        async with client.session("sender") as sender, client.session("receiver") as receiver:
            await asyncio.gather(send(sender), receive(receiver))
        fields = (await client.explain("quickstart")).fields
        print(f"limit {fields['limit_bytes']} bytes kept: {int(fields['peak_bytes']) <= int(fields['limit_bytes'])}")
        await client.remove("quickstart")


asyncio.run(main())
