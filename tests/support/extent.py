"""How much tests try: of what is random a quarter in `make test`, all where `HEADGATE_TEST_WHOLE` is set, as in
`make soak`; of a table all of its cases, in one test.
"""

import functools
import inspect
import os
from collections.abc import Callable, Iterable
from typing import Any

import pytest

WHOLE = bool(os.environ.get("HEADGATE_TEST_WHOLE"))


def examples(count: int) -> int:
    """Return how many examples to try of so many."""
    return count if WHOLE else max(count // 4, min(count, 15))


def each(names: str | tuple[str, ...], cases: Iterable[Any]) -> Callable[[Any], Any]:
    """Return a decorator as `pytest.mark.parametrize` is one, but all cases run in one test, whichever fail.

    For cases that are looked at in microseconds, where a test for each would take a hundred times as long. They share
    the fixtures, and none of them waits.
    """
    wanted = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    rows = [tuple(case) if len(wanted) > 1 else (case,) for case in cases]
    assert rows, "there is no case"

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def of_all(**fixtures: Any) -> None:
            failed: list[BaseException] = []
            for row in rows:
                try:
                    test(**fixtures, **dict(zip(wanted, row, strict=True)))
                except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 -- the others run all the same
                    error.add_note(f"in the case {', '.join(map(repr, row))[:500]}")
                    failed.append(error)
            if failed:
                raise failed[0] if len(failed) == 1 else BaseExceptionGroup(f"{len(failed)} of {len(rows)}", failed)

        signature = inspect.signature(test)
        kept = [parameter for name, parameter in signature.parameters.items() if name not in wanted]
        of_all.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        return of_all

    return decorate
