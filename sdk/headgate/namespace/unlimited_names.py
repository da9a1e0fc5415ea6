"""This module finds whether anything limits a limiter, gate or bucket: if not, its name may be misspelled."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Final

from headgate.errors import UnknownDestination

LIMITS: Final[Mapping[str, tuple[str, ...]]] = {
    "limiter": ("limits",),
    "gate": ("limit_bytes", "limit_messages", "pools", "shadow"),
    "bucket": ("rate", "shadow"),
}
"""By kind, the fields of which one at least limits it."""
MOST_NEAR: Final = 3


def is_limited(fields: Mapping[str, str], kind: str) -> bool:
    """Return whether the fields of a destination of such a kind limit it."""
    return any(fields.get(field, "") not in ("", "unlimited") for field in LIMITS[kind])


def unlimited(name: str, namespace: str, kind: str, known: Iterable[str]) -> UnknownDestination:
    """Return the error about a destination that nothing limits; it names those of ``known`` that are near."""
    others = dict.fromkeys(each for each in known if each != name)
    near = get_close_matches(name[:255], others, n=MOST_NEAR, cutoff=0.6)
    table = "[[limiter]]" if kind == "limiter" else f"[[destination]] with kind = '{kind}'"
    meant = f"; did you mean {' or '.join(map(repr, near))}?" if near else ","
    hint = (
        f"{meant} {'Else give' if near else 'for nothing limits it; give'} that {kind} limits in a policy, as {table}"
    )
    return UnknownDestination(name, namespace, hint, near)
