"""A proxy between a client and Redis that loses, holds, delays and refuses on command.

A *request* is what a client sends on a connection that owes it no reply. To lose a reply means: the request
went to Redis and was applied, the answer is swallowed, the connection is closed, and the client cannot know.
"""

import asyncio
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self
from urllib.parse import parse_qs, unquote, urlsplit

_CHUNK = 1 << 16
_Chunks = asyncio.Queue[tuple[float, bytes]]  # (when to pass it on, data); no data: the sender has closed


@dataclass(eq=False)
class _Connection:
    owed: bool = False  # a request has gone up and nothing has come down since
    doomed: bool = False  # the reply to come is to be lost
    up: _Chunks = field(default_factory=lambda: asyncio.Queue(64))
    down: _Chunks = field(default_factory=lambda: asyncio.Queue(64))


class FaultProxy:
    """Listens on loopback TCP. Modes combine and take effect at once; `pass_through` ends them all.

    `requests` and `lost` count what went through and what was lost.
    """

    def __init__(self, upstream_url: str) -> None:
        self._upstream = urlsplit(upstream_url)
        self._flowing = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.url = ""
        self.requests = 0
        self.lost = 0
        self.pass_through()

    async def start(self) -> str:
        """Listen; return the URL for clients, with the database and credentials of the upstream URL."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        in_path = "" if self._upstream.scheme == "unix" else self._upstream.path.lstrip("/")
        database = in_path or parse_qs(self._upstream.query).get("db", ["0"])[0]
        credentials, at, _ = self._upstream.netloc.rpartition("@")
        self.url = f"redis://{credentials}{at}127.0.0.1:{port}/{database}"
        return self.url

    @property
    def lines(self) -> int:
        """How many connections there are."""
        return len(self._tasks)

    def pass_through(self) -> None:
        """Behave like a wire."""
        self._refusing = False
        self._delay = 0.0
        self._drops = 0
        self._period = 0
        self._flowing.set()

    def hold(self) -> None:
        """Pass nothing either way; connections stay, new ones are taken and wait."""
        self._flowing.clear()

    def delay(self, seconds: float) -> None:
        """Pass everything on that much later, each way, like a long line: order and throughput stay."""
        self._delay = seconds

    def drop_replies(self, count: int) -> None:
        """Lose the next `count` replies."""
        self._drops = count

    def lose_every(self, nth: int) -> None:
        """Lose the reply of every nth request from now on."""
        self._period = nth
        self.requests = 0

    def refuse(self) -> None:
        """Close new connections at once; those that exist go on (`reset` ends them)."""
        self._refusing = True

    def lead_to(self, upstream_url: str) -> None:
        """Lead to another server from now on."""
        self._upstream = urlsplit(upstream_url)
        self.reset()

    def reset(self) -> None:
        """Close all connections, whatever is under way."""
        for task in self._tasks:
            task.cancel()

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        self.reset()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refusing:
            writer.transport.abort()
            return
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: writer.close())  # also where it is cancelled before it begins

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends, tasks = [writer], []
        try:
            server_reader, server_writer = await self._connect()
            ends.append(server_writer)
            line = _Connection()
            passing = [
                asyncio.create_task(self._pass_up(line, server_writer)),
                asyncio.create_task(self._pass_down(line, writer)),
            ]
            tasks = [
                *passing,
                asyncio.create_task(self._read(reader, line.up)),
                asyncio.create_task(self._read(server_reader, line.down)),
            ]
            await asyncio.wait(passing, return_when=asyncio.FIRST_COMPLETED)
        except (OSError, asyncio.CancelledError):
            for end in ends:
                end.transport.abort()
        finally:
            for end in ends:
                end.close()  # what was passed on before still arrives
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._upstream.scheme == "unix":
            return await asyncio.open_unix_connection(unquote(self._upstream.path))
        return await asyncio.open_connection(self._upstream.hostname, self._upstream.port)

    async def _read(self, reader: asyncio.StreamReader, chunks: _Chunks) -> None:
        data = b"-"
        while data:
            try:
                data = await reader.read(_CHUNK)
            except OSError:
                data = b""
            await chunks.put((asyncio.get_running_loop().time() + self._delay, data))

    async def _next(self, chunks: _Chunks) -> bytes:
        due, data = await chunks.get()
        await asyncio.sleep(max(due - asyncio.get_running_loop().time(), 0))
        await self._flowing.wait()
        return data

    async def _pass_up(self, connection: _Connection, server: asyncio.StreamWriter) -> None:
        while data := await self._next(connection.up):
            if not connection.owed:
                connection.owed = True
                self.requests += 1
                connection.doomed = self._period > 0 and self.requests % self._period == 0
            server.write(data)
            await server.drain()

    async def _pass_down(self, connection: _Connection, client: asyncio.StreamWriter) -> None:
        while data := await self._next(connection.down):
            connection.owed = False
            if connection.doomed or self._drops > 0:
                self._drops = max(self._drops - (not connection.doomed), 0)
                self.lost += 1
                return
            client.write(data)
            await client.drain()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()
