"""An explanation says why admissions of a limiter wait: which limit, of which key, who holds it, when the next goes."""

from collections.abc import Mapping
from typing import Final

from headgate.core.limiting.amounts import encode_key
from headgate.errors import InvalidValue, PolicyError
from headgate.explain.destination_facts import rule_of
from headgate.explain.levels import LimitState
from headgate.explain.limiter_view import Held, LimiterView, Wait
from headgate.explain.limiter_words import duration, level_text, shown
from headgate.explain.model import Cause, Explanation, Reason, State
from headgate.explain.views import count
from headgate.redis.keys import Address
from headgate.redis.stores.limiters import LimiterStore

LOOKED_AT: Final = 200
"""Keys and holds that an explanation looks at, within a millisecond of Redis: there may be a million of each."""
_CAUSES: Final[Mapping[str, Cause]] = {"rate": "limit-rate", "at_once": "limit-at-once", "quota": "limit-quota"}


async def explain_limiter(
    store: LimiterStore, address: Address, fields: dict[str, str], *, key: str | None = None, session: str = "",
    most: int = LOOKED_AT,
) -> Explanation:  # fmt: skip
    """Read a limiter, and say why it is as it is.

    Args:
        store: the scripts of limiters.
        address: of the limiter.
        fields: of its own hash, as they were read a moment before.
        key: whose view it is.
        session: whose view it is; nobody's when empty.
        most: keys and holds that are looked at.

    Raises:
        PolicyError: it is gone.
        InvalidName: the key cannot be used.
        InvalidValue: that session neither holds anything nor waits.
    """
    slices = int(fields.get("sliced") or 1)
    levels = await store.levels(address, key=encode_key(key), session=session, most=most, slices=slices)
    if levels is None:
        raise PolicyError(f"{address.name!r} is not a limiter, or is gone")
    if session and not levels.own:
        raise InvalidValue(f"session {session!r} neither holds anything of {address.name!r} nor waits for it")
    view = LimiterView.of(levels, key, fields.get("key_limits", ""))
    wait = _wait_of(view, session)
    of_key: Mapping[str, LimitState] = {limit.name: limit for limit in view.key_limits}
    if wait is not None and wait.rule == "key" and wait.key is not None and wait.key != key:
        levels = await store.levels(address, key=encode_key(wait.key), slices=slices)
        of_key = {} if levels is None else {one.name: one for one in LimiterView.of(levels, wait.key, "").key_limits}
    causes = _reasons(view, fields, wait, of_key, session)
    if by_hand := fields.get("stopped"):
        text, remedy = f"it was stopped by hand: {by_hand}", f"lift it with: headgate unblock {address.name}"
        causes = (Reason("stopped", text, rule=rule_of(fields, "stopped"), remedy=remedy),)
    reason = causes[0]
    turn = None if by_hand or wait is None else wait.turn_in
    soon = max(filter(None, (reason.seconds, turn)), default=reason.seconds)
    place = wait.place if wait is not None and (session or key is not None) else None
    return Explanation(
        destination=address.name, kind="limiter", state=_state(view, reason), cause=reason.cause, reason=reason.text,
        blocked=view.waiting, rule=reason.rule, remedy=reason.remedy, unblocks_in=soon,
        causes=causes, limiter=view, session=session, place=place or 0, fields=fields,
    )  # fmt: skip


def _wait_of(view: LimiterView, session: str) -> Wait | None:
    """Return the wait in question: of the session or key whose view it is, or of the first in line."""
    if session:
        return next((one for one in view.own if isinstance(one, Wait)), None)
    if view.key is not None:
        return next((one for one in view.line if one.key == view.key), None)
    if view.line:
        return view.line[0]
    if view.waiting:  # who it is, is not for everybody to see
        return Wait(None, view.waiting, "", 0.0, view.binding, view.rule, view.needs, view.next_in)
    return None


def _state(view: LimiterView, reason: Reason) -> State:
    if reason.cause in ("held-off", "stopped"):
        return "stopped"
    if view.waiting:
        return "blocked"
    if view.learning:
        return "learning"
    return "open" if reason.cause == "open" else "full"


