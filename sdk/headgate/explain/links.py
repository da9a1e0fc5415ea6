"""Links of a namespace as one client sees them: which there are, what each waits for, and what chains of them do."""

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from headgate.core.addresses.pattern import Pattern
from headgate.core.links.link import STORES, Link
from headgate.core.links.trouble import Trouble
from headgate.core.policy import Policy
from headgate.errors import AccessDenied, PolicyError
from headgate.explain.explainer import explain, leased
from headgate.explain.link_chain import LinkWork, TargetView, around, holder, judge_link, load, of_link, through
from headgate.explain.link_view import LinkEnds
from headgate.explain.model import Explanation, Hop
from headgate.namespace.policy_follower import PolicyFollower
from headgate.namespace.topics import TopicIndex
from headgate.redis.keys import Address, forwarder_id, owned_keys
from headgate.redis.replies import Snapshot, record
from headgate.redis.store import Store
from headgate.redis.stores.links import LinkStore
from headgate.redis.stores.nodes import NodeStore

MOST_HOPS: Final = 8
"""Links that are followed one behind the other."""
LOOK_BACK: Final = 32
"""Ledger entries of each destination on the way, that tell its pace."""
STALE_MS: Final = 3000
"""Ms after which a node that was not heard of is there no more."""
TOPICS_FRESH: Final = 1.0
"""Seconds after which the topics that routes by pattern forward are read anew."""
FRESH: Final = 0.5
"""Seconds for which all waiters get the same answer."""
"""Kinds of destinations that can be an end of a link."""


