"""Bridges of a document: one link for each target, and what would make them forward nonsense."""

from collections.abc import Iterator

from headgate.core.bridge import Bridge, cycle
from headgate.core.policy import Policy
from headgate_coordinator.policy.document import BridgeTable
from headgate_coordinator.policy.places import Path
from headgate_coordinator.policy.problems import Problem
from headgate_coordinator.policy.read import Origin, Source


def compile_bridges(told: list[BridgeTable], source: Source, at: Origin, problems: list[Problem]) -> list[Bridge]:
    """Return the links that the bridges of a document are."""
    names: set[str] = set()
    known: dict[tuple[str, str], str] = {}
    bridges: list[Bridge] = []
    for position, table in enumerate(told):
        path: Path = ("bridge", position)
        if table.name in names:
            problems.append(source.problem((*path, "name"), f"there is a bridge {table.name!r} already; keep one"))
        names.add(table.name)
        for target in table.to if isinstance(table.to, list) else [table.to]:
            ends = (table.source, target)
            if target == table.source:
                text = f"bridge {table.name!r} would forward {target!r} to itself; name another destination"
                problems.append(source.problem((*path, "to"), text))
            elif ends in known:
                text = f"bridge {known[ends]!r} forwards {ends[0]!r} to {target!r} already; keep one"
                problems.append(source.problem((*path, "to"), text))
            elif table.dead_letters in ends:
                text = f"{table.dead_letters!r} is an end of bridge {table.name!r} itself; name another destination"
                problems.append(source.problem((*path, "dead_letters"), text))
            known.setdefault(ends, table.name)
            bridges.append(Bridge(table.name, *ends, table.max_hops, table.dead_letters, at(path)))
    return bridges


def check_bridges(policy: Policy) -> Iterator[Problem]:
    """Yield what is wrong with the bridges of a compiled policy, given what its rules say."""
    if circle := cycle(policy.bridges):
        way = " -> ".join([circle[0].source, *(bridge.target for bridge in circle)])
        names = ", ".join(repr(name) for name in dict.fromkeys(bridge.name for bridge in circle))
        yield Problem(
            circle[-1].origin,
            "bridge",
            f"the bridges {names} go in a circle: {way}; take one away, or give one of them max_hops = {len(circle)}",
        )
    for bridge in policy.bridges:
        for key, name in (("from", bridge.source), ("to", bridge.target), ("dead_letters", bridge.dead_letters)):
            kind = policy.resolve(name).kind if name is not None else None
            if kind in ("gate", "bucket"):
                yield Problem(
                    bridge.origin,
                    f"bridge.{key}",
                    f"{name!r} is a {kind}, which holds no messages; name a queue or a topic",
                )
    for source, bridges in _by_source(policy).items():
        if len(bridges) > 1 and policy.resolve(source).kind not in ("topic", "gate", "bucket"):
            yield Problem(
                bridges[1].origin,
                "bridge.from",
                f"{source!r} has {len(bridges)} targets, and of a queue each would get a part; write [[destination]] "
                f"match = {source!r}, kind = 'topic', or keep one target",
            )


def _by_source(policy: Policy) -> dict[str, list[Bridge]]:
    found: dict[str, list[Bridge]] = {}
    for bridge in policy.bridges:
        found.setdefault(bridge.source, []).append(bridge)
    return found
