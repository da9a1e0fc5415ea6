"""Functions of Spark jobs may call something fragile: each row is admitted by a limit that all executors share."""

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import pandas as pd

import headgate.sync
from headgate import InvalidValue
from headgate.charge import Held, Key, SyncCharge
from headgate.charge.held import TAKEN

ROWS: Final = 100
"""Rows that are admitted together, where a call does not say."""


def limited(
    function: Callable[..., Any], on: Callable[[], Any], *, rows: int = ROWS, key: Key = None,
    timeout: float | str = "unlimited", **cost: int | Callable[[Any], int],
) -> Callable[..., Any]:  # fmt: skip
    """Return a function for ``mapInPandas``, ``pandas_udf`` or ``applyInPandas``, whose rows wait to be admitted.

    ::

        limits = headgate.sync.PerProcess("redis://...", "shop")
        frame.mapInPandas(limited(call, limits.limiter("legacy"), requests=1), schema)

    Rows are held until the function asks for more, or returns. A process that works for Spark opens one session, and
    what it holds is free after that session's TTL if it is killed.

    Args:
        function: for ``mapInPandas``, of an iterator of frames; for ``pandas_udf``, of series, or of an iterator of
            series or of tuples of them; or for ``applyInPandas``, of a frame, or of its key and a frame. A frame by
            itself may be a group, and is admitted whole.
        on: of :class:`headgate.sync.PerProcess`; it goes to executors, and opens nothing before.
        rows: admitted together; what they take must not be more than the limit ever admits.
        key: for whom, of all rows; or what returns it, of a part of a frame, or the first series.
        timeout: seconds to wait before a task fails; without an end by default.
        cost: the amount of a row, by the names of limits, ``size`` of a gate, ``tokens`` of a bucket; or what returns
            that of a part. A part of which all are 0 waits for nothing.

    Raises:
        InvalidValue: rows or an amount is no whole number from 1 on. Tasks fail by the errors of
            :meth:`headgate.Limiter.admit`.
    """
    if not isinstance(on, headgate.sync.Opener):
        raise InvalidValue(f"{on!r:.80}: use a limiter, gate or bucket of headgate.sync.PerProcess", setting="on")
    for name, number in (("rows", rows), *cost.items()):
        if not callable(number) and (not isinstance(number, int) or number < 1):
            raise InvalidValue(f"{number!r:.80}; use a whole number from 1 on", setting=name)
    amounts = {name: _OfPart(amount) if callable(amount) else _Each(amount) for name, amount in cost.items()}
    charge = SyncCharge(on, key=key, timeout=timeout, settle=None, **amounts)

    @functools.wraps(function)
    def call(first: Any, *others: Any) -> Any:
        of_part: Callable[..., Any] = function
        columns = (first, *others)
        if others and isinstance(first, tuple):  # the key of a group, before its frame
            of_part, columns = functools.partial(function, first), others
        if isinstance(columns[0], pd.Series | pd.DataFrame):
            results = [*_results(of_part, charge, rows, columns)]
            if not isinstance(results[0], pd.Series | pd.DataFrame):
                wrong = f"it returned {results[0]!r:.80}, and not a row for each that it was given"
                raise InvalidValue(wrong, setting=getattr(function, "__name__", "function"))
            return pd.concat(results)
        return function(_admitted(charge, rows, first))

    with contextlib.suppress(TypeError, ValueError):  # of what is written in C nothing is known
        call.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]  # Spark looks there for a key
    return call


class _Each:
    """The amount of a part is that of a row, times its rows."""

    def __init__(self, amount: int) -> None:
        self._amount = amount

    def __call__(self, part: Any) -> int:
        return self._amount * len(part)


class _OfPart:
    """Return the amount of a part as a plain number: a sum of a column is one of numpy."""

    def __init__(self, amount: Callable[[Any], Any]) -> None:
        self._amount = amount

    def __call__(self, part: Any) -> Any:
        amount = self._amount(part)
        return int(amount) if isinstance(amount, np.integer) else amount


def _admit(charge: SyncCharge, part: Any) -> Held:
    """Return what a part is admitted with; a limiter admits nothing of which nothing is taken."""
    if charge.cost and not any(amount(part) for amount in charge.cost.values() if callable(amount)):
        return TAKEN
    return charge.admit(part)


def _admitted(charge: SyncCharge, rows: int, frames: Iterator[Any]) -> Iterator[Any]:
    """Yield frames or series, or tuples of series, in parts that are admitted."""
    for frame in frames:
        columns = frame if isinstance(frame, tuple) else (frame,)
        for begin in range(0, len(columns[0]), rows):
            parts = tuple(column.iloc[begin : begin + rows] for column in columns)
            held = _admit(charge, parts[0])
            try:
                yield parts if isinstance(frame, tuple) else parts[0]
            finally:
                held.release()


def _results(function: Callable[..., Any], charge: SyncCharge, rows: int, columns: tuple[Any, ...]) -> Iterator[Any]:
    first = columns[0]
    rows = max(rows, len(first)) if isinstance(first, pd.DataFrame) else rows  # half a group is none
    for begin in range(0, max(1, len(first)), rows):
        parts = [series.iloc[begin : begin + rows] for series in columns]
        if not len(parts[0]):
            yield function(*parts)
            return
        held = _admit(charge, parts[0])
        try:
            yield function(*parts)
        finally:
            held.release()
