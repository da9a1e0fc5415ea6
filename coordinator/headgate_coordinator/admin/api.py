"""The JSON API is answered here, one method for each operation."""

import asyncio
import contextlib
import gc
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from pydantic import BaseModel

from headgate import (
    Client,
    Explanation,
    FoundDeadlock,
    HeadgateError,
    PolicyConflict,
    PolicyError,
    UnknownDestination,
    __version__,
)
from headgate import policy as documents
from headgate.explain.link_view import LinkEnds
from headgate.explain.views import Waiter
from headgate.redis.keys import Address, link_of
from headgate_coordinator.admin import models
from headgate_coordinator.admin.answers import limiters, pools, stores
from headgate_coordinator.admin.destination_state import DestinationState, from_fields
from headgate_coordinator.admin.links import LinkWatch
from headgate_coordinator.admin.namespace_watch import CachedValue, Flow, NamespaceSnapshot, NamespaceWatch
from headgate_coordinator.admin.operations import BlockRequest, Call, Listing, Operation, PutQuery, ViewQuery
from headgate_coordinator.admin.problems import Refused
from headgate_coordinator.admin.processes import Processes
from headgate_coordinator.fleet.node_facts import NodeView
from headgate_coordinator.fleet.registry import NodeEntry, NodeRegistry
from headgate_coordinator.policy.plan import plan

_log = logging.getLogger("headgate")
MOST_LOSSES: Final = 200
MOST_WAITING: Final = 100
MOST_CONSUMERS: Final = 100
MOST_DEADLOCKS: Final = 10
_SORTS: Final[dict[str, Callable[[DestinationState, Flow], Any]]] = {
    "name": lambda one, _: one.name,
    "state": lambda one, _: (one.state != "open", one.blocked, one.state),
    "pending": lambda one, _: one.pending_bytes,
    "leased": lambda one, _: one.leased_bytes,
    "limit": lambda one, _: float("inf") if one.limit_bytes is None else one.limit_bytes,
    "used": lambda one, _: one.used or 0.0,
    "blocked": lambda one, _: one.blocked,
    "consumers": lambda one, _: one.consumers,
    "in": lambda _, flow: flow.into or 0.0,
    "out": lambda _, flow: flow.out_of or 0.0,
}


