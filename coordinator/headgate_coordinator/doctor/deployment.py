"""A deployment is described by facts, which checks judge."""

import functools
import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from headgate.core.durability import MEMORY, Durability
from headgate.redis.probing import Reason

SLOTS: Final = 16384


@dataclass(frozen=True, slots=True)
class Clock:
    """A clock shows a server's time beside ours.

    Attributes:
        ahead: seconds that it is ahead of ours; negative when it is behind.
        within: seconds that this may be wrong by: half of what the answer took.
    """

    ahead: float
    within: float


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """Server facts are one server's report about itself.

    Attributes:
        place: host and port, or path.
        trouble: why it could not be connected to; all else is empty then.
        info: fields of INFO.
        config: settings by CONFIG GET.
        unanswered: question -> why it has no answer.
        clock: beside ours.
        answer_seconds: how long the fastest answer took.
        user: as whom we are connected, or of whom it was asked.
        missing: role -> what the user may not do of what the role needs; None where that could not be found out.
        beyond: what the user may do that no role has, where one role was asked for.
        loader: commands and keys of the user `default`, as ACL GETUSER tells them; empty where Redis did not say.
        asked: the most that a rule of the policy asks for, where the policy is here.
        reason: what sort of trouble there is, where there is any.
    """

    place: str
    trouble: str = ""
    info: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict)
    unanswered: Mapping[str, str] = field(default_factory=dict)
    clock: Clock | None = None
    answer_seconds: float = 0.0
    user: str = ""
    missing: Mapping[str, tuple[str, ...]] | None = None
    beyond: tuple[str, ...] = ()
    loader: Mapping[str, str] = field(default_factory=dict)
    asked: Durability = MEMORY
    reason: Reason = "silent"

    @property
    def product(self) -> str:
        """The software: ``Redis``, ``Valkey`` or a name that is less known."""
        if "valkey_version" in self.info:
            return "Valkey"
        if "dragonfly_version" in self.info:
            return "Dragonfly"
        name = self.info.get("server_name", "redis")
        return "Redis" if name == "redis" else name[:40]

    @property
    def version(self) -> tuple[int, ...]:
        """Its version: Valkey's own where it is one."""
        text = self.info.get("valkey_version") or self.info.get("redis_version", "")
        return tuple(int(part) for part in re.findall(r"\d+", text)[:3])

    @property
    def is_replica(self) -> bool:
        """Whether it follows a master."""
        return self.info.get("role") == "slave"

    @property
    def replicas(self) -> tuple[dict[str, str], ...]:
        """Its replicas, as it says: ``ip``, ``port``, ``state``, ``lag``."""
        lines = (value for name, value in self.info.items() if re.fullmatch(r"slave\d+", name))
        return tuple(dict(part.split("=", 1) for part in line.split(",") if "=" in part) for line in lines)

    def number(self, name: str) -> int | None:
        """Return a whole number of INFO or of the settings; None where it is not known."""
        text = self.info.get(name, self.config.get(name, ""))
        return int(text) if re.fullmatch(r"-?\d{1,18}", text) else None


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """A cluster node is read from a line of CLUSTER NODES.

    Attributes:
        place: host and port.
        flags: such as ``master``, ``fail``.
        master: id of its master; empty for a master.
        slots: ranges that it serves, the last one included.
        open: slots that are on their way from or to it.
    """

    id: str
    place: str
    flags: frozenset[str]
    master: str
    slots: tuple[tuple[int, int], ...] = ()
    open: tuple[int, ...] = ()

    @property
    def is_down(self) -> bool:
        """Whether others do not reach it."""
        return bool(self.flags & {"fail", "fail?", "noaddr", "handshake"})


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """Cluster facts are what the first node that answers sees; ``state`` is empty where it may not be asked."""

    nodes: tuple[ClusterNode, ...]
    state: str = ""
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class SentinelFacts:
    """Sentinel facts are one Sentinel's report about the service.

    Attributes:
        place: host and port.
        trouble: why there is no answer, or no service of that name.
        master: where it says that the master is.
        fields: of SENTINEL MASTER.
        quorum: what CKQUORUM says is wrong; empty when a failover could be agreed on, None where that is not known.
        switches: why ``+switch-master`` cannot be heard; empty when it can.
        replicas: places of the replicas that it knows.
    """

    place: str
    trouble: str = ""
    master: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)
    quorum: str | None = None
    switches: str = ""
    replicas: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Deployment:
    """A deployment holds all that was found out.

    Attributes:
        url: without its secrets.
        kind: of the URL: ``single``, ``unix``, ``sentinel`` or ``cluster``.
        servers: that hold data.
        cluster: None where there is none.
        sentinels: as the URL names them.
        encrypted: whether all traffic uses TLS.
        local: whether no traffic leaves this host.
    """

    url: str
    kind: str
    servers: tuple[ServerFacts, ...] = ()
    cluster: ClusterFacts | None = None
    sentinels: tuple[SentinelFacts, ...] = ()
    encrypted: bool = True
    local: bool = False

    @property
    def reached(self) -> tuple[ServerFacts, ...]:
        """The servers that let us in."""
        return tuple(server for server in self.servers if not server.trouble)

    @property
    def asked(self) -> Durability:
        """The durability that the policy in force asks for."""
        return functools.reduce(operator.or_, (server.asked for server in self.reached), MEMORY)

    @property
    def masters(self) -> tuple[ServerFacts, ...]:
        """Servers that are no replicas, or whose role is not known."""
        return tuple(server for server in self.reached if not server.is_replica)


def parse_nodes(text: str) -> tuple[ClusterNode, ...]:
    """Return the nodes that CLUSTER NODES lists; a line that cannot be read is left out."""
    found = []
    for line in text.splitlines():
        words = line.split()
        if len(words) < 8:
            continue
        slots, moving = [], []
        for word in words[8:]:
            if match := re.fullmatch(r"(\d{1,5})(?:-(\d{1,5}))?", word):
                slots.append((int(match[1]), int(match[2] or match[1])))
            elif match := re.match(r"\[(\d{1,5})-[<>]-", word):
                moving.append(int(match[1]))
        place = words[1].split(",")[0].partition("@")[0]
        master = "" if words[3] == "-" else words[3]
        found.append(ClusterNode(words[0], place, frozenset(words[2].split(",")), master, tuple(slots), tuple(moving)))
    return tuple(found)
