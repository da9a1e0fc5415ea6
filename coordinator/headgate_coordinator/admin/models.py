"""The answers of the JSON API."""

from typing import Any, Final, Literal

from pydantic import Field

from headgate import Explanation
from headgate import FoundDeadlock as Found
from headgate.core.deadlock import Step
from headgate.explain.link_view import Side
from headgate_coordinator.admin.answers.limiters import Limiters
from headgate_coordinator.admin.answers.pools import Pool
from headgate_coordinator.admin.answers.stores import Answer, Store
from headgate_coordinator.admin.destination_state import DestinationState
from headgate_coordinator.admin.namespace_watch import Flow, NamespaceSnapshot

SHOWN_FOR: Final = 86_400.0  # seconds for which a loss is shown
State = Literal["open", "full", "blocked", "stopped", "learning", "unknown"]


class Destination(Answer):
    """A destination shows its state and figures at a glance."""

    name: str
    kind: str = Field(description="queue, topic, gate, bucket or limiter")
    state: State
    pending_bytes: int = Field(description="stored and not settled")
    pending_messages: int
    leased_bytes: int = Field(description="granted to senders and not yet used")
    leased_messages: int
    limit_bytes: int | None = Field(description="null: unlimited")
    limit_messages: int | None = Field(description="null: unlimited")
    peak_bytes: int = Field(description="the most that was ever pending and leased together")
    used: float | None = Field(description="share of the narrowest limit, 1.0: all of it; null: no limit")
    blocked: int = Field(description="sessions that wait for credit")
    consumers: int
    in_per_second: float | None = Field(description="messages stored a second; null: not known yet")
    out_per_second: float | None = Field(description="messages settled a second; null: not known yet")
    spooled_bytes: int = Field(description="of segments in spool stores that its messages refer to; not pending")
    reference_bytes: int = Field(description="of references to these in Redis")
    limit_reference_bytes: int | None = Field(description="null: unlimited")
    later_messages: int = Field(description="that wait for their time, and failed deliveries that do")
    next_due_s: float | None = Field(description="until the first of these is due; null: none waits")
    dropped_messages: int = Field(description="by producers, for want of room")
    rate: float | None = Field(description="tokens a second of a bucket")
    stopped: str = Field(description="why it was stopped by hand; empty if it was not")
    cause: str = Field(description="what holds it up, a stable word; empty when it was not asked")
    reason: str = Field(description="the same in a sentence")
    remedy: str = Field(description="what would free it")

    @classmethod
    def of(cls, one: DestinationState, flow: Flow | None, explanation: Explanation | None) -> "Destination":
        """Return it from what was read."""
        why: dict[str, Any] = {word: getattr(explanation, word, "") for word in ("cause", "reason", "remedy")}
        return cls.read(
            one,
            used=explanation.limiter.used if explanation and explanation.limiter else one.used,
            state=explanation.state if explanation else one.state,
            dropped_messages=one.dropped,
            in_per_second=flow.into if flow else None,
            out_per_second=flow.out_of if flow else None,
            **why,
        )


class Loss(Answer):
    """A loss names a destination that Redis may have lost writes of within the last day."""

    destination: str
    epoch: int = Field(description="that began with it")
    at: float = Field(description="seconds since 1970, by Redis' clock")
    age_seconds: float
    messages: int = Field(description="that senders have receipts for, and Redis lost; consumers may have had some")

    @classmethod
    def latest(cls, picture: NamespaceSnapshot) -> "list[Loss]":
        """Return those of the last day: where most was lost first, then the latest."""
        found = [
            cls(destination=one.name, epoch=lost.epoch, at=lost.at, age_seconds=lost.age, messages=lost.messages)
            for one in picture.destinations.values()
            if (lost := one.loss) is not None and lost.age < SHOWN_FOR
        ]
        return sorted(found, key=lambda loss: (-loss.messages, loss.age_seconds, loss.destination))


class Destinations(Answer):
    """This answer lists some of the destinations."""

    total: int = Field(description="in the namespace")
    matched: int = Field(description="by search and filter")
    offset: int
    destinations: list[Destination]


class WaitingSender(Answer):
    """A waiting sender is a session that waits to send."""

    destination: str
    kind: str = Field(description="of the destination")
    session: str
    link: str = Field(description="the link that it is; empty: it is a client's")
    place: int = Field(description="in line, from 1")
    needs: int = Field(description="bytes of its first message that it lacks; at a gate, of its first call's size")
    seconds: float = Field(description="for which the session has stood in line; its waiting calls may be younger")
    cause: str
    reason: str
    remedy: str


