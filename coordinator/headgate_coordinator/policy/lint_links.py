"""The linter knows one trap of links: pressure that does not cross, since only one side has a limit."""

from collections.abc import Iterator

from headgate.core.links.link import Link
from headgate.core.policy import Policy
from headgate_coordinator.policy.finding import Finding


def link_traps(policy: Policy) -> Iterator[Finding]:
    """Yield links whose target can be full, or away, while nothing bounds what waits at their source.

    A routed queue is one on purpose: no limit holds it at this site.
    """
    for link in policy.links:
        if _bounded(policy, link.source) or (
            link.kind == "route" and link.pattern is None and policy.resolve(link.source).kind != "topic"
        ):
            continue
        if link.site is not None:
            why = f"site {link.site.name!r} can be full or away"
        elif _bounded(policy, link.target):
            why = f"{link.target!r} has a limit"
        else:
            continue
        yield _finding(link, why)


def _finding(link: Link, why: str) -> Finding:
    return Finding(
        "HG115",
        link.origin,
        link.kind,
        f"{why} and {link.source!r} has no limit: while {link.kind} {link.name!r} is held up, its producers go on, and "
        f"what waits in {link.source!r} grows until Redis is full",
        f"give {link.source!r} a limit too: then its producers wait",
    )


def _bounded(policy: Policy, name: str) -> bool:
    """Return whether what can be pending there has a limit that holds."""
    fields = policy.resolve(name, policy.resolve(name).kind or "queue").fields
    limited = fields.get("limit_bytes", "").isdigit() or fields.get("limit_messages", "").isdigit()
    return (limited or bool(fields.get("pools"))) and fields.get("enforce") != "off"
