"""A destination with slices has one demand: each slice has a ledger of its own, and one limit is for all of them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, replace
from typing import Any, Final

from headgate.core.names import whole_name
from headgate_pipeline.recommend.demand import DestinationDemand

_SUMMED: Final = frozenset({
    "entries", "senders", "need", "need_m", "mean", "lacked", "sent_m", "taken", "tokens", "refused", "waited",
    "waited_m", "round_trips", "settles",
})  # fmt: skip
_LOWEST: Final = frozenset({"first_ms", "small", "windows"})
_SURE: Final = frozenset({"confidence", "rate_confidence"})
_FIRST: Final = frozenset({"name", "kind", "limits", "mean_size", "slices"})


def together(found: Iterable[DestinationDemand]) -> list[DestinationDemand]:
    """Return what destinations needed, those of slices as one: all of what each of them needed by itself.

    Slices are not at their peaks together, so that is no less than what was needed.
    """
    groups: dict[str, list[DestinationDemand]] = {}
    for one in found:
        groups.setdefault(whole_name(one.name), []).append(one)
    return [_added(name, parts) if len(parts) > 1 else replace(parts[0], name=name) for name, parts in groups.items()]


def _added(name: str, parts: Sequence[DestinationDemand]) -> DestinationDemand:
    kind = next((one.kind for one in parts if one.kind), "")
    values: dict[str, Any] = {"name": name, "kind": kind, "slices": len(parts)}
    sizes = [(one.mean_size, one.sent_m or 0.0) for one in parts if one.mean_size]
    weight = sum(sent for _, sent in sizes)
    if sizes:
        mean = (
            sum(size * sent for size, sent in sizes) / weight if weight else sum(size for size, _ in sizes) / len(sizes)
        )
        values["mean_size"] = mean
    for field in (one.name for one in fields(DestinationDemand) if one.name not in _FIRST | {"tried"}):
        known = [value for one in parts if (value := getattr(one, field)) is not None]
        if known:
            values[field] = _how(field)(known)
    tried: dict[str, tuple[int, int]] = {}
    for one in parts:
        for limit, (times, over) in one.tried.items():
            before = tried.get(limit, (0, 0))
            tried[limit] = before[0] + times, max(before[1], over)
    return DestinationDemand(**values, tried=tried)


def _how(field: str) -> Callable[[Sequence[float]], float]:
    if field in _SUMMED:
        return sum
    if field in _SURE:
        return lambda sure: max(0.0, 1 - sum(1 - one for one in sure))  # each of them holds
    return min if field in _LOWEST else max
