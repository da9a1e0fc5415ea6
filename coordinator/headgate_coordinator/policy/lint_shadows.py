"""Traps of shadow limits: those that can never count anybody."""

from collections.abc import Iterator, Mapping

from headgate.core.limits.destination_shadow import as_shadow
from headgate.core.limits.limit import Limit, limits_of
from headgate.core.policy import Resolved
from headgate_coordinator.policy.finding import Finding

_SIDES = (("shadow_limits", "limits", "{}"), ("shadow_key_limits", "key_limits", "shadow_per_key.{}"))


def shadow_traps(resolved: Resolved) -> Iterator[Finding]:
    """Yield the shadow limits of a name below which a limit binds already."""
    fields = resolved.fields
    if resolved.kind == "limiter":
        for shadow, binding, key in _SIDES:
            yield from _above(resolved, shadow, limits_of(fields.get(binding, "")), key)
    elif fields.get("shadow"):
        yield from _above(resolved, "shadow", limits_of(as_shadow(fields)), "shadow.{}")


def _above(resolved: Resolved, field: str, binding: Mapping[str, Limit], key: str) -> Iterator[Finding]:
    origin = resolved.origins.get(field, "")
    for name, shadow in limits_of(resolved.fields.get(field, "")).items():
        real = binding.get(name)
        if origin and real is not None and _counts_nobody(shadow, real):
            why = f"it lets through all that the limit beside it does, {real}: it never counts anybody"
            remedy = "make it lower than the limit that binds, or leave it out"
            yield Finding("HG138", origin.partition("@")[2], key.format(name), why, remedy)


def _counts_nobody(shadow: Limit, real: Limit) -> bool:
    return shadow.form == real.form and shadow.most >= real.most and (shadow.rate or 0) >= (real.rate or 0)
