"""How much tests try: of what is random a sixteenth in `make test`, all where `HEADGATE_TEST_WHOLE` is set, as in
`make test-servers`; of servers one a test, by turns; of what takes longest in `make soak` the share that
`HEADGATE_SOAK_SHARE` says; of a table all of its cases, in one test.
"""

import contextlib
import functools
import inspect
import os
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import pytest

WHOLE = bool(os.environ.get("HEADGATE_TEST_WHOLE"))
SOAK_SHARE = float(os.environ.get("HEADGATE_SOAK_SHARE", "0.5"))
"""Of what a soak could try; a half takes an hour and a half on two cores that others use too."""

_PLACES: Final = ("redis_url", "cluster_url", "url")
"""Fixtures that are parametrised by servers."""


def examples(count: int) -> int:
    """Return how many examples to try of so many."""
    return count if WHOLE else max(count // 16, min(count, 6))


def share_of(things: Iterable[Any], share: int) -> list[Any]:
    """Return every ``share``-th of them, or all where all is tried."""
    return list(things)[:: 1 if WHOLE else share]


def at_another_server(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    """Return the tests that are left to another server.

    What scripts, rights and connections do is told on one server at a time: a file has some of its tests on the oldest
    and some on the newest, always the same ones. What is marked `each_server` or `soak` runs on all of them, and what
    was asked for by its name where it was asked for.
    """
    files: dict[str, dict[str, dict[str, pytest.Item]]] = defaultdict(lambda: defaultdict(dict))
    for item in items:
        if isinstance(item, pytest.Function) and (found := _case(item)):
            case, place = found
            files[str(item.path)][case][place] = item
    left: set[pytest.Item] = set()
    for cases in files.values():
        several = sorted((case for case in cases if len(cases[case]) > 1), key=lambda case: zlib.crc32(case.encode()))
        for turn, case in enumerate(several):
            places = sorted(cases[case])
            left |= {item for place, item in cases[case].items() if place != places[turn % len(places)]}
    return left


def _case(item: pytest.Function) -> tuple[str, str] | None:
    """Return what is the same on all servers, and the server; None where there is no choice."""
    spec = getattr(item, "callspec", None)
    name = next((name for name in _PLACES if spec and name in spec.params), None)
    if spec is None or name is None or any(map(item.get_closest_marker, ("each_server", "soak"))):
        return None
    place = str(getattr(spec.params[name], "name", spec.params[name]))
    return f"{item.nodeid.partition('[')[0]}[{'-'.join(one for one in spec._idlist if one != place)}]", place


def for_long(count: int) -> int:
    """Return how many of so many a soak tries."""
    return max(1, round(count * SOAK_SHARE))


def each(names: str | tuple[str, ...], cases: Iterable[Any]) -> Callable[[Any], Any]:
    """Return a decorator as `pytest.mark.parametrize` is one, but all cases run in one test, whichever fail.

    For cases that take far less than their fixtures, such as a node in a process of its own, which they share: each
    must find them as the first did. Those of an async test run one after another too.
    """
    wanted = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    rows = [tuple(case) if len(wanted) > 1 else (case,) for case in cases]
    assert rows, "there is no case"

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        @contextlib.contextmanager
        def noted(row: tuple[Any, ...], failed: list[BaseException]) -> Iterator[None]:
            try:
                yield
            except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 -- the others run all the same
                error.add_note(f"in the case {', '.join(map(repr, row))[:500]}")
                failed.append(error)

        def judge(failed: list[BaseException]) -> None:
            if failed:
                raise failed[0] if len(failed) == 1 else BaseExceptionGroup(f"{len(failed)} of {len(rows)}", failed)

        @functools.wraps(test)
        def of_all(**fixtures: Any) -> None:
            failed: list[BaseException] = []
            for row in rows:
                with noted(row, failed):
                    test(**fixtures, **dict(zip(wanted, row, strict=True)))
            judge(failed)

        @functools.wraps(test)
        async def of_all_async(**fixtures: Any) -> None:
            failed: list[BaseException] = []
            for row in rows:
                with noted(row, failed):
                    await test(**fixtures, **dict(zip(wanted, row, strict=True)))
            judge(failed)

        signature = inspect.signature(test)
        kept = [parameter for name, parameter in signature.parameters.items() if name not in wanted]
        found: Any = of_all_async if inspect.iscoroutinefunction(test) else of_all
        found.__signature__ = signature.replace(parameters=kept)
        return found  # type: ignore[no-any-return]

    return decorate
