"""A node that is not there: its facts are what a test says."""

import time
from dataclasses import dataclass, field

from headgate_coordinator.fleet.node_facts import BridgeFacts, Counters, DeadlockFacts, LinkFacts, NodeFacts, NodeState


@dataclass
class StandIn:
    """Admin HTTP sees it as the node that it runs in."""

    id: str = "node~1"
    address: str = "node-1.example:5672"
    admin: str = "http://node-1.example:8161"
    state: NodeState = "ready"
    why_not: str | None = None
    connections: int = 0
    links: tuple[LinkFacts, ...] = ()
    counters: Counters = field(default_factory=Counters)
    started: float = field(default_factory=time.time)
    bridges: tuple[BridgeFacts, ...] = ()
    deadlocks: DeadlockFacts = field(default_factory=DeadlockFacts)

    def facts(self) -> NodeFacts:
        return NodeFacts(
            self.id,
            self.address,
            self.admin,
            self.started,
            self.state,
            self.connections,
            self.links,
            self.counters,
            self.bridges,
            self.deadlocks,
        )

    async def readiness(self) -> str | None:
        return self.why_not


def link(number: int = 1, **values: object) -> LinkFacts:
    """Return a link that carried something and does not wait, but for what is said."""
    said: dict[str, object] = {
        "id": f"l{number}", "client": "billing", "user": "ann", "direction": "from client", "destination": "orders",
        "link_credit": 10, "unsettled": 2, "messages": 7, "bytes": 7000,
    }  # fmt: skip
    return LinkFacts(**{**said, **values})  # type: ignore[arg-type]