class Api:
    """`Api` holds what the operations work with: a client, and the node that it runs in, where there is one."""

    def __init__(self, client: Client, node: NodeView | None, processes: Processes, watch: NamespaceWatch) -> None:
        self._client = client
        self._node = node
        self._processes = processes
        self._watch = watch
        self._registry = NodeRegistry(client)
        self._entries = CachedValue(self._list_nodes)
        self._links = LinkWatch(client, self._entries)
        self._deadlocks = CachedValue(client.deadlocks)
        self._compiling = asyncio.Lock()
        self.operations: Final = self._declare()

    async def close(self) -> None:
        """Stop what runs."""
        await self._links.close()
        await self._deadlocks.close()
        await self._entries.close()

    def _declare(self) -> tuple[Operation, ...]:
        one = "/destinations/{name}"
        return (
            Operation("GET", "/overview", "Return all that the live page shows", self._overview,
                      (models.Overview,), Listing),
            Operation("GET", "/destinations", "List destinations", self._destinations, (models.Destinations,), Listing),
            Operation("GET", one, "Return a destination", self._destination, (models.Destination,)),
            Operation("GET", f"{one}/explain", "Explain a destination", self._explain, (models.Explained,), ViewQuery),
            Operation("POST", f"{one}/block", "Block a destination: nobody can send to it", self._block, (models.Done,),
                      body=BlockRequest),
            Operation("POST", f"{one}/unblock", "Unblock a destination", self._unblock, (models.Done,)),
            Operation("POST", f"{one}/purge", "Remove all messages of a destination", self._purge, (models.Purged,)),
            Operation("GET", "/pools", "List the pools", self._pools, (pools.Pools,)),
            Operation("GET", "/limiters", "List limiters: levels, top keys, who waits", self._limiters,
                      (limiters.Limiters,)),
            Operation("GET", "/stores", "List the spool stores", self._stores, (stores.Stores,)),
            Operation("GET", "/links", "List the links of the policy", self._policy_links, (models.PolicyLinks,)),
            Operation("GET", "/links/{name}/explain", "Explain why a link moves or does not", self._explain_link,
                      (models.Explained,)),
            Operation("GET", "/policy", "Return the policy in force", self._policy, (models.PolicyInForce,)),
            Operation("PUT", "/policy", "Put a policy in force, or say what it would change", self._put_policy,
                      (models.Applied, models.Planned), PutQuery, "policy"),
            Operation("GET", "/deadlocks", "List the deadlocks that nodes saw in the last minute", self._list_deadlocks,
                      (models.Deadlocks,)),
            Operation("GET", "/nodes", "List the broker nodes that are alive", self._nodes, (models.Nodes,)),
        )  # fmt: skip

    # -- What is there -----------------------------------------------------------------------------------------

    async def _overview(self, call: Call) -> models.Overview:
        explained = await self._watch.explanations()
        picture = await self._watch.picture()
        nodes: list[NodeEntry] = []
        deadlocks: list[FoundDeadlock] = []
        if not picture.trouble:
            with contextlib.suppress(HeadgateError):  # the next answer has them again
                nodes = await self._entries.get()
                deadlocks = await self._deadlocks.get()
        processes = await self._processes.reports(counted=False)
        return models.Overview(
            namespace=self._client.namespace,
            version=__version__,
            may_change=call.access.manages_all,
            trouble=picture.trouble,
            age_seconds=picture.age,
            totals=models.Totals.of(picture),
            losses=models.Loss.latest(picture)[:MOST_LOSSES],
            page=_page(picture, explained, call.query),
            pools=[pools.Pool.of(pool) for pool in picture.pools],
            stores=[stores.Store.read(store) for store in picture.stores],
            limiters=_limiters(picture, explained),
            waiting=_waiting(explained),
            consumers=_consumers(explained),
            deadlocks=[models.FoundDeadlock.of(found) for found in deadlocks[:MOST_DEADLOCKS]],
            links=[models.Link.read(link) for link in processes.links],
            links_total=processes.links_total,
            policy_links=self._links.last if picture.trouble else await self._links.links(),
            nodes=models.Nodes(this=self._own_id(), nodes=[models.Node.read(entry) for entry in nodes]),
        )

    async def _destinations(self, call: Call) -> models.Destinations:
        picture = await self._fresh()
        return _page(picture, await self._watch.explanations(), call.query)

    async def _destination(self, call: Call) -> models.Destination:
        with _known(call.name):
            explanation = await self._client.explain(call.name)
        flow = (await self._watch.picture()).flows.get(call.name)
        return models.Destination.of(from_fields(call.name, explanation.fields, float("inf")), flow, explanation)

    async def _explain(self, call: Call) -> models.Explained:
        with _known(call.name):
            explanation = await self._client.explain(
                call.name, producer=call.query.producer, consumer=call.query.consumer, key=call.query.key
            )
        return models.Explained(text=str(explanation), explanation=explanation)

    async def _pools(self, _call: Call) -> pools.Pools:
        return pools.Pools(pools=[pools.Pool.of(pool) for pool in (await self._fresh()).pools])

    async def _limiters(self, _call: Call) -> limiters.Limiters:
        return _limiters(await self._fresh(), await self._watch.explanations())

    async def _stores(self, _call: Call) -> stores.Stores:
        return stores.Stores(stores=[stores.Store.read(store) for store in (await self._fresh()).stores])

    async def _policy_links(self, _call: Call) -> models.PolicyLinks:
        return await self._links.links()

    async def _explain_link(self, call: Call) -> models.Explained:
        try:
            explanation = await self._client.explain(link=call.name)
        except PolicyError as error:
            raise Refused(404, "unknown-link", str(error), link=call.name) from None
        return models.Explained(text=str(explanation), explanation=explanation)

    async def _nodes(self, _call: Call) -> models.Nodes:
        entries = await self._entries.get()
        return models.Nodes(this=self._own_id(), nodes=[models.Node.read(entry) for entry in entries])

    def _own_id(self) -> str | None:
        return self._node.facts().id if self._node else None

    async def _list_deadlocks(self, _call: Call) -> models.Deadlocks:
        return models.Deadlocks(deadlocks=[models.FoundDeadlock.of(found) for found in await self._deadlocks.get()])

    async def _list_nodes(self) -> list[NodeEntry]:
        return await self._registry.list()

    async def _fresh(self) -> NamespaceSnapshot:
        picture = await self._watch.picture()
        if picture.trouble:
            raise Refused(503, "coordinator-unavailable", picture.trouble)
        return picture

    # -- Changes -----------------------------------------------------------------------------------------------

    async def _block(self, call: Call) -> models.Done:
        with _known(call.name):
            await self._client.block(call.name, call.body.reason)
        return await self._done(call.name, "was stopped by hand")

    async def _unblock(self, call: Call) -> models.Done:
        with _known(call.name):
            await self._client.unblock(call.name)
        return await self._done(call.name, "may go on")

    async def _done(self, name: str, what: str) -> models.Done:
        _log.warning("%s %s, over admin HTTP", name, what)
        self._watch.changed()
        with _known(name):
            explanation = await self._client.explain(name)
        return models.Done(destination=name, state=explanation.state, reason=explanation.reason)

    async def _purge(self, call: Call) -> models.Purged:
        address = Address.given(self._client.namespace, call.name)
        if await self._client.store.snapshot(address, waiters=0, consumers=1) is None:
            raise _unknown(call.name)
        messages = await self._client.purge(call.name)
        _log.warning("%d messages of %s were removed, over admin HTTP", messages, call.name)
        self._watch.changed()
        return models.Purged(destination=call.name, messages=messages)

    async def _policy(self, _call: Call) -> models.PolicyInForce:
        return models.PolicyInForce.model_validate_json((await self._client.policy()).to_json())

    async def _put_policy(self, call: Call) -> BaseModel:
        form: documents.Format = "json" if call.media_type == "application/json" else "toml"
        query: PutQuery = call.query
        async with self._compiling:  # in a thread, one at a time: the loop has messages to carry
            with _young_garbage_only():
                policy = await asyncio.to_thread(documents.loads, call.body, query.source or f"admin.{form}", form)
        if query.dry_run:
            planned = await plan(self._client, policy)
            if query.expect not in (None, planned.version):
                raise PolicyConflict(planned.version, query.expect or 0)
            return models.Planned.model_validate(planned.as_dict())
        version = await self._client.apply_policy(policy, expected=query.expect)
        _log.warning("policy version %d of %s was put in force, over admin HTTP", version, policy.source)
        self._watch.changed()
        destinations = len(await self._client.destinations())
        return models.Applied(version=version, destinations=destinations, source=policy.source)


