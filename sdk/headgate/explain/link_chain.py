"""Links may wait one for the next: this module finds which of them holds a destination up, and what holds that one.

No I/O, and no clock.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from headgate.core.links.link import ends_of
from headgate.core.links.trouble import NO_ROOM, PACED, Trouble
from headgate.explain.destination_facts import read
from headgate.explain.link_view import HELD_UP, LINK, LinkAt, LinkEnds, LinkView, Side
from headgate.explain.model import CONSUMERS_HOLD, Cause, Explanation, Hop, Reason, State
from headgate.explain.rate_causes import until_token
from headgate.explain.views import count
from headgate.figures import rounded
from headgate.redis.keys import link_of
from headgate.redis.replies import Snapshot

FOLLOWED: Final[frozenset[Cause]] = CONSUMERS_HOLD - {"same-session", "pull-idle"}
"""Causes behind which a link may be."""
SEEN_AS: Final[dict[Side, Cause]] = {
    "moves": "open", "source": "link-empty", "target": "link-waits", "rate": "link-rate", "nobody": "link-nobody",
    "stuck": "link-stuck",
}  # fmt: skip
"""The cause that the view of one link has."""
MOVING: Final[frozenset[Cause]] = frozenset({"open", "serving", "enforcement-off"})
"""Causes of a target that keep no link waiting for long."""
NOBODY: Final = "start a node, or one without --no-forwarding"


@dataclass(frozen=True, slots=True)
class LinkWork:
    """The nodes report who works on a link, and what is in its way.

    Attributes:
        owner: id of the node; empty when none that is there does.
        trouble: why nothing moves, or why a node leaves it alone; None when it moves.
    """

    owner: str
    trouble: Trouble | None = None


@dataclass(frozen=True, slots=True)
class TargetView:
    """A link's target as the link sees it.

    Attributes:
        explanation: why it is as it is; None where there is none, or it cannot be seen.
        known: whether the link has an account there.
        unseen: why it cannot be seen; empty when it can.
    """

    explanation: Explanation | None = None
    known: bool = False
    unseen: str = ""


@dataclass(frozen=True, slots=True)
class LinkLoad:
    """A link's load counts the messages that it has to settle at its source.

    Attributes:
        backlog: messages that it has to settle; None where there is no source, or it never read there.
        in_hand: of these, what it has read.
        paced: seconds until the source's own rate of delivery lets it have the next message.
    """

    backlog: int | None = None
    in_hand: int = 0
    paced: float = 0.0


def is_link(session: str) -> bool:
    """Return whether that is the id of a link."""
    return session.startswith(LINK)


def holder(explanation: Explanation) -> str | None:
    """Return the id of the link that holds a destination up; None where something else does, or nothing."""
    if explanation.cause not in FOLLOWED:
        return None
    if explanation.kind == "topic" or explanation.backlogs:
        first = explanation.backlogs[0].subscription if explanation.backlogs else ""
    else:
        first = explanation.consumers[0].session if explanation.consumers else ""
    return first if is_link(first) else None


def load(ends: LinkEnds, source: Snapshot | None) -> LinkLoad:
    """Return what a link has to do at its source."""
    if source is None:
        return LinkLoad()
    facts = read(ends.source, source, {}, "", None)
    record = source.consumers.get(f"{ends.id}.1")
    in_hand = int(record["delivered"]) - int(record["settled"]) if record else 0
    every = {one.subscription: one.messages for one in facts.backlogs}
    if source.fields["kind"] == "queue" and not ends_of(ends.link).copies:
        backlog: int | None = facts.count("pending_messages")
    else:
        backlog = every.get(ends.id)
    rate = facts.number("delivery_rate")
    return LinkLoad(backlog, in_hand, until_token(facts, "delivery", rate, 1) if rate else 0.0)


def around(name: str, snapshot: Snapshot, links: Sequence[LinkEnds]) -> tuple[tuple[LinkAt, ...], tuple[LinkAt, ...]]:
    """Return the links that fill a destination, and those that take from it."""
    line: dict[str, int] = {}
    for place, (sid, _) in enumerate(snapshot.waiters, 1):
        line.setdefault(link_of(sid), place)
    down = []
    for ends in links:
        if ends.source == name:
            due = load(ends, snapshot)
            down.append(LinkAt.of(ends, holds=due.in_hand, backlog=due.backlog or 0))
    up = (LinkAt.of(ends, place=line.get(ends.id, 0)) for ends in links if ends.target == name and not ends.site)
    return tuple(up), tuple(down)


def judge_link(ends: LinkEnds, due: LinkLoad, behind: TargetView, work: LinkWork | None) -> Hop:
    """Return why a link does not move, or that it does.

    Args:
        ends: which link.
        due: what it has to do at its source.
        behind: what was seen of its target.
        work: who works on it; None where that was not asked, or may not be read.
    """
    explanation = behind.explanation
    state: State = explanation.state if explanation else "unknown"

    def hop(side: Side, reason: str, remedy: str = "", seconds: float | None = None) -> Hop:
        return Hop.of(ends, side=side, state=state, cause=SEEN_AS[side], reason=reason, remedy=remedy, seconds=seconds)

    if work is not None and not work.owner:
        why = f": {work.trouble.text}" if work.trouble else ""
        return hop("nobody", f"no node that is alive works on it{why}", NOBODY)
    if due.backlog == 0:
        return hop("source", f"{ends.source} has nothing for it")
    if work is not None and work.trouble and not work.trouble.stalls:
        return hop(*_as_reported(ends, work.owner, work.trouble))
    if explanation is not None:
        held = bool(explanation.place) or explanation.state == "stopped"
        if (held and explanation.cause not in MOVING) or explanation.cause == "send-rate":
            return _at_target(ends, explanation)
    if due.paced > 0:
        return hop("rate", f"delivery of {ends.source} is limited; the next is due in {rounded(due.paced)} s",
                   f"wait, or raise delivery_rate of {ends.source}", due.paced)  # fmt: skip
    if work is not None and work.trouble:
        return hop(*_as_reported(ends, work.owner, work.trouble))
    if due.backlog is None:
        return hop("source", f"it has nothing at {ends.source} yet")
    if work is None and explanation is not None and due.in_hand and not behind.known:
        return hop("nobody", f"it has messages in hand and no account at {ends.target}", NOBODY)
    return hop("moves", behind.unseen or f"{ends.target} takes what comes")


def _as_reported(ends: LinkEnds, owner: str, trouble: Trouble) -> tuple[Side, str, str]:
    """Return the side, the reason and the remedy of what the node that works on a link reports."""
    if not trouble.stalls:
        return "moves", f"{ends.where}: {trouble.text}", ""
    if trouble.code == PACED.code:
        return "rate", trouble.text, f"wait, or raise the rate of {ends.kind} {ends.name!r}"
    if trouble.code == NO_ROOM.code:
        return "target", f"{ends.where}: {trouble.text}", f"see what holds up {ends.where}"
    return "stuck", trouble.text, f"see node {owner}"


def _at_target(ends: LinkEnds, explanation: Explanation) -> Hop:
    paced = explanation.cause == "send-rate"
    return Hop.of(
        ends,
        side="rate" if paced else "target",
        state=explanation.state,
        cause=explanation.cause,
        reason=f"{ends.target}{'' if paced else f' is {explanation.state}'}: {explanation.reason}",
        limit=explanation.binding,
        rule=explanation.rule,
        remedy=f"at {ends.target}: {explanation.remedy}" if explanation.remedy else "",
        seconds=explanation.unblocks_in,
    )


def through(explanation: Explanation, hops: Sequence[Hop]) -> Explanation:
    """Return a destination's explanation, with the links behind which it waits; those that move hold nothing up."""
    chain = binding(hops)
    if not chain or holder(explanation) != chain[0].id:
        return explanation
    last, limit = chain[-1], None if explanation.cause == "hysteresis" else explanation.binding
    reached = f"{limit.reached(explanation.kind)}: " if limit is not None else ""
    reason = replace(
        explanation.causes[0], cause="link", text=f"{reached}{_text(chain)}", rule=last.rule, remedy=last.remedy,
        seconds=last.seconds,
    )  # fmt: skip
    return replace(
        explanation,
        cause=reason.cause,
        reason=reason.text,
        rule=reason.rule,
        remedy=reason.remedy,
        unblocks_in=reason.seconds,
        causes=(reason, *explanation.causes[1:]),
        chain=chain,
    )


