"""A shared window is one for several destinations, whose fetches take turns."""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final, Protocol

from headgate.core.fetching import WindowUse
from headgate.core.limits.turns_over_slices import SliceTurn, Turn, part_of
from headgate.core.window import LINGER, LINGER_SHARED, Allowance, Delivery, Demand, Window

PATIENCE: Final = 0.04
"""Seconds for which others leave the room that a call may free, or use: then it is late."""
LATE: Final = 4
"""Times as long as a destination takes as a rule, after which a call is late, if that is more."""
STAY: Final = 0.05
"""Seconds after a slice's turn for which what is settled there leaves its room to the same slice."""
FEW: Final = 4
"""Most messages that a slice has in such a turn: small windows would take two calls for each message else."""
_NONE: Final = (0, 0)


class WindowUsers(Protocol):
    """A shared window is used here: the messages of all destinations are for it."""

    @property
    def asked(self) -> int:
        """How many messages are asked for; only ``pull`` cares."""

    def room(self, most: int) -> int:
        """Return how many of ``most`` messages they take beside those that are here."""


class SharedWindow:
    """A window can be shared by several takers; one that has fetched goes to the end of the line.

    Of slices the first in line is the one that came least far in its turns. Where keys have these, it gets but a part.

    Where a call is late, the others go on without what it may bring, and with the room of what is settled there. If it
    brings something after all that has no room beside theirs, that goes back, untried.

    Attributes:
        total: what they hold, under the window that they share.
        late: those whose call is not answered in time.
        woken: those that were woken for a message, and have not fetched since.
        resting: those that gave back what others wait for, and fetch nothing.
        in_turn: whether they are slices of one destination, by their turns; topics of a pattern have none.
        of_keys: whether these are turns of keys.
        turn: how far those came that fetch.
        short: those that wait for their part of a rate, which leave the others no more than theirs.
        is_held: whether nothing is fetched yet, for others are to share it first.
    """

    def __init__(self, window: Window, takers: WindowUsers, total: Allowance | None = None) -> None:
        self.total = total if isinstance(total, WindowUse) else WindowUse(window)
        self.line: dict[Share, None] = {}
        self.under_way: dict[Share, int] = {}
        self.short: dict[Share, None] = {}
        self.late: dict[Share, None] = {}
        self.woken: dict[Share, None] = {}
        self.resting: dict[Share, None] = {}
        self.in_turn = total is not None
        self.of_keys = self.is_held = False
        self.turn = 0.0
        self._takers = takers

    def configure(self, window: Window) -> None:
        """Change the window; below what is held, nothing more comes until enough is settled."""
        self.total.configure(window)
        self.freed()

    def freed(self) -> None:
        """Have the first in line look again, or those that were woken for what has no room; and who need not rest."""
        for share in self.resting:
            if share.demand is not None and share.demand.resumes:
                share.wake()
        if self.woken and self.is_full:
            for share in self.woken:
                share.wake()
        elif (first := self.first()) is not None:
            first.wake()

    @property
    def is_full(self) -> bool:
        """Whether there is no room, and no fetch that may leave some."""
        return not self.is_held and not self._fetching() and self.room(0, 0) == _NONE

    def first(self) -> "Share | None":
        """Return whose turn it is to fetch; those that make another call now do so afterwards."""
        ready = (share for share in self.line if not share.is_busy)
        return min(ready, key=lambda share: share.turn.due, default=None) if self.in_turn else next(ready, None)

    def room_for(self, share: "Share", going: int, going_bytes: int) -> tuple[int, int]:
        """Return how much of the room is for a share, whose turn it is."""
        messages, size = self.room(going, going_bytes)
        if messages and self.of_keys:
            idle = self.total.messages <= self._apart()[0]  # then it does not wait for a slice that is late
            others = {**self.line, **self.under_way, **self.short}
            messages = part_of(share.turn, [one.turn for one in others if not one.turn.is_out(idle=idle)], messages)
        return (messages, size) if messages else _NONE

    def room(self, going: int, going_bytes: int) -> tuple[int, int]:
        """Return the room there is beside the fetches under way, once these have been settled."""
        total, fetching = self.total, self._fetching()
        if self.is_held or (fetching and total.window.bytes != "unlimited"):
            return _NONE  # a fetch may bring a message that crosses the window: one at a time, one such message
        apart, apart_bytes = self._apart()
        beside, gone = fetching - going - apart, going_bytes + apart_bytes
        total.messages += beside
        total.bytes -= gone
        try:
            messages, size = total.room(self._takers.asked)
        finally:
            total.messages -= beside
            total.bytes += gone
        messages = min(messages, self._takers.room(messages + fetching) - fetching) if messages else 0
        return (messages, size) if messages > 0 else _NONE

    def surplus(self, newest: Iterable[Delivery], fetched: int) -> int:
        """Return how many of the newest deliveries have no room beside the others; their fetch was of so many."""
        total, fetching, (apart, apart_bytes) = self.total, self._fetching() - fetched, self._apart()
        window, (most, most_bytes) = total.window, total.most()
        beyond = fetching - self._takers.room(fetching)
        if window.messages != "unlimited":
            beyond = max(beyond, total.messages + fetching - apart - most)
        size = total.bytes - apart_bytes + (most_bytes if fetching else 0)
        count = 0
        for delivery in newest:
            size -= delivery.size
            if count >= beyond and (window.bytes == "unlimited" or size < most_bytes):
                break
            count += 1
        return count

    def _fetching(self) -> int:
        """Return how many messages are being fetched by those that are not late."""
        if not self.late:
            return sum(self.under_way.values())
        return sum(messages for share, messages in self.under_way.items() if share not in self.late)

    def _apart(self) -> tuple[int, int]:
        """Return the messages and bytes that are settled here, while Redis does not answer soon that it knows."""
        if not self.late:
            return _NONE
        sizes = [message.size for share in self.late for _, message, _ in share.outcomes]
        return len(sizes), sum(sizes)


