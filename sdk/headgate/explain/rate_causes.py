"""The rate of all senders is a cause: when it allows the next, and who is before whom in its line."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from headgate.core.limits.slices import is_sliced
from headgate.explain.destination_facts import DestinationFacts
from headgate.explain.idle_consumers import NAMED
from headgate.explain.model import Reason
from headgate.explain.views import count
from headgate.figures import plain, rounded

_SENDER: Final = re.compile(r" @(\S+) (\d+) (\d+) (\d+)")
PATIENT_MS: Final = 50
"""Milliseconds after its moment for which a sender is waited for, as lua/lib/sendline.lua has it."""


@dataclass(frozen=True, slots=True)
class RateLine:
    """The line of a rate has those whom this keeps waiting, in the order of their turns.

    Attributes:
        needs: seconds of the rate that each needs, by session or link.
        of_both: whether they are of the two rates together, and do not say what each takes of which.
    """

    needs: Mapping[str, float]
    of_both: bool = False

    @classmethod
    def of(cls, fields: Mapping[str, str], prefix: str, now_ms: int) -> Self:
        """Return the line of the rate ``send`` or ``send_byte``; both have one together, where there are no slices."""
        own = is_sliced(fields)
        text = fields.get(f"{prefix}_line" if own else "send_line", "")
        senders = sorted(_SENDER.findall(text), key=lambda one: int(one[1]))
        needs = {
            session: int(need) / 1e6
            for session, _, need, due in senders
            if int(need) and now_ms <= int(due) + PATIENT_MS
        }
        return cls(needs, not own and bool(fields.get("send_rate") and fields.get("send_byte_rate")))

    def place(self, session: str) -> int:
        """Return the place of a session, from 1; 0 where it is not in the line."""
        return list(self.needs).index(session) + 1 if session in self.needs else 0

    def before(self, session: str) -> float:
        """Return the seconds of the rate that those before a session need."""
        return sum(list(self.needs.values())[: max(0, self.place(session) - 1)])


def rate(facts: DestinationFacts) -> list[Reason]:
    """Say how long until the destination's shared rates allow one message, or the bytes needed, after those before."""
    found = []
    for prefix, tokens, unit in (("send", 1, "messages"), ("send_byte", facts.need, "bytes")):
        most = facts.number(f"{prefix}_rate")
        if not most:
            continue
        line = RateLine.of(facts.fields, prefix, facts.now_ms)
        seconds, own = _times(facts, line, prefix, most, tokens)
        if seconds > 0 or facts.paid or line.needs:  # others may be before it at the rate
            reason = Reason(
                "send-rate",
                f"its rate of {plain(most)} {unit}/s is used up; the next is allowed in {rounded(seconds)} s"
                f"{_who(line, facts.session)}",
                rule=facts.rule(f"{prefix}_rate"),
                remedy=f"wait, or raise {prefix}_rate",
                seconds=own,
                place=line.place(facts.session),
            )
            found.append((reason.seconds or 0.0, reason))
    return [reason for _, reason in sorted(found, key=lambda one: -one[0])]


def _times(facts: DestinationFacts, line: RateLine, prefix: str, rate: float, tokens: int) -> tuple[float, float]:
    """Return in how many seconds the next may go, and in how many the session in question.

    The contents of the bucket count once, for all in line.
    """
    alone, session = max(0.0, until_token(facts, prefix, rate, tokens)), facts.session
    if not line.needs or line.of_both:
        return alone, alone + line.before(session)
    empty = until_token(facts, prefix, rate, 0)

    def until(one: str) -> float:
        return max(0.0, empty + line.before(one) + line.needs[one])

    next_in = until(next(iter(line.needs)))
    if session in line.needs:
        return next_in, until(session)
    return next_in, alone if session else next_in


def waits_for_rate(facts: DestinationFacts) -> bool:
    """Return whether the session in question waits in the line of a rate and not for credit; or if it is all, they."""
    if facts.place or (facts.count("blocked") and not facts.session):
        return False
    lines = [RateLine.of(facts.fields, prefix, facts.now_ms) for prefix in ("send", "send_byte")]
    return any(line.place(facts.session) if facts.session else line.needs for line in lines)


def _who(line: RateLine, session: str) -> str:
    if place := line.place(session):
        return f", place {place} of {len(line.needs)} in its line"
    if not line.needs:
        return ""
    named, others = ", ".join(list(line.needs)[:NAMED]), " and others" if len(line.needs) > NAMED else ""
    return f"; {count(len(line.needs), 'sender')} in its line: {named}{others}"


def until_token(facts: DestinationFacts, prefix: str, rate: float, amount: float) -> float:
    """Return in how many seconds a destination's rate allows the need; not above 0 where it does now."""
    burst = facts.number(f"{prefix}_burst", 1)
    tokens = burst - max(0.0, facts.number(f"{prefix}_tat") / 1e6 - facts.now_ms / 1e3) * rate
    return (min(amount, burst) - tokens) / rate
