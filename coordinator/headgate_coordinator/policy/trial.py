"""The limits of one policy as shadow limits beside those of another, which stays in force."""

from collections.abc import Iterable
from typing import Final

from headgate.core.limits.destination_shadow import LIMITS, as_shadow
from headgate.core.limits.limit import Limit, limits_of, limits_text
from headgate.core.limits.shadow import FIELDS, is_unlimited
from headgate.core.policy import Policy, Rule

_SIDES: Final = {"limits": "shadow_limits", "key_limits": "shadow_key_limits"}


def on_trial(current: Policy, new: Policy) -> tuple[Policy, list[str]]:
    """Return the policy in force with another's limits as shadow limits, and what is left out.

    Shadow limits that were in force give way. Of each limiter those limits are tried that have a real one of the same
    name and sort beside them: of other names callers say no amounts. Of all else: what may be pending or held, and
    rates of all senders.
    """
    rules = [rule for rule in map(_without_shadows, current.rules) if rule is not None]
    tried = [rule for rule in map(_as_shadows, new.rules) if rule is not None]
    policy = Policy(
        0, [*rules, *tried], current.pools, current.source, defaults=current.defaults, links=current.links,
        channels=current.channels, site=current.site, sites=current.sites, stores=current.stores,
        strict=current.strict, include_parent=current.include_parent, descriptors=current.descriptors,
        user_limits=current.user_limits,
    )  # fmt: skip
    return policy, list(_left_out(policy, new, tried))


def _without_shadows(rule: Rule) -> Rule | None:
    fields = {name: value for name, value in rule.fields.items() if name not in (*FIELDS, "shadow")}
    return Rule(rule.match, rule.kind, fields, rule.origins) if fields else None


def _as_shadows(rule: Rule) -> Rule | None:
    if rule.kind != "limiter":
        text = "" if rule.fields.get("enforce") == "off" else as_shadow(rule.fields) or rule.fields.get("shadow", "")
        first = next((rule.origins[name] for name in LIMITS if name in rule.fields), rule.origins.get("shadow", ""))
        return Rule(rule.match, rule.kind, {"shadow": text}, {"shadow": first}) if text else None
    if not rule.fields.get("limits"):
        return None
    fields = {shadow: limits_text(_binding(rule.fields.get(field, ""))) for field, shadow in _SIDES.items()}
    origins = {shadow: rule.origins.get(field, "") for field, shadow in _SIDES.items()}
    return Rule(rule.match, rule.kind, fields, origins)


def _binding(text: str) -> dict[str, Limit]:
    return {name: limit for name, limit in limits_of(text).items() if not is_unlimited(limit)}


def _left_out(policy: Policy, new: Policy, tried: Iterable[Rule]) -> Iterable[str]:
    pools = {rule.match for rule in new.rules if rule.fields.get("pools") or rule.fields.get("hard_bytes")}
    if pools:
        yield f"pools and hard limits ({', '.join(sorted(pools)[:5])}): what destinations share is not tried"
    without = {rule.match for rule in new.rules if _as_shadows(rule) is None} - pools
    if without:
        yield f"rules that limit neither bytes, messages nor rates ({', '.join(sorted(without)[:5])})"
    for rule in tried:
        if not rule.pattern.exact or rule.kind != "limiter":
            continue
        in_force = limits_of(policy.resolve(rule.match, "limiter").fields.get("limits", ""))
        for name, limit in limits_of(rule.fields["shadow_limits"]).items():
            real = in_force.get(name)
            if real is None or (real.form == "at_once") != (limit.form == "at_once"):
                yield f"{name!r} of {rule.match!r}: it has no limit of that name and sort, so nothing can be counted"
