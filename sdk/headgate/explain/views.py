"""An explanation has parts: limits, those that wait, those that hold, stores and pools, each with its words."""

from dataclasses import dataclass
from typing import Literal

from headgate.figures import rounded

Unit = Literal["bytes", "messages"]


def count(number: int, what: str = "message") -> str:
    """Return a number of things, as people write it."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def amount(number: int, unit: Unit, kind: str) -> str:
    """Return an amount with its unit; a gate counts in whatever its callers do: bytes, or calls of size 1."""
    if kind != "gate":
        return f"{number} {unit}"
    return str(number) if unit == "bytes" else count(number, "call")


def credit(size: int, messages: int, kind: str) -> str:
    """Return an amount of credit: its bytes, or its messages where it is for these alone."""
    if messages and not size:
        return count(messages, "call" if kind == "gate" else "message")
    return amount(size, "bytes", kind)


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit and how much of it is taken. ``limit`` None: unlimited. ``rule``: where it was set, if a policy did.

    ``kept``: what is not for messages themselves: of a topic that spools, a part is for copies of payloads.
    """

    unit: Unit
    limit: int | None
    pending: int
    leased: int
    rule: str | None = None
    kept: int = 0

    @property
    def free(self) -> int | None:
        """The remaining room; None when unlimited."""
        return None if self.limit is None else self.limit - self.kept - self.pending - self.leased

    def reached(self, kind: str) -> str:
        """Return that it is reached, in words, at a destination of that kind."""
        return f"the limit of {amount(self.limit or 0, self.unit, kind)} is reached"


@dataclass(frozen=True, slots=True)
class Waiter:
    """A waiter is a session in line: its place from 1, the bytes its first message needs, and the seconds it has stood.

    A session keeps its place while one of its calls gives up and the next one waits: each call may be younger.
    """

    session: str
    place: int
    needs: int
    seconds: float

    def __str__(self) -> str:
        return self.text("queue")

    def text(self, kind: str) -> str:
        """Return it in words, at a destination of that kind."""
        needs = amount(self.needs, "bytes", kind)
        return f"{self.place}. {self.session} needs {needs}, in line for {self.seconds:.1f} s"


@dataclass(frozen=True, slots=True)
class Holder:
    """A consumer and what it has received and not settled.

    Attributes:
        rate: messages settled a second, over the last few seconds; None when the ledger does not tell.
        at_capacity: whether its window is full.
        slow: whether it settles less than the destination's rules call slow.
    """

    consumer: str
    subscription: str
    messages: int
    bytes: int
    window: str
    rate: float | None = None
    at_capacity: bool = False
    slow: bool = False

    @property
    def session(self) -> str:
        """The session it belongs to."""
        return self.consumer.rpartition(".")[0]

    def __str__(self) -> str:
        words = ["full"] if self.at_capacity else []
        words += [f"{rounded(self.rate)}/s"] if self.rate is not None else []
        words += ["slow"] if self.slow else []
        more = f" ({', '.join(words)})" if words else ""
        return f"{self.consumer} holds {count(self.messages)}, {self.bytes} bytes of {self.window}{more}"


@dataclass(frozen=True, slots=True)
class Leaser:
    """A session and the credit it holds: granted, and neither used nor given back. ``silent``: seconds not heard of."""

    session: str
    messages: int
    bytes: int
    silent: float = 0.0

    def __str__(self) -> str:
        return self.text("queue")

    def text(self, kind: str) -> str:
        """Return it in words, at a destination of that kind."""
        silent = f", not heard of for {self.silent:.1f} s" if self.silent >= 1 else ""
        return f"{self.held(kind)}{silent}"

    def held(self, kind: str) -> str:
        """Return what it holds in words, at a destination of that kind."""
        return f"{self.session} holds credit for {credit(self.bytes, self.messages, kind)}"


@dataclass(frozen=True, slots=True)
class Backlog:
    """A subscription, its consumers, what it has not been sent yet, and what it was sent and has not settled."""

    subscription: str
    consumers: int
    ready: int
    unsettled: int

    @property
    def messages(self) -> int:
        """Messages that it still has to settle."""
        return self.ready + self.unsettled

    def __str__(self) -> str:
        amounts = f"{self.ready} ready, {self.unsettled} unsettled, {count(self.consumers, 'consumer')}"
        return f"subscription {self.subscription}: {amounts}"


@dataclass(frozen=True, slots=True)
class StoreView:
    """A store view shows the spool store of a destination: where payloads go that find no room in memory.

    Attributes:
        name: of the store.
        limit: bytes, None for unlimited or where there is no such store.
        held: bytes of all segments that it holds, of whatever destination.
        leased: bytes of room that sessions have and do not use yet.
        here: bytes of those that this destination has references to, or had until a moment ago.
        blocked: sessions that wait for room in it.
        rule: where its limit was set, if a policy did.
        takes: which messages of a destination with two stores go there, ``durable`` or ``not durable``; ``here`` is
            then of both stores together.
    """

    name: str
    limit: int | None
    held: int
    leased: int
    here: int
    blocked: int
    rule: str | None = None
    takes: str = ""

    @property
    def free(self) -> int | None:
        """The remaining room; None when unlimited."""
        return None if self.limit is None else self.limit - self.held - self.leased

    def __str__(self) -> str:
        total = "unlimited" if self.limit is None else str(self.limit)
        here = f"for what is {self.takes}" if self.takes else f"{self.here} bytes from here"
        return f"store {self.name}: {here}, {self.held} held + {self.leased} leased of {total}"


@dataclass(frozen=True, slots=True)
class PoolView:
    """A pool view shows a pool that a destination takes a slice of, as that wait sees it.

    Attributes:
        name: of the pool.
        exists: False where the namespace has no pool of that name.
        limit: bytes, None for unlimited or where there is no such pool.
        granted: bytes of it that destinations hold as slices.
        here: bytes of these that this destination holds.
        holders: names of the other destinations that hold most, with their bytes; empty also where they are not shown.
        rule: where its limit was set, if a policy did.
        part: the pool at another site that it is a part of, in words; empty for none.
        remedy: what to do so that more can be had of that site; empty where nothing is wrong.
    """

    name: str
    exists: bool
    limit: int | None
    granted: int
    here: int
    holders: tuple[tuple[str, int], ...] = ()
    rule: str | None = None
    part: str = ""
    remedy: str = ""

    def __str__(self) -> str:
        if not self.exists:
            return f"pool {self.name}: does not exist"
        total = "unlimited" if self.limit is None else str(self.limit)
        others = "".join(f", {name} {held}" for name, held in self.holders)
        part = f", {self.part}" if self.part else ""
        return f"pool {self.name}{part}: {self.granted} bytes lent of {total}: {self.here} here{others}"
