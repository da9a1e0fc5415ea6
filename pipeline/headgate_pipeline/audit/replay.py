"""Replays the ledger of a destination, entry by entry, and says where it breaks a promise. Pure: no Spark, no I/O.

The equations are those of the scripts: the counters after an entry are those before it, and what its columns and events
say (``lua/README.md``, "Ledger"). After a violation the entry is believed, so that each is reported once.
"""

from collections.abc import Callable
from math import inf
from typing import Any, Final

from headgate_pipeline.audit.accounts import Accounts
from headgate_pipeline.audit.delayed_messages import Delayed
from headgate_pipeline.audit.destination_shadow import TRIED_EVENTS, DestinationShadows
from headgate_pipeline.audit.findings import Finding, Settings, as_text
from headgate_pipeline.audit.holds import HOLD_EVENTS, Holds
from headgate_pipeline.audit.overtaking import PRIORITY_EVENTS, Overtaking
from headgate_pipeline.audit.rates import BucketRate, SendRate

Row = tuple[Any, ...]

NO_AMOUNT: Final = frozenset({"attach", "detach", "apply", "reap", "admit", "hold_off", "turn"})
OPS: Final = NO_AMOUNT | {
    "acquire", "leave", "publish", "settle", "take", "drop", "remove", "recount", "slice", "ticket",
}  # fmt: skip
MOST_SETTLED: Final = 256
MOST_EPOCHS: Final = 16
"""That may begin within one millisecond, each one more than the last."""

ABOVE: Final = "granted above the limit"


