"""The links of a namespace are listed for operators: who works on each, how far it got, and what it waits for."""

import asyncio
import re
from collections.abc import Iterator
from typing import Final

from rich.table import Table

from headgate import Client
from headgate.core.links.channel import Feed, feed_of
from headgate.core.links.link import Link, LinkNameParts, ends_of
from headgate.core.links.trouble import STARTING, Trouble
from headgate.explain.destination_facts import backlogs
from headgate.redis.keys import Address, forwarder_id, owned_keys
from headgate.redis.replies import Snapshot
from headgate.redis.stores.links import LinkStore
from headgate.redis.stores.sliced_reads import slices_of
from headgate_coordinator.fleet.registry import NodeEntry, NodeRegistry
from headgate_coordinator.links.endpoints import unknown_site
from headgate_coordinator.links.routed import links_now
from headgate_coordinator.operate.status import LINK_STYLES, LinkState, State

AT_ONCE: Final = 32
"""Links asked about at a time."""
_OWNER: Final = re.compile(rb"owner=(\S+)")


async def list_links(client: Client) -> list[LinkState]:
    """Return the links of the policy in its order, and then those that are ending.

    Raises:
        CoordinatorUnavailable: Redis does not answer.
    """
    return (await first_links(client))[0]


async def first_links(client: Client, most: int | None = None) -> tuple[list[LinkState], int]:
    """Return some links, those without a node or with trouble first, and how many links there are.

    That takes reads of the links that are returned, and few more.

    Raises:
        CoordinatorUnavailable: Redis does not answer.
    """
    owned = owned_keys(client.namespace)[0]
    flat = await client.store.server.command(owned, "HGETALL", owned)
    leases = {flat[i].decode(): _found(_OWNER, flat[i + 1]) for i in range(0, len(flat), 2)}
    nodes = {entry.id: entry for entry in await NodeRegistry(client).list()}
    policy = await client.policy()
    sites = {site.name for site in policy.sites}
    links: dict[str, Link | Feed | None] = {**await links_now(client, policy)}
    links |= dict.fromkeys(sorted(link for link in leases if link not in links and ">" in link))
    owners = {link: nodes.get(leases.get(link, "")) for link in links}

    def moves(link: str) -> bool:
        owner = owners[link]
        return links[link] is not None and owner is not None and link not in owner.troubles

    chosen = list(links) if most is None or len(links) <= most else sorted(links, key=moves)[:most]
    rest, found = iter(chosen), dict[str, LinkState]()

    async def look() -> None:
        for link in rest:
            found[link] = await _look(client, link, links[link], owners[link], sites)

    await asyncio.gather(*(look() for _ in range(AT_ONCE)))
    return [found[link] for link in chosen], len(links)


async def _look(
    client: Client, name: str, link: Link | Feed | None, node: NodeEntry | None, sites: set[str]
) -> LinkState:
    ends, sid = ends_of(name), forwarder_id(client.namespace, name)
    store = LinkStore(client.store.server)
    slices = len(await slices_of(client.store.server, Address.of(client.namespace, ends.source)))
    # Before the backlog: a link that is open has one. What its node says is of its last beat, before which it had none.
    is_open = await store.is_open(client.namespace, ends, sid, slices=slices)
    mark = await store.mark(client.namespace, ends, sid, here=not (ends.site or feed_of(name)), slices=slices)
    backlog, size = _backlog(sid, ends, await client.store.snapshot(Address.of(client.namespace, ends.source)))
    trouble = node.troubles.get(name, "") if node else ""
    stalls = bool(trouble) and Trouble(node.codes.get(name, "") if node else "", trouble).stalls
    if node is not None and not trouble and not is_open:
        trouble, stalls = STARTING.text, True
    if link is None and ends.site and ends.site not in sites:
        trouble, stalls = unknown_site(name, ends.site), True
    state: State = "ending" if link is None else "nobody" if node is None else "stalled" if stalls else "works"
    kind_and_name = (link.kind, link.name) if link else ("", "")
    target = link.where if link else ends.where
    owner, origin = node.id if node else "", link.origin if link else ""
    return LinkState(*kind_and_name, name, ends.source, target, state, owner, mark, backlog, size, trouble, origin)


def _backlog(link: str, ends: LinkNameParts, seen: Snapshot | None) -> tuple[int | None, int | None]:
    every = {one.subscription: one for one in backlogs(seen)} if seen else {}
    moves = seen is not None and seen.fields["kind"] == "queue" and not ends.copies
    found = every.get("queue" if moves else link)
    if found is None or seen is None:
        return None, None
    messages, size = int(seen.fields["pending_messages"]), int(seen.fields["pending_bytes"])
    return found.messages, size * found.messages // messages if messages else 0


def _found(pattern: re.Pattern[bytes], record: bytes) -> str:
    match = pattern.search(record)
    return match[1].decode() if match else ""


def render(links: list[LinkState], namespace: str) -> Table:
    """Return links for people."""
    table = Table(title=f"links of namespace {namespace}: {len(links)}", title_justify="left", box=None)
    for column in ("link", "from", "to", "state", "node"):
        table.add_column(column, overflow="fold")
    table.add_column("mark", justify="right")
    table.add_column("backlog", justify="right")
    table.add_column("bytes", justify="right")
    table.add_column("trouble", overflow="fold")
    for one in links:
        table.add_row(*_cells(one))
    return table


def _cells(one: LinkState) -> Iterator[str]:
    yield from (
        f"{one.kind} {one.name}" if one.name else "-",
        one.source,
        one.target,
        f"[{LINK_STYLES[one.state]}]{one.state}[/]",
        one.owner or "-",
    )
    yield from ("-" if number is None else str(number) for number in (one.mark, one.backlog, one.backlog_bytes))
    yield one.trouble
