"""Shadow limits of a queue, topic, gate or bucket, read from its fields."""

from collections.abc import Mapping
from math import ceil

from headgate.core.limits.limit import Limit, limits_of
from headgate.explain.levels import LimitState, ShadowState, counts_of


def read_tried(fields: Mapping[str, str], now_ms: int) -> tuple[ShadowState, ...]:
    """Return a queue's, topic's, gate's or bucket's shadow limits, each with its level and its count.

    Args:
        fields: of the destination.
        now_ms: by Redis' clock.
    """
    counts = {name: numbers for name, _, *numbers in counts_of(filter(None, fields.get("shadowed", "").split(";")))}
    levels = (one.partition("=") for one in fields.get("levels", "").split(";")) if fields.get("shadow") else ()
    whole_us = {name: int(us) for name, _, us in levels if us}
    return tuple(
        ShadowState(_level(limit, fields, whole_us, now_ms), "all", *counts.get(name, (0, 0)))
        for name, limit in (limits_of(fields["shadow"]) if fields.get("shadow") else {}).items()
    )


def _level(limit: Limit, fields: Mapping[str, str], whole_us: Mapping[str, int], now_ms: int) -> LimitState:
    if limit.rate is None:
        held = "leased" if fields["kind"] == "gate" else "pending"
        taken = int(fields.get(f"{held}_{limit.name}") or 0)
        return LimitState(limit.name, limit.form, limit.most, limit.most - taken, taken, 0.0)
    later_us = whole_us.get("S_at", 0)
    left_us = max(0, whole_us.get(f"S_{limit.name}", 0) - max(now_ms * 1000, later_us))
    taken = ceil(left_us * limit.rate / 1e6)
    return LimitState(limit.name, limit.form, limit.most, limit.most - taken, taken, left_us / 1e6)