class Replay:
    """A replay follows one destination. Entries come in order of (epoch, seq); those that cannot be read come first."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.findings: list[Finding] = []
        self.settings = settings
        self.unclosed: list[int] = []  # findings whose next neighbour is still to come
        self.row: Row | None = None
        self.last: Row | None = None
        self.accounts, self.holds, self.later = Accounts(self._violated), Holds(self._violated), Delayed(self._violated)
        self.overtaking, self.tried = Overtaking(self._violated), DestinationShadows(self._violated)
        self.takes, self.sends = BucketRate(), SendRate(settings or Settings())
        self.limit: float | None = None
        self.limit_m: float | None = None
        self.limit_asked = False
        self._limits_seq = 0  # of the entry that has them
        self.binds: bool | None = None  # whether the limits do; None: the ledger does not say
        self._loose: Row | None = None  # an entry in whose middle they began to
        self._above: tuple[str, int] | None = None  # `oversize` and `hard_bytes`
        self.seq = self.epoch = self.ms = 0
        self.pending = self.pending_m = self.leased = self.leased_m = 0
        self.next: int | None = None  # number of the next message
        self.renumbered = False
        self._freed = self._freed_m = self._purged = self._purged_m = 0
        self._repaired: tuple[int, ...] | None = None
        self._slice: tuple[int, int] | None = None
        self.taken: dict[str, list[int]] = {}  # consumer -> what is delivered and not settled of its subscription
        self._in_hand: dict[str, list[int]] = {}  # subscription -> the same bytes and messages
        self.entries = self.excused = 0
        self._first_seq: int | None = None
        self._of_account: dict[str, Callable[[str, int, int], None]] = {
            "claim": self.accounts.claim, "reopen": self.accounts.reopen, "reclaim": self.accounts.reclaim,
            "ticket": self.accounts.ticket,
        }  # fmt: skip
        self._others: dict[str, Callable[[list[str]], None]] = {
            "open": lambda event: self.accounts.open(event[1]), "attach": self._attach, "expired": self._expired,
            "purge": self._purge, "limits": self._limits, "repair": self._repair, "slice": self._sliced,
            "released": self._link_released, "binds": self._bind, "above": self._allow,
            **dict.fromkeys(PRIORITY_EVENTS, self.overtaking.step),
            "lost": self._lost, "later": self.later.step, **dict.fromkeys(HOLD_EVENTS, self.holds.step),
            **dict.fromkeys(TRIED_EVENTS, self.tried.step),
        }  # fmt: skip
        self._columns: dict[str, Callable[[str, int, int, int], None]] = {
            "publish": self._published, "acquire": self._acquired, "leave": self._left, "settle": self._settled,
            "take": self._took, "drop": self._dropped, "remove": self._removed, "recount": self._recounted,
            "slice": self._slice_owed, "ticket": self._ticketed,
        }  # fmt: skip

    # Findings.

    def _say(self, kind: Any, promise: str, what: str, expected: object = None, found: object = None) -> None:
        finding = Finding(
            kind, promise, self.row[0] if self.row else None, what, None if expected is None else str(expected),
            None if found is None else str(found), as_text(self.last), as_text(self.row),
        )  # fmt: skip
        self.unclosed.append(len(self.findings))
        self.findings.append(finding)

    def _violated(self, promise: str, what: str, expected: object, found: object) -> None:
        self._say("violated", promise, what, expected, found)

    def _close(self, row: Row | None) -> None:
        for at in self.unclosed:
            self.findings[at] = self.findings[at]._replace(after=as_text(row))
        self.unclosed.clear()

    def finish(self) -> list[Finding]:
        """Return all findings; the last is ``audited``."""
        for promise, what, expected, found, row in (
            *self.takes.finish(self.settings.rate if self.settings else None),
            *self.sends.finish(),
        ):
            self.row = row
            self._violated(promise, what, expected, found)
        self._close(None)
        audited = Finding("audited", seq=self.seq, entries=self.entries, first_seq=self._first_seq)
        self.findings.append(audited._replace(excused=self.excused, taken_over=self.accounts.taken_over))
        return self.findings

    def step(self, row: Row) -> None:
        """Replay one entry: the columns that :data:`~headgate_pipeline.audit.findings.ROW` names."""
        if self.unclosed:
            self._close(row)
        self.row = row
        seq, ms, op, session, size, messages, first, detail, pending, pending_m, leased, leased_m, epoch, _, problem = (
            row
        )
        if problem is not None or row[13] != 1 or op not in OPS:
            self._say("unproven", "P2", f"an entry that cannot be read: {problem or f'version {row[13]}, {op}'}")
            return
        follows, self._freed, self._freed_m = True, 0, 0
        if seq == self.seq and epoch == self.epoch:
            self._violated("P5", "a number is in the ledger twice", seq + 1, seq)
            return
        if seq != self.seq + 1 or epoch != self.epoch:
            follows = self._resume(seq, epoch, ms, op)
        if ms < self.ms:
            self._say("unproven", "P8", "the clock went back, or entries are not in their order", self.ms, ms)
        self.entries += 1
        self.later.ms, accounts = ms, self.accounts
        accounts.begin()
        self.holds.begin(ms)
        self.overtaking.begin(op)
        if op == "publish" and (messages or size):
            accounts.publish(session, size, messages, spooled=not size and "spooled:" in detail)
        if detail:
            try:
                self._follow(detail, session)
            except (ValueError, IndexError, OverflowError):
                self._say("unproven", "P2", f"an event that cannot be read: {detail}")
                return
        self._columns.get(op, self._without_amount)(session, size, messages, first)
        if follows:
            self._balance(op, size, messages, row)
        if accounts.grown > 0 or accounts.grown_m > 0:
            self._within_limits(op, row)
        stored = follows and pending_m - self.pending_m == messages  # else something ended, or a topic kept nothing
        self.tried.judge(op, ms, size, messages, (pending, pending_m) if stored else None)
        self.seq, self.ms, self.epoch = seq, ms, epoch
        self.pending, self.pending_m, self.leased, self.leased_m = pending, pending_m, leased, leased_m
        if pending < 0 or pending_m < 0 or leased < 0 or leased_m < 0:
            self._violated("P2", "a counter is below zero", 0, min(pending, pending_m, leased, leased_m))
        self.last = row

    def _resume(self, seq: int, epoch: int, ms: int, op: str) -> bool:
        """Judge an entry that is not simply the next. Returns whether the counters before it are known."""
        anew = seq == 1 and epoch > self.epoch
        if anew:  # the destination was made, or made again after it was removed
            if op != "apply" or epoch != ms:
                begins = "a destination begins with `apply`, in the epoch of that moment"
                self._violated("P2", begins, f"apply {ms}", f"{op} {epoch}")
            self.pending = self.pending_m = self.leased = self.leased_m = 0
        elif seq == self.seq + 1 and epoch > self.epoch:
            if not min(self.ms, ms) <= epoch <= max(self.epoch, ms) + MOST_EPOCHS:
                self._violated("P2", "an epoch is the moment at which it began", f"{self.ms} to {ms}", epoch)
            self.renumbered = True
            self.accounts.doubt()
            return True
        elif self.last is not None and seq <= self.seq and epoch > self.epoch:
            gone = f"entries from {seq} to {self.seq} of the epoch before were lost with a failover"
            self._say("lost", "P3", gone, None, 0)
        elif self.last is not None:
            self._say("unproven", "P2", f"entries {self.seq + 1} to {seq - 1} are missing", self.seq + 1, seq)
        keeps = self.epoch < epoch and self._limits_seq < seq <= self.seq  # the limits hold after the loss as before
        if self._first_seq is None:
            self._first_seq = seq
        for part in (self.accounts, self.holds, self.later, self.overtaking, self.tried):
            part.forget(whole=anew)
        self.taken.clear()
        self._in_hand.clear()
        self.next = None
        if anew or not keeps:
            self.limit = self.limit_m = self.binds = self._above = None
        self.takes.forget()
        return anew

    def _follow(self, detail: str, session: str) -> None:
        for text in detail.split(";"):
            event = text.split(":")
            name = event[0]
            if name == "grant":
                self.accounts.grant(event[1], int(event[2]), int(event[3]))
            elif name == "settled" or name == "fetched":  # noqa: PLR1714  twice as quick
                if event[1] != "0" or event[2] != "0":  # references count no bytes
                    self._delivered(name, session, int(event[1]), int(event[2]))
            elif name == "return":
                self.accounts.give_back(session, int(event[1]), int(event[2]))
            elif follow := self._of_account.get(name):
                follow(event[1], int(event[2]), int(event[3]))
            elif handle := self._others.get(name):
                handle(event)

    # Events.

    def _expired(self, event: list[str]) -> None:
        self._freed += int(event[1])
        self._freed_m += int(event[2])

    def _purge(self, event: list[str]) -> None:
        self._freed += int(event[-2])
        self._freed_m += int(event[-1])
        if len(event) == 3:
            self._purged, self._purged_m = int(event[1]), int(event[2])

    def _limits(self, event: list[str]) -> None:
        self.limit, self.limit_m = (inf if text == "inf" else int(float(text)) for text in event[1:])
        self._limits_seq = self.row[0] if self.row else 0
        self.binds = self._above = None  # an `apply` of older scripts says no more
        self.takes.forget(tat=0 if self.row and self.row[0] == 1 else None)
        self.tried.none()
        self.sends.forget()

    def _bind(self, event: list[str]) -> None:
        if self.binds is False:
            self._loose = self.row
        self.binds = event[1] == "yes"

    def _allow(self, event: list[str]) -> None:
        self._above = (event[1], int(event[2]) if event[2] != "-" else 0)

    def _attach(self, event: list[str]) -> None:
        self.accounts.attach(event[1].rpartition(".")[0])
        if self.accounts.whole:
            self.taken[event[1]] = self._in_hand.setdefault(event[2], [0, 0])

    def _repair(self, event: list[str]) -> None:
        self._repaired = tuple(map(int, event[1:]))

    def _sliced(self, event: list[str]) -> None:
        self._slice = (int(event[-3]), int(event[-2])) if self.row and self.row[2] == "slice" else None

    def _lost(self, event: list[str]) -> None:
        what = f"{int(event[1])} message(s) that a sender has receipts for are gone; consumers may have had some"
        self._say("lost", "P3", what, None, int(event[1]))

    def _link_released(self, _: list[str]) -> None:
        self.renumbered = True  # messages that came back may have been given numbers of their own, for the link

    def _delivered(self, name: str, consumer: str, size: int, messages: int) -> None:
        """Follow what a subscription's consumers have in hand: they never settle more than was delivered to them."""
        if (taken := self.taken.get(consumer)) is None:
            return
        if name == "fetched":
            taken[0] += size
            taken[1] += messages
            return
        if taken[0] < size or taken[1] < messages:
            self._violated("P5", "more was settled than was delivered", taken, [size, messages])
            self.taken.clear()
        taken[0] -= size
        taken[1] -= messages

    # What the columns of each operation say.

    def _published(self, _: str, size: int, messages: int, first: int) -> None:
        """Follow the numbers of messages: each is given once."""
        if self.next is not None:
            if first < self.next:
                self._violated("P5", "numbers were given to messages twice", f"first {self.next}", f"first {first}")
            elif first > self.next and not self.renumbered:
                self._violated("P5", "numbers of messages were skipped", f"first {self.next}", f"first {first}")
        elif self.accounts.whole and first != 1 and (first - 1) // 1000 != self.epoch and not self.renumbered:
            self._violated(
                "P5", "numbers of messages begin with 1, or the moment of a loss", "first 1", f"first {first}"
            )
        self.next, self.renumbered = first + messages, False
        if self.settings is not None and messages:
            self.sends.step(self.row or (), size, messages)

    def _acquired(self, session: str, size: int, messages: int, first: int) -> None:
        self.accounts.totals(session, size, messages)
        self._no_first(first)

    def _left(self, session: str, size: int, messages: int, first: int) -> None:
        self.accounts.leave(session, size, messages)
        self._no_first(first)

    def _settled(self, _: str, size: int, messages: int, first: int) -> None:
        if not 0 <= first <= MOST_SETTLED or size < 0 or messages < 0:
            self._violated("P2", f"rejections are 0 to {MOST_SETTLED}, what is freed is 0 or more", "0 or more", first)

    def _took(self, *_: Any) -> None:
        if broken := self.takes.step(self.row or ()):
            self._violated("P8", *broken)

    def _dropped(self, _: str, size: int, messages: int, first: int) -> None:
        if size < 0 or messages < 1:
            self._violated("P2", "a drop of nothing has no entry", "1 m or more", f"{size} B {messages} m")
        self._no_first(first)

    def _removed(self, _: str, size: int, messages: int, first: int) -> None:
        self._same("what was purged", (self._purged, self._purged_m), (size, messages))
        self._purged = self._purged_m = 0
        self._no_first(first)

    def _recounted(self, _: str, size: int, messages: int, first: int) -> None:
        before = (self.pending, self.pending_m, self.leased, self.leased_m)
        if self._repaired is not None and self.last is not None:
            self._same("the counters before the repair are not those of the entry before", before, self._repaired)
        self._repaired = None
        row = self.row or ()
        self._same("pending after a repair is what was counted", (size, messages), (row[8], row[9]))
        self._no_first(first)

    def _slice_owed(self, _: str, size: int, messages: int, first: int) -> None:
        if self._slice is not None:
            self._same("the totals of the slice", self._slice, (size, first))
            self._slice = None
        self._same("messages of a slice", 0, messages)

    def _ticketed(self, _: str, size: int, messages: int, first: int) -> None:
        if self.accounts.exact:
            self._same("what the ticket granted", (self.accounts.grown, self.accounts.grown_m), (size, messages))
        self._no_first(first)

    def _without_amount(self, _: str, size: int, messages: int, first: int) -> None:
        if size or messages:
            self._same("the operation has no amounts", (0, 0), (size, messages))
        self._no_first(first)

    def _no_first(self, first: int) -> None:
        if first:
            self._same("the operation has no `first`", 0, first)

    def _same(self, what: str, expected: object, found: object) -> None:
        if expected != found:
            self._violated("P2", what, expected, found)

    def _balance(self, op: str, size: int, messages: int, row: Row) -> None:
        """Compare the counters with those before the entry and what it did."""
        _, _, _, _, _, _, _, _, pending, pending_m, leased, leased_m, *_ = row
        due, due_m = self.pending - self._freed, self.pending_m - self._freed_m
        if op == "settle":
            due, due_m = due - size, due_m - messages
        elif op == "publish" and (
            pending != due or pending_m != due_m
        ):  # else: a topic without subscriptions keeps nothing
            due, due_m = due + size, due_m + messages
        if pending != due or pending_m != due_m:
            self._violated("P2", f"pending after `{op}`", f"{due} B {due_m} m", f"{pending} B {pending_m} m")
        accounts = self.accounts
        due, due_m = self.leased + accounts.bytes, self.leased_m + accounts.messages
        if (leased != due or leased_m != due_m) and not accounts.explain(leased - due, leased_m - due_m):
            self._violated("P2", f"leased after `{op}`", f"{due} B {due_m} m", f"{leased} B {leased_m} m")

    def _within_limits(self, op: str, row: Row) -> None:
        if self.limit is None or self.limit_m is None:
            if not self.limit_asked:
                self.limit_asked = True
                self._say("unproven", "P1", "the limit is not known until an `apply`; grants until then are not judged")
            return
        used, used_m = row[8] + row[10], row[9] + row[11]
        over = self.accounts.grown > 0 and used > self.limit
        if not over and not (self.accounts.grown_m > 0 and used_m > self.limit_m):
            return
        if (
            op == "ticket"
            or self.unbound
            or self._loose is row
            or (self.accounts.lacks > 0 and used <= self._hard_bytes)
        ):
            self.excused += 1
        elif over and used_m <= self.limit_m and row[8] == 0 and self.accounts.sole_holder(row[10]):
            oversize = self._above[0] if self._above else self.settings.oversize if self.settings else None
            if oversize is None:
                alone = f"{ABOVE} to one alone: right only with oversize = allow-one"
                self._say("unproven", "P1", alone, self.limit, used)
            elif oversize == "allow-one":
                self.excused += 1
            else:
                self._violated("P1", f"{ABOVE}, and oversize is refused", self.limit, used)
        else:
            known = self.settings or (self._above and self.binds is not None)
            what = ABOVE if known else f"{ABOVE}: right only while its enforcement is off, or up to its hard limit"
            self._violated("P1", what, f"{self.limit} B {self.limit_m} m", f"{used} B {used_m} m")

    @property
    def unbound(self) -> bool:
        """Whether the limits do not bind now."""
        if self.binds is None:
            return self.settings is not None and self.settings.enforce != "always"
        return not self.binds

    @property
    def _hard_bytes(self) -> int:
        if self._above:
            return self._above[1]
        return (self.settings and self.settings.hard_bytes) or 0
