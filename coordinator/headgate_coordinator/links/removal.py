"""A link is ended for good here: its source lets go of what the target has, and gets back what the link had in hand."""

import asyncio
import re
from collections.abc import Sequence
from typing import Final

from headgate.client import Client
from headgate.core.durability import MAX_REPLICAS, Durability
from headgate.core.links.calls import Committed
from headgate.core.links.channel import feed_of
from headgate.core.links.link import ends_of
from headgate.errors import CoordinatorUnavailable, PolicyError
from headgate.redis.keys import Address, forwarder_id, link_at, owned_keys
from headgate.redis.replies import Account
from headgate.redis.stores.links import MAX_BEYOND, LinkStore, Spreading
from headgate.redis.stores.sliced_reads import slices_of
from headgate.redis.stores.spreads import SpreadStore
from headgate_coordinator.fleet.leases import LeaseStore
from headgate_coordinator.links.endpoints import LinkEndpoint
from headgate_coordinator.links.routed import links_now

_RECORD: Final = re.compile(r"owner=(\S+).*?fence=(\d+)")
_REPLICAS: Final = re.compile(rb"connected_slaves:(\d+)")
_TTL_MS: Final = 3_600_000
"""Longer than any node's: a call with a shorter one would have the others' leases end sooner."""
WITHIN_MS: Final = 1000
_SETTLED: Final = 0.5
"""Seconds after which a node that was about to claim the lease once more has done so."""


async def end_link(
    link: str, source: LinkEndpoint, target: LinkEndpoint, *, fence: int, ttl_ms: int, copies: bool = False
) -> None:
    """End a link that no policy names any more, at each slice of its source. May be repeated; ends may be gone.

    Both ends hear of the fence first, so that no call of an earlier worker, however late, stores anything after the
    mark was asked for. Else what it stored would be given back at the source too.

    Args:
        link: its id in the state of both.
        source: where it read.
        target: where it wrote.
        fence: above the number of any lease that a worker of it had.
        ttl_ms: length of the lease on the credit, which is given back here.
        copies: whether it left each message of a queue to the queue's consumers too.

    Raises:
        CoordinatorUnavailable: no answer, or a replica of the target does not have yet what it committed; call again.
    """
    for number, part in enumerate(await slices_of(source.client.store.server, source.address)):
        await _end_part(link, number, source._replace(address=part), target, fence, ttl_ms, copies=copies)


async def _end_part(
    link: str, part: int, source: LinkEndpoint, target: LinkEndpoint, fence: int, ttl_ms: int, *, copies: bool
) -> None:
    here, there = LinkStore(source.client.store.server), LinkStore(target.client.store.server)
    name, places = link_at(link, part), await _places(target)
    while True:
        opened = await here.open(source.address, link, fence=fence, window="1/1", copies=copies)
        answers = [
            await there.commit(at, name, fence=fence, born=opened.born, prev=0, ttl_ms=ttl_ms, spread=spread)
            for at, spread in places
        ]
        if not (later := max(opened.fence, *(answer.fence for answer in answers))):
            break
        fence = later + 1  # the leases were lost, and are numbered anew
    for at, spread in places:
        await _secure(there, at, name, fence, opened.born, ttl_ms, spread)
    if opened.code in ("OK", "GONE"):  # gone: whoever began to end it died, and what the target has had left by then
        if opened.code == "OK" and not all(answer.code in ("UNKNOWN", "KIND", "STALE") for answer in answers):
            await _let_go(here, source.address, link, fence, opened.born, answers)
        for member in (f"{link}.1", f"!{link}"):
            while await source.client.store.detach(source.address, link, member, failed=False) == "MORE":
                pass
    for at, _ in places:
        await target.client.store.acquire(at, Account(name, fence, 0, weight=0), ttl_ms=ttl_ms, leave=True)


async def _let_go(
    store: LinkStore, source: Address, link: str, fence: int, born: int, answers: Sequence[Committed]
) -> None:
    """Accept at the source what the target has, and nothing that lies between where several slices have it."""
    mark = max(answer.mark for answer in answers)
    beyond = sorted({number for answer in answers for number in answer.beyond if number > mark})
    for at in range(0, len(beyond) + 1, MAX_BEYOND):
        some = beyond[at : at + MAX_BEYOND]
        while await store.close(source, link, fence=fence, born=born, mark=mark, beyond=some) == "MORE":
            pass


