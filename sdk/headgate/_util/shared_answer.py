"""A shared answer is given to all callers who ask the same at the same time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from headgate.errors import HeadgateError

T = TypeVar("T")


class SharedAnswer(Generic[T]):
    """A shared answer is asked for once for all callers that came while it was asked for the last time.

    Nobody gets one that was asked for before he came: something may have changed in between.
    """

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._asked = 0
        self._answered = 0
        self._outcome: T | HeadgateError

    async def ask(self, question: Callable[[], Awaitable[T]]) -> T:
        """Return the answer, or raise the error, of the next time that it is asked; perhaps by this caller."""
        came = self._asked
        async with self._turn:
            if self._answered <= came:
                self._asked += 1
                number = self._asked  # kept as it is answered: a caller may give up before
                try:
                    self._outcome = await question()
                except HeadgateError as error:
                    self._outcome = error
                self._answered = number
            if isinstance(self._outcome, HeadgateError):
                raise self._outcome.with_traceback(None)
            return self._outcome