class Consumer(Answer):
    """A consumer is listed while it is at capacity or slow."""

    destination: str
    consumer: str
    link: str = Field(description="the link that it is; empty: it is a client's")
    subscription: str
    messages: int = Field(description="delivered and not settled")
    bytes: int
    window: str
    rate: float | None = Field(description="messages settled a second; null: not known")
    at_capacity: bool
    slow: bool


class Link(Answer):
    """A link connects a client with a destination at this node."""

    id: str
    client: str
    user: str
    direction: Literal["from client", "to client"]
    destination: str
    link_credit: int
    unsettled: int
    waiting_seconds: float | None = Field(description="null: it does not wait")
    reason: str
    messages: int
    bytes: int


class Node(Answer):
    """A node entry shows a broker node of the namespace."""

    id: str
    address: str = Field(description="host:port for AMQP clients")
    admin: str = Field(description="base URL of its admin HTTP; empty: none")
    started: float = Field(description="seconds since 1970")
    state: str
    connections: int
    links: int
    messages_per_second: float
    silent: float = Field(description="seconds since its last beat")
    troubles: dict[str, str] = Field(description="links of the policy that do not move at this node, or spool -> why")
    rates: dict[str, float] = Field(description="links of the policy -> messages a second that this node forwarded")


class Nodes(Answer):
    """This answer lists the broker nodes that are alive."""

    this: str | None = Field(description="id of the node that answers; null: none")
    nodes: list[Node]


class PolicyLink(Answer):
    """A policy link is an arrow from a destination to another, or from a topic to a multicast group."""

    kind: str = Field(description="bridge, route or channel; empty when the policy no longer names it")
    name: str = Field(description="of its table in the policy; empty likewise")
    link: str = Field(description="the name that it is known by")
    source: str
    target: str
    site: str = Field(description="of the target; empty: here")
    state: Literal["works", "stalled", "nobody", "ending"]
    side: Side | None = Field(description="what holds it up; moves: nothing; null: it was not asked")
    owner: str = Field(description="id of the node that works on it; empty: none")
    rate: float = Field(description="messages a second forwarded, between two beats of its node")
    backlog: int | None = Field(description="messages at the source that it has to settle; null: there is none yet")
    backlog_bytes: int | None = Field(description="of these, about: by the mean size of messages there")
    mark: int | None = Field(description="number of the last message that the target has; null: none")
    reason: str = Field(description="why it does not move, over further links; empty when it does")
    remedy: str = Field(description="what would free it")
    origin: str = Field(description="where the policy has it")


class PolicyLinks(Answer):
    """This answer lists the links of the policy, in its order, and those that are ending."""

    total: int
    links: list[PolicyLink]


class DeadlockStep(Answer):
    """A deadlock step is one wait of the cycle."""

    kind: str = Field(description="of who waits: session, link, queue or topic")
    name: str = Field(description="of who waits")
    waits_for: str = Field(description="kind and name of the next of the cycle")
    others: list[str] = Field(description="that would do as well, and are as stuck")
    text: str = Field(description="the same in a sentence")

    @classmethod
    def of(cls, step: Step) -> "DeadlockStep":
        """Return it from a step of a cycle."""
        others = [str(other) for other in step.others]
        return cls(kind=step.who.kind, name=step.who.name, waits_for=str(step.what), others=others, text=str(step))


class FoundDeadlock(Answer):
    """A found deadlock is one that a node saw in the last minute."""

    id: str
    current: bool = Field(description="false: it has ended")
    action: str = Field(description="what the destinations' settings say: alert, fail or ticket")
    done: str = Field(description="what was done about it last; empty: nothing")
    lasted_seconds: float = Field(description="from when it was found until it was last seen")
    unseen_seconds: float = Field(description="since it was last seen")
    destinations: list[str]
    steps: list[DeadlockStep] = Field(description="each waits for the next, and the last for the first")

    @classmethod
    def of(cls, found: Found) -> "FoundDeadlock":
        """Return it from what a node noted."""
        return cls.read(
            found,
            current=found.is_current,
            lasted_seconds=found.lasted,
            unseen_seconds=found.unseen,
            destinations=list(found.destinations),
            steps=[DeadlockStep.of(step) for step in found.deadlock.steps],
        )


class Deadlocks(Answer):
    """This answer lists the deadlocks that nodes saw in the last minute; those that are there still come first."""

    deadlocks: list[FoundDeadlock]