async def _places(target: LinkEndpoint) -> list[tuple[Address, Spreading]]:
    """Return where a link may have brought messages, and how the target is spread."""
    server = target.client.store.server
    now, _ = await SpreadStore(server).in_force(target.address)
    if now is None:
        return [(target.address, None)]
    return [(part, (now.number, 0)) for part in await slices_of(server, target.address)]


async def _secure(
    store: LinkStore, target: Address, link: str, fence: int, born: int, ttl_ms: int, spread: Spreading
) -> None:
    """Wait until every replica that the target has knows the mark: what is below it leaves the source.

    How safe the link was to be, no policy says any more.
    """
    reports = await store.server.everywhere("INFO", "replication")
    counts = [int(found[1]) for one in reports if (found := _REPLICAS.search(one))]
    durability = Durability(min(min(counts, default=0), MAX_REPLICAS))
    if not durability:
        return
    answer, held = await store.barrier(
        target, link, fence=fence, born=born, prev=0, ttl_ms=ttl_ms, durability=durability, timeout_ms=WITHIN_MS,
        spread=spread,
    )  # fmt: skip
    if answer.code == "OK" and not durability.is_met(held):
        raise CoordinatorUnavailable(
            f"{held.replicas} of {durability.replicas} replicas of the target have what the link {link!r} committed; "
            "it ends once all have it",
            answered=True,
        )


async def give_up(client: Client, link: str) -> None:
    """End a link whose target's site the policy does not name any more, at its source alone.

    Messages in hand go back to a queue, also those that the target has already; of a topic its subscription goes with
    what was not forwarded. The credit that it had at the target ends with its lease there.

    Args:
        client: of the source's Redis itself.
        link: the name that it is known by, as `headgate links` shows it.

    Raises:
        PolicyError: there is no such link, the policy names it, or it can end by itself.
        CoordinatorUnavailable: no answer; call again.
    """
    key = owned_keys(client.namespace)[0]
    policy, ends = await client.policy(), ends_of(link)
    leases = {name.decode() for name in await client.store.server.command(key, "HKEYS", key)}
    named = await links_now(client, policy)
    if link in named:
        raise PolicyError(f"the policy names the link {link!r}; take it out there, and its nodes end it")
    if ">" not in link or link not in leases:
        known = ", ".join(sorted(name for name in leases if ">" in name and name not in named))
        raise PolicyError(f"there is no link {link!r} that ends; there are {known}" if known else "no link ends")
    if feed_of(link) or not ends.site or ends.site in {site.name for site in policy.sites}:
        raise PolicyError(f"the link {link!r} ends by itself, once a node runs and its target answers")
    source = Address.of(client.namespace, ends.source)
    while record := await client.store.server.command(key, "HGET", key, link):
        found = _RECORD.search(record.decode())
        owner, fence = (found[1], int(found[2])) if found else ("-", 0)
        for part in await slices_of(client.store.server, source):
            await end_source(client, part, forwarder_id(client.namespace, link), fence + 2, copies=ends.copies)
        await LeaseStore(client.store.server, client.namespace).call(owner, [link], mode="forget", ttl_ms=_TTL_MS)
        await asyncio.sleep(_SETTLED)


async def end_source(client: Client, source: Address, link: str, fence: int, *, copies: bool = False) -> None:
    """Close a link's consumer at its source, and of a topic its subscription; what it held goes back, delivered or not.

    Raises:
        CoordinatorUnavailable: no answer; call again.
    """
    links = LinkStore(client.store.server)
    while later := (opened := await links.open(source, link, fence=fence, window="1/1", copies=copies)).fence:
        fence = later + 1  # the leases were lost, and are numbered anew
    if opened.code in ("OK", "GONE"):
        for member in (f"{link}.1", f"!{link}"):
            while await client.store.detach(source, link, member, failed=False) == "MORE":
                pass
