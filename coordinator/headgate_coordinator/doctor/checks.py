"""A whole deployment is checked here: facts in, findings out. Nothing here talks to anybody."""

import itertools
from collections.abc import Iterator, Mapping
from typing import Final

from headgate.core.durability import Durability
from headgate.redis.probing import Reason
from headgate_coordinator.doctor.deployment import SLOTS, ClusterFacts, Deployment, SentinelFacts
from headgate_coordinator.doctor.findings import Finding, merged
from headgate_coordinator.doctor.server_checks import check_server

_APART: Final = 1.0
"""Seconds that clocks of servers may differ from each other."""
_FIX: Final = "`redis-cli --cluster fix HOST:PORT`"
_REMEDIES: Final[Mapping[Reason, str]] = {
    "login": "check the user and the password; a password can be kept out of the URL: ?password_file=PATH",
    "rights": "`headgate acl` prints what a user needs",
    "certificate": "check ?ca_file=PATH, that the certificate is for this name, and in force, and that it speaks TLS",
    "file": "see that the files of the URL are there and can be read: ?ca_file, cert_file, key_file",
    "name": "check the name of the host",
    "closed": "check that a Redis is there, and whether it wants TLS (rediss://)",
    "stranger": "check that this is the port of a Redis without TLS; with TLS use rediss://",
    "silent": "check that it runs and listens at that address, and that no firewall is in between",
}


def check(deployment: Deployment, wanted: Durability) -> list[Finding]:
    """Return all findings; a server that did not let us in is one."""
    return merged(
        itertools.chain(
            _reached(deployment),
            _encryption(deployment),
            _sentinels(deployment),
            _cluster(deployment),
            _roles(deployment),
            (one for server in deployment.reached for one in check_server(server, wanted)),
            _clocks(deployment),
        )
    )


def _reached(deployment: Deployment) -> Iterator[Finding]:
    for server in deployment.servers:
        if server.trouble:
            alone = not deployment.masters
            yield Finding(
                "connection", "problem" if alone or deployment.kind != "sentinel" else "warning",
                f"cannot be used: {server.trouble}",
                "nothing works without it" if alone else "clients here cannot use it once it is in charge",
                _remedy(deployment, server.reason), (server.place,),
            )  # fmt: skip
    if not deployment.servers:
        yield Finding("connection", "problem", f"no server is known at {deployment.url}", "nothing works without one",
                      "check that the hosts of the URL are right, and running")  # fmt: skip
    elif deployment.reached:
        yield Finding("connection", "ok", f"{len(deployment.reached)} of {len(deployment.servers)} let us in")


def _remedy(deployment: Deployment, reason: Reason) -> str:
    """Return what to do; a server without TLS waits for more, and one that wants a certificate hangs up."""
    if not deployment.encrypted:  # a file is its socket
        return _REMEDIES["silent" if reason == "file" else reason]
    if reason == "closed":
        return "see whether it asks clients for a certificate: ?cert_file=PATH&key_file=PATH"
    return _REMEDIES[reason] + ("; and that it speaks TLS there, else redis://" if reason == "silent" else "")


def _encryption(deployment: Deployment) -> Iterator[Finding]:
    if not deployment.reached:
        return
    if deployment.encrypted or deployment.local:
        yield Finding("tls", "ok", "all traffic uses TLS" if deployment.encrypted else "no traffic leaves this host")
    else:
        yield Finding("tls", "warning", "passwords and messages cross the network unencrypted",
                      "anyone who can listen there reads them, and can sign in with the passwords",
                      "use rediss:// and ?ca_file=PATH, or a network of your own")  # fmt: skip


def _sentinels(deployment: Deployment) -> Iterator[Finding]:
    if deployment.kind != "sentinel":
        return
    answered = [one for one in deployment.sentinels if not one.trouble]
    left = "a failover is reported by those that are left" if answered else "nothing says which server is in charge"
    for one in deployment.sentinels:
        if one.trouble:
            yield Finding("sentinel", "problem" if not answered else "warning", f"does not help: {one.trouble}",
                          left, "see that it runs and knows the service",
                          (one.place,))  # fmt: skip
        else:
            yield from _sentinel(one)
    if not answered:
        return
    masters = sorted({one.master for one in answered})
    known = max(_whole(one.fields.get("num-other-sentinels", "0")) for one in answered) + 1
    if len(masters) > 1:
        yield Finding("sentinel", "problem", f"they name different masters: {', '.join(masters)}",
                      "clients may write to a server that is not in charge", "SENTINEL RESET on those behind",
        )  # fmt: skip
    if known < 3:
        yield Finding("sentinel", "warning", f"{known} in all", "if one dies, the majority is gone",
                      "run three, each on a host of its own")  # fmt: skip
    if len(masters) == 1 and known >= 3 and all(one.quorum == "" and not one.switches for one in answered):
        after = answered[0].fields.get("down-after-milliseconds", "?")
        quorum = answered[0].fields.get("quorum", "?")
        yield Finding("sentinel", "ok", f"{len(answered)} answer, quorum {quorum}, master {masters[0]}, "
                      f"down after {after} ms, +switch-master is received")  # fmt: skip