def binding(hops: Sequence[Hop]) -> tuple[Hop, ...]:
    """Return the hops up to the last that is held up; of those before it, what is behind them is left out."""
    held = [number for number, hop in enumerate(hops, 1) if hop.side in HELD_UP]
    if not held:
        return ()
    *before, last = hops[: held[-1]]
    return (*(replace(hop, reason=f"{hop.target} is {hop.state}{_limit(hop)}", remedy="") for hop in before), last)


def _limit(hop: Hop) -> str:
    return f": its limit of {hop.limit.limit} {hop.limit.unit} is reached" if hop.limit else ""


def _text(chain: Sequence[Hop]) -> str:
    many = f"{count(len(chain), 'link')} wait one for the next, and the last binds: " if len(chain) > 1 else ""
    return f"{many}{chain[-1].text}"


def of_link(ends: LinkEnds, hops: Sequence[Hop], due: LinkLoad, work: LinkWork | None, mark: int | None) -> Explanation:
    """Return the view of one link: which side holds it up, and what is behind that."""
    first, chain = hops[0], binding(hops)
    last = chain[-1] if chain else first
    reason = _text(chain) if len(chain) > 1 else first.reason
    view = LinkView.of(
        ends,
        side=first.side,
        backlog=due.backlog,
        in_hand=due.in_hand,
        mark=mark,
        owner=work.owner if work else None,
        trouble=work.trouble.text if work and work.trouble else "",
    )
    return Explanation(
        destination=ends.link,
        kind=ends.kind,
        state="blocked" if first.side in HELD_UP else "open",
        cause=SEEN_AS[first.side],
        reason=reason,
        binding=last.limit,
        rule=last.rule,
        remedy=last.remedy,
        unblocks_in=last.seconds,
        causes=(Reason(SEEN_AS[first.side], reason, last.limit, last.rule, last.remedy, last.seconds),),
        chain=chain,
        link=view,
    )
