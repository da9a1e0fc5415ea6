"""Requests to admin HTTP as raw bytes, to admit at a limiter among them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

BODY = b'{"amounts": {"slots": 1}}'
MOST = 1000
"""Slots of the limiter ``llm``."""


@contextlib.asynccontextmanager
async def connected(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()  # with what is written and was not read
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def answer(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Return the head of an answer, and its body."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
    return head, await reader.readexactly(length)
