"""Limits, keys and lengths of time in words, as texts about limiters have them."""

from collections.abc import Mapping
from typing import Final

from headgate.explain.levels import LimitState, ShadowState
from headgate.figures import rounded


def limit_text(limit: LimitState, held: str = "held at once") -> str:
    """Return a limit and its level in words; ``held`` as for :func:`level_text`."""
    return f"{limit.name}: {level_text(limit, held)}{adapting_text(limit)}"


def level_text(limit: LimitState, held: str = "held at once") -> str:
    """Return the level of a limit in words; ``held`` is one for what counts while it is there."""
    withheld = f", {limit.withheld} withheld after a hold-off" if limit.withheld and not limit.is_unlimited else ""
    text = f"{limit.taken} of {'unlimited' if limit.is_unlimited else limit.limit}"
    if limit.form == "at_once":
        return f"{text} {held}{withheld}"
    if limit.form == "quota":
        return f"{text} used{withheld}, begins anew in {duration(limit.reset_after)}"
    return f"{text} taken{withheld}{f', whole again in {duration(limit.reset_after)}' if limit.reset_after else ''}"


def shadow_text(shadow: ShadowState, key: str | None, held: str = "held at once") -> str:
    """Return a shadow limit, and what it would have kept waiting, in words; ``held`` as for :func:`level_text`."""
    whose = f" of {shown(key)}" if shadow.rule == "key" else ""
    count = f"{shadow.would_wait} would have waited"
    above = f", at most {shadow.most_above} above it" if shadow.would_wait else ""
    return f"shadow{whose} {limit_text(shadow.level, held)}; {count}{above}"


_BECAUSE: Final[Mapping[str, str]] = {
    "start": "nothing was too much so far", "grow": "nothing was too much",
    "slow": "holds took longer than without a queue",
    "overload": "too many met an overload", "probe": "to see how long holds take without a queue",
}  # fmt: skip


def adapting_text(limit: LimitState) -> str:
    """Return how a limit adapts, and why it changed last; empty where it does not adapt."""
    one = limit.adapting
    if one is None:
        return ""
    text = f", adapts from {one.floor} to {one.ceiling} ({one.adapt})"
    if one.reason not in _BECAUSE:
        return text
    ended = f"{one.ok} ended well and {one.overloads} with an overload, {duration(one.mean)} each"
    return f"{text}; {duration(one.ago)} ago from {one.before}, for {_BECAUSE[one.reason]}: {ended}"


def duration(seconds: float) -> str:
    """Return a length of time as people read it: 1.5 s, 12 min, 5 h, 3 d."""
    if seconds < 120:
        return f"{rounded(seconds)} s"
    for size, unit, most in ((60, "min", 7200), (3600, "h", 172_800)):
        if seconds < most:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86_400:.0f} d"


def shown(key: str | None) -> str:
    """Return a key as texts name it."""
    return "no key" if key is None else f"key {key}"
