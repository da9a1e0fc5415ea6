"""Compile a document: rules with fields as the state keeps them, each with the line that it came from."""

import re
from dataclasses import replace
from typing import Any, Final

from headgate.core.addresses.pattern import Pattern, with_parent
from headgate.core.limits.limit import limits_of
from headgate.core.limits.shadow import IN_SHADOW
from headgate.core.limits.slices import SLICED_KINDS
from headgate.core.limits.zones import zone_shown
from headgate.core.names import encode_name
from headgate.core.policy import Policy, Rule
from headgate.core.settings_table import BUCKET_FIELDS, MESSAGE_FIELDS, PATHS
from headgate.core.window import Window
from headgate.errors import HeadgateError, InvalidName, InvalidValue, PolicyError
from headgate.policy.channels import compile_channels, rules_of
from headgate.policy.descriptors import compile_descriptors
from headgate.policy.document import Destination, Document, WindowTable
from headgate.policy.limiters import KEYS, compile_limiters, compile_user_limits
from headgate.policy.line_numbers import Path
from headgate.policy.links import LinkCompiler
from headgate.policy.presets import STORES, SWITCHED_OFF, preset
from headgate.policy.problems import BadDocument, Problem
from headgate.policy.read import Origin, Source
from headgate.policy.sharing import SharedLimitCompiler, compile_pools
from headgate.policy.stores import compile_stores
from headgate.policy.tables import Table
from headgate.settings import DEFAULT, DEFAULTS, FIELD_OF, Settings

_SETTING_OF: Final = {field: setting for setting, field in FIELD_OF.items()}
_SPELLED: Final = {setting: ".".join(map(str, path)) for setting, path in PATHS.items() if "_" in setting}
_LIMITS_OF: Final = {"gate": ("bytes", "calls"), "bucket": ("tokens",)}

Values = dict[str, tuple[Any, Path]]


def key_of(field: str) -> str:
    """Return the key that a document says a field of the state with; the setting's name, if none does."""
    if field in KEYS:
        return KEYS[field]
    setting = _SETTING_OF.get(field, field)
    return ".".join(map(str, PATHS.get(setting, (setting,))))


def title_of(field: str) -> str:
    """Return what people read a field of the state as: its key, and which is the shadow where both have one."""
    return f"{key_of(field)} (shadow)" if field == "shadow_limits" else key_of(field)


def shown(field: str, value: str) -> str:
    """Return the value of a field of the state as people read it: durations with their unit."""
    if value and field in ("limits", "key_limits", "shadow_limits", "shadow_key_limits", "shadow"):
        return ", ".join(map(str, limits_of(value).values()))
    if not value and field in ("unknown_keys", "ledger_keys"):
        return "allow" if field == "unknown_keys" else "all"
    if value and field == "zone":
        return zone_shown(value)
    return f"{value} ms" if value and field.endswith("_ms") else value


def compile_document(document: Document, source: Source, *, origin: Origin | None = None) -> Policy:
    """Return the policy that a document says, at version 0; ``origin`` replaces ``source`` in origins.

    Raises:
        BadDocument: patterns that mean nothing, and values of one rule that contradict each other.
    """
    problems: list[Problem] = []
    at = origin or source.at
    named = document.preset or ""
    base = preset(named, compile_document, frozenset(table.name for table in document.store)) if named else None
    sharing = SharedLimitCompiler(source, at, problems)
    rules = [_rule(table, ("destination", i), source, at, sharing) for i, table in enumerate(document.destination)]
    made = [rule for rule in rules if rule]
    limiters = compile_limiters(document.limiter, source, at, problems)
    stores = compile_stores(document.store, STORES.get(named, {}), f"preset {named}", source, at, problems)
    links = LinkCompiler(document, source, at, problems).compile()
    pools = compile_pools(document.pool, links, source, at, problems)
    channels = compile_channels(document.channel, source, at, problems)
    descriptors = compile_descriptors(document.descriptor, source, at, problems)
    user_limits, of_users = compile_user_limits(document.user_limit, source, at, problems)
    if problems:
        raise BadDocument(problems)
    every_pool = {pool.name: pool for pool in (*(base.pools if base else ()), *pools, *sharing.pools)}
    every_rule = [*(base.rules if base else ()), *made, *limiters, *of_users, *links.rules]
    every_link = list(links.links)
    if document.include_parent:
        every_rule = [replace(rule, match=with_parent(rule.match)) for rule in every_rule]
        every_link = [replace(at, source=with_parent(at.source), target=with_parent(at.target)) for at in every_link]
    limited = (document.flow_control or ("off" if named in SWITCHED_OFF else "on")) == "on"
    switch: Path = ("flow_control",) if document.flow_control else ("preset",)
    return Policy(
        0,
        [*(every_rule if limited else _switched(every_rule, at(switch))), *rules_of(channels, confirm=limited)],
        every_pool.values(),
        source.name,
        defaults=DEFAULTS,
        links=every_link,
        channels=channels,
        site=document.site_name or "",
        sites=links.sites.values(),
        stores=stores,
        strict=bool(document.strict),
        include_parent=bool(document.include_parent),
        descriptors=descriptors,
        user_limits=user_limits,
    )


