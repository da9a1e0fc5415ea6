"""The linter knows traps of limiters: limits that can never be reached, or kept, or that keep somebody out for ever."""

import math
from collections.abc import Iterator, Sequence
from typing import Final

from headgate.core.limits.bands import BANDS
from headgate.core.limits.limit import Limit, limits_of
from headgate.core.limits.user_limit import UserLimit
from headgate.core.policy import Resolved
from headgate_coordinator.policy.finding import Finding

CODES: Final = ("HG119", "HG120", "HG121", "HG122", "HG123", "HG124", "HG128", "HG136", "HG137", "HG139")
MOST_PASSED: Final = 30.0
"""Seconds, or times a limit: as long as calls wait that do not say."""
MOST_RATIO: Final = 100
"""Of the weights of two keys: the lesser gets a hundredth then."""


def limiter_traps(resolved: Resolved) -> Iterator[Finding]:
    """Yield what stalls, or does not limit, at the limiters that a name stands for."""
    if resolved.kind != "limiter" or "limits" not in resolved.origins:
        return
    limits, of_keys = (limits_of(resolved.fields.get(field, "")) for field in ("limits", "key_limits"))
    for found in (
        _above_all(limits, of_keys), _bursts("limits", limits), _bursts("key_limits", of_keys),
        _zones(resolved, limits), _weights(resolved), _sums(resolved, limits, of_keys), _slices(resolved, limits),
        _bands(resolved), _reserves(resolved, limits), _sheds(resolved),
    ):  # fmt: skip
        for code, field, key, stalls, remedy in found:
            place = resolved.origins.get(field, resolved.origins["limits"]).partition("@")[2]
            yield Finding(code, place, key, stalls, remedy)


def quota_traps(limits: Sequence[UserLimit]) -> Iterator[Finding]:
    """Yield quotas of users that never count: of each user the first that covers it does."""
    for position, limit in enumerate(limits):
        for before in limits[:position]:
            if behind := [user for user in limit.users if before.covers(user)]:
                users = ", ".join(map(repr, behind))
                why = f"{users} is covered by the quota {before.name!r} already, and the first one counts"
                yield Finding("HG139", limit.origin, "user_limit.users", why, "write the narrower quota first")
                break


Found = Iterator[tuple[str, str, str, str, str]]


def _above_all(limits: dict[str, Limit], of_keys: dict[str, Limit]) -> Found:
    for name, one in of_keys.items():
        whole = limits[name]
        if (one.rate or 0) > (whole.rate or 0) or (one.form != "rate" and one.most > whole.most):
            why = f"one key may have {one}, and all together {whole}: one key takes all, within its own limit"
            yield "HG119", "key_limits", f"per_key.{name}", why, "make what one key may have a part of the whole"


def _bursts(field: str, limits: dict[str, Limit]) -> Found:
    for name, limit in limits.items():
        if limit.rate is not None and limit.most < int(limit.rate):
            key = f"per_key.{name}" if field == "key_limits" else f"{name}.burst"
            why = (
                f"no call may say more than the burst, {limit.most}, and that is less than a second of "
                f"{limit.rate:.9g}/s: a call that costs more is refused for ever"
            )
            yield "HG120", field, key, why, "make the burst at least what the largest call says"


def _zones(resolved: Resolved, limits: dict[str, Limit]) -> Found:
    quotas = [name for name, limit in limits.items() if limit.form == "quota" and limit.window != "hour"]
    if quotas and not resolved.fields.get("zone"):
        why = "it says no time zone, so that its window is one of UTC: elsewhere it resets in the middle of the day"
        remedy = "write where it resets: resets = '00:00 Europe/Berlin', or '00:00 UTC' where that is meant"
        yield "HG121", "limits", f"{quotas[0]}.resets", why, remedy


