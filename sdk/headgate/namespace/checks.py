"""Given settings are checked: with those that a destination has, and whether anything limits one that is new."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Final

from headgate.core.levels import check_levels
from headgate.core.limits import OF_KINDS, check_key_limits, limits_of
from headgate.core.limits.fairness import check_turns
from headgate.core.limits.slices import check_slices
from headgate.core.policy import Policy
from headgate.errors import PolicyError, UnknownDestination
from headgate.redis.keys import Address
from headgate.settings import check_spool

LIMITS: Final[Mapping[str, tuple[str, ...]]] = {
    "limiter": ("limits",),
    "gate": ("limit_bytes", "limit_messages", "pools", "shadow"),
    "bucket": ("rate", "shadow"),
}
"""By kind, the fields of which one at least limits it."""
MOST_NEAR: Final = 3


def check_together(fields: Mapping[str, str], given: Mapping[str, str]) -> None:
    """See that what is given goes with what a destination has beside; ``fields`` are of both.

    Raises:
        PolicyError: it does not, and which setting.
    """
    for kind, needs, what in (("bucket", LIMITS["bucket"], "a rate"), ("limiter", ("limits",), "limits")):
        if given.get("kind") == kind and not any(fields.get(name) for name in needs):
            raise PolicyError(f"a {kind} needs {what}")
    check_levels(fields, given)
    check_spool(fields, given)
    check_turns(fields, given)
    check_slices(fields, given)
    _check_key_limits(fields)


def _check_key_limits(fields: Mapping[str, str]) -> None:
    """See that the limits of each key of a gate or a bucket are some that it has."""
    of_kind = OF_KINDS.get(fields.get("kind", ""))
    if of_kind is not None and fields.get("key_limits"):
        check_key_limits(of_kind, limits_of(fields["key_limits"]))


def is_limited(fields: Mapping[str, str], kind: str) -> bool:
    """Return whether the fields of a destination of such a kind limit it."""
    return any(fields.get(field, "") not in ("", "unlimited") for field in LIMITS[kind])


async def see_that_it_is_limited(
    policy: Policy, address: Address, kind: str, read: Callable[[Address], Awaitable[Mapping[str, str]]],
    kinds: Mapping[str, str | None],
) -> None:  # fmt: skip
    """See that something limits a limiter, or with ``strict`` a gate or a bucket.

    Args:
        policy: in force.
        address: what is to be made, if it is not there.
        kind: of it.
        read: returns the settings of a destination that is there.
        kinds: of destinations that are known, by name: the error names those that are called alike.

    Raises:
        UnknownDestination: nothing does.
    """
    if not (policy.strict or kind == "limiter") or is_limited(policy.resolve(address.shown, kind).fields, kind):
        return
    stored = await read(address.whole)
    if is_limited(stored, kind) or stored.get("kind", kind) != kind:
        return
    known = [rule.match for rule in policy.rules if rule.kind == kind]
    known += [name for name, its_kind in kinds.items() if its_kind == kind]
    raise unlimited(address.shown, address.namespace, kind, known)


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
