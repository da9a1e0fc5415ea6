"""An account has ports to its surroundings: its destination, a spool store, and those who wait for it."""

from collections.abc import Collection
from typing import Any, Literal, Protocol

from headgate.core.account.calls import Credit, NoStore
from headgate.core.outbox import Batch, Outgoing
from headgate.core.when_full import WhenFull

Waiting = Literal["first", "others", "nobody"]
"""Those who wait at a destination, as far as an account there knows: itself, first in line, only others, or nobody."""


class WhenFullSettings(Protocol):
    """A destination's settings for sends that find no room."""

    when_full: WhenFull
    hard: bool
    consumers: Collection[Any]
    """The session's own there: while there are any, looks may find a deadlock, and are worth their call."""


class Spooling(Protocol):
    """A spooling writes messages that have no room in memory to a spool store."""

    store: str
    prepared: Any

    @property
    def waits(self) -> bool:
        """Whether the store of the first message that has no credit has no room, or does not take anything."""

    @property
    def hurries(self) -> bool:
        """Whether it waits for a store, and messages may be in line that do not wait for ever for theirs."""

    def how(self, item: Outgoing) -> WhenFull:
        """Return what is to be done with a message that finds no room at its store either."""

    @property
    def ready(self) -> bool:
        """Whether there is a store that may be tried now."""

    @property
    def resumes_at(self) -> float:
        """When a store that failed may be tried again; infinite where there is none."""

    @property
    def ahead(self) -> int:
        """Bytes that may wait for nothing but the store."""

    def seek(self) -> None:
        """Begin to write those that wait, unless that is under way."""

    def take(self) -> Any:
        """Return what is prepared: ``references`` and ``segment``."""

    def discard(self, prepared: Any) -> None:
        """Delete what was prepared and is not wanted."""

    def refuse(self, segment: str, room: int, no_store: NoStore | None) -> None:
        """Delete a segment, for memory has room for only that many references, or a node found none at the store."""

    def drop(self, segment: str) -> None:
        """Delete a segment of which nothing was stored, nor will be."""


class WaitFailures(Protocol):
    """Tells callers how their wait ended where nothing was stored."""

    def full(self, item: Outgoing, now: float) -> None:
        """Say that there is no room, or that Redis does not answer."""

    def timeout(self, item: Outgoing, now: float) -> None:
        """Say that there was no room in time."""

    def lost(self, item: Outgoing, *, unknown: bool) -> None:
        """Say that Redis did not answer in time; ``unknown``: it may be stored all the same."""

    def too_large(self, item: Outgoing, limit: int, pool: str = "") -> None:
        """Say that it can never fit."""

    def above_hard(self, item: Outgoing, stored: int, limit: int) -> None:
        """Say that not even the hard limit has room."""

    def dropped(self, item: Outgoing) -> None:
        """Give the receipt of a message that is dropped, and count it."""


class Destination(WhenFullSettings, Protocol):
    """A destination holds what its account knows of it."""

    unreported: bool
    report_at: float
    pooled: bool

    def wait_begins(self, now: float) -> float:
        """Forget how it was seen, if that is old; returns when somebody is to hear of the wait, if it lasts."""

    def meet(self, before: int, epoch: int, lost: int) -> None:
        """Note the epoch of an answer, and how many receipts are not known in it."""

    def start_anew(self) -> None:
        """Count from nothing: the account has ended."""


class Effects(Protocol):
    """Effects of an account's answers elsewhere."""

    def stored(self, batch: Batch, items: list[Outgoing], answer: Credit) -> None:
        """Give receipts for the first of a batch, now or when they are as safe as asked for."""

    def granted(self, epoch: int, granted: int, granted_m: int) -> bool:
        """Raise a gate's credit to what was granted, now or once that is safe enough; returns whether it grows."""

    def turn(self, when: float, latest: float) -> tuple[float, bool]:
        """Return when to ask again that stands in line, near ``when``, and whether it sweeps then for all who do.

        It is ``latest`` at the latest where another account of the client looks before, and hints come for certain.
        """

    def refill(self, head: Outgoing | None) -> None:
        """Fetch what is missing from the destination's pools, or leave their lines.

        With ``head``, the first in line where somebody there does not wait, the account hears once pools were asked
        for it.
        """

    def forget(self) -> None:
        """Drop what is remembered of a destination that was removed on purpose."""
