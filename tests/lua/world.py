"""What the state machine drives: a loop with a server, and clients that believe what they were answered."""

import asyncio
import itertools
from dataclasses import dataclass, field
from typing import Any

from headgate.redis.keys import Address
from headgate.redis.replies import Account, Credit
from headgate.redis.store import Store
from tests.model.credit import NOTHING, UNLIMITED, Amount, Totals
from tests.support.rewriting import RewritingServer, virtual_clock


class World:
    """A loop, a server on it, and names that no example used before."""

    def __init__(self, url: str, namespace: str, *, as_functions: bool = True) -> None:
        self.runner = asyncio.Runner()
        self.server = RewritingServer(url, virtual_clock, as_functions=as_functions)
        self.store = Store(self.server)
        self._namespace = namespace
        self._numbers = itertools.count(1)
        self.run(self.server.open())

    def run(self, coroutine: Any) -> Any:
        return self.runner.run(coroutine)

    def address(self) -> Address:
        return Address.of(self._namespace, f"d{next(self._numbers)}")

    def close(self) -> None:
        self.run(self.server.close())
        self.runner.close()


@dataclass(slots=True)
class Client:
    """What a session believes about its account; it learns from answers only."""

    session: str
    inc: int = 1
    epoch: int = 0
    granted: Amount = NOTHING
    used: Amount = NOTHING
    returned: Amount = NOTHING
    next_seq: int = 1

    @property
    def in_hand(self) -> Amount:
        return self.granted - self.used - self.returned

    def totals(self, more: Amount, window: Amount, weight: int) -> Totals:
        """Return totals that ask for ``more`` than is in hand, 0 for nothing, and want ``window`` beside it."""
        need = (self.granted if more == NOTHING else self.used + self.returned + more).most(NOTHING)
        want = self.used + self.returned + window
        return Totals(
            session=self.session, inc=self.inc, epoch=self.epoch, granted=self.granted, used=self.used,
            returned=self.returned, need=need, want=want, weight=weight, size=more.bytes, sent=self.next_seq - 1,
        )  # fmt: skip

    def hear(self, answer: Credit) -> None:
        if answer.code in ("OK", "DUPLICATE"):
            self.epoch = answer.epoch
            self.granted = self.granted.most(Amount(answer.granted, answer.granted_m))
        elif answer.code in ("EXPIRED", "FENCED", "OVERUSE", "LEFT"):
            self.inc += 1
            self.granted = self.used = self.returned = NOTHING


@dataclass(slots=True)
class Reader:
    """A consumer as its client knows it. ``got``: numbers of messages it was ever given, with their ids."""

    session: str
    number: int
    fetches: int = 0
    got: dict[int, str] = field(default_factory=dict)

    @property
    def cid(self) -> str:
        return f"{self.session}.{self.number}"


def wire(totals: Totals) -> Account:
    t = totals
    return Account(
        t.session, t.inc, t.epoch, t.granted.bytes, t.granted.messages, t.used.bytes, t.used.messages,
        t.returned.bytes, t.returned.messages, t.need.bytes, t.need.messages, t.want.bytes, t.want.messages,
        t.weight, t.size,
    )  # fmt: skip


def text(amount: int) -> str:
    return "unlimited" if amount == UNLIMITED else str(amount)
