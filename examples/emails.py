"""A mail provider allows 20 e-mails a second and 5 at once, over all hosts: a bucket.

python examples/emails.py [URL]            without a URL on a private Redis
"""

import asyncio
import sys
import time

import headgate


async def main() -> None:
    async with headgate.connect(sys.argv[1] if len(sys.argv) > 1 else None) as client:
        await client.apply("emails", kind="bucket", rate="20/s", burst=5)
        async with client.session("host-1") as one, client.session("host-2") as two:
            buckets = [await one.bucket("emails"), await two.bucket("emails")]
            began = time.monotonic()
            sent: list[float] = []

            async def mail(number: int) -> None:
                await buckets[number % 2].take(1, timeout=10)
                sent.append(time.monotonic() - began)

            await asyncio.gather(*(mail(number) for number in range(15)))
            print(f"15 e-mails from two hosts: 5 at once, the last after {max(sent):.1f} s")
            try:
                await asyncio.gather(*(buckets[0].take(1, timeout=0.1) for _ in range(10)))
            except headgate.CreditTimeout as error:
                print(f"too many for 0.1 s: {error.reason}")
        await client.remove("emails")


asyncio.run(main())
