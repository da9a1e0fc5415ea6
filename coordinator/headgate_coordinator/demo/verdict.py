"""A verdict judges what the demo's processes wrote down: facts in, checks with a sentence each out. It does no I/O."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from headgate_coordinator.demo.check import Check
from headgate_coordinator.demo.forwarding import Forwarded
from headgate_coordinator.demo.journal import Accepted, Received
from headgate_coordinator.demo.link_checks import link_checks
from headgate_coordinator.demo.pipeline import Audited
from headgate_coordinator.operate.audit import COUNTERS
from headgate_coordinator.operate.terminal import size

GRACE: Final = 1.0
"""Seconds beyond the TTL within which a dead session's credit must be back."""
BACK: Final = 2.0
"""Seconds within which the clients of a dead node must be at work at another."""
KILLED: Final = -9
LATE: Final = 0.01
"""The share of messages that may come after a later one, because another consumer gave them back unbegun."""
_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class NodeDeath:
    """Observations when a node was killed.

    Attributes:
        name: of the node.
        nodes: how many there were.
        held, reclaimed, leased_without_it: as :class:`Facts` has them of the producer.
        back: for each of its AMQP clients, the seconds until it was at work at another node; None: it never was.
    """

    name: str
    nodes: int
    held: int
    reclaimed: float | None
    leased_without_it: bool
    back: dict[str, float | None]


@dataclass(frozen=True, slots=True)
class Facts:
    """`Facts` holds all observations, as written down.

    Attributes:
        ttl: of the sessions, in seconds.
        accepted: every acknowledgement that a producer wrote down.
        received: what each consumer received and accepted, in order, by consumer.
        victim: the producer that was killed.
        held: bytes of credit that it held when it was dead.
        reclaimed: seconds from the kill until its session was gone; None if that was not seen.
        leased_without_it: whether a recount then found leased to be what the other sessions hold.
        peak: the most that was ever pending and leased, as the state has it; ``sampled_peak``: as we saw it.
        blocked: the most producers that were seen waiting at a time; ``waits``: how often one began to.
        stored, counted: counters at the end, as they stood and as counted.
        exits: the exit codes of the processes, minus the signal that ended one; None: it had to be killed.
        errors: the last words of a process.
        lingering: what was left behind when everything had been stopped.
        looks: how often the queue was sampled.
        node: the node that was killed; None where there were none.
        no_node: why there were none.
        forwarded: what was seen of the links between two sites; None where there were no nodes.
        audited: what the pipeline says of the ledgers; None where it was left out.
        no_pipeline: why it was.
    """

    limit: int
    ttl: float
    accepted: Sequence[Accepted]
    received: dict[str, Sequence[Received]]
    victim: str
    held: int
    reclaimed: float | None
    leased_without_it: bool
    peak: int
    sampled_peak: int
    blocked: int
    waits: int
    stored: tuple[int, ...]
    counted: tuple[int, ...]
    exits: dict[str, int | None]
    errors: dict[str, str]
    lingering: Sequence[str]
    looks: int = 0
    node: NodeDeath | None = None
    no_node: str | None = None
    forwarded: Forwarded | None = None
    audited: Audited | None = None
    no_pipeline: str | None = None

    def summary(self) -> dict[str, Any]:
        """Return them as plain data, the messages as numbers."""
        return {
            "limit_bytes": self.limit,
            "ttl_seconds": self.ttl,
            "accepted_messages": _count_by(message.producer for message in self.accepted),
            "accepted_bytes": sum(message.size for message in self.accepted),
            "received_messages": {name: len(messages) for name, messages in self.received.items()},
            "received_bytes": sum(message.size for message in _all(self)),
            "killed": self.victim,
            "killed_held_bytes": self.held,
            "reclaimed_seconds": None if self.reclaimed is None else round(self.reclaimed, 3),
            "peak_bytes": self.peak,
            "sampled_peak_bytes": self.sampled_peak,
            "blocked_at_a_time": self.blocked,
            "waits": self.waits,
            "counters": dict(zip(COUNTERS, self.stored, strict=False)),
            "recounted": dict(zip(COUNTERS, self.counted, strict=False)),
            "exit_codes": self.exits,
            "errors": self.errors,
            "left_behind": list(self.lingering),
            "samples": self.looks,
            "node": asdict(self.node) if self.node else None,
            "no_node": self.no_node,
            "forwarded": self.forwarded.summary() if self.forwarded else None,
            "audited": asdict(self.audited) if self.audited else None,
            "no_pipeline": self.no_pipeline,
        }


