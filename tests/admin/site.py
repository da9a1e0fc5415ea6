"""Admin HTTP in a thread of its own, so that a test may wait for the browser while it serves."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, Self, TypeVar

import headgate
from headgate_coordinator.admin import AdminServer, create_app
from tests.admin.standin import StandIn
from tests.support.ports import own_port

T = TypeVar("T")


class Site:
    """A client, a node and its page; ``run`` runs a coroutine where they live."""

    def __init__(self, redis_url: str, namespace: str, token: str | None = None, read_token: str | None = None) -> None:
        self.node = StandIn()
        self._redis_url = redis_url
        self._namespace = namespace
        self._token, self._read_token = token, read_token
        self._port = own_port()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="site")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/"

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Start what goes on until the site closes."""
        self._tasks.append(asyncio.run_coroutine_threadsafe(work, self._loop))

    def __enter__(self) -> Self:
        self._tasks: list[Any] = []
        self._thread.start()
        try:
            self.run(self._start())
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        try:
            for task in self._tasks:
                task.cancel()
            self.run(self._close())
        finally:
            self._stop()

    async def _start(self) -> None:
        self.client = await headgate.connect(self._redis_url, namespace=self._namespace)
        app = create_app(self.client, self.node, token=self._token, read_token=self._read_token)
        self._server = AdminServer(app, token=self._token, port=self._port)
        await self._server.start()

    async def restart(self) -> None:
        """Stop serving, and serve again at the same port."""
        app = create_app(self.client, self.node, token=self._token, read_token=self._read_token)
        self._server = AdminServer(app, token=self._token, port=self._port)
        await self._server.start()

    async def silence(self) -> None:
        """Stop serving."""
        await self._server.close()

    async def _close(self) -> None:
        await self._server.close()
        await self.client.close()

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
