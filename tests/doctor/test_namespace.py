"""Findings about a namespace, and on the way to its servers: encryption, versions of nodes, sums of limits."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

import headgate
from headgate import PoolState, __version__
from headgate.namespace.pool_sites import PoolPart, SitePart
from headgate_coordinator.cli.doctor import rendered
from headgate_coordinator.doctor.checks import check
from headgate_coordinator.doctor.collect import collect
from headgate_coordinator.doctor.deployment import Deployment, ServerFacts
from headgate_coordinator.doctor.findings import Finding
from headgate_coordinator.doctor.namespace import LOOKED_AT, NamespaceFacts, check_namespace_facts, look_at
from headgate_coordinator.doctor.redis_permissions import RolePermissions
from headgate_coordinator.fleet.node_facts import NodeFacts
from headgate_coordinator.fleet.registry import NodeRegistry
from headgate_coordinator.security.acl import ROLES
from tests.doctor.test_checks import GOOD

MIB = 1 << 20


def judged(facts: NamespaceFacts, maxmemory: int = 100 * MIB) -> dict[str, tuple[str, str]]:
    server = ServerFacts("a:1", info={"maxmemory": str(maxmemory)})
    found = list(check_namespace_facts(facts, Deployment("redis://a", "single", (server,))))
    assert all(one.status == "ok" or (one.why and one.advice) for one in found)
    return {one.check: (one.status, one.found) for one in found}


@pytest.mark.parametrize(
    ("versions", "status", "says"),
    [
        ((), "ok", "none is alive"),
        ((__version__, __version__), "ok", "2 of version"),
        ((__version__, "0.0.1"), "warning", "0.0.1"),
        ((__version__, ""), "warning", "one that does not report it"),
    ],
)
def test_nodes_are_of_one_version(versions: tuple[str, ...], status: str, says: str) -> None:
    found = judged(NamespaceFacts(tuple((f"node{at}:5672", each) for at, each in enumerate(versions))))["nodes"]
    assert found[0] == status
    assert says in found[1]


@pytest.mark.parametrize(
    ("facts", "maxmemory", "status"),
    [
        (NamespaceFacts(destinations=2, limits=100 * MIB), 100 * MIB, "ok"),
        (NamespaceFacts(destinations=2, limits=101 * MIB), 100 * MIB, "warning"),
        (NamespaceFacts(destinations=2, limits=101 * MIB), 0, "ok"),
        (NamespaceFacts(destinations=2, limits=MIB, unlimited=1), 100 * MIB, "warning"),
    ],
)
def test_limits_fit_into_the_memory(facts: NamespaceFacts, maxmemory: int, status: str) -> None:
    """Without `maxmemory` there is nothing to compare with. Mutants: the bound left out; `>=`."""
    assert judged(facts, maxmemory)["limits"][0] == status


def _over_sites(*sites: SitePart, part: PoolPart | None = None) -> NamespaceFacts:
    pool = PoolState("tenant", 1000, 0, 0, 0, 0, 0, "", learning=False, origins={}, sites=sites, part_of=part)
    return NamespaceFacts(pools=(pool,))


def test_sites_are_heard_of() -> None:
    """Mutants: only one side says it; what is kept for a site is left out; a check where there are none."""
    assert "sites" not in judged(NamespaceFacts())
    heard = SitePart("berlin", 600, 1, 0, 350, 0, heard=0.5, stranded=False)
    assert judged(_over_sites(heard))["sites"][0] == "ok"
    cut_off = SitePart("berlin", 600, 1, 400, 350, 50, heard=63.2, stranded=True)
    told = ("warning", "site berlin is cut off for 63 s, with 400 bytes of pool tenant")
    assert judged(_over_sites(cut_off))["sites"] == told
    never = SitePart("berlyn", 600, 1, 0, 0, 600, heard=None, stranded=True)
    assert "site berlyn was never heard of, with 600 bytes" in judged(_over_sites(never))["sites"][1]
    twins = replace(heard, trouble="reports of an earlier pool come in its name too", remedy="name each")
    assert judged(_over_sites(twins))["sites"] == ("warning", f"site berlin of pool tenant: {twins.trouble}")
    part = PoolPart("paris", "tenant", 350, 600, 7.0, confirmed=True, stranded=True, remedy="reach each other")
    assert "which lent 350 bytes of at most 600; cut off for 7 s" in judged(_over_sites(part=part))["sites"][1]
    fine = replace(part, stranded=False, heard=0.1)
    assert judged(_over_sites(part=fine))["sites"][0] == "ok"
    assert judged(_over_sites(part=replace(fine, trouble="it refuses nodes here")))["sites"][0] == "warning"


def test_what_could_not_be_seen_is_said() -> None:
    assert judged(NamespaceFacts(trouble="no right")) == {"nodes": ("warning", "not seen: no right")}


@pytest.mark.parametrize(
    ("encrypted", "local", "status"), [(True, False, "ok"), (False, True, "ok"), (False, False, "warning")]
)
def test_what_leaves_the_host_goes_over_tls(encrypted: bool, local: bool, status: str) -> None:
    deployment = replace(Deployment("redis://a", "single", (GOOD,)), encrypted=encrypted, local=local)
    (found,) = _of(check(deployment, deployment.asked), "tls")
    assert found.status == status


def _of(findings: list[Finding], name: str) -> Iterator[Finding]:
    return (one for one in findings if one.check == name)


@pytest.mark.one_server
async def test_it_is_read_from_redis_as_nodes_and_clients_wrote_it(redis_url: str, cleanup_namespace: str) -> None:
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
        await client.apply("orders", kind="queue", limit="3MiB")
        await client.apply("news", kind="topic")
        await client.apply("gate", kind="gate", limit="9MiB")  # holds nothing in Redis
        await NodeRegistry(client).beat(NodeFacts("n~1", "node:5672", "", 0.0, "ready"), 0.0)
    facts = await look_at(headgate.connect(redis_url, namespace=cleanup_namespace))
    assert facts == NamespaceFacts((("node:5672", __version__),), 2, 3 * MIB, 1)
    assert LOOKED_AT >= 1000
    deployment = await collect(redis_url, cleanup_namespace, RolePermissions(cleanup_namespace, ROLES, ""))
    assert deployment.local
    assert not deployment.encrypted


def test_nodes_of_another_version_are_named_beside_one_server_too() -> None:
    """Mutant: with one server nobody needs a place."""
    server = ServerFacts("a:1", info={"maxmemory": "1"})
    deployment = Deployment("redis://a", "single", (server,))
    (found, *_) = check_namespace_facts(NamespaceFacts((("b:5672", "0.0.1"), ("c:5672", __version__))), deployment)
    assert "[b:5672]" in rendered(deployment, [found])
    assert "[" not in rendered(deployment, [Finding("memory", "ok", "1 MiB", places=("a:1",))])
