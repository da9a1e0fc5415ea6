"""A face for threads has calls that only pass on: same arguments, errors and docstring as those of the one inside."""

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def blocking(call: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """Return the same call for threads; it returns when that is done on the loop thread."""

    @functools.wraps(call)
    def wait(face: Any, /, *args: P.args, **named: P.kwargs) -> T:
        work = getattr(face._inner, call.__name__)(*args, **named)  # noqa: SLF001 -- a face's other half
        return face._thread.run(work)  # type: ignore[no-any-return]  # noqa: SLF001 -- as above

    return wait
