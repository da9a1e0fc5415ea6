"""Both ends of a link in memory, a dead-letter destination, and a network that loses calls, answers and workers."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from headgate.core.links.calls import (
    Call,
    Commit,
    Committed,
    Copy,
    Fetch,
    Open,
    Opened,
    Put,
    RateTaken,
    Read,
    Secure,
    TakeRate,
)
from headgate_coordinator.links.forwarder import Forwarder
from headgate_coordinator.links.rules import Forwarding
from tests.model.link import ModelSource, ModelTarget

FAULTS = ("lost", "unanswered", "crash", "crash after", "delayed")
"""What may befall a call: it is not made, or made without an answer, or its worker dies, or it arrives much later."""


@dataclass
class Links:
    """A link between two models. ``answer`` applies a call; nothing here knows of workers."""

    source: ModelSource = field(default_factory=ModelSource)
    target: ModelTarget = field(default_factory=ModelTarget)
    dead: ModelTarget = field(default_factory=lambda: ModelTarget(limit=10_000))
    how: Forwarding = field(default_factory=lambda: Forwarding("here", "there", window=40))
    secured: int = 0

    def answer(self, call: Call, fence: int = 1) -> Opened | Read | Committed | RateTaken:
        match call:
            case Open():
                return self.source.open(fence)
            case Fetch():
                return self.source.read(fence, call.born, call.mark, call.after, call.messages, call.size)
            case Commit():
                return self.target.commit(
                    fence, call.born, call.prev, call.entries, need=call.need, want=call.want, lost=call.lost
                )
            case Secure():
                return self.target.commit(fence, call.born, 0, (), need=0, want=self.target.held, lost=False)
            case TakeRate():
                return RateTaken()
            case Copy():
                put = (Put(call.entry.seq, call.entry.body),)
                self.dead.commit(fence, call.born, 0, (), need=len(call.entry.body), want=0, lost=False)
                return self.dead.commit(fence, call.born, 0, put, need=0, want=0, lost=False)

    def run(self, faults: dict[int, str], *, most: int = 300, drain: bool = True) -> int:
        """Work until all has left the source, with faults at the calls of these numbers. Returns calls."""
        worker, now, number = Forwarder(self.how), 0.0, 0
        later: list[tuple[int, Call]] = []
        while number < most:
            calls = worker.calls(now)
            if not calls:
                if not self.source.stored:
                    return number
                if drain:
                    self.target.consume()
                worker.woken(source=True, target=True)
                now += 2.0
                number += 1
                continue
            for call in calls:
                number += 1
                for item in [item for item in later if item[0] <= number]:
                    later.remove(item)
                    self.answer(item[1])
                fault = faults.get(number)
                answer = self.answer(call) if fault in (None, "unanswered", "crash after") else None
                if fault is None and answer is not None:
                    worker.hear(call, answer, now, replicas=self.how.replicas)
                elif fault in ("crash", "crash after"):
                    worker = Forwarder(self.how)
                    break
                else:
                    worker.missed(call, now)
                    if fault == "delayed":
                        later.append((number + 4, call))
        raise AssertionError(f"after {most} calls: {worker.phase}, {worker.trouble}, {self.source.stored}")


def sent(links: Links, bodies: Sequence[bytes]) -> Links:
    for body in bodies:
        links.source.send(body)
    return links
