"""The namespace is judged beside its servers: versions of nodes, what limits add up to, and pools over sites.

It is read as any client reads it.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from headgate import AccessDenied, Client, Explanation, HeadgateError, PolicyError, PoolState, __version__
from headgate.namespace.pool_sites import REACH
from headgate_coordinator.doctor.deployment import Deployment
from headgate_coordinator.doctor.findings import Finding
from headgate_coordinator.fleet.registry import NodeRegistry

LOOKED_AT: Final = 1000
"""Destinations whose limits are added up."""
AT_ONCE: Final = 50
_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class NamespaceFacts:
    """A namespace as it was found.

    Attributes:
        versions: address of each node that is alive -> its version; empty where it is too old to say it.
        destinations: queues and topics that were looked at.
        limits: what their limits add up to, in bytes.
        unlimited: how many of them have no limit in bytes.
        left_out: how many more there are.
        pools: those that sites have parts of, or that are one.
        trouble: why nothing of it is known; empty where it is.
        forbidden: whether that is since the user may not.
    """

    versions: tuple[tuple[str, str], ...] = ()
    destinations: int = 0
    limits: int = 0
    unlimited: int = 0
    left_out: int = 0
    pools: tuple[PoolState, ...] = ()
    trouble: str = ""
    forbidden: bool = False


async def look_at(client: Client) -> NamespaceFacts:
    """Return what can be found out of a client's namespace; what fails is noted as that."""
    try:
        async with client:
            nodes = await NodeRegistry(client).list()
            names = sorted(await client.destinations())
            found: list[Explanation] = []
            for at in range(0, min(len(names), LOOKED_AT), AT_ONCE):
                page = names[at : min(at + AT_ONCE, LOOKED_AT)]
                found += filter(None, await asyncio.gather(*(_explain(client, name) for name in page)))
            pools = tuple(pool for pool in await client.pools() if pool.sites or pool.part_of)
    except HeadgateError as error:
        return NamespaceFacts(trouble=str(error), forbidden=isinstance(error, AccessDenied))
    stored = [one for one in found if one.kind in ("queue", "topic")]
    most = [limit.limit for one in stored for limit in one.limits if limit.unit == "bytes"]
    return NamespaceFacts(
        tuple((one.address, one.version) for one in nodes), len(stored), sum(limit or 0 for limit in most),
        sum(limit is None for limit in most), max(0, len(names) - LOOKED_AT), pools,
    )  # fmt: skip


async def _explain(client: Client, name: str) -> Explanation | None:
    try:
        return await client.explain(name)
    except PolicyError:
        return None  # removed since it was listed


def check_namespace_facts(facts: NamespaceFacts, deployment: Deployment) -> Iterator[Finding]:
    """Judge versions of nodes, limits beside the memory of the masters, and pools over sites."""
    if facts.trouble:
        yield Finding(
            "nodes", "warning", f"not seen: {facts.trouble}", "versions of nodes and sums of limits are not known",
            "run it as a user with read access" if facts.forbidden else "fix what is wrong with its servers first",
        )  # fmt: skip
        return
    versions = sorted({version for _, version in facts.versions})
    others = tuple(place for place, version in facts.versions if version != __version__)
    if others:
        listed = ", ".join(version or "one that does not report it" for version in versions)
        yield Finding("nodes", "warning", f"{len(facts.versions)} of versions {listed}; this is {__version__}",
                      "new features work only at nodes of the new version", "finish the rolling upgrade",
                      others)  # fmt: skip
    else:
        alive = f"{len(facts.versions)} of version {__version__}" if facts.versions else "none is alive"
        yield Finding("nodes", "ok", alive)
    yield from _limits(facts, deployment)
    yield from _sites(facts)


def _limits(facts: NamespaceFacts, deployment: Deployment) -> Iterator[Finding]:
    memory = [server.number("maxmemory") for server in deployment.masters]
    there = sum(each or 0 for each in memory) if all(memory) else 0
    more = f", and {facts.left_out} more that were not looked at" if facts.left_out else ""
    limits = f"{facts.limits / _MIB:.0f} MiB of {facts.destinations} queues and topics{more}"
    if there and facts.limits > there:
        yield Finding("limits", "warning", f"{limits}, above the {there / _MIB:.0f} MiB of maxmemory",
                      "where many are full at once Redis refuses writes before their limits do",
                      "lower them, have them share a pool, spool, or raise maxmemory")  # fmt: skip
    elif facts.unlimited:
        yield Finding("limits", "warning", f"{limits}; {facts.unlimited} have none",
                      "messages that nobody consumes fill Redis, and then nobody can send",
                      "give them one with a [[destination]] of the policy")  # fmt: skip
    else:
        yield Finding("limits", "ok", limits)


def _sites(facts: NamespaceFacts) -> Iterator[Finding]:
    wrong = []
    for pool in facts.pools:
        if (part := pool.part_of) is not None and (part.stranded or part.trouble):
            why, advice = "those who send here have that and no more", part.remedy or "update this command"
            wrong.append(Finding("sites", "warning", f"pool {pool.name} is {part}", why, advice))
        for one in pool.sites:
            if one.trouble:
                state, why = f"site {one.site} of pool {pool.name}: {one.trouble}", "who sent them is lent nothing"
                wrong.append(Finding("sites", "warning", state, why, one.remedy))
            if one.stranded:
                silent = "was never heard of" if one.heard is None else f"is cut off for {one.heard:.0f} s"
                wrong.append(Finding(
                    "sites", "warning",
                    f"site {one.site} {silent}, with {one.held + one.kept} bytes of pool {pool.name}",
                    "nobody else can have these",
                    f"{REACH}; where it is gone for good: headgate pool forget-site {pool.name} {one.site} --gone",
                ))  # fmt: skip
    if facts.pools and not wrong:
        pools = "1 pool" if len(facts.pools) == 1 else f"{len(facts.pools)} pools"
        yield Finding("sites", "ok", f"{pools} over sites, and all sites are heard of")
    yield from wrong
