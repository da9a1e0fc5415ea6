"""A forwarder is one link's worker, a state machine without I/O: it says which calls to make, and hears the answers.

A message goes through five steps: credit is **reserved** at the target, the message is **read** at the source, where it
stays, it is **committed** at the target together with the mark, the commit is **secured** on replicas, and only then is
the message **released** at the source. The target's mark is the only truth about how far a link got: a worker that
knows nothing asks for it and goes on from there, so any step may be repeated, by this worker or by another.

At most one call of each kind is under way; the next batch is read while one is committed and another is secured.
"""

import functools
from typing import Final

from headgate.core.links.calls import (
    Call,
    Commit,
    Committed,
    Copy,
    Fetch,
    NoStore,
    Open,
    Opened,
    RateTaken,
    Read,
    Regression,
    Secure,
    TakeRate,
)  # fmt: skip
from headgate.core.links.trouble import NO_ROOM, PACED, SPOOLS, Trouble
from headgate_coordinator.links.allowance import LinkAllowance
from headgate_coordinator.links.rules import Forwarding, Phase, ReadAhead, ReadMessage, Refusal, StoreTurn

BATCH: Final = 256
"""Messages a call."""
LOOK_AGAIN: Final = 1.0
"""Seconds until an idle or failing source or target is asked again, unless a hint comes."""
NO_REFERENCES: Final = "nor for references to spooled messages"
LONGEST_LOOK: Final = 10.0
"""The same for a source that has had nothing again and again, where hints come for certain: each time it is twice. Nor
does it rest for longer where a rate is to let something go later than that."""