def judge(facts: Facts) -> list[Check]:
    """Return all checks, in the order in which they are shown."""
    return [
        _delivered(facts),
        _identical(facts),
        _nothing_else(facts),
        _once(facts),
        _in_order(facts),
        _limit(facts),
        _blocked(facts),
        _back("reclaimed", "the killed producer", facts, facts),
        *_node_checks(facts),
        *(link_checks(facts.forwarded) if facts.forwarded else ()),
        _counters(facts),
        *([facts.audited.check()] if facts.audited else []),
        _processes(facts),
        _clean(facts),
    ]


def _delivered(facts: Facts) -> Check:
    arrived = {message.id for message in _all(facts)}
    missing = [message.id for message in facts.accepted if message.id not in arrived]
    total = len(facts.accepted)
    if missing:
        sentence = f"{len(missing)} of {total} accepted messages never arrived: {_some(missing)}"
    elif not total:
        sentence = "no message was accepted at all"
    else:
        sentence = f"all {total} accepted messages arrived, {size(sum(m.size for m in facts.accepted))}"
    return Check("delivered", not missing and total > 0, sentence)


def _identical(facts: Facts) -> Check:
    sent = {message.id: message.sha256 for message in facts.accepted}
    wrong = [m.id for m in _all(facts) if not m.sha256 == m.stated == sent.get(m.id, m.stated)]
    total = sum(1 for _ in _all(facts))
    if wrong:
        sentence = f"{len(wrong)} of {total} deliveries differ from what was sent: {_some(wrong)}"
    else:
        sentence = f"all {total} deliveries are what was sent, byte for byte (SHA-256)"
    return Check("identical", not wrong, sentence)


def _nothing_else(facts: Facts) -> Check:
    """Return whether what arrived unacknowledged is the killed producer's last, or was sent again by an AMQP client."""
    known = {message.id for message in facts.accepted}
    last = max((m.seq for m in facts.accepted if m.producer == facts.victim), default=0)
    again = _sent_again(facts)
    extra = {message.id: message for message in _all(facts) if message.id not in known and message.id not in again}
    strange = [id_ for id_, message in extra.items() if message.producer != facts.victim or message.seq <= last]
    if strange:
        sentence = f"{len(strange)} messages arrived that nobody had a receipt for: {_some(strange)}"
    elif extra:
        sentence = (
            f"nothing arrived that was not sent; {len(extra)} came from the killed producer, "
            f"stored before it could write down the receipt"
        )
    else:
        sentence = "nothing arrived that was not sent"
    return Check("nothing else", not strange, sentence)


def _sent_again(facts: Facts) -> set[str]:
    """Return the ids of what arrived, but was acknowledged over a later connection of its AMQP client only."""
    accepted = {(m.producer, m.seq): m.connection for m in facts.accepted}
    return {m.id for m in _all(facts) if m.connection < accepted.get((m.producer, m.seq), 0)}


def _once(facts: Facts) -> Check:
    """Return whether every message was accepted once, except those delivered again after a failed attempt."""
    seen: dict[str, list[int]] = {}
    for message in _all(facts):
        seen.setdefault(message.id, []).append(message.attempts)
    repeated = {id_: attempts for id_, attempts in seen.items() if len(attempts) > 1}
    wrong = [id_ for id_, attempts in repeated.items() if sum(count == 0 for count in attempts) > 1]
    again = _sent_again(facts)
    why = "its consumer stalled or its node died" if facts.node else "its consumer stalled"
    if wrong:
        sentence = f"{len(wrong)} messages were delivered twice for no reason: {_some(wrong)}"
    elif repeated:
        sentence = f"{len(repeated)} messages arrived twice, each marked as delivered again after {why}"
    else:
        sentence = "no message arrived twice"
    if again and not wrong:
        sentence += f"; {len(again)} are doubled: stored by the killed node but never acknowledged, so sent again"
    return Check("once", not wrong, sentence)


def _in_order(facts: Facts) -> Check:
    """Return whether each consumer saw each producer's messages in order, redeliveries aside.

    A consumer that waits gets what another holds and has not begun: such a message may come to it after a later one.
    These are few; nothing in a delivery tells them apart, so a small share of messages may be late. Messages
    that an AMQP client sends again over its next connection begin a new order there.
    """
    late, count = [], 0
    for consumer, received in facts.received.items():
        latest: dict[tuple[str, int], int] = {}
        for message in received:
            if message.attempts:
                continue
            line = message.producer, message.connection
            count += 1
            if message.seq <= latest.get(line, 0):
                late.append(f"{message.id} at {consumer}")
            else:
                latest[line] = message.seq
    if len(late) > LATE * count:
        sentence = f"{len(late)} messages arrived after a later one of the same producer: {_some(late)}"
    elif late:
        sentence = f"all but {len(late)}, which a waiting consumer got from one that had not begun them"
    else:
        sentence = f"each of {len(facts.received)} consumers saw each producer's messages in the order they were sent"
    return Check("in order", len(late) <= LATE * count, sentence)