class Totals(Answer):
    """`Totals` sums up all destinations."""

    destinations: int
    held_up: int = Field(description="destinations that are not open")
    blocked: int = Field(description="sessions that wait")
    consumers: int
    pending_bytes: int
    pending_messages: int
    leased_bytes: int
    spooled_bytes: int = Field(description="of the segments of all spool stores")
    in_per_second: float | None
    out_per_second: float | None

    @classmethod
    def of(cls, picture: NamespaceSnapshot) -> "Totals":
        """Return the sums of what was read."""
        all_of_them, flows = picture.destinations.values(), picture.flows.values()
        return cls(
            destinations=picture.total,
            held_up=sum(one.state != "open" or picture.is_spent(one.name) for one in all_of_them),
            blocked=sum(one.blocked for one in all_of_them),
            consumers=sum(one.consumers for one in all_of_them),
            pending_bytes=sum(one.pending_bytes for one in all_of_them),
            pending_messages=sum(one.pending_messages for one in all_of_them),
            leased_bytes=sum(one.leased_bytes for one in all_of_them),
            spooled_bytes=sum(store.held for store in picture.stores),
            in_per_second=sum(flow.into or 0.0 for flow in flows) if flows else None,
            out_per_second=sum(flow.out_of or 0.0 for flow in flows) if flows else None,
        )


class Overview(Answer):
    """An overview holds all that the live page shows."""

    namespace: str
    version: str = Field(description="of Headgate")
    may_change: bool = Field(description="whether the caller may change anything, or only read")
    trouble: str = Field(description="why the figures are out of date; empty when they are current")
    age_seconds: float | None = Field(description="of the figures; null: there are none")
    totals: Totals
    losses: list[Loss] = Field(description="of the last day, where most was lost first, at most two hundred")
    page: Destinations
    pools: list[Pool] = Field(description="limits that destinations share, by name, the first fifty")
    stores: list[Store] = Field(description="spool stores, by name")
    limiters: Limiters
    waiting: list[WaitingSender] = Field(
        description="the first senders in line of those destinations that hold up most"
    )
    consumers: list[Consumer] = Field(description="those at capacity or slow")
    deadlocks: list[FoundDeadlock] = Field(description="that nodes saw in the last minute, at most ten")
    links: list[Link] = Field(description="of this node, those that wait first")
    links_total: int
    policy_links: PolicyLinks
    nodes: Nodes


class Explained(Answer):
    """This answer explains the state of a destination."""

    text: str = Field(description="for people")
    explanation: Explanation


class Done(Answer):
    """A change was made."""

    destination: str
    state: State
    reason: str


class Purged(Answer):
    """Messages were removed."""

    destination: str
    messages: int


class PolicyRule(Answer):
    """A policy rule is shown compiled, with the place that each field comes from."""

    match: str
    kind: str | None
    fields: dict[str, str]
    origins: dict[str, str]


class PolicyPool(Answer):
    """A policy pool is a pool, or a spool store, that a policy sets."""

    name: str
    fields: dict[str, str]
    origins: dict[str, str]


class PolicyInForce(Answer):
    """This answer shows the policy in force."""

    version: int = Field(description="0: there is none")
    source: str
    rules: list[PolicyRule]
    pools: list[PolicyPool]
    stores: list[PolicyPool]
    links: list[dict[str, Any]] = Field(description="kind, name, from, to and origin of each, and what else it says")
    channels: list[dict[str, Any]] = Field(description="each as it is written, with its defaults and its origin")
    site: str = Field(description="name of this site; empty where it has none")
    sites: list[dict[str, Any]] = Field(description="that links may lead to: name, url (without a password), namespace")
    strict: bool = Field(False, description="whether gates and buckets that nothing limits are not made")
    include_parent: bool = Field(False, description="whether a last > of a subscription takes the name before it too")
    descriptors: list[dict[str, Any]] = Field([], description="what proxies ask of limiters, each with its origin")
    user_limits: list[dict[str, Any]] = Field([], description="quotas of users over all nodes, each with its origin")


class Applied(Answer):
    """A policy was put in force."""

    version: int
    destinations: int = Field(description="that it was applied to")
    source: str


class Planned(Answer):
    """The changes that a policy would make; none was made."""

    version: int = Field(description="in force; 0: none")
    same: bool = Field(description="whether that says the same already")
    alike: bool = Field(description="whether all settings are in force already, wherever they are written")
    destinations: int
    changes: list[dict[str, Any]]
    rules: list[dict[str, Any]] = Field(description="settings of rules that would change: the first hundred")
    further_rules: int = Field(description="how many more settings of rules would change")
    pools: list[dict[str, Any]]
    stores: list[dict[str, Any]]
    links: dict[str, list[dict[str, Any]]] = Field(description="that would begin, or end; of a channel, one a topic")
    descriptors: dict[str, list[dict[str, Any]]] = Field({}, description="that proxies would ask anew, or no more")
