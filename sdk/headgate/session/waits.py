"""Sends and admissions of a session may wait: this module names them, and the holds of the tasks that wait in them."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from headgate._util.blocks import entered
from headgate.core.outbox import Outgoing
from headgate.limiting import admission, gate, limiter
from headgate.redis.stores.notes import Tie
from headgate.session.destination import SessionDestination


@dataclass(frozen=True, slots=True)
class TaskWait:
    """A task wait is one of a task, or a thread, that does nothing else meanwhile.

    Attributes:
        who: the task or thread.
        at: name of the destination, or the limiter.
        name: tells this wait from others.
        since: when it began.
        deadline: when it ends by itself.
        done: is done with it.
        limit: ``all:<name>`` or ``key:<name>``, the limit of a limiter that it waits for; empty elsewhere.
    """

    who: Any
    at: str
    name: str
    since: float
    deadline: float
    done: "asyncio.Future[Any]"
    limit: str = ""

    def tie(self, destination: str, consumer: str, now: float, *, held: bool = False) -> Tie:
        """Return the tie to it of a consumer, or of what is held."""
        waited, left = int((now - self.since) * 1000), int(max(0.0, self.deadline - now) * 1000)
        return Tie(destination, consumer, self.at, self.name, waited, left, self.limit, held)


def waits_of(destinations: Iterable[SessionDestination], limiters: Iterable[limiter.Limiter]) -> Iterator[TaskWait]:
    """Yield the waits of a session, of which it is known for whom."""
    for presence in destinations:
        for item in sends(presence):
            yield TaskWait(item.who, presence.address.shown, name_of(item), item.since, item.deadline, item.done)
    for one in limiters:
        for waiter in one.line.waiting:
            reservation, binding = waiter.reservation, waiter.reservation.binding
            limit = f"{binding.rule or 'all'}:{binding.limit}" if binding is not None and binding.limit else ""
            if not waiter.done.done():
                since, deadline = waiter.since, reservation.deadline
                yield TaskWait(waiter.who, one.name, reservation.id, since, deadline, waiter.done, limit)


def sends(presence: SessionDestination) -> Iterator[Outgoing]:
    """Yield the sends and admissions that wait there for credit, of which it is known for whom."""
    if presence.account is not None:
        for item in presence.account.outbox.waiting:
            if item.who is not None and item.since and not (item.done.done() or item.abandoned()):
                yield item


def name_of(item: Outgoing) -> str:
    """Return what tells a send that waits from others."""
    return f"{item.since:.6f}"


def holds_of(waits: Mapping[Any, TaskWait]) -> Iterator[tuple[str, str, TaskWait]]:
    """Yield what only those who wait can release: where it is held, by what holder, and each wait with a part in it.

    Only what a task is inside of by ``async with`` is its own: a hold that was awaited may be released by anybody.
    """
    found: defaultdict[tuple[str, str], list[TaskWait]] = defaultdict(list)
    out: dict[tuple[str, str], int] = {}
    for who, wait in waits.items():
        if isinstance(who, asyncio.Task) and not who.done():
            for block in entered(who, (gate.Admission, admission.Admission)):
                holding = getattr(block, "held", None)  # there once it is entered
                if holding is not None and (held := holding.holding()) is not None:
                    found[held.name, held.holder].append(wait)
                    out[held.name, held.holder] = held.out
    for (name, holder), parts in found.items():
        if len(parts) == out[name, holder]:
            for number, wait in enumerate(dict.fromkeys(parts)):
                yield name, f"{holder}/{number}" if number else holder, wait