def _switched(rules: list[Rule], origin: str) -> list[Rule]:
    """Return the rules with limits that bind nowhere: no rule but the last says anything about enforcement."""
    without = [
        Rule(
            rule.match,
            rule.kind,
            *({k: v for k, v in values.items() if k != "enforce"} for values in (rule.fields, rule.origins)),
        )
        for rule in rules
    ]
    return [*without, Rule("#", None, {"enforce": "off"}, {"enforce": origin})]


def _rule(rule: Destination, path: Path, source: Source, at: Origin, sharing: SharedLimitCompiler) -> Rule | None:
    problems = sharing.problems
    pattern: Pattern | None = None
    try:
        pattern = Pattern.parse(rule.match)
        encode_name(re.sub("[*#>]", "x", rule.match))
    except HeadgateError as error:
        problems.append(source.problem((*path, "match"), f"{error}; write e.g. 'orders.#'"))
    values: Values = {}
    for setting, steps in PATHS.items():
        try:
            value, where = _find(rule, setting, steps)
        except (InvalidValue, PolicyError) as error:
            problems.append(source.problem((*path, *steps), str(error)))
            continue
        if value is not None:
            values[setting] = (value, (*path, *where))
    _belonging(rule, values, source, problems)
    shared = sharing.limit(rule, path, values)
    fields, paths = _spelled(values, source, problems)
    if pattern is None:
        return None
    origins = {
        field: at(
            paths.get(_SETTING_OF[field]) or paths.get(_SETTING_OF[field.replace("burst", "rate")]) or paths["enforce"]
        )
        for field in fields
    }
    origins |= dict.fromkeys(shared, at((*path, "limit", "scope")))
    if rule.kind:
        origins["kind"] = at((*path, "kind"))
    return Rule(rule.match, rule.kind, fields | shared, origins)


def _find(rule: Destination, setting: str, steps: Path) -> tuple[Any, Path]:
    """Return what a rule says about a setting, and where."""
    if setting.endswith("window") and steps[0] == "consumer" and setting != "browser_window":
        table = _get(rule, steps[:-1])
        return (_window(table.window, table.top_up), steps) if table is not None else (None, steps)
    if setting == "subscription_windows":
        windows = _get(rule, steps) or {}
        return {name: _window(w.window, w.top_up) for name, w in windows.items()} or None, steps
    if setting in ("key_limits", "shadow"):
        table = rule.per_key if setting == "key_limits" else rule.shadow
        return (table.limits if table is not None else None), steps
    if setting in ("limit", "resume_at", "rate") and not isinstance(getattr(rule, str(steps[0])), Table | None):
        return getattr(rule, str(steps[0])), steps[:1]
    if setting == "limit_messages" and rule.limit in ("unlimited", DEFAULT):
        return rule.limit, steps[:1]  # a word without a unit is for both
    if setting == "resume_at_messages" and str(rule.resume_at).strip().endswith("%"):
        return rule.resume_at, steps[:1]
    if setting == "pools":
        pools = _get(rule, steps)
        return (None if pools is None else " ".join(pools) or DEFAULT), steps
    value = _get(rule, steps)
    return (None if isinstance(value, Table) else value), steps