class Links:
    """`Links` finds and explains the links of a client's namespace."""

    def __init__(self, store: Store, policies: PolicyFollower, namespace: str) -> None:
        self._store, self._policies, self._namespace = store, policies, namespace
        self._nodes = NodeStore(store.server, namespace, STALE_MS)
        self._ends: tuple[int, Mapping[str, LinkEnds]] = (0, {})
        self._topics_at = 0.0
        self._seen: dict[str, tuple[float, tuple[Hop, ...]]] = {}
        self._may_ask_nodes = True

    async def known(self) -> Mapping[str, LinkEnds]:
        """Return the links of the policy by their ids, as of the last second."""
        try:
            policy = await self._policies.recent()
        except AccessDenied:  # who may not put a lost policy back
            policy = self._policies.policy
        now = time.monotonic()
        if self._ends[0] != policy.version or (policy.patterns and now - self._topics_at > TOPICS_FRESH):
            self._topics_at = now
            self._ends = policy.version, ends_of_policy(policy, self._namespace, await self._topics(policy))
        return self._ends[1]

    async def _topics(self, policy: Policy) -> set[str]:
        """Return the topics that routes by pattern forward; none for who may not see them."""
        if not policy.patterns:
            return set()
        try:
            return await TopicIndex(self._store).topics(self._namespace, Pattern.parse("#"))
        except AccessDenied:
            return set()

    async def place(self, explanation: Explanation, snapshot: Snapshot) -> Explanation:
        """Return a destination's explanation with its links, and the waits of those that hold it up."""
        if explanation.kind not in STORES:
            return explanation
        known = await self.known()
        up, down = around(explanation.destination, snapshot, tuple(known.values()))
        explanation = replace(explanation, upstream=up, downstream=down)
        first = known.get(holder(explanation) or "")
        return through(explanation, await self._follow(first, snapshot)) if first else explanation

    async def behind(self, explanation: Explanation, snapshot: Snapshot) -> tuple[Hop, ...]:
        """Return the links that hold a destination up, as of half a second ago: all who wait there ask the same.

        Raises:
            CoordinatorUnavailable: Redis does not answer.
        """
        first = (await self.known()).get(holder(explanation) or "")
        if first is None:
            return ()
        now = time.monotonic()
        if now - self._seen.get(first.id, (float("-inf"), ()))[0] >= FRESH:
            self._seen = {id_: one for id_, one in self._seen.items() if now - one[0] < FRESH}
            self._seen[first.id] = now, await self._follow(first, snapshot)
        return self._seen[first.id][1]

    async def explain(self, name: str) -> Explanation:
        """Return the view of one link, by its bridge's name, that of its lease (``orders>billing``) or its id.

        Raises:
            PolicyError: there is no such link.
            CoordinatorUnavailable: Redis does not answer.
        """
        ends = await self._find(name)
        address = Address.of(self._namespace, ends.source)
        source = await self._store.snapshot(address)
        work = await self._work(ends.link)
        hops = await self._follow(ends, source, work)
        slices = int(source.fields.get("sliced", 1)) if source else 1
        return of_link(ends, hops, load(ends, source), work, await self._mark(ends, slices))

    async def _find(self, name: str) -> LinkEnds:
        found = list((await self.known()).values())
        for name_of in (
            lambda one: one.name, lambda one: one.link, lambda one: f"{one.source}>{one.where}", lambda one: one.id
        ):  # fmt: skip
            if ends := next((one for one in found if name_of(one) == name), None):
                return ends
        raise PolicyError(
            f"there is no link {name!r} in the policy of namespace {self._namespace!r}; headgate links lists those "
            "that there are"
        )

    async def _follow(self, ends: LinkEnds, source: Snapshot | None, work: LinkWork | None = None) -> tuple[Hop, ...]:
        """Return this link, and while each waits for its target, the link that holds that up."""
        known, been, hops = await self.known(), {ends.source}, list[Hop]()
        at: LinkEnds | None = ends
        while at is not None and len(hops) < MOST_HOPS:
            behind, seen = await self._behind(at, is_sliced=source is not None and "sliced" in source.fields)
            due = load(at, source)
            hop = judge_link(at, due, behind, work)
            may_spool = seen is not None and bool(seen.fields.get("store"))
            if work is None and (may_spool or hop.side not in ("target", "rate")):
                hop = judge_link(at, due, behind, await self._work(at.link))
            hops.append(hop)
            follower = behind.explanation and hop.side == "target" and at.target not in been
            been.add(at.target)
            work, source = None, seen
            at = known.get(holder(behind.explanation) or "") if follower and behind.explanation else None
        return tuple(hops)

    async def _behind(self, ends: LinkEnds, *, is_sliced: bool) -> tuple[TargetView, Snapshot | None]:
        """Look at a link's target as the link sees it. The nodes of another site report what is there.

        Of a source with slices, each that has something for the target is in line there; the first of them counts.
        """
        if ends.site:
            return TargetView(unseen=f"{ends.target} is at site {ends.site}, and cannot be seen from here"), None
        address = Address.of(self._namespace, ends.target)
        try:
            seen, session = await self._store.snapshot(address, session=ends.id, entries=LOOK_BACK), ends.id
            if is_sliced and seen is not None and not seen.place and (first := seen.in_line(ends.id)):
                seen, session = await self._store.snapshot(address, session=first, entries=LOOK_BACK), first
        except AccessDenied:
            return TargetView(unseen=f"{ends.target} may not be seen by this user"), None
        if seen is None:
            return TargetView(unseen=f"there is no destination {ends.target} yet"), None
        explanation = explain(ends.target, seen, session=session)
        if explanation.cause == "leased":  # who holds it, is read only where that matters
            explanation = explain(ends.target, seen, await self._store.lessees(address, *leased(seen)), session=session)
        return TargetView(explanation, bool(seen.own)), seen

    async def _work(self, link: str) -> LinkWork | None:
        """Return who works on a link, and what they say of it; None where that may not be read."""
        if not self._may_ask_nodes:
            return None
        owned, server = owned_keys(self._namespace)[0], self._store.server
        try:
            lease = await server.command(owned, "HGET", owned, link)
            nodes = {beat.node: beat.entry for beat in await self._nodes.there()}
        except AccessDenied:
            self._may_ask_nodes = False
            return None
        entries: dict[str, dict[str, Any]] = {node: json.loads(entry) for node, entry in nodes.items()}
        owner = record(lease or b"").get("owner", "")
        owner = owner if owner in entries else ""
        notes = [entries[owner]] if owner else entries.values()  # who has not the lease may say why it does without
        trouble = next((Trouble(one["codes"][link], one["troubles"][link]) for one in notes
                        if link in one.get("codes", ())), None)  # fmt: skip
        return LinkWork(owner, trouble)

    async def _mark(self, ends: LinkEnds, slices: int) -> int | None:
        """Return how far a link got: what the target says, or, of one at another site, what the source heard of it."""
        try:
            links = LinkStore(self._store.server)
            return await links.mark(self._namespace, ends, ends.id, here=not ends.site, slices=slices)
        except AccessDenied:
            return None


def ends_of_policy(policy: Policy, namespace: str, topics: Iterable[str] = ()) -> dict[str, LinkEnds]:
    """Return the links of a policy by their ids, given the topics that routes by pattern may forward."""
    found = {}
    for link in policy.links_with(topics).values():
        if not isinstance(link, Link):
            continue
        id_ = forwarder_id(namespace, link.link)
        site = link.site.name if link.site else ""
        found[id_] = LinkEnds(id_, link.link, link.source, link.target, link.name, link.kind, site)
    return found
