"""A process that spools, or receives what was spooled, and dies at a step of that; run as a module by its test."""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import headgate
from headgate.redis.store import Store
from headgate.redis.stores.spools import SpoolStore
from headgate.spool.storage import Storage

TTL = "1s"
BODY = "x" * 994


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def hook(
    owner: type, name: str, *, after: bool, calls: int, applies: Callable[..., bool] = lambda *_, **__: True
) -> None:
    """Die at a call of a method: before it, or after it was done."""
    inner = getattr(owner, name)
    left = calls

    async def hooked(*arguments: Any, **options: Any) -> Any:
        nonlocal left
        if not applies(*arguments, **options):
            return await inner(*arguments, **options)
        left -= 1
        if left == 0 and not after:
            die()
        answer = await inner(*arguments, **options)
        if left == 0:
            die()
        return answer

    setattr(owner, name, hooked)


def _half(self: Storage, path: str, data: bytes) -> None:
    """Write half of a segment, and die."""
    at = f"{self._root}/{path}"
    self._fs.makedirs(at.rpartition("/")[0], exist_ok=True)
    with self._fs.open(at, "wb") as file:
        file.write(data[: len(data) // 2])
        file.flush()
        die()


def _spools(*_: Any, **options: Any) -> bool:
    return options.get("beyond") == "spool"


STEPS: dict[str, Callable[[int], None]] = {
    "before-hold": lambda n: hook(SpoolStore, "hold", after=False, calls=n),
    "after-hold": lambda n: hook(SpoolStore, "hold", after=True, calls=n),
    "in-write": lambda n: setattr(Storage, "_write", _half),
    "after-write": lambda n: hook(Storage, "write", after=True, calls=n),
    "after-publish": lambda n: hook(Store, "publish", after=True, calls=n, applies=_spools),
    "before-read": lambda n: hook(Storage, "read", after=False, calls=n),
    "after-read": lambda n: hook(Storage, "read", after=True, calls=n),
    "before-delete": lambda n: hook(Storage, "delete", after=False, calls=n),
    "after-delete": lambda n: hook(Storage, "delete", after=True, calls=n),
    "after-free": lambda n: hook(SpoolStore, "free", after=True, calls=n),
    "after-unspool": lambda n: hook(SpoolStore, "unspool", after=True, calls=n),
}
WRITES = ("before-hold", "after-hold", "in-write", "after-write", "after-publish")


async def send(client: headgate.Client) -> None:
    """Send for ever, eight at a time, and say which have a receipt."""
    numbers = iter(range(1 << 30))
    async with client.session("crash", ttl=TTL) as session:
        producer = await session.producer("orders")

        async def one() -> None:
            for number in numbers:
                await producer.send(f"{number:06d}{BODY}", timeout=60)
                print(number, flush=True)

        await asyncio.gather(*(one() for _ in range(8)))


async def receive(client: headgate.Client) -> None:
    """Receive and accept, and say what was accepted for sure."""
    async with client.session("crash", ttl=TTL) as session:
        consumer = await session.consumer("orders", window=20)
        while message := await consumer.receive(timeout=60):
            await message.accept()
            await consumer.flush()
            print(int(message.body[:6]), flush=True)


async def main(url: str, namespace: str, step: str, calls: str) -> None:
    STEPS[step](int(calls))
    work: Callable[[headgate.Client], Awaitable[None]] = send if step in WRITES else receive
    async with headgate.connect(url, namespace=namespace) as client:
        await work(client)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
