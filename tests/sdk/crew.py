"""Two processes in one role, of which now and then the older is killed and another takes its place."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Self

from tests.sdk.workers import Worker


class Crew:
    """A crew is two processes in a role; whoever is alive is killed with -9 as its block ends.

    Args:
        role: as :class:`Worker` has it.
        arguments: of the role; the number of the process comes after them, so that each has another seed.
        name: how that number is told.
    """

    def __init__(self, role: str, *arguments: object, name: str = "{}") -> None:
        self._role, self._arguments, self._name = role, arguments, name
        self._stack = ExitStack()
        self._begun = 0
        self.alive: list[Worker] = []

    async def __aenter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self._stack)
            for worker in (self._begin(), self._begin()):
                await asyncio.to_thread(worker.ready)
            stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _begin(self) -> Worker:
        number, self._begun = self._begun, self._begun + 1
        worker = self._stack.enter_context(Worker(self._role, *self._arguments, self._name.format(number)))
        self.alive.append(worker)
        return worker

    def kill_one(self) -> Worker:
        """Kill the older with -9; returns the one in its place, which may not be ready yet."""
        self.alive.pop(0).kill9()
        return self._begin()

    async def replace_one(self) -> None:
        """Kill the older with -9, and wait until there is another in its place."""
        await asyncio.to_thread(self.kill_one().ready)

    @contextmanager
    def still(self) -> Iterator[None]:
        """Have all stand still."""
        for worker in self.alive:
            worker.sigstop()
        yield
        for worker in self.alive:
            worker.sigcont()
