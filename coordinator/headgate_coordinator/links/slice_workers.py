"""A link has one worker at each slice of its source; most sources have one slice."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import Final

from headgate._util.reconnect import until_answered
from headgate._util.tasks import stop
from headgate.core.links.trouble import STARTING, Trouble
from headgate.namespace.registry import Registry
from headgate.redis.keys import Address
from headgate_coordinator.links.job import LinkTotals
from headgate_coordinator.links.lanes.split_worker import SplitWorker
from headgate_coordinator.links.rules import Phase
from headgate_coordinator.links.worker import LinkWorker

AnyWorker = LinkWorker | SplitWorker
Make = Callable[[Address, int], Awaitable[AnyWorker]]
_IDLE: Final = (Phase.IDLE, Phase.RESERVED)


class SliceWorkers:
    """`SliceWorkers` works at all slices of a source under one lease, and at those that it gets meanwhile.

    Args:
        source: the whole of it.
        registry: says how many slices there are.
        make: returns the worker at a slice of that address and number, which is made if it is not there.

    Attributes:
        workers: those there are, by the number of the slice.
    """

    def __init__(self, source: Address, registry: Registry, make: Make) -> None:
        self.source = source
        self.workers: dict[int, AnyWorker] = {}
        self._registry, self._make = registry, make
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._ending: list[asyncio.Task[None]] = []
        self._beginning: dict[int, Trouble] = {}
        self._done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        # A slice may fail while `run` ends for another reason: nobody asks then, which is no error of its own.
        self._done.add_done_callback(lambda done: done.cancelled() or done.exception())

    def __iter__(self) -> Iterator[LinkWorker]:
        """Return those that write: several at one slice whose target's values say the slice."""
        return iter([lane for worker in self.workers.values() for lane in worker])

    @property
    def trouble(self) -> Trouble | None:
        """Why nothing moves at one of the slices, first what stalls it; None while all move."""
        found = [trouble for worker in self.workers.values() if (trouble := worker.trouble) is not None]
        found += self._beginning.values()
        return next((trouble for trouble in found if trouble.stalls), found[0] if found else None)

    @property
    def carried(self) -> LinkTotals:
        """Messages and bytes forwarded so far."""
        every = [worker.carried for worker in self.workers.values()]
        return LinkTotals(sum(messages for messages, _ in every), sum(size for _, size in every))

    @property
    def waits(self) -> str:
        """Names of the waits in line at the target; empty where a slice has something that does not wait there."""
        machines = [worker.forwarder for worker in self]
        if all(one.waits or one.phase in _IDLE for one in machines):
            return "+".join(one.waits for one in machines if one.waits)
        return ""

    async def run(self) -> int:
        """Work until a later lease is in force, and return its number.

        Raises:
            HeadgateError: a call failed otherwise than for want of an answer; what had begun is done anew.
        """
        await self._registry.follow(self.source, self._changed)
        try:
            await self._registry.refresh(self.source)  # it may have changed before it was followed
            self._changed({})
            return await self._done
        finally:
            await self._registry.unfollow(self.source, self._changed)
            await asyncio.gather(*(stop(task) for task in (*self._tasks.values(), *self._ending)))

    def _changed(self, _fields: Mapping[str, str]) -> None:
        slices = self._registry.slices(self.source)
        self._ending = [task for task in self._ending if not task.done()]
        for number in [number for number in self._tasks if number >= len(slices)]:  # it was made anew with fewer
            self._ending.append(task := self._tasks.pop(number))
            task.cancel()
            self._beginning.pop(number, None)
            self.workers.pop(number, None)
        for number, address in enumerate(slices):
            if number not in self._tasks:
                self._beginning[number] = STARTING
                task = asyncio.create_task(self._work(address, number), name=f"headgate link from {address.name}")
                self._tasks[number] = task

    async def _work(self, address: Address, number: int) -> None:
        try:
            worker: AnyWorker = await until_answered(partial(self._missed, number))(self._make, address, number)
            self.workers[number] = worker
            del self._beginning[number]
            later = await worker.run()
        except Exception as error:  # noqa: BLE001 -- it is raised by `run`
            if not self._done.done():
                self._done.set_exception(error)
        else:
            if not self._done.done():
                self._done.set_result(later)

    def _missed(self, number: int, error: BaseException) -> None:
        """Note why a slice waits, such as for its master: the others go on."""
        self._beginning[number] = Trouble.of("error", error)
