"""The doctor asks servers, cluster nodes and Sentinels; what is forbidden, unknown or not answered is noted as that."""

import asyncio
import functools
import ipaddress
import operator
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from headgate.core.durability import MEMORY, Durability
from headgate.core.policy import Policy
from headgate.errors import HeadgateError
from headgate.redis.keys import policy_key
from headgate.redis.probing import ConnectRefused, Probe, ProbeRefusal, target
from headgate_coordinator.doctor.deployment import (
    Clock,
    ClusterFacts,
    Deployment,
    SentinelFacts,
    ServerFacts,
    parse_nodes,
)
from headgate_coordinator.doctor.redis_permissions import RolePermissions

SETTINGS: Final = (
    *("appendfsync", "save", "stop-writes-on-bgsave-error", "min-replicas-to-write", "min-replicas-max-lag"),
    *("repl-backlog-size", "repl-backlog-ttl"),
    *("timeout", "tcp-keepalive", "client-output-buffer-limit", "cluster-require-full-coverage"),
)
SECTIONS: Final = ("server", "clients", "memory", "persistence", "stats", "replication")
MOST_SERVERS: Final = 100
"""Servers of a cluster that are asked."""
_CLOCKS: Final = 3
"""Times that a clock is read; the fastest answer is the most exact."""
Place = tuple[str, int]


async def collect(url: str, namespace: str, rights: RolePermissions) -> Deployment:
    """Return what can be found out about the deployment that a URL leads to.

    Args:
        url: of a Redis, of Sentinels or of a cluster.
        namespace: whose policy is read.
        rights: the question which roles the user may take.

    Raises:
        InvalidValue: the URL is none.
    """
    return await _Examination(url, namespace, rights).run()


class _Examination:
    def __init__(self, url: str, namespace: str, rights: RolePermissions) -> None:
        self._url = target(url)
        self._policy = policy_key(namespace)
        self._rights = rights

    async def run(self) -> Deployment:
        hosts = {host for host, _ in self._url.hosts}
        local = self._url.kind == "unix" or all(map(_is_here, hosts))
        return replace(await self._deployment(), encrypted=self._url.tls, local=local)

    async def _deployment(self) -> Deployment:
        url = self._url
        if url.kind == "sentinel":
            sentinels = await asyncio.gather(*map(self._sentinel, url.hosts))
            places = _distinct(
                place for one in sentinels for place in (one.master, *one.replicas) if place and not one.trouble
            )
            return Deployment(str(url), url.kind, await self._servers(places, cluster=False), None, tuple(sentinels))
        if url.kind == "unix":
            return Deployment(str(url), url.kind, (await self._server(None, cluster=False),))
        found = await asyncio.gather(*map(self._map, url.hosts))
        cluster = next((one for one in found if one is not None), None)
        if cluster is None:
            servers = await self._servers(map(_text, url.hosts), cluster=url.kind == "cluster")
            return Deployment(str(url), url.kind, servers)
        known = [node.place for node in cluster.nodes if not node.is_down]
        seeds = [] if known else list(map(_text, url.hosts))
        return Deployment(str(url), url.kind, await self._servers([*known, *seeds], cluster=True), cluster)

    async def _servers(self, places: Iterable[str], *, cluster: bool) -> tuple[ServerFacts, ...]:
        asked = (self._server(_place(place), cluster=cluster) for place in _distinct(places)[:MOST_SERVERS])
        return tuple(await asyncio.gather(*asked))

    async def _map(self, host: Place) -> ClusterFacts | None:
        """Return the cluster as one host sees it; None where it is in none, or does not answer."""
        try:
            probe = await Probe.open(self._url, host)
        except ConnectRefused:
            return None
        try:
            mode = _fields(await probe.ask("INFO", "server"))
            if "cluster" not in (mode.get("redis_mode"), mode.get("server_mode")):
                return None
            nodes, info = await probe.ask("CLUSTER", "NODES"), await probe.ask("CLUSTER", "INFO")
            if isinstance(nodes, ProbeRefusal):
                return ClusterFacts((), _fields(info).get("cluster_state", ""), nodes.text)
            listed = tuple(
                replace(node, place=_text((host[0], host[1]))) if node.place.startswith(":") else node
                for node in parse_nodes(_decoded(nodes))
            )  # a node that no other has met knows its port only
            return ClusterFacts(listed, _fields(info).get("cluster_state", ""))
        finally:
            await probe.close()

    async def _server(self, place: Place | None, *, cluster: bool) -> ServerFacts:
        where = _text(place) if place else self._url.path
        try:
            probe = await Probe.open(self._url, place)
        except ConnectRefused as error:
            return ServerFacts(where, str(error), reason=error.reason)
        try:
            return await self._asked(probe, where, cluster=cluster)
        finally:
            await probe.close()

    async def _asked(self, probe: Probe, where: str, *, cluster: bool) -> ServerFacts:
        unanswered: dict[str, str] = {}
        clock, fastest = await _clock(probe, unanswered)
        info: dict[str, str] = {}
        for section in SECTIONS:
            answer = await probe.ask("INFO", section)
            if isinstance(answer, ProbeRefusal):
                unanswered["INFO"] = answer.text
                break
            info |= _fields(answer)
        config: dict[str, str] = {}
        for name in SETTINGS:
            answer = await probe.ask("CONFIG", "GET", name)
            if isinstance(answer, ProbeRefusal):
                unanswered["CONFIG GET"] = answer.text
                break
            texts = list(map(_decoded, answer))
            config |= dict(zip(texts[::2], texts[1::2], strict=False))
        default = await probe.ask("ACL", "GETUSER", "default")
        if isinstance(default, ProbeRefusal):
            unanswered["ACL GETUSER"] = default.text
        loader = {} if isinstance(default, ProbeRefusal) else _paired(default)
        asked = _durability(await probe.ask("HGET", self._policy, "document"), unanswered)
        facts = ServerFacts(where, "", info, config, unanswered, clock, fastest, loader=loader, asked=asked)
        user, missing = await self._rights.of(probe, facts.version, cluster=cluster)
        user = user or self._url.username or ""
        facts = replace(facts, beyond=await self._rights.beyond(probe, facts.version))
        if isinstance(missing, str):
            return replace(facts, user=user, unanswered=unanswered | {"permissions": missing})
        return replace(facts, user=user, missing=missing)

    async def _sentinel(self, host: Place) -> SentinelFacts:
        where, service = _text(host), self._url.service
        try:
            probe = await Probe.open(self._url, host, sentinel=True)
        except ConnectRefused as error:
            return SentinelFacts(where, str(error))
        try:
            state = await probe.ask("SENTINEL", "MASTER", service)
            if isinstance(state, ProbeRefusal):
                return SentinelFacts(where, state.text)
            fields = _paired(state)
            quorum = await probe.ask("SENTINEL", "CKQUORUM", service)
            listed = await probe.ask("SENTINEL", "REPLICAS", service)
            replicas = [] if isinstance(listed, ProbeRefusal) else [_paired(one) for one in listed]
            heard = await probe.ask("SUBSCRIBE", "+switch-master")  # last: nothing else may be asked after it
            return SentinelFacts(
                where,
                "",
                _joined(fields.get("ip", ""), fields.get("port", "")),
                fields,
                None if _unknown(quorum) else quorum.text if isinstance(quorum, ProbeRefusal) else "",
                heard.text if isinstance(heard, ProbeRefusal) else "",
                tuple(_joined(one.get("ip", ""), one.get("port", "")) for one in replicas),
            )
        finally:
            await probe.close()