def _get(table: Any, steps: Path) -> Any:
    for step in steps:
        if not isinstance(table, Table):
            return None
        table = getattr(table, str(step))
    return table


def _window(value: Any, top_up: float | None) -> Any:
    if value is None or value == DEFAULT:
        if top_up is not None:
            raise InvalidValue("top_up without window; give both")
        return value
    if isinstance(value, WindowTable):
        messages, size = value.messages, value.bytes
        window = Window("unlimited" if messages is None else messages, "unlimited" if size is None else size)
    else:
        window = Window.of(value)
    if top_up is None:
        return window
    if window.mode != "push":
        raise InvalidValue(f"top_up means nothing for a window that is {window.mode}; leave it out")
    return replace(window, top_up=top_up)


def _belonging(rule: Destination, values: Values, source: Source, problems: list[Problem]) -> None:
    """Take away what destinations of the rule's kind do not have."""
    for setting, (_, path) in list(values.items()):
        if setting == "enforce" and rule.kind == "bucket" and values[setting][0] == IN_SHADOW:
            continue
        if setting == "slices" and rule.kind is not None and rule.kind not in SLICED_KINDS:
            problems.append(
                source.problem(
                    path, f"belongs to a queue, a topic, a gate or a limiter: a {rule.kind} has one slice; leave it out"
                )
            )
        elif rule.kind == "bucket" and setting != "kind" and FIELD_OF[setting] not in BUCKET_FIELDS:
            problems.append(
                source.problem(path, "means nothing for a bucket; that takes rate, burst, shadow, per_key and ledger")
            )
        elif setting == "shadow" and rule.kind is None and rule.shadow and rule.shadow.tokens is not None:
            problems.append(source.problem((*path, "tokens"), "tokens is of a bucket: write kind = 'bucket'"))
        elif setting == "key_limits" and (others := _of_others(rule)):
            text = (
                f"{others[0]} means nothing for a {rule.kind}; that takes {' and '.join(_LIMITS_OF[rule.kind or ''])}"
            )
            problems.append(source.problem((*path, others[0]), text))
        elif rule.kind == "gate" and FIELD_OF[setting] in MESSAGE_FIELDS:
            problems.append(
                source.problem(path, "belongs to a queue or a topic, not to a gate, which holds no messages")
            )
        elif rule.kind != "bucket" and setting in ("rate", "burst"):
            problems.append(
                source.problem(path, f"{setting} is of a bucket: write kind = 'bucket'; what all senders together may "
                               "send is rate = { messages = 500, burst = 50 }")
            )  # fmt: skip
        else:
            continue
        del values[setting]


def _of_others(rule: Destination) -> list[str]:
    """Return the limits of keys that destinations of the rule's kind do not have."""
    limits = rule.per_key.limits if rule.per_key is not None else None
    return [name for name in limits or () if rule.kind in _LIMITS_OF and name not in _LIMITS_OF[rule.kind]]


def _spelled(values: Values, source: Source, problems: list[Problem]) -> tuple[dict[str, str], dict[str, Path]]:
    """Return the fields of a rule, and the path of each setting; contradictions become problems, one a setting."""
    paths = {setting: path for setting, (_, path) in values.items()}
    left = {setting: value for setting, (value, _) in values.items()}
    shares = {
        FIELD_OF[setting]: f"{float(left.pop(setting).strip()[:-1])}%"
        for setting in ("resume_at", "resume_at_messages")
        if isinstance(left.get(setting), str) and left[setting].strip().endswith("%")
    }
    while True:
        try:
            fields = Settings(**left).fields()
        except (InvalidValue, PolicyError, InvalidName) as error:
            named = next((setting for setting in error.settings if setting in left), None)
            path = paths[named] if named else next(iter(paths.values()))
            problems.append(source.problem(path, error.spelled(_SPELLED) if named else str(error)))
            if named is None:
                return {}, {}
            del left[named]
        else:
            fields.pop("kind", None)
            return fields | shares, paths