def _weights(resolved: Resolved) -> Found:
    weights = dict(entry.rsplit("=", 1) for entry in resolved.fields.get("key_weights", "").split(";") if entry)
    shares = [int(weight) for weight in weights.values()]
    if resolved.fields.get("unknown_keys") != "refuse" and "*" not in weights:
        shares.append(1)
    if shares and max(shares) > MOST_RATIO * min(shares):
        part = max(shares) // min(shares) + 1
        why = (
            f"a key of weight {min(shares)} gets one part in {part} beside one of {max(shares)}: while both wait, its "
            "calls time out"
        )
        yield "HG122", "key_weights", "per_key.weight", why, f"keep weights within a range of 1 to {MOST_RATIO}"


def _sums(resolved: Resolved, limits: dict[str, Limit], of_keys: dict[str, Limit]) -> Found:
    patterns = [entry.rsplit("=", 1)[0] for entry in resolved.fields.get("key_weights", "").split(";") if entry]
    if resolved.fields.get("unknown_keys") != "refuse" or any(pattern.endswith("*") for pattern in patterns):
        return
    for name, one in of_keys.items():
        whole = limits[name]
        each, together = (one.rate, whole.rate) if one.rate and whole.rate else (one.most, whole.most)
        if each * len(patterns) > together:
            why = f"{len(patterns)} keys with {one} each may have more than all, {whole}: each counts on it in vain"
            yield "HG123", "key_limits", f"per_key.{name}", why, "lower the limit of each, or raise the whole"


def _bands(resolved: Resolved) -> Found:
    bands = [int(entry.rsplit("=", 1)[1]) for entry in resolved.fields.get("bands", "").split(";") if entry]
    passed = max(bands, default=0) * float(resolved.fields.get("aging") or 1)
    if passed > MOST_PASSED:
        why = f"band {max(bands)} may be passed by {passed:g} s of a rate: its calls time out before that"
        yield "HG128", "bands", "band", why, f"lower aging, so that no band is passed by more than {MOST_PASSED:g} s"


def _shares(resolved: Resolved, field: str) -> list[tuple[int, int]]:
    """Return (band, thousandths), the best band first."""
    entries = (entry.split("=") for entry in resolved.fields.get(field, "").split(";") if entry)
    return sorted((int(band), int(share)) for band, share in entries)


def _reserves(resolved: Resolved, limits: dict[str, Limit]) -> Found:
    shares = _shares(resolved, "reserve")
    kept = 0
    for band, share in shares:
        if band == BANDS - 1:
            why = f"what is kept for bands up to {band} is kept from nobody"
            yield "HG136", "reserve", f"reserve.{band}", why, "name a band below which others do without"
        elif share <= kept:
            why = f"{kept / 1000:g} is kept from bands after {band} already, so that {share / 1000:g} more is none"
            yield "HG136", "reserve", f"reserve.{band}", why, "let the part grow with the band, or drop it"
        else:
            kept = share
    for name, limit in limits.items():
        least = limit.floor or limit.most
        if kept and least - math.ceil(least * kept / 1000) < 1:
            why = f"of {name}, {least}, nothing is left for later bands: their calls are refused for ever"
            yield "HG136", "reserve", f"{name}.reserve", why, "keep less, or make the limit larger"


def _sheds(resolved: Resolved) -> Found:
    strictest = (BANDS, 1001)
    for band, share in _shares(resolved, "shed"):
        if share >= strictest[1]:
            before, least = strictest
            why = f"band {before} is refused from a fill of {least / 1000:g} on, and band {band}, after it, only from "
            yield "HG137", "shed", f"shed.{band}", why + f"{share / 1000:g}", "let the fill fall with the band"
        else:
            strictest = band, share


def _slices(resolved: Resolved, limits: dict[str, Limit]) -> Found:
    ahead = int(resolved.fields.get("lease_ahead_ms") or 0) / 1000
    for name, limit in limits.items():
        if limit.rate is not None and ahead * limit.rate >= max(2, limit.most):
            why = (
                f"one session may take {ahead:g} s of {name!r} in hand, its whole burst of {limit.most}: the others "
                "wait for what it does not use"
            )
            remedy = "make lease_ahead a fraction of the time in which the burst is whole again"
            yield "HG124", "lease_ahead_ms", "lease_ahead", why, remedy
