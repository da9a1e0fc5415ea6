"""The registry lists the nodes of a namespace, as each last reported in Redis.

A node beats every :data:`BEAT` seconds. One that missed :data:`MISSED` beats by Redis' clock is seen no more, and is
forgotten when another node beats.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from headgate import Client, HeadgateError, __version__
from headgate.redis.stores.nodes import NodeStore
from headgate_coordinator.fleet.node_facts import NodeFacts, NodeState, NodeView

_log = logging.getLogger("headgate")
BEAT: Final = 1.0
"""Seconds between two beats of a node."""
MISSED: Final = 3
"""Beats that a node may miss."""
TROUBLES: Final = 100
"""Links in trouble that a beat tells of."""


@dataclass(frozen=True, slots=True)
class NodeEntry:
    """A node as the registry has it.

    Attributes:
        id: of the node.
        address: ``host:port`` where AMQP clients reach it.
        admin: base URL of its admin HTTP; empty when it has none.
        started: when, in seconds since 1970 by its own clock.
        state: as it reported.
        connections: that are open.
        links: how many are attached.
        messages_per_second: in both directions, between its last two beats.
        silent: seconds since its last beat, by Redis' clock.
        troubles: links of the policy that it works on, and that do not move -> why, in a sentence; at most
            :data:`TROUBLES`.
        codes: the same links -> the code of that, see :mod:`headgate.core.links.trouble`.
        rates: links of the policy -> messages a second that it forwarded between its last two beats; those that moved,
            the quickest, at most :data:`TROUBLES`.
        claims: durable links that clients attached to it lately, by a digest of what they are known by -> when.
        version: of Headgate; empty where the node is too old to say it.
    """

    id: str
    address: str
    admin: str
    started: float
    state: NodeState
    connections: int
    links: int
    messages_per_second: float
    silent: float = 0.0
    troubles: dict[str, str] = field(default_factory=dict)
    codes: dict[str, str] = field(default_factory=dict)
    rates: dict[str, float] = field(default_factory=dict)
    claims: dict[str, float] = field(default_factory=dict)
    version: str = ""


class NodeRegistry:
    """A registry keeps the nodes of a namespace; ``beat`` are the seconds between two beats, the same for all nodes."""

    def __init__(self, client: Client, *, beat: float = BEAT) -> None:
        self._store = NodeStore(client.store.server, client.namespace, int(MISSED * beat * 1000))
        self._beat = beat
        self._carried: tuple[float, int] | None = None
        self._forwarded: tuple[float, dict[str, int]] | None = None

    async def beat(self, facts: NodeFacts, now: float) -> list[int]:
        """Say that the node is there, and how it is; ``now`` are seconds of a clock that never goes back.

        Returns the parts of the namespace's sweep that fall to the node until the next round.

        Raises:
            CoordinatorUnavailable: Redis does not answer; the next beat says it again.
        """
        troubled = [(one.link, one.trouble) for one in facts.bridges if one.trouble][:TROUBLES]
        report = asdict(
            NodeEntry(
                id=facts.id,
                address=facts.address,
                admin=facts.admin,
                started=facts.started,
                state=facts.state,
                connections=facts.connections,
                links=len(facts.links),
                messages_per_second=round(self._rate(facts.counters.carried, now), 3),
                troubles={link: trouble.text for link, trouble in troubled},
                codes={link: trouble.code for link, trouble in troubled},
                rates=self._rates({one.link: one.messages for one in facts.bridges}, now),
                claims=dict(facts.claims),
                version=__version__,
            )
        )
        del report["id"], report["silent"]
        return await self._store.beat(facts.id, json.dumps(report, separators=(",", ":")))

    async def keep(self, node: NodeView, hand_out: Callable[[list[int]], None] = lambda _parts: None) -> None:
        """Report a node until cancelled; while Redis does not answer, which is logged once, try again at the next beat.

        Args:
            node: the node.
            hand_out: takes the parts of the namespace's sweep that fall to it.
        """
        loop = asyncio.get_running_loop()
        lost: float | None = None  # since when none came through
        while True:
            began = loop.time()
            try:
                hand_out(await self.beat(node.facts(), began))
                if lost is not None:
                    _log.warning("heartbeats of the node come through again, after %.0f s", loop.time() - lost)
                lost = None
            except HeadgateError as error:
                if lost is None:
                    _log.warning("no heartbeat of the node comes through: %s", error)
                    lost = began
            await asyncio.sleep(self._beat)

    async def leave(self, node: str) -> None:
        """Take a node out at once; one that is not there does not matter.

        Raises:
            CoordinatorUnavailable: Redis does not answer; it is forgotten after its missed beats.
        """
        await self._store.leave(node)

    async def among(self, nodes: Collection[str]) -> set[str]:
        """Return those of some nodes that have beaten lately.

        Raises:
            CoordinatorUnavailable: Redis does not answer.
        """
        return await self._store.among(nodes)

    async def list(self) -> list[NodeEntry]:
        """Return the nodes that have beaten lately, by id; at most 1,000.

        Raises:
            CoordinatorUnavailable: Redis does not answer.
        """
        found = [
            NodeEntry(id=beat.node, silent=beat.silent_ms / 1000, **_known(json.loads(beat.entry)))
            for beat in await self._store.there()
        ]
        return sorted(found, key=lambda entry: entry.id)

    def _rate(self, carried: int, now: float) -> float:
        before, self._carried = self._carried, (now, carried)
        if before is None or now <= before[0]:
            return 0.0
        return max(0.0, (carried - before[1]) / (now - before[0]))

    def _rates(self, forwarded: dict[str, int], now: float) -> dict[str, float]:
        before, self._forwarded = self._forwarded, (now, forwarded)
        if before is None or now <= before[0]:
            return {}
        seconds, counts = now - before[0], before[1]
        moved = {link: (count - counts.get(link, 0)) / seconds for link, count in forwarded.items()}
        quickest = sorted(((rate, link) for link, rate in moved.items() if rate > 0), reverse=True)[:TROUBLES]
        return {link: round(rate, 3) for rate, link in quickest}


def _known(report: dict[str, Any]) -> dict[str, Any]:
    """Leave out what a newer node says and this one does not know."""
    return {name: value for name, value in report.items() if name in NodeEntry.__dataclass_fields__}
