"""A face for threads has members that only pass on: same arguments, errors and docstring as those of the one inside."""

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class InnerProperty(Generic[T]):
    """An inner property is read from the one inside."""

    def __init__(self, inner: Callable[[Any], T]) -> None:
        getter: Any = inner  # type checkers have a property of a class as its getter
        self._name: str = getter.fget.__name__
        self.__doc__ = getter.__doc__

    def __get__(self, face: Any, owner: object = None) -> T:
        value: Any = self if face is None else getattr(face._inner, self._name)  # noqa: SLF001 -- a face's other half
        return value  # type: ignore[no-any-return]


def blocking(call: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """Return the same call for threads; it returns when that is done on the loop thread."""

    @functools.wraps(call)
    def wait(face: Any, /, *args: P.args, **named: P.kwargs) -> T:
        work = getattr(face._inner, call.__name__)(*args, **named)  # noqa: SLF001 -- as above
        return face._thread.run(work)  # type: ignore[no-any-return]  # noqa: SLF001 -- as above

    return wait