class Forwarder:
    """A forwarder works on a link. Times are seconds of the caller's monotonic clock.

    Attributes:
        born: which destination the source is, None until it is open.
        mark: the last message that the target has, None until it is asked.
        durable: the last message that it has for good.
        released: the last message that left the source.
        held: bytes of credit at the target.
        held_m: messages of it.
        fence: set when a later lease is in force: this worker is done, no call will do anything any more.
        regressions: what the target was found to have lost, the newest last.
        refused: how many messages did not go over the link, by reason.
        missing: ends that are not there, until they answer again: ``source``, ``target``, ``dead letters``.
        trouble: why nothing moves, or that it spools; None while it moves from memory to memory.
        committed: messages that the target took from this worker, or was found to have; skipped ones not counted.
        committed_bytes: of these.
        hinted: whether hints from the source come for certain, as the caller knows before :meth:`calls`.
        stores: of a target that spools: then what finds no room in memory goes to a store.
    """

    def __init__(self, forwarding: Forwarding) -> None:
        self.how = forwarding
        self.born: int | None = None
        self.mark: int | None = None
        self.durable = self.released = self.held = self.held_m = self.committed = self.committed_bytes = 0
        self.fence: int | None = None
        self.regressions: list[Regression] = []
        self.refused: dict[str, int] = {}
        self.missing: set[str] = set()
        self.trouble: Trouble | None = None
        self._hand = ReadAhead()
        self._before = self._after = 0  # numbers of the messages before the first loaded, and last loaded
        self._source_at = self._target_at = 0.0
        self._source_hint = self._target_hint = False  # whether there was one since the source, the target was asked
        self.hinted = False
        self.stores = StoreTurn()
        self._pause = LOOK_AGAIN
        self._flying: dict[type, Call] = {}
        self._allowed = LinkAllowance(forwarding.pace)

    @property
    def phase(self) -> Phase:
        """How far the oldest message is."""
        if self.fence is not None:
            return Phase.FENCED
        if self.durable > self.released:
            return Phase.DURABLE
        if (self.mark or 0) > self.durable:
            return Phase.COMMITTED
        if self._hand.head:
            return Phase.LOADED
        return Phase.RESERVED if self.held or self.held_m else Phase.IDLE

    @property
    def in_hand(self) -> int:
        """How many messages were read and are not known to be at the target."""
        return len(self._hand.items)

    @property
    def waits(self) -> str:
        """Name of its wait in line at the target, another one after each message; empty while it does not wait."""
        return f"{self.born}.{self.mark}" if self.trouble is not None and self.trouble.code == NO_ROOM.code else ""

    @property
    def wake_at(self) -> float:
        """When to ask for calls again if nothing is answered and nothing is heard before."""
        if not self._hand.head:
            return self._source_at
        if self._lacks_credit and self.stores.rests:
            return min(self._target_at, self.stores.again_at)
        return min(self._target_at, self._source_at) if self._room[0] else self._target_at

    @property
    def _room(self) -> tuple[int, int]:
        """How many messages and bytes more may be in hand; no messages where none is to be read.

        Consumers at the source go without what is read, and it cannot be given back: a commit of it may be under way.
        So no more is read than the target has granted credit for and its rate lets go, and one message to ask it for.
        """
        hand, how = self._hand, self.how
        credit, messages = self._credit
        paid, paid_bytes = self._allowed.ahead(messages, credit)
        paid, paid_bytes = paid - hand.puts, paid_bytes - hand.puts_bytes
        if hand.puts == 0:
            paid, paid_bytes = max(paid, 1), max(paid_bytes, 1)
        elif self.trouble not in (None, PACED, SPOOLS) and not self._spools:
            return 0, 0  # the target takes nothing, whatever credit there is
        messages, size = min(how.messages - len(hand.items), paid), min(how.window - hand.bytes, paid_bytes)
        return (0, 0) if min(messages, size) < 1 or (hand.head and hand.head.waits_for_copy) else (messages, size)

    def calls(self, now: float) -> list[Call]:
        """Return the calls to make now; each is answered to :meth:`hear`, or to :meth:`missed`."""
        if self.fence is not None:
            return []
        self.stores.look(now)
        if self.born is None:
            chosen: list[Call | None] = [Open() if now >= self._source_at else None]
        else:
            chosen = [self._at_target(self.born, now), self._secure(self.born), self._fetch(self.born, now)]
            chosen.append(self._pace(now))
        calls = [call for call in chosen if call is not None and type(call) not in self._flying]
        self._flying |= {type(call): call for call in calls}
        for call in calls:
            self._source_hint &= not (isinstance(call, Open) or (isinstance(call, Fetch) and call.messages > 0))
            self._target_hint &= not isinstance(call, Commit | Copy)
        return calls

    def woken(self, *, source: bool = False, target: bool = False) -> None:
        """Take a hint of messages at the source, or room at the target. It survives an answer to an earlier request."""
        if source:
            self._source_at, self._source_hint = 0.0, True
        if target:
            self._target_at, self._target_hint = 0.0, True

    def left(self) -> None:
        """Note that the credit was given back at the target."""
        self.held = self.held_m = 0

    def missed(self, call: Call, now: float) -> None:
        """Note that a call was not answered, whether it was done or not: it will be made again."""
        self._flying.pop(type(call), None)
        if isinstance(call, Open | Fetch):
            self._source_at = now + LOOK_AGAIN
        else:
            self._target_at = now + LOOK_AGAIN

    def hear(
        self, call: Call, answer: Opened | Read | Committed | NoStore | RateTaken, now: float, *, replicas: int = 0
    ) -> None:
        """Take in an answer; ``replicas`` is how many have it, with that to :class:`Secure`."""
        self._flying.pop(type(call), None)
        if isinstance(call, TakeRate):
            self._allowed.add(call, now)
        elif isinstance(answer, RateTaken):
            raise TypeError(f"{call} is not answered so")
        elif isinstance(answer, NoStore):
            self._refused(answer, now)
        else:
            self._take_in(call, answer, now, replicas)

    def _take_in(
        self, call: Open | Fetch | Commit | Secure | Copy, answer: Opened | Read | Committed, now: float, replicas: int
    ) -> None:
        end = "dead letters" if isinstance(call, Copy) else "target" if isinstance(answer, Committed) else "source"
        self.missing = self.missing | {end} if answer.code == "UNKNOWN" else self.missing - {end}
        if answer.code == "FENCED":
            self.fence = answer.fence
        elif isinstance(answer, Opened):
            self._opened(answer, now)
        elif self.born is None or isinstance(call, Open) or call.born != self.born:
            return  # from before the source was opened anew
        elif isinstance(answer, Read):
            self._read(answer, now, asked=isinstance(call, Fetch) and call.messages > 0)
        elif isinstance(call, Copy):
            self._copied(call, answer, now)
        elif isinstance(call, Commit | Secure):
            self._answered(call, answer, now, replicas)

    def _opened(self, answer: Opened, now: float) -> None:
        if answer.code != "OK":
            full = answer.code == "FULL"
            self._wait_for_source(Trouble.of("subscriptions") if full else Trouble.of("source", answer.code), now)
            return
        self.born, self.released, self.trouble = answer.born, answer.released, None
        self.durable = 0
        self._ask_anew()

    def _ask_anew(self) -> None:
        """Forget what is in hand: the target is to say how far the link got."""
        self.mark = None
        self._hand = ReadAhead()
        self._target_at = 0.0

    def _wait_for_source(self, trouble: Trouble | None, now: float) -> None:
        self.trouble = trouble
        self._rest_source(now, LOOK_AGAIN)

    def _rest_source(self, now: float, seconds: float) -> None:
        """Ask the source no sooner, unless a hint came after what it answered; hints of changes may be lost."""
        self._source_at = 0.0 if self._source_hint else now + min(seconds, LONGEST_LOOK)

    def _rest_target(self, now: float, seconds: float) -> None:
        """Ask the target no sooner, unless a hint came after what it answered; hints of changes may be lost."""
        self._target_at = 0.0 if self._target_hint else now + min(seconds, LONGEST_LOOK)

    # The source.

    def _fetch(self, born: int, now: float) -> Call | None:
        if self.mark is None or self.mark < self.released:
            return None
        messages, size = self._room
        reads = now >= self._source_at and messages > 0
        if not reads and self.durable <= self.released:
            return None
        return Fetch(born, self.durable, self._after, min(messages, BATCH) if reads else 0, max(size, 1))

    def _read(self, answer: Read, now: float, *, asked: bool) -> None:
        if answer.code in ("CLOSED", "BORN", "UNKNOWN"):
            self.born = None
            self._wait_for_source(Trouble.of("no-source") if answer.code == "UNKNOWN" else None, now)
            self._source_at = self._source_at if answer.code == "UNKNOWN" else now
            return
        self.released = max(self.released, answer.released)
        if self.mark is None:
            return
        fresh = [entry for entry in answer.entries if entry.seq > self._after]
        for entry in fresh:
            self._hand.add(entry, self.how.refusal(entry))
            self._after = entry.seq
        if fresh or not self.hinted:
            self._pause = LOOK_AGAIN
        if asked and not fresh and now >= self._source_at and answer.code == "OK":
            self._rest_source(now, self._pause if answer.again_ms is None else answer.again_ms / 1000)
            self._pause = min(2 * self._pause, LONGEST_LOOK) if self.hinted else LOOK_AGAIN

    # The target.

    def _at_target(self, born: int, now: float) -> Call | None:
        if Commit in self._flying or Copy in self._flying or (now < self._target_at and not self._spools):
            return None
        if self.mark is None:  # what is under way would be answered for the earlier opening
            return None if {Fetch, Secure} & self._flying.keys() else Commit(born, 0)
        if self.mark < self.released:
            return Commit(born, self.released, lost=True)
        head = self._hand.head
        if head is None:
            return None
        if head.waits_for_copy:
            return self._copy(born, head, now)
        size = len(head.entry.body)
        if head.refusal is None and (not self._lacks_credit or self._spools) and not self._allowed.covers(1, size, now):
            self.trouble = self.trouble or PACED
            return None
        return self._batch(born, now)

    def _pace(self, now: float) -> Call | None:
        """Ask the rate for what is in hand and has its credit."""
        if self._allowed.quantum is None or self.mark is None or Commit in self._flying:
            return None
        credit, messages = self._credit
        return self._allowed.ask(self._hand.sizes(credit, min(BATCH, messages)), now)

    def _copy(self, born: int, item: ReadMessage, now: float) -> Call | None:
        reason = item.refusal.reason if item.refusal else ""
        if not self.how.has_dead_letters:
            self._target_at = now + LOOK_AGAIN
            self.trouble = Trouble.of("undeliverable", f"{item.entry.seq} cannot be delivered ({reason})")
            return None
        return Copy(born, item.entry, reason)

    def _batch(self, born: int, now: float) -> Call:
        allowed = functools.partial(self._allowed.covers, now=now)
        entries, need, puts = self._hand.batch(*self._credit, BATCH, allowed, self.how.stamp, alone=self._spools)
        return Commit(born, self._before, entries, need, self.how.window, spools=self._spools and puts > 0)

    def _secure(self, born: int) -> Call | None:
        if self.mark is None or self.mark <= self.durable or self.mark < self.released:
            return None
        if not self.how.durability:
            self.durable = self.mark
            return None
        return Secure(born, self.mark)

    def _answered(self, call: Commit | Secure, answer: Committed, now: float, replicas: int) -> None:
        if answer.code in ("UNKNOWN", "KIND", "STALE", "BODY"):
            if answer.code == "STALE":
                self.born = None
            elif answer.code == "BODY":
                self._ask_anew()  # of a target that lost this lease: it is to hear of it first
            self._rest_target(now, LOOK_AGAIN)
            self.trouble = Trouble.of("target", answer.code)
        elif isinstance(call, Commit):
            self._committed(call, answer, now)
        elif self.mark is not None and answer.mark < call.mark:
            self._ask_anew()  # it lost something
        elif self.mark is not None and replicas >= self.how.replicas:
            self.durable = max(self.durable, answer.mark)

    def _committed(self, call: Commit, answer: Committed, now: float) -> None:
        self.held, self.held_m = answer.held, answer.held_m
        if self.mark is None:
            if not call.entries:
                self._learn(answer.mark)
            return
        if answer.mark < self.mark or answer.code == "GAP":
            self._ask_anew()  # it is behind what it was: an answer that comes late, or it lost something
            return
        self._advance(answer.mark)
        self.trouble = SPOOLS if call.spools and self._spools else None
        self.stores.full = False
        if answer.code == "TOO_LARGE" and self._hand.head and not self.stores.spools:
            self._hand.refuse_head(Refusal("too-large", dead_letter=True))
        elif answer.code in ("OK", "NOCREDIT", "TOO_LARGE"):
            if call.spools:
                self._target_at = 0.0  # that was for memory
            if self._lacks_credit and (call.need or answer.place or answer.code != "OK"):
                self._rest_target(now, answer.again_ms / 1000)
                self.stores.full = True
                self.trouble = SPOOLS if self._spools else NO_ROOM
        elif answer.code == "FULL":
            self._refused(NoStore(NO_REFERENCES), now)
        else:
            self._rest_target(now, answer.again_ms / 1000)
            self.trouble = Trouble.of("target", answer.code)

    def _refused(self, answer: NoStore, now: float) -> None:
        """Wait for memory and for the store, or for neither where the message fits nowhere."""
        if answer.why:
            self.stores.rest(now + LOOK_AGAIN)
            self.trouble = Trouble(NO_ROOM.code, f"{NO_ROOM.text}: {answer.why}")
        elif self._hand.head:
            self._hand.refuse_head(Refusal("too-large", dead_letter=True))

    @property
    def _credit(self) -> tuple[int, int]:
        """Bytes and messages that may go now: what is paid, or what goes to a store at a time."""
        return (self.how.window, self.how.messages) if self._spools else (self.held, self.held_m)

    @property
    def _spools(self) -> bool:
        """Whether messages go to a store of the target."""
        return self.stores.takes and self._lacks_credit

    @property
    def _lacks_credit(self) -> bool:
        head = self._hand.head
        return head is not None and not head.refusal and (self.held < len(head.entry.body) or self.held_m < 1)

    def _learn(self, mark: int) -> None:
        """Go on from where the target is. Below what left the source, its loss is noted, and then accepted."""
        self.mark = self._before = self._after = mark
        self.durable = min(self.durable, mark)
        if mark < self.released:
            self.regressions.append(Regression(mark, self.released))

    def _advance(self, mark: int) -> None:
        for item in self._hand.taken_up_to(mark):
            if item.refusal:
                self.refused[item.refusal.reason] = self.refused.get(item.refusal.reason, 0) + 1
            else:
                self.committed += 1
                self.committed_bytes += len(item.entry.body)
                self._allowed.use(len(item.entry.body))
        self.mark = self._before = mark
        self._after = max(self._after, mark)

    def _copied(self, call: Copy, answer: Committed, now: float) -> None:
        if answer.code == "OK" and answer.mark >= call.entry.seq:
            for item in self._hand.items:
                item.copied = item.copied or item.entry.seq == call.entry.seq
            return
        self._rest_target(now, answer.again_ms / 1000)
        full, size = "has no room", len(call.entry.body)
        texts = {"OK": full, "NOCREDIT": full, "TOO_LARGE": f"never has room for {size} bytes: raise its limit"}
        self.trouble = Trouble.of("dead-letters", texts.get(answer.code, f"answers {answer.code}"))
