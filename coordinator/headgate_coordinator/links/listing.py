"""The links of a namespace as operators see them: who works on each, how far it got, and what it waits for."""

import asyncio
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from rich.table import Table

from headgate import Client
from headgate.core.bridge import Bridge, ends_of
from headgate.facts import backlogs
from headgate.redis.keys import PARTS, Address, link_id, owned_keys
from headgate_coordinator.node.registry import NodeEntry, NodeRegistry

State = Literal["works", "stalled", "nobody", "ending"]
STYLES: Final = {"works": "green", "stalled": "yellow", "nobody": "bold red", "ending": "magenta"}
AT_ONCE: Final = 32
"""Links asked about at a time."""
_LINKS: Final = 1 + PARTS.index("links")
_OWNER: Final = re.compile(rb"owner=(\S+)")
_MARK: Final = re.compile(rb"mark=(\d+)")


@dataclass(frozen=True, slots=True)
class LinkState:
    """One link.

    Attributes:
        name: of its bridge; empty when the policy does not name it any more.
        link: what it is known by.
        source: where it takes messages from.
        target: where it puts them.
        state: ``works``; ``stalled`` when nothing moves; ``nobody`` when no node that is there has its lease;
            ``ending`` when the policy does not name it any more, and nobody has ended it yet.
        owner: id of the node that has its lease; empty when none that is there has.
        mark: number, at the source, of the last message that the target has; None where it has none.
        backlog: messages at the source that it has to settle, with those that other consumers of a queue may get; None
            where there is no source, or it is not a subscription of it yet.
        trouble: why nothing moves, in a sentence; empty when it does.
        origin: where its bridge is written.
    """

    name: str
    link: str
    source: str
    target: str
    state: State
    owner: str
    mark: int | None
    backlog: int | None
    trouble: str
    origin: str

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return asdict(self)


async def list_links(client: Client) -> list[LinkState]:
    """Return the links of the policy in its order, and then those that are ending.

    Raises:
        CoordinatorUnavailable: Redis does not answer.
    """
    owned = owned_keys(client.namespace)[0]
    flat = await client.store.server.command(owned, "HGETALL", owned)
    leases = {flat[i].decode(): _found(_OWNER, flat[i + 1]) for i in range(0, len(flat), 2)}
    bridges = (await client.policy()).bridges
    nodes = {entry.id: entry for entry in await NodeRegistry(client).list()}
    links: dict[str, Bridge | None] = {bridge.link: bridge for bridge in bridges}
    links |= dict.fromkeys(sorted(link for link in leases if link not in links and ">" in link))
    rest, found = iter(links), dict[str, LinkState]()

    async def look() -> None:
        for link in rest:
            found[link] = await _look(client, link, links[link], nodes.get(leases.get(link, "")))

    await asyncio.gather(*(look() for _ in range(AT_ONCE)))
    return [found[link] for link in links]


async def _look(client: Client, link: str, bridge: Bridge | None, node: NodeEntry | None) -> LinkState:
    source, target = ends_of(link)
    mark = await _mark(client, link_id(link), Address.of(client.namespace, target))
    backlog = await _backlog(client, link_id(link), Address.of(client.namespace, source))
    trouble = node.troubles.get(link, "") if node else ""
    state: State = "ending" if bridge is None else "nobody" if node is None else "stalled" if trouble else "works"
    name, origin = (bridge.name, bridge.origin) if bridge else ("", "")
    return LinkState(name, link, source, target, state, node.id if node else "", mark, backlog, trouble, origin)


async def _mark(client: Client, link: str, target: Address) -> int | None:
    record = await client.store.server.command(target.shared[0], "HGET", target.shared[_LINKS], f"to:{link}")
    return (int(_found(_MARK, record)) or None) if record else None


async def _backlog(client: Client, link: str, source: Address) -> int | None:
    snapshot = await client.store.snapshot(source)
    names = (link, "queue")
    return next((one.messages for one in backlogs(snapshot) if one.subscription in names), None) if snapshot else None


def _found(pattern: re.Pattern[bytes], record: bytes) -> str:
    match = pattern.search(record)
    return match[1].decode() if match else ""


def render(links: list[LinkState], namespace: str) -> Table:
    """Return links for people."""
    table = Table(title=f"{len(links)} link(s) of namespace {namespace}", title_justify="left", box=None)
    for column in ("bridge", "from", "to", "state", "node"):
        table.add_column(column, overflow="fold")
    table.add_column("mark", justify="right")
    table.add_column("backlog", justify="right")
    table.add_column("trouble", overflow="fold")
    for one in links:
        table.add_row(*_cells(one))
    return table


def _cells(one: LinkState) -> Iterator[str]:
    yield from (one.name or "-", one.source, one.target, f"[{STYLES[one.state]}]{one.state}[/]", one.owner or "-")
    yield from ("-" if number is None else str(number) for number in (one.mark, one.backlog))
    yield one.trouble
