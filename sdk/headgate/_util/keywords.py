"""Hints for unknown arguments of calls, where one is a word of another broker."""

import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from headgate.core.foreign_words import Door, hint

P = ParamSpec("P")
R = TypeVar("R")


def explains(door: Door) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator of a call, whose TypeError about an unknown keyword then says which one is meant."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        known = [name for name in inspect.signature(function).parameters if name != "self"]

        @functools.wraps(function)
        def call(*args: P.args, **named: P.kwargs) -> R:
            for name in named:
                if name not in known:
                    place = ", and a URL's options stand in it" if door == "url" else ""
                    meant = hint(name, door, known)
                    raise TypeError(f"{function.__qualname__}() has no argument {name!r}{place}; {meant}")
            return function(*args, **named)

        return call

    return decorate
