"""A face for threads has calls that only pass on: same arguments, errors and docstring as those of the one inside."""

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from headgate.sync.thread import LoopThread

P = ParamSpec("P")
T = TypeVar("T")


class Face(Generic[T]):
    """A face for threads is in front of what is used on the loop thread."""

    def __init__(self, thread: LoopThread, inner: T) -> None:
        self._thread = thread
        self._inner = inner

    def __repr__(self) -> str:
        return repr(self._inner)


def blocking(call: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """Return the same call for threads; it returns when that is done on the loop thread."""

    @functools.wraps(call)
    def wait(face: Any, /, *args: P.args, **named: P.kwargs) -> T:
        work = getattr(face._inner, call.__name__)(*args, **named)  # noqa: SLF001 -- a face's other half
        return face._thread.run(work)  # type: ignore[no-any-return]  # noqa: SLF001 -- as above

    return wait