@contextlib.contextmanager
def _young_garbage_only() -> Iterator[None]:
    """Have no full collections meanwhile: all that a large document becomes would be gone through, while all wait."""
    before = gc.get_threshold()
    gc.set_threshold(before[0], before[1], 1 << 30)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _page(picture: NamespaceSnapshot, explained: dict[str, Explanation], query: Listing) -> models.Destinations:
    wanted, flows, sort_by = query.search.casefold(), picture.flows, _SORTS[query.sort]
    found = [
        one
        for name, one in picture.destinations.items()
        if wanted in name.casefold() and (query.only == "all" or _held_up(one, explained))
    ]  # by name, as they were read
    found.sort(key=lambda one: sort_by(one, flows.get(one.name, Flow())), reverse=query.descending)
    return models.Destinations(
        total=picture.total,
        matched=len(found),
        offset=query.offset,
        destinations=[
            models.Destination.of(one, flows.get(one.name), explained.get(one.name))
            for one in found[query.offset : query.offset + query.limit]
        ],
    )


def _limiters(picture: NamespaceSnapshot, explained: dict[str, Explanation]) -> limiters.Limiters:
    found = (limiters.Limiter.of(one) for one in explained.values())
    total = sum(one.kind == "limiter" for one in picture.destinations.values())
    order = sorted((one for one in found if one), key=lambda one: (-one.view.waiting, one.state == "open", one.name))
    return limiters.Limiters(total=total, limiters=order)


def _held_up(one: DestinationState, explained: dict[str, Explanation]) -> bool:
    return (explained[one.name].state if one.name in explained else one.state) != "open"


def _waiting(explained: dict[str, Explanation]) -> list[models.WaitingSender]:
    found = [
        models.WaitingSender.read(waiter, one, link=_title(one.upstream, waiter.session))
        for one in explained.values()
        for waiter in _first_of_links(one.waiters)
    ]
    found.sort(key=lambda one: (-one.seconds, one.destination, one.place))
    return found[:MOST_WAITING]


def _first_of_links(waiters: Iterable[Waiter]) -> Iterable[Waiter]:
    """Return those who wait, each link once, however many of its lanes do: as the one that has waited longest."""
    longest = sorted(waiters, key=lambda one: one.seconds)
    return {link_of(one.session): one for one in longest}.values()


def _consumers(explained: dict[str, Explanation]) -> list[models.Consumer]:
    found = [
        models.Consumer.read(holder, one, link=_title(one.downstream, holder.session))
        for one in explained.values()
        for holder in one.consumers
        if holder.at_capacity or holder.slow
    ]
    found.sort(key=lambda one: (not one.slow, -one.messages, one.destination, one.consumer))
    return found[:MOST_CONSUMERS]


def _title(links: Sequence[LinkEnds], session: str) -> str:
    return next((link.title for link in links if link.id == link_of(session)), "")


@contextlib.contextmanager
def _known(name: str) -> Iterator[None]:
    """Answer 404 where the client says that there is no such destination."""
    try:
        yield
    except UnknownDestination:
        raise _unknown(name) from None


def _unknown(name: str) -> Refused:
    return Refused(404, "unknown-destination", f"there is no destination {name!r}; see GET /api/v1/destinations",
                   destination=name)  # fmt: skip
