"""Given settings are checked together with those that a destination has."""

from collections.abc import Mapping

from headgate.core.levels import check_levels
from headgate.core.limits import OF_KINDS, check_key_limits, limits_of
from headgate.core.limits.fairness import check_turns
from headgate.core.limits.slices import check_slices
from headgate.errors import PolicyError
from headgate.namespace.unlimited_names import LIMITS
from headgate.settings import check_spool


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
