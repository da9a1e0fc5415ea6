"""Shadow limits: judged and charged beside the real ones, and nobody waits for them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from headgate.core.limits.limit import FREE_RATE, UNLIMITED, Limit, limits_of, limits_text
from headgate.errors import InvalidValue, PolicyError

IN_SHADOW: Final = "shadow"
FIELDS: Final = ("shadow_limits", "shadow_key_limits")


def unlimited(limit: Limit) -> Limit:
    """Return a limit of that name and form that binds nothing, for a shadow limit stands beside a real one.

    >>> unlimited(Limit("tokens", "rate", 5, 10.0)).text
    'tokens rate 1000000000000000.0 4503599627370496'
    """
    return replace(limit, most=UNLIMITED, rate=FREE_RATE if limit.rate else None)


def is_unlimited(limit: Limit) -> bool:
    """Return whether it binds nothing."""
    return limit.most == UNLIMITED


def sides(
    limits: Mapping[str, Limit], key_limits: Mapping[str, Limit], shadows: Mapping[str, Limit],
    key_shadows: Mapping[str, Limit],
) -> dict[str, str]:  # fmt: skip
    """Return the fields of real limits and of shadow limits, where each shadow limit has a real one beside it.

    Raises:
        InvalidValue: they are too many.
    """
    alone = {name: unlimited(limit) for name, limit in shadows.items() if name not in limits}
    return {
        "limits": limits_text({**limits, **alone}), "key_limits": limits_text(key_limits),
        "shadow_limits": limits_text(shadows), "shadow_key_limits": limits_text(key_shadows),
    }  # fmt: skip


def enforce_limits(kind: str | None, fields: dict[str, str]) -> None:
    """Have the limits of a limiter bind, or be shadow limits, as its field ``enforce`` says, which goes.

    Raises:
        PolicyError: it means nothing there.
    """
    enforce, shadows = fields.pop("enforce"), {name: fields.get(name, "") for name in FIELDS}
    if enforce not in ("always", IN_SHADOW, ""):
        raise PolicyError("limits of a limiter bind always, or are shadow limits; use 'shadow'", setting="enforce")
    if enforce != IN_SHADOW:
        fields |= shadows
        return
    if kind != "limiter" or not fields.get("limits"):
        raise PolicyError("shadow is for a limiter, and is given together with its limits", setting="enforce")
    if any(shadows.values()):
        raise PolicyError("all limits are shadow limits; leave shadow_limits out", setting="enforce")
    if any(limit.adapt for limit in limits_of(fields["limits"]).values()):
        raise PolicyError("a limit that adapts cannot be a shadow limit: nobody waits for it", setting="enforce")
    fields |= sides({}, {}, limits_of(fields["limits"]), limits_of(fields.get("key_limits", "")))


def tightest(limits: Mapping[str, Limit], shadows: Mapping[str, Limit]) -> dict[str, Limit]:
    """Return of each name the limit that lets through less: nobody takes more ahead than a shadow limit would give."""
    found = dict(limits)
    for name, shadow in shadows.items():
        real = found.get(name, shadow)
        if real.form == shadow.form:
            rate = min(real.rate, shadow.rate) if real.rate and shadow.rate else None
            found[name] = replace(real, most=min(real.most, shadow.most), rate=rate)
    return found


def check_shadows(limits: Mapping[str, Limit], shadows: Mapping[str, Limit], setting: str = "shadow_limits") -> None:
    """See that shadow limits have real ones of their names and forms beside them.

    Raises:
        InvalidValue: one has not, so that nothing could be counted.
    """
    for name, limit in shadows.items():
        real = limits.get(name)
        if real is None or (real.form == "at_once") != (limit.form == "at_once"):
            what = "there is no such limit" if real is None else f"the limit is {real.form}, its shadow {limit.form}"
            raise InvalidValue(f"nothing can be counted for {name!r}: {what}; give both alike", setting=setting)


def shadow_fields(fields: Mapping[str, Any]) -> tuple[dict[str, Limit], dict[str, Limit]]:
    """Return the shadow limits that a limiter's fields say, of all keys together and of each."""
    return limits_of(fields.get("shadow_limits") or ""), limits_of(fields.get("shadow_key_limits") or "")
