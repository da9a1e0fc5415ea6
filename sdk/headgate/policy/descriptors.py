"""A descriptor says what proxies ask of a limiter; a document's are checked for what would have them ask in vain."""

from collections.abc import Iterator
from typing import Final

from headgate.core.limits.descriptor import Descriptor, read_amounts, read_entries
from headgate.core.limits.limit import limits_of
from headgate.core.policy import Policy
from headgate.errors import InvalidValue
from headgate.policy.limiter_table import DescriptorTable
from headgate.policy.line_numbers import Path
from headgate.policy.problems import Problem
from headgate.policy.read import Origin, Source
from headgate.settings import DEFAULT
from headgate.units import parse_duration

TTL: Final = "60s"
"""The longest that something is held, where a descriptor does not say."""
SHORTEST: Final = 1.0
LONGEST_TTL: Final = 3600.0


def compile_descriptors(
    tables: list[DescriptorTable], source: Source, at: Origin, problems: list[Problem]
) -> list[Descriptor]:
    """Return the descriptors of a document."""
    compiled: dict[tuple[str, tuple[str, ...]], Descriptor] = {}
    for position, table in enumerate(tables):
        path: Path = ("descriptor", position)
        try:
            one = _compile(table, at(path))
        except InvalidValue as error:
            problems.append(source.problem((*path, error.setting or "entries"), error.beside(error.setting)))
            continue
        other = compiled.setdefault((one.domain, one.entries), one)
        if other is not one:
            text = f"{other.origin} says what these ask already; keep one"
            problems.append(source.problem((*path, "entries"), text))
    return list(compiled.values())


def _compile(table: DescriptorTable, origin: str) -> Descriptor:
    entries = read_entries(table.entries)
    keys = [entry.partition("=")[0] for entry in entries]
    for field in ("key", "hold", "release"):
        name = getattr(table, field)
        if name is not None and name not in keys:
            raise InvalidValue(f"{name!r} is not a key of the entries, which are {', '.join(keys)}", setting=field)
    if table.hold is not None and table.release is not None:
        raise InvalidValue("a descriptor begins a hold or ends one; leave out one of them", setting="release")
    if table.release is not None and table.amounts is not None:
        raise InvalidValue("a release gives back what was held; leave it out", setting="amounts")
    if table.release is None and table.amounts is None:
        raise InvalidValue("is missing; say what one hit takes, such as { requests = 1 }", setting="amounts")
    if table.ttl is not None and table.hold is None:
        raise InvalidValue("belongs to a hold; leave it out", setting="ttl")
    ttl = parse_duration(TTL if table.ttl in (None, DEFAULT) else table.ttl, "ttl")
    if not SHORTEST <= ttl <= LONGEST_TTL:
        raise InvalidValue(f"{table.ttl!r}; use 1s to 1h, and longer than a request takes", setting="ttl")
    amounts = read_amounts(table.amounts) if table.amounts is not None else {}
    return Descriptor(
        table.domain, entries, table.limiter, amounts, table.key, table.hold, table.release, int(ttl * 1000), origin
    )


def check_descriptors(policy: Policy) -> Iterator[Problem]:
    """Yield what is wrong with the descriptors of a compiled policy, given the limits of their limiters."""
    for one in policy.descriptors:
        resolved = policy.resolve(one.limiter, "limiter")
        named = [rule.kind for rule in policy.matching(one.limiter) if rule.kind and rule.pattern.exact]
        if named and "limiter" not in named:
            yield Problem(one.origin, "descriptor.limiter", f"{one.limiter!r} is a {named[0]}; name a limiter")
            continue
        limits = limits_of(resolved.fields.get("limits", ""))
        if not limits:
            continue  # it may have limits that were set by hand
        for name, amount in one.amounts.items():
            limit = limits.get(name)
            if limit is None:
                text = f"{one.limiter!r} has no limit {name!r}; it has {', '.join(limits)}"
            elif amount > limit.most:
                text = f"{amount} of {name!r} at once can never be admitted: {one.limiter!r} has {limit}"
            elif limit.form == "at_once" and one.hold is None:
                text = f"{name!r} of {one.limiter!r} is held at once; write hold = 'the entry that names the hold'"
            else:
                continue
            yield Problem(one.origin, "descriptor.amounts", text)
