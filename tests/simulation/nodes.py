"""Nodes of a world: the real ones, with what forwards between destinations, on sockets that the world simulates."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Final
from unittest import mock

import headgate
from headgate.client import Client
from headgate.errors import HeadgateError
from headgate_coordinator.node import node as node_module
from headgate_coordinator.node.options import NodeOptions
from headgate_coordinator.security import Users, users
from headgate_coordinator.service.service import service
from tests.simulation.loop import Process
from tests.simulation.world import World

PORT: Final = 5672
NODE_FAULTS: Final = ("node frozen", "node killed", "node cut", "node reset")


class _Door:
    """The door of a node in a world: connections are taken on as they come."""

    def __init__(self, protocol: Callable[[], asyncio.Protocol], *_: Any) -> None:
        self._protocol = protocol
        self._listening: Any = None

    async def listen(self, host: str, port: int, **_: Any) -> int:
        self._listening = await asyncio.get_running_loop().create_server(self._protocol, host, port)
        return port

    def close(self) -> None:
        if self._listening is not None:
            self._listening.close()


@contextlib.contextmanager
def doors() -> Iterator[None]:
    """Have nodes listen in their world, and not at the system's ports."""
    with mock.patch.object(node_module, "Door", _Door), mock.patch.object(users, "hashed"):  # which takes its time
        yield


class Nodes:
    """The nodes of one world; each has the name of its host and begins anew after its process died."""

    def __init__(self, world: World, count: int) -> None:
        self.world = world
        self.names = [f"n{number}" for number in range(count)]
        self.processes: dict[str, Process] = {}

    def begin(self) -> None:
        """Start them all."""
        for name in self.names:
            self.start(name)

    def start(self, name: str) -> None:
        """Start one, again if it died."""
        process = self.processes[name] = self.world.process(name)
        self.world.spawn(process, self._serve(name))

    def client(self) -> Client:
        """Return a client that comes to any of them."""
        return headgate.connect(f"amqp://{','.join(self.names)}", namespace="sim")

    async def _serve(self, name: str) -> None:
        while True:
            try:
                async with self._serving(name):
                    self.world.note(name, "serves")
                    await asyncio.Event().wait()
            except (HeadgateError, OSError) as error:
                self.world.note(name, "does not serve", type(error).__name__)
                await asyncio.sleep(0.2)

    @contextlib.asynccontextmanager
    async def _serving(self, name: str) -> AsyncIterator[None]:
        async with self.world.client() as client:
            options = NodeOptions(host=name, port=PORT, name=name)
            async with service(client, options, Users.from_redis, None):
                yield

    # Faults. Each ends by itself.

    def befall(self, what: str, which: int, seconds: float) -> None:
        """Have something happen to one of them."""
        name = self.names[which % len(self.names)]
        process, world, loop = self.processes[name], self.world, self.world.loop
        if process.dead or process.frozen:
            return
        match what:
            case "node frozen":
                process.frozen = True
                loop.at(loop.now + seconds, self._thaw, process)
            case "node killed":
                world.kill(process)
                world.network.refuse(name)
                loop.at(loop.now + seconds, self.start, name)
            case "node cut":
                for server in world.deployment.servers:
                    world.network.cut(process, server.process, loop.now + seconds)
            case "node reset":
                world.network.reset(process)
            case _:
                raise AssertionError(what)

    def _thaw(self, process: Process) -> None:
        if not process.dead:
            self.world.loop.thaw(process)
