"""A gate before an API that can take 4 requests and 1 MiB of them at a time, whatever the number of hosts that call it.

Start it several times with the same URL: the limit holds over all of them.

    python examples/protect_api.py [URL]       without a URL on a private Redis
"""

import asyncio
import sys

import headgate


class Api:
    """Stands for the service: it notes how much it was given at a time."""

    def __init__(self) -> None:
        self.calls = self.most_calls = self.bytes = self.most_bytes = 0

    async def post(self, body: bytes) -> None:
        self.calls += 1
        self.bytes += len(body)
        self.most_calls = max(self.most_calls, self.calls)
        self.most_bytes = max(self.most_bytes, self.bytes)
        await asyncio.sleep(0.01)
        self.calls -= 1
        self.bytes -= len(body)


async def main() -> None:
    api = Api()
    bodies = [b"x" * (100_000 + 37_000 * (number % 10)) for number in range(60)]
    async with headgate.connect(sys.argv[1] if len(sys.argv) > 1 else None) as client:
        await client.apply("billing-api", kind="gate", limit="1MiB", limit_messages=4)
        async with client.session("invoice-service") as session:
            gate = await session.gate("billing-api", window="1MiB")

            async def call(body: bytes) -> None:
                async with gate.admit(len(body), timeout=30):
                    await api.post(body)

            await asyncio.gather(*(call(body) for body in bodies))
            print(f"{len(bodies)} requests; never more than 4 at a time: {api.most_calls <= 4}")
            print(f"never more than 1 MiB at a time: {api.most_bytes <= 1 << 20}")
            try:
                async with gate.admit("2MiB", timeout=30):
                    pass
            except headgate.MessageTooLarge as error:
                print(error)
        await client.remove("billing-api")


asyncio.run(main())