def _is_here(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


async def _clock(probe: Probe, unanswered: dict[str, str]) -> tuple[Clock | None, float]:
    """Read a server's clock some times; what the fastest answer says counts."""
    best: Clock | None = None
    fastest = 0.0
    for _ in range(_CLOCKS):
        ours, began = time.time(), time.monotonic()
        answer = await probe.ask("TIME")
        took = time.monotonic() - began
        if isinstance(answer, ProbeRefusal):
            unanswered["TIME"] = answer.text
            break
        if best is None or took / 2 < best.within:
            theirs, fastest = int(answer[0]) + int(answer[1]) / 1e6, took
            best = Clock(theirs - ours - took / 2, took / 2)
    return best, fastest


def _durability(document: Any, unanswered: dict[str, str]) -> Durability:
    """Return the most that a rule of a policy asks for; it may be at another server of the cluster."""
    if isinstance(document, ProbeRefusal) or document is None:
        if isinstance(document, ProbeRefusal) and document.forbidden:
            unanswered["policy"] = document.text
        return MEMORY
    try:
        rules = Policy.from_json(_decoded(document)).rules
        levels = [Durability.parse(rule.fields.get("durability", MEMORY.text)) for rule in rules]
    except HeadgateError as error:
        unanswered["policy"] = str(error)
        return MEMORY
    return functools.reduce(operator.or_, levels, MEMORY)


def _unknown(answer: Any) -> bool:
    """Return whether a Sentinel may not be asked whether it could fail over, or cannot tell."""
    return isinstance(answer, ProbeRefusal) and not answer.text.startswith(("NOQUORUM", "NOGOODSLAVE"))


def _decoded(answer: Any) -> str:
    return answer.decode(errors="replace") if isinstance(answer, bytes) else str(answer)


def _fields(answer: Any) -> dict[str, str]:
    """Return the fields of an answer such as INFO's; none where there is no answer."""
    if isinstance(answer, ProbeRefusal):
        return {}
    lines = (line.partition(":") for line in _decoded(answer).splitlines())
    return {name: value.strip() for name, colon, value in lines if colon}


def _paired(answer: Any) -> dict[str, str]:
    texts = list(map(_decoded, answer))
    return dict(zip(texts[::2], texts[1::2], strict=False))


def _joined(host: str, port: str) -> str:
    return _text((host, int(port))) if host and port.isdigit() else ""


def _text(place: Place) -> str:
    host, port = place
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _place(text: str) -> Place:
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


def _distinct(places: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(places))
