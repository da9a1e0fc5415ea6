"""Policy documents are read, checked, and compiled to rules that clients resolve.

Nodes and the pipeline read them here. It takes pydantic, which the extras `node` and `spark` install, and nothing else
of the SDK imports it.

:func:`load` is the way from a file to a :class:`headgate.core.policy.Policy`; everything that is wrong with the file
comes at once, as :class:`BadDocument`.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from headgate.core.policy import Policy
from headgate.errors import HeadgateError, InvalidValue
from headgate.policy.check import check, needs_maxmemory
from headgate.policy.compile import compile_document
from headgate.policy.problems import BadDocument, Problem
from headgate.policy.read import Format, parse, read
from headgate.policy.thousands import thousands

__all__ = ["BadDocument", "Format", "Problem", "load", "loads", "needs_maxmemory", "note"]


def load(file: str | os.PathLike[str]) -> Policy:
    """Return the policy in a TOML or JSON file, at version 0; :func:`loads` takes its text.

    Raises:
        BadDocument: everything that is wrong with it.
        InvalidValue: that is no path.
    """
    path = _path(file)
    with _readable(path.name):
        return _checked(compile_document(*read(path)))


def loads(text: str, name: str = "policy.toml", form: Format = "toml") -> Policy:
    """Return the policy that a text says; ``name`` is what origins and errors call it.

    Raises:
        BadDocument: everything that is wrong with it.
        InvalidValue: it is no text, or of another form.
    """
    if not isinstance(text, str):
        raise InvalidValue(f"{type(text).__name__}; use text, or load() for a file", setting="text")
    if form not in get_args(Format):
        raise InvalidValue(f"{form!r:.40}; use one of {', '.join(get_args(Format))}", setting="form")
    with _readable(name):
        return _checked(compile_document(*parse(text, name, form)))


def note(file: str | os.PathLike[str]) -> Problem | None:
    """Return what to say of a file that can be used, once: that sizes in it count in thousands, where some do.

    Raises:
        BadDocument: it cannot be read.
        InvalidValue: that is no path.
    """
    return thousands(*read(_path(file)))


def _path(file: object) -> Path:
    if not isinstance(file, str | os.PathLike) or not isinstance(os.fspath(file), str):
        raise InvalidValue(f"{type(file).__name__}; use the path of a file, or loads() for text", setting="file")
    return Path(file)


@contextlib.contextmanager
def _readable(name: str) -> Iterator[None]:
    """Tell of what no check of a single value expects: numbers of thousands of digits, and tables without end."""
    try:
        yield
    except HeadgateError:
        raise
    except (ValueError, OverflowError, RecursionError) as error:
        raise BadDocument([Problem(f"{name}:1", "", f"cannot be used: {error}"[:500])]) from None


def _checked(policy: Policy) -> Policy:
    if problems := check(policy):
        raise BadDocument(problems)
    return policy
