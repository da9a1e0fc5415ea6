"""The links of the policy as the live page draws them: read at most once a second, however many ask.

Of more than an answer has, those that no node works on or that are in trouble are read first. The reason of a link's
wait costs a few reads. It is asked of those that may be held up, and only while somebody looks.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Final

from headgate import Client, Explanation, HeadgateError, PolicyError
from headgate.core.links.link import ends_of
from headgate.explain.link_chain import NOBODY
from headgate.explain.link_view import HELD_UP, Side
from headgate_coordinator.admin.models import PolicyLink, PolicyLinks
from headgate_coordinator.admin.namespace_watch import AT_ONCE, MOST_EXPLAINED, PATIENCE, CachedValue, together
from headgate_coordinator.fleet.registry import NodeEntry
from headgate_coordinator.links.listing import first_links
from headgate_coordinator.operate.status import LinkState

MOST_SHOWN: Final = 200
"""Links that are read, and that an answer has."""
SENTENCES: Final = {
    "nobody": "no node that is alive works on it",
    "ending": "the policy no longer names it, and a node will end it",
}


class LinkWatch:
    """A link watch reads the links of a client's namespace: only when somebody asks, and it never raises for Redis.

    Attributes:
        last: that were read.
    """

    def __init__(self, client: Client, nodes: CachedValue[list[NodeEntry]]) -> None:
        self._client, self._nodes = client, nodes
        self._links = CachedValue(self._read)
        self.last = PolicyLinks(total=0, links=[])

    async def links(self) -> PolicyLinks:
        """Return them; those that were read last when Redis does not answer."""
        return await self._links.get()

    async def close(self) -> None:
        """Stop reading."""
        await self._links.close()

    async def _read(self) -> PolicyLinks:
        with contextlib.suppress(TimeoutError, HeadgateError):  # the page says so beside its figures
            async with asyncio.timeout(PATIENCE):
                states, total = await first_links(self._client, MOST_SHOWN)
                nodes = {entry.id: entry for entry in await self._nodes.get()}
                explained = await self._explain(states)
            links = [_drawn(state, explained.get(state.link), nodes.get(state.owner)) for state in states]
            self.last = PolicyLinks(total=total, links=links)
        return self.last

    async def _explain(self, states: Sequence[LinkState]) -> dict[str, Explanation]:
        """Return why they do not move, of those that may not: they are stalled, or have something to do."""
        due = [one for one in states if one.state in ("works", "stalled") and (one.backlog or one.trouble)]
        names = iter([one.link for one in sorted(due, key=_moves)[:MOST_EXPLAINED]])
        explained: dict[str, Explanation] = {}

        async def look() -> None:
            for link in names:
                with contextlib.suppress(PolicyError):  # removed since it was listed
                    explained[link] = await self._client.explain(link=link)

        await together([look() for _ in range(AT_ONCE)])
        return explained


def _moves(state: LinkState) -> tuple[bool, int]:
    return state.state == "works", -(state.backlog or 0)


def _drawn(state: LinkState, explanation: Explanation | None, node: NodeEntry | None) -> PolicyLink:
    rate = node.rates.get(state.link, 0.0) if node else 0.0
    side: Side | None = explanation.link.side if explanation and explanation.link else None
    if state.state == "nobody":
        side = "nobody"
    elif state.state == "works" and not state.backlog:
        side = "moves" if rate else "source"
    held_up = side in HELD_UP
    return PolicyLink.read(
        state,
        site=ends_of(state.link).site,
        state="stalled" if held_up and state.state == "works" else state.state,
        side=side,
        rate=rate,
        reason=explanation.reason if explanation and held_up else SENTENCES.get(state.state, state.trouble),
        remedy=explanation.remedy if explanation and held_up else NOBODY if side == "nobody" else "",
    )
