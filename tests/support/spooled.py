"""Destinations that spool into a directory of the test's own."""

import asyncio
from pathlib import Path

import headgate
from headgate.core.segment import Reference
from headgate.redis.keys import Address
from headgate.spool.stores import store_fields
from headgate.units import parse_size
from tests.support.waiting import wait_until

PAYLOAD = 1000


def body(number: int) -> bytes:
    """Return a body of :data:`PAYLOAD` bytes that says which it is."""
    return f"{number:06d}".encode().ljust(PAYLOAD, b"x")


def number_of(said: bytes | str) -> int:
    return int(said[:6])


async def spooling(
    client: headgate.Client, folder: Path, name: str = "orders", *, memory: int = 20_000, store_limit: str = "64MiB",
    store_when_full: str = "block", **settings: object,
) -> None:  # fmt: skip
    """Make a destination that spools into a folder; the client's session is to be at Redis."""
    spools = client.parts.registry.spooling.spools
    segment = min(store_limit, "16KiB", key=parse_size)
    await spools.set(
        "disk", store_fields(f"file://{folder}", limit=store_limit, segment=segment, when_full=store_when_full)
    )
    how = {"kind": "queue", "limit": memory, "when_full": "spool", "store": "disk"} | settings
    await client.apply(name, **how)  # type: ignore[arg-type]


async def fill(
    client: headgate.Client, count: int, name: str = "orders", *, first: int = 0, kind: str = "queue"
) -> int:
    """Send so many messages, numbered; returns how many of them were spooled."""
    async with client.session("filler") as session:
        producer = await session.producer(name, kind=kind)
        await asyncio.gather(*(producer.send(body(n), timeout=30) for n in range(first, first + count)))
    return len(await references(client, name))


async def references(client: headgate.Client, name: str = "orders") -> list[bytes]:
    """Return the references that the state has in the place of messages."""
    address = Address.of(client.namespace, name)
    entries = await client.store.browse(address, after=None, count=100_000)
    return [stored for _, stored, *_ in entries if stored[:1] == b"\xc1"]


def segments(folder: Path) -> list[Path]:
    """Return the segments in a folder, in the order of their names."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name != ".headgate")


async def first_segment(client: headgate.Client, folder: Path, name: str = "orders", *, at: int = 0) -> Path:
    """Return the oldest segment that a destination refers to, or that of another of its references."""
    wanted = Reference.parse((await references(client, name))[at])
    return next(path for path in segments(folder) if path.name == wanted.name)


async def swept(folder: Path) -> None:
    """Wait until no segment is left."""
    await wait_until(lambda: not segments(folder), timeout=80, description="no segment is left")