def _limit(facts: Facts) -> Check:
    peak = max(facts.peak, facts.sampled_peak)
    if peak > facts.limit:
        sentence = f"pending and leased reached {peak} bytes, {peak - facts.limit} above the limit of {facts.limit}"
    else:
        share = 100 * peak / facts.limit
        where = f" over {facts.node.nodes} nodes and the SDKs, {facts.looks} looks" if facts.node else ""
        sentence = (
            f"pending and leased never exceeded the limit{where}: at most {peak} of {facts.limit} bytes ({share:.1f} %)"
        )
    return Check("limit", peak <= facts.limit, sentence)


def _blocked(facts: Facts) -> Check:
    if facts.blocked:
        sentence = f"the limit held producers back: up to {facts.blocked} waited at a time, {facts.waits} waits in all"
    else:
        sentence = "no producer was ever seen waiting: the limit was not put to the test, a lower one will be"
    return Check("blocked", facts.blocked > 0, sentence)


def _node_checks(facts: Facts) -> list[Check]:
    if facts.node is None:
        return []
    return [_back("node reclaimed", "the killed node", facts, facts.node), _went_on(facts.node)]


def _back(name: str, victim: str, facts: Facts, death: "Facts | NodeDeath") -> Check:
    allowed = facts.ttl + GRACE
    who = f"{victim}'s {size(death.held)} of credit"
    passed = False
    if death.held <= 0:
        sentence = f"{victim} held no credit, so nothing was shown"
    elif death.reclaimed is None:
        sentence = f"{who} never came back"
    elif death.reclaimed > allowed:
        sentence = f"{who} came back after {death.reclaimed:.2f} s; {allowed:g} s are allowed"
    elif not death.leased_without_it:
        sentence = f"its session went after {death.reclaimed:.2f} s, but {who} is still counted as leased"
    else:
        passed = True
        sentence = f"{who} was back after {death.reclaimed:.2f} s ({allowed:g} s are allowed)"
    return Check(name, passed, sentence)


def _went_on(node: NodeDeath) -> Check:
    stuck = [client for client, seconds in node.back.items() if seconds is None]
    most = max((seconds for seconds in node.back.values() if seconds is not None), default=0.0)
    passed = False
    if not node.back:
        sentence = f"node {node.name} had no clients when it was killed, so nothing was shown"
    elif stuck:
        sentence = f"{_some(stuck)} never went on after node {node.name} was killed"
    elif most > BACK:
        sentence = f"the AMQP clients of node {node.name} were at another after {most:.2f} s; {BACK:g} s are allowed"
    else:
        passed = True
        count = f"{len(node.back)} AMQP client{'' if len(node.back) == 1 else 's'}"
        sentence = f"{count} of the killed node went on at the other after {most:.2f} s ({BACK:g} s are allowed)"
    return Check("went on", passed, sentence)


def _counters(facts: Facts) -> Check:
    passed = False
    if not facts.counted or facts.stored != facts.counted:
        sentence = f"at the end the counters are {facts.stored}, but {facts.counted} was counted"
    elif any(facts.counted):
        sentence = f"at the end something is still pending or leased: {facts.counted}"
    else:
        passed = True
        sentence = "at the end the counters equal a recount: nothing is pending, nothing is leased"
    return Check("counters", passed, sentence)


def _processes(facts: Facts) -> Check:
    wrong = [f"{name}: {error}" for name, error in facts.errors.items()]
    killed = [f"producer {facts.victim}", *([f"node {facts.node.name}"] if facts.node else [])]
    for name, code in facts.exits.items():
        expected = KILLED if name in killed else 0
        if code != expected and name not in facts.errors:
            ended = "did not end when ordered to" if code is None else f"ended with {code} instead of {expected}"
            wrong.append(f"{name} {ended}")
    if wrong:
        sentence = "; ".join(wrong)
    else:
        were = "one was" if len(killed) == 1 else f"{len(killed)} were"
        sentence = f"of {len(facts.exits)} processes {were} killed with -9, the others ended as they should"
    return Check("processes", not wrong and all(facts.exits.get(name) == KILLED for name in killed), sentence)


def _clean(facts: Facts) -> Check:
    left = ", ".join(facts.lingering)
    return Check("clean", not left, f"left behind: {left}" if left else "no process, file or key was left behind")


def _all(facts: Facts) -> Iterable[Received]:
    return (message for messages in facts.received.values() for message in messages)


def _count_by(names: Iterable[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return counts


def _some(texts: Sequence[str]) -> str:
    shown = ", ".join(texts[:_SHOWN])
    return f"{shown}, ..." if len(texts) > _SHOWN else shown
