"""A node starts with these options."""

from dataclasses import dataclass, field
from pathlib import Path

from headgate.amqp.limits import Limits
from headgate_coordinator.security.policy_reach import PolicyReach


def place(host: str, port: int) -> str:
    """Return ``host:port``, an address of IPv6 in brackets.

    >>> place("::1", 5672)
    '[::1]:5672'
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """Node options are the settings of one node.

    Attributes:
        host: interface to listen at.
        port: of AMQP; 0 takes a free one.
        shared: whether other workers listen at that port too.
        name: what operators call the node; the host's name and a few letters when empty.
        public: ``host:port`` at which clients reach it, where that is not where it listens.
        certificate: file with the certificate chain for TLS; without it, there is none.
        key: file with its private key, where it is not in the same file.
        client_authorities: file with certificates whose clients may sign in by their own; None for none.
        plain_without_tls: whether passwords and tokens may come over a connection that anybody can read.
        credit: messages that a sending client may have under way, at the most.
        low_credit: how few are left when it is given more.
        window: bytes of credit that the node keeps in hand for each destination.
        connections: how many at a time.
        handshake: seconds for a client to open its connection.
        slow_reader: seconds after which a client that does not read is hung up on.
        held: bytes of messages of one connection that may wait to be stored.
        drain: seconds for what is under way when the node is stopped.
        ttl: seconds after which what a dead node held is others'.
        limits: what one connection may take.
        forwarding: whether it takes its part of the links of the policy.
        reach: what the policy may name of this host and its network.
    """

    host: str = "127.0.0.1"
    port: int = 5672
    shared: bool = False
    name: str = ""
    public: str = ""
    certificate: Path | None = None
    key: Path | None = None
    client_authorities: Path | None = None
    plain_without_tls: bool = False
    credit: int = 100
    low_credit: int = 30
    window: int = 1 << 20
    connections: int = 10_000
    handshake: float = 10.0
    slow_reader: float = 60.0
    held: int = 64 << 20
    drain: float = 10.0
    ttl: float = 5.0
    limits: Limits = field(default_factory=Limits)
    forwarding: bool = True
    reach: PolicyReach = field(default_factory=PolicyReach)