class Share:
    """A share is one destination's part of a shared window.

    Attributes:
        messages: what it holds of it.
        bytes: their bytes.
        turn: how far it came in the turns of the keys there.
        is_busy: whether a call is under way there, so that none can begin.
        outcomes: settlements on their way out.
        demand: those for whom it fetches.
    """

    outcomes: Sequence[tuple[Any, Delivery, Any]] = ()
    demand: Demand | None = None

    def __init__(self, of: SharedWindow, wake: Callable[[], None], turn: float = 0.0) -> None:
        self._usual, self._surplus, self._came_late, self._stays_until, self._stays_for = 0.0, 0, False, 0.0, 0
        self.of = of
        self.wake = wake
        self.messages = self.bytes = 0
        self.turn = SliceTurn(of.turn + (turn if of.of_keys else 0.0))
        self.is_busy = False

    @property
    def window(self) -> Window:
        """The window that all share."""
        return self.of.total.window

    @property
    def among(self) -> "Share":
        """How it stands among the others."""
        return self

    @property
    def patience(self) -> float:
        """Seconds after which a call is late."""
        return max(PATIENCE, LATE * self._usual)

    def configure(self, window: Window) -> None:
        """Leave the window as it is: it is changed for all together."""

    def linger(self, settled: int) -> float:
        """Return the seconds for which settlements wait: few of each destination come at a time, unless they do."""
        return LINGER if settled >= self.messages else LINGER_SHARED

    def deliver(self, messages: int, size: int) -> None:
        """Count deliveries, ``size`` bytes in all."""
        self.messages += messages
        self.bytes += size
        self.of.total.deliver(messages, size)

    def fill(self, size: int) -> None:
        """Close what is left of the bytes that are shared."""
        self.of.total.fill(size)

    def settle(self, messages: int, size: int) -> None:
        """Count settlements, ``size`` bytes in all, and give their room to whose turn it is."""
        self.messages -= messages
        self.bytes -= size
        self.of.total.settle(messages, size)
        self.of.freed()

    def clear(self) -> None:
        """Count all that is held as given back, leave the line, and end an unanswered fetch."""
        self.of.total.messages -= self.messages
        self.of.total.bytes -= self.bytes
        self.messages = self.bytes = 0
        for shares in (self.of.line, self.of.short, self.of.late, self.of.woken, self.of.resting):
            shares.pop(self, None)
        self.release(0)

    def ask(
        self, going: int, going_bytes: int, _asked: int = 0, *, due: bool = True, again: bool = False, now: float = 0.0
    ) -> tuple[int, int]:
        """Return the room for a fetch that settles these in the same call; (0, 0) until it is this one's turn.

        For a moment after its turn, and a few messages, a slice keeps the room of what is settled there.

        Args:
            going: messages that are settled.
            going_bytes: their bytes.
            asked: how many are asked for here: those who wait, wait for all destinations.
            due: join the line; without it there is room only while nobody waits.
            again: the fetch is repeated: it gets what it was given then.
            now: seconds.
        """
        if again:
            return self.reserved, 1
        if self in self.of.late:  # its call comes again
            return _NONE
        if due:
            if self.turn.rests:
                self.turn.catch_up(self.of.turn)
            self.of.line.setdefault(self)
        if (self.of.first() or self) is self:
            self._stays_until, self._stays_for = now + STAY, FEW
            return self.of.room_for(self, going, going_bytes)
        if not due or now >= self._stays_until or self.of.of_keys or not self.of.in_turn:
            return _NONE
        messages, size = self.of.room(going, going_bytes)
        messages = min(messages, going, self._stays_for)
        return (messages, size) if messages > 0 else _NONE

    def reserve(self, messages: int) -> None:
        """Note that that many messages are being fetched; the next in line may have what is left."""
        self.of.line.pop(self, None)
        self.of.woken.pop(self, None)
        self._came_late = False
        self._stays_for -= messages
        if self.turn.rests:  # it fetches beside what it settles, without having been in line
            self.turn.catch_up(self.of.turn)
        self.of.under_way[self] = self.turn.fetching = messages
        self.of.turn = max(self.of.turn, self.turn.reached)
        self.of.freed()

    def release(self, brought: int) -> bool:
        """Note that a fetch was answered; returns whether bytes may have ended it, and to get in line for the rest."""
        self.of.under_way.pop(self, None)
        self.turn.fetching = 0
        self.of.freed()
        return brought > 0 and self.window.bytes != "unlimited"

    @property
    def reserved(self) -> int:
        """Messages that are being fetched."""
        return self.of.under_way.get(self, 0)

    def free(self, _asked: int) -> tuple[int, int]:
        """Return whether to look again when it is time to: not while others have their turn, nor without room."""
        if self in self.of.late:
            return _NONE
        if self not in self.of.line:
            return (1, 1)
        return self.of.room_for(self, 0, 0) if self.of.first() is self else _NONE

    def took(self, messages: int, turn: Turn | None, *, rests: bool, lacks: bool = False) -> None:
        """Count what a fetch brought; see :meth:`AmongOthers.took`."""
        self.of.of_keys = turn is not None and turn.of_keys
        if turn is not None:
            kept, self._surplus = messages - self._surplus, 0
            self.turn.took(kept, turn.part * kept / messages if messages else turn.part)
        self.turn.rests = rests
        self.of.short.pop(self, None)
        if lacks:
            self.of.short[self] = None

    def calls(self, *, begins: bool) -> None:
        """Note that a call begins, or that none is under way: whoever calls cannot fetch meanwhile."""
        self.is_busy = begins

    def woken(self) -> None:
        """Note that it alone was woken for a message."""
        self.of.woken[self] = None

    def passes_on(self, *, rests: bool) -> bool:
        """Return whether another consumer is to be woken for that: the room that there was went to other slices."""
        if rests:
            self.of.resting[self] = None
        else:
            self.of.resting.pop(self, None)
        if rests and self in self.of.line:  # it does not take its turn
            del self.of.line[self]
            self.of.freed()
        if self not in self.of.woken or not (rests or self.of.is_full):
            return False
        del self.of.woken[self]
        return True

    def overdue(self, *, away: bool = False) -> None:
        """Note that a call is not answered soon: the others need not wait for what it may bring."""
        self.turn.is_late, self.turn.is_away = True, self.turn.is_away or away
        self.of.late[self] = None
        self.of.freed()

    def settles(self) -> None:
        """Have the others use the room of what is settled here, where a call is late that would say so."""
        if self in self.of.late:
            self.of.freed()

    def answered(self, took: float) -> None:
        """Note that a call was answered after so many seconds; one that hung says little of others."""
        self._usual += (min(took, 2 * self.patience) - self._usual) / 4
        if self in self.of.late:
            del self.of.late[self]
            self._came_late = True
        self.turn.answers(self.of.turn)

    def surplus(self, newest: Iterable[Delivery]) -> int:
        """Return how many of the newest deliveries came too late: others were given their room."""
        self._surplus = self.of.surplus(newest, self.reserved) if self._came_late else 0
        return self._surplus


class FirstShare(Share):
    """The part of who had the window alone before, and still changes it for all."""

    def __init__(self, of: SharedWindow, wake: Callable[[], None], held: Collection[Any], turn: float = 0.0) -> None:
        super().__init__(of, wake, turn)
        self.messages, self.bytes = len(held), sum(message.size for message in held)

    def configure(self, window: Window) -> None:
        """Change the window of all."""
        self.of.configure(window)