def _sentinel(one: SentinelFacts) -> Iterator[Finding]:
    if one.quorum:
        yield Finding("sentinel", "problem", one.quorum, "no failover can be agreed on",
                      "start Sentinels, or lower the quorum", (one.place,))  # fmt: skip
    elif one.quorum is None:
        yield Finding("sentinel", "warning", "whether there is a quorum cannot be asked",
                      "a check that cannot be made does not pass", "let its user run SENTINEL CKQUORUM",
                      (one.place,))  # fmt: skip
    if one.switches:
        yield Finding("sentinel", "warning", f"+switch-master cannot be received: {one.switches}",
                      "a failover is found a second later", "let its user subscribe to +switch-master",
                      (one.place,))  # fmt: skip
    if not one.replicas:
        yield Finding("sentinel", "warning", "it knows of no replica", "there is nothing to fail over to",
                      "start a replica", (one.place,))  # fmt: skip
    if "down" in one.fields.get("flags", ""):
        yield Finding("sentinel", "problem", f"the master is {one.fields['flags']}", "nothing is written",
                      "wait for the failover, or look at the master", (one.place,))  # fmt: skip


def _cluster(deployment: Deployment) -> Iterator[Finding]:
    cluster = deployment.cluster
    if cluster is None:
        if deployment.kind == "cluster" and deployment.reached:
            yield Finding("cluster", "problem", "no host of the URL is in a cluster", "no slot can be found",
                          "use redis:// for a single server")  # fmt: skip
        return
    if cluster.trouble:
        yield Finding("cluster", "problem", f"its nodes cannot be listed: {cluster.trouble}", "no slot can be found",
                      "`headgate acl --cluster` prints what a user needs")  # fmt: skip
        return
    missing = SLOTS - len(_covered(cluster))
    if missing:
        yield Finding("cluster", "problem", f"{missing} of {SLOTS} slots are not served",
                      "destinations in those slots stop; by default all do", _FIX)  # fmt: skip
    elif cluster.state and cluster.state != "ok":
        yield Finding("cluster", "problem", f"cluster_state {cluster.state}", "no command is served",
                      "`redis-cli --cluster check HOST:PORT`")  # fmt: skip
    for node in cluster.nodes:
        if node.is_down:
            yield Finding("cluster", "warning", f"is down: {', '.join(sorted(node.flags))}",
                          "it cannot take over", "start it, or CLUSTER FORGET it", (node.place,))  # fmt: skip
        if node.open:
            slots = ", ".join(map(str, node.open[:5]))
            yield Finding("cluster", "warning", f"slots on their way: {slots}{' ...' if len(node.open) > 5 else ''}",
                          "destinations there stop until the move is over",
                          f"let it finish; {_FIX} finishes one that was abandoned", (node.place,))  # fmt: skip
    masters = [node for node in cluster.nodes if node.slots and not node.is_down]
    followed = {node.master for node in cluster.nodes if node.master and not node.is_down}
    alone = [node for node in masters if node.id not in followed]
    if 0 < len(masters) < 3:
        yield Finding("cluster", "warning", f"{len(masters)} masters", "a failover needs a majority of three or more",
                      "use three masters")  # fmt: skip
    if alone:
        yield Finding("cluster", "warning", "this master has no replica", "when it dies, its slots are lost",
                      "add a replica to each master", tuple(node.place for node in alone))  # fmt: skip
    if not missing and cluster.state in ("ok", ""):
        state = "all slots are served" + ("" if cluster.state else "; cluster_state may not be asked")
        yield Finding("cluster", "ok", f"{len(masters)} masters, {len(cluster.nodes) - len(masters)} others, {state}")


def _covered(cluster: ClusterFacts) -> set[int]:
    serving = (node for node in cluster.nodes if "fail" not in node.flags)
    return {slot for node in serving for first, last in node.slots for slot in range(first, min(last, SLOTS - 1) + 1)}


def _roles(deployment: Deployment) -> Iterator[Finding]:
    if deployment.kind in ("single", "unix") and deployment.cluster is None:
        for server in deployment.reached:
            if server.is_replica:
                master = f"{server.info.get('master_host', '?')}:{server.info.get('master_port', '?')}"
                yield Finding("role", "problem", f"a replica of {master}",
                              "it refuses writes", "give the URL of its master, or of the Sentinels", (server.place,),
                )  # fmt: skip


def _clocks(deployment: Deployment) -> Iterator[Finding]:
    clocks = sorted((one.clock.ahead, one.place, one.clock.within) for one in deployment.reached if one.clock)
    if len(clocks) < 2:
        return
    (low, first, by), (high, last, wrong) = clocks[0], clocks[-1]
    if high - low - by - wrong > _APART:
        yield Finding("clock", "warning", f"{last} is {high - low:.1f} s ahead of {first}",
                      "after a failover leases, expiry and rates jump by that",
                      "have all hosts follow one time source, with a clock that slews")  # fmt: skip


def _whole(text: str) -> int:
    return int(text) if text.isdigit() else 0
