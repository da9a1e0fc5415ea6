"""A property may be that of a part: it is declared once, there."""

from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, Never, TypeVar, overload

T = TypeVar("T")


class InnerProperty(property, Generic[T]):
    """An inner property is read from a part, whose docstring it has."""

    def __init__(self, inner: Callable[[Any], T], part: str = "_inner") -> None:
        declared: Any = inner  # type checkers have a property of a class as its getter
        self.inner: str = declared.inner if isinstance(inner, InnerProperty) else declared.fget.__name__
        super().__init__(attrgetter(f"{part}.{self.inner}"))
        self.__doc__ = declared.__doc__

    if TYPE_CHECKING:

        @overload  # type: ignore[override]  # of a class it is as above
        def __get__(self, one: None, owner: type | None = None) -> Callable[[Any], T]: ...
        @overload
        def __get__(self, one: object, owner: type | None = None) -> T: ...
        def __get__(self, one: Any, owner: type | None = None) -> Any: ...
        def __set__(self, one: Any, value: Never) -> None: ...