def _reasons(
    view: LimiterView, fields: Mapping[str, str], wait: Wait | None, of_key: Mapping[str, LimitState], session: str
) -> tuple[Reason, ...]:
    off = _off(view.held_off, f"it is held off: {view.off_reason or 'no reason was given'}") if view.held_off else None
    found = _waits(view, fields, wait, of_key, session) if wait is not None else _rests(view, fields, session)
    if off is None:
        return (found,)
    return (off, found) if found.cause not in ("held-off", "open") else (off,)


def _rests(view: LimiterView, fields: Mapping[str, str], session: str) -> Reason:
    """Say what would keep whoever comes next waiting."""
    if view.key_held_off:
        return _off(view.key_held_off, f"{shown(view.key)} is held off")
    if view.learning:
        return _learning(view.learning)
    for limits, field, whose in (
        (view.limits, "limits", ""),
        (view.key_limits, "key_limits", f" of {shown(view.key)}"),
    ):
        for limit in limits:
            if limit.remaining <= 0:
                text = f"nothing is left of {limit.name}{whose}: {level_text(limit)}"
                return Reason(_CAUSES[limit.form], text, rule=rule_of(fields, field), remedy=_remedy(limit))
    if session:
        holds = sum(isinstance(one, Held) for one in view.own)
        return Reason("open", f"it holds {count(holds, 'admission')} and waits for none")
    return Reason("open", "nobody waits" if view.key is None else f"nothing of {shown(view.key)} waits")


def _waits(
    view: LimiterView, fields: Mapping[str, str], wait: Wait, of_key: Mapping[str, LimitState], session: str
) -> Reason:
    whose = f" of {shown(wait.key)}" if wait.key is not None else ""
    first = f"the first in line{whose}" if not session else f"its first admission{whose}"
    if wait.limit == "line":
        if view.waiting == wait.waiting and not session:
            return Reason("serving", f"{first} is about to be admitted")
        return Reason("limit-line", f"{first} waits for those before it", seconds=None)
    if wait.limit == "slices":
        return Reason("limit-line", f"{first} waits until its key is at its slice")
    if wait.limit == "hold_off":
        return _off(wait.next_in or 0.0, f"{shown(wait.key)} is held off")
    limits = of_key if wait.rule == "key" else {limit.name: limit for limit in view.limits}
    limit = limits.get(wait.limit)
    if view.learning and (limit is None or limit.form == "at_once"):
        return _learning(view.learning)
    own = f" of {shown(wait.key)}" if wait.rule == "key" and wait.key is not None else ""
    level = f": {level_text(limit)}" if limit is not None else ""
    needs = wait.needs.get(wait.limit, 0)
    most = view.holders[0].of(wait.limit) if view.holders and limit is not None and limit.form == "at_once" else ""
    holders = f"; {most}" if most else ""
    return Reason(
        _CAUSES[limit.form] if limit is not None else "limit-line",
        f"{first} needs {needs} of {wait.limit}{own}{level}{holders}",
        rule=rule_of(fields, "key_limits" if wait.rule == "key" else "limits"),
        remedy=_remedy(limit) if limit is not None else "",
        seconds=wait.next_in,
    )


def _remedy(limit: LimitState) -> str:
    if limit.form == "at_once":
        return f"release a hold of {limit.name}, or raise its at_once"
    if limit.form == "quota":
        return f"wait until it begins anew, or raise the quota of {limit.name}"
    return f"wait, or raise the rate or the burst of {limit.name}"


def _off(seconds: float, text: str) -> Reason:
    return Reason("held-off", f"{text}; {duration(seconds)} are left", remedy="wait, or end it: hold_off(0)",
                  seconds=seconds)  # fmt: skip


def _learning(seconds: float) -> Reason:
    return Reason(
        "learning", f"Redis may have lost state; for {seconds:.1f} s holders claim, nothing new is held at once",
        remedy="wait until holders have claimed what they had", seconds=seconds,
    )  # fmt: skip
