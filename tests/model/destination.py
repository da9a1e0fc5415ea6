"""One destination as the rules say it behaves: no I/O, and a clock that stands still until it is moved.

It counts nothing: pending is what is stored, leased is what the accounts hold, blocked is who stands in line. So it
keeps the promises by construction, and the scripts are right when they agree with it.
"""

from dataclasses import dataclass, field, replace
from typing import Final

from tests.model.credit import NOTHING, UNLIMITED, Account, Amount, Answer, Rules, Totals
from tests.model.messages import LATER, RETURNED, Consumer, Shelf, Subscription
from tests.model.shadow import Shadow
from tests.model.turns import NO_KEY

LEASES_A_CALL: Final = 16
MOVED_A_CALL: Final = 64
HANDED_OVER_A_CALL: Final = 64
SLOWLY_MS: Final = 10_000
FETCHED_A_CALL: Final = 256
STEPS_A_BYTE: Final = 16
REMEMBERED: Final = 1 << 20
NO_RECEIPT: Final = (0, 0, 0, 0)


@dataclass(slots=True)
class Destination:
    """A queue, a topic or a gate.

    ``run`` is the run of the server that the callers talk to, ``handed_over`` whether that has all that the one before
    it had; ``known_run`` is the one that served it last.
    """

    kind: str
    limit: Amount
    now: int
    run: str
    epoch: int = 0
    known_run: str = ""
    handed_over: bool = False
    learning_until: int = 0
    longest_ttl: int = 10_000
    accounts: dict[str, Account] = field(default_factory=dict)
    rules: Rules = field(default_factory=Rules)
    shut: bool = False
    ticketed: tuple[str, int] | None = None
    turns: int = 0
    line: list[str] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)
    orphans: dict[str, int] = field(default_factory=dict)
    receipts: dict[str, tuple[int, int, int, int]] = field(default_factory=dict)
    shelf: Shelf = field(default_factory=lambda: Shelf(topic=False))
    held: tuple[int, int] | None = None
    ramp: tuple[int, int] | None = None
    given_back: dict[int, Amount] = field(default_factory=dict)
    """By epoch: what was claimed in it, came back while it learned, and was granted to nobody yet."""
    losses: tuple[int, int, int] = (0, 0, 0)
    """Epochs that began, and the messages that are known to be lost: in all, and in this epoch."""
    shadow: Shadow = field(default_factory=Shadow)

    def __post_init__(self) -> None:
        self.shelf.topic = self.kind == "topic"
        self.take_turns()
        self.epoch = self.epoch or self.now
        self.known_run = self.known_run or self.run

    def take_turns(self) -> None:
        """Have keys of a queue take turns as the rules say."""
        self.shelf.take_turns(self.rules.fair if self.kind == "queue" else "")

    # What there is.

    @property
    def pending(self) -> Amount:
        sizes = [message.size for message in self.shelf.stored.values()]
        return Amount(sum(sizes), len(sizes))

    @property
    def weights(self) -> int:
        return sum(account.weight for account in self.accounts.values())

    @property
    def leased(self) -> Amount:
        return sum((account.held for account in self.accounts.values()), NOTHING)

    @property
    def binding(self) -> Amount:
        return Amount(UNLIMITED, UNLIMITED) if self.rules.off else self.limit

    @property
    def stopped(self) -> bool:
        """Whether nobody is let in: by hand, or because it is held off."""
        return self.rules.stopped or (self.held is not None and self.held[0] <= self.now < self.held[1])

    @property
    def begins(self) -> bool:
        """Whether it begins slowly after a hold-off."""
        return self.ramp is not None and self.ramp[0] <= self.now < self.ramp[1]

    @property
    def slice(self) -> Amount:
        """What may be let in of the limit: after a hold-off more and more."""
        if self.ramp is None or not self.begins:
            return self.binding
        part, whole = self.now - self.ramp[0] + 1, self.ramp[1] - self.ramp[0] + 1

        def some(limit: int) -> int:
            return limit if limit == UNLIMITED else max(1, limit * part // whole)

        return Amount(some(self.binding.bytes), some(self.binding.messages))

    @property
    def room(self) -> Amount:
        """What may be granted; while it learns no more than what came back, so that nobody's claim is passed on."""
        if not self.learning:
            return self.whole_room
        back = self.given_back.get(self.epoch, NOTHING)
        if self.binding.messages == UNLIMITED:
            back = Amount(back.bytes, UNLIMITED)
        return self.whole_room.least(back)

    @property
    def whole_room(self) -> Amount:
        if self.stopped or (self.shut and not self.rules.off):
            return NOTHING
        return self.slice - self.pending - self.leased

    def too_large(self, amount: Amount) -> bool:
        return not amount.fits(Amount(UNLIMITED, self.binding.messages) if self.rules.allow_one else self.binding)

    def goes_alone(self, account: Account) -> bool:
        """Whether a message above the whole limit may go: nothing is pending, and nobody else holds credit."""
        size = (account.need - account.used - account.returned).bytes
        alone = account.single and self.pending.bytes == 0 and self.leased.bytes == account.held.bytes
        fits = self.binding.bytes < size and (not self.begins or size <= self.slice.bytes)
        return self.rules.allow_one and not self.stopped and not self.learning and fits and alone

    @property
    def learning(self) -> bool:
        return self.now < self.learning_until

    def share(self, weight: int) -> Amount:
        everybody = max(1, weight, self.weights)

        def part(limit: int) -> int:
            return limit if limit == UNLIMITED else limit * weight // everybody

        return Amount(part(self.binding.bytes), part(self.binding.messages))

    # Credit.

    def acquire(self, totals: Totals, *, leave: bool = False, resume: bool = False) -> Answer:
        sid, known = totals.session, self.accounts.get(totals.session)
        before = self._met()
        self._meet_run(totals.ttl_ms)
        code = self._refusal(totals, known, leave=leave)
        if code:
            if code == "LEFT" and not resume:
                self.receipts.pop(sid, None)
            epoch = self.epoch
            self._forget(before)
            return Answer(code, epoch, blocked=len(self.line))
        self.housekeeping(sid, orphans=False)
        account = self._account(totals, known)
        had = account.held
        account.give_back(totals.returned)
        if self.learning and totals.epoch == self.epoch:
            self._pass_on(had - (NOTHING if leave else account.held))
        if leave:
            self._drop(sid)
            if not resume:
                self.receipts.pop(sid, None)
            self.serve_line()
            return Answer("LEFT", self.epoch, account.granted, 0, len(self.line))
        last, lost = (0, 0) if totals.epoch in (0, self.epoch) else self._count_lost(sid, totals.sent)
        account.weight = totals.weight
        self._set_needs(account, totals, totals.size)
        self._renew(account, totals.ttl_ms)
        self._ask(sid, account)
        return Answer.about("OK", self.epoch, account, self.line, sid, last, lost)

    def _set_needs(self, account: Account, totals: Totals, size: int = -1) -> None:
        account.need, account.want = totals.need, totals.want.most(totals.need)
        lacks = (account.need - account.used - account.returned).bytes
        one = lacks == size or account.held.bytes == 0
        account.single = self.rules.allow_one and lacks > self.binding.bytes and one
        if account.single:
            account.want = Amount(account.need.bytes, account.want.messages)

    def _count_lost(self, sid: str, sent: int) -> tuple[int, int]:
        """Count what an epoch lost of a session, once, and say so as often as it asks; and the last that was there."""
        last, batch, lost, epoch = self.receipts.get(sid, NO_RECEIPT)
        if sent > last:
            self.receipts[sid] = (sent, 0, sent - last, self.epoch)
            self._lose(sent - last)
            return last, sent - last
        return last, lost if batch == 0 and epoch == self.epoch else 0

    def _lose(self, messages: int) -> None:
        epochs, in_all, in_this = self.losses
        self.losses = epochs, in_all + messages, in_this + messages

    def publish(
        self, totals: Totals, seq: int, sizes: list[int], keys: list[str] | None = None, later: list[str] | None = None
    ) -> Answer:
        sid, account = totals.session, self.accounts.get(totals.session)
        before = self._met()
        self._meet_run(totals.ttl_ms)
        last, batch, first, _ = self.receipts.get(sid, NO_RECEIPT)
        spent = Amount(sum(sizes), len(sizes))
        code = ""
        if seq == batch:
            code = "DUPLICATE"
        elif seq <= last:
            code = "PASSED"
        elif totals.epoch != self.epoch:
            code = "EPOCH"
        elif account is None:
            code = "EXPIRED"
        elif account.inc != totals.inc:
            code = "FENCED"
        elif self.stopped:
            code = "STOPPED"
        elif not spent.fits(account.held):
            code = "OVERUSE"
        elif not self.covers(sid, account, spent):
            code = "ABOVE"
        if code or account is None:
            epoch = self.epoch
            self._forget(before)
            if code == "DUPLICATE":
                return Answer.about(code, epoch, account, self.line, sid, first)
            return Answer(code, epoch, account.held if code == "OVERUSE" and account else NOTHING)
        self.housekeeping(sid, orphans=False)
        first, there = self.shelf.seq + 1, self.pending
        stored = self.kind == "queue" or bool(self.shelf.live())
        self.shadow.see(self.now, sizes, (there.bytes, there.messages) if stored else None)
        for size, key, when in zip(sizes, keys or [NO_KEY] * len(sizes), later or ["-"] * len(sizes), strict=True):
            moment = int(when.strip("@-") or 0) + (self.now if when[0] not in "@-" else 0)
            self.shelf.append(size, key, moment if moment > self.now else 0)
        self.shelf.sort()
        account.used += spent
        self._lose(seq - last - 1 if last else 0)
        self.receipts[sid] = (seq + len(sizes) - 1, seq, first, 0)
        self._set_needs(account, totals)
        self._renew(account, totals.ttl_ms)
        self._ask(sid, account)
        return Answer.about("OK", self.epoch, account, self.line, sid, first)

    def covers(self, sid: str, account: Account, spent: Amount) -> bool:
        """Whether credit that may be older than the limit still pays for so much."""
        alone = self.rules.allow_one and not self.pending.bytes and spent.messages == 1
        most = Amount(UNLIMITED, self.binding.messages) if alone else self.binding
        return (self.pending + spent).fits(most) or self.ticketed == (sid, account.granted.bytes)

    def _refusal(self, totals: Totals, known: Account | None, *, leave: bool) -> str:
        claims = self.learning and 0 < totals.epoch < self.epoch
        granted_here = known.granted if known and known.inc == totals.inc else NOTHING
        beyond = totals.need - totals.granted
        if self.too_large(beyond.most(Amount(totals.size))):
            return "TOO_LARGE"
        if known is None and leave:
            return "LEFT"
        if known and known.inc > totals.inc:
            return "FENCED"
        if not totals.granted.fits(granted_here) and not claims:
            return "EXPIRED"
        if claims and not leave:
            granted, used, returned = totals.claimed(known)
            more = granted - used - returned - (known.held if known else NOTHING)
            return "" if more.fits(self.whole_room.most(NOTHING)) else "EXPIRED"
        if known and known.inc == totals.inc and totals.epoch == self.epoch:
            return "" if (totals.returned + known.used).fits(known.granted) else "OVERUSE"
        return ""

    def _account(self, totals: Totals, known: Account | None) -> Account:
        """Return the account of this incarnation: what an older one held is free again, and its place in line gone."""
        account = known
        if account is None or account.inc < totals.inc:
            consumers = account.consumers if account else 0
            account = Account(totals.inc, totals.ttl_ms, self.now, consumers=consumers)
            account.lease_ends, account.strike = (known.lease_ends, None) if known else (0, None)
            self.accounts[totals.session] = account
            self._leave_line(totals.session)
        if self.learning and 0 < totals.epoch < self.epoch:
            account.granted, account.used, account.returned = totals.claimed(account)
        return account

    def _ask(self, sid: str, account: Account) -> None:
        if not account.blocked:
            self._leave_line(sid)
        if not self.line and self._grant(account):
            return
        if account.blocked and sid not in self.line:
            self.turns += 1
            remembered = 2 * STEPS_A_BYTE * min(self.binding.bytes, REMEMBERED) / max(1, self.weights)
            self.places[sid] = account.turn if account.turn > max(0, self.turns - remembered) else self.turns
            self.line = sorted([*self.line, sid], key=lambda waiter: (self.places[waiter], waiter))
        self.serve_line(sid)
        resume = self.rules.resume
        if self.line and not (self.rules.off or self.learning) and resume is not None and self.pending.bytes > resume:
            self.shut = True
        if not self.line:
            self._grant(account)

    def _grant(self, account: Account) -> bool:
        """Grant what is wanted if what is needed fits; returns whether it does."""
        if account.want.fits(account.granted):  # who is in line wants what it needs
            return True
        room, lacks = self.room.most(NOTHING), account.lacks
        alone = lacks.bytes > room.bytes and self.goes_alone(account)
        if not (Amount(0, lacks.messages) if alone else lacks).fits(room):
            return False
        most = (self.share(account.weight) - account.held).most(account.need - account.granted)
        more = (account.want - account.granted).least(room).least(most).most(NOTHING)
        account.granted += Amount(lacks.bytes, more.messages) if alone else more
        if self.learning:
            self._pass_on(NOTHING - more)
        return True

    def _pass_on(self, back: Amount) -> None:
        """While it learns, what known holders gave back may be granted to others, and nothing else."""
        self.given_back[self.epoch] = (self.given_back.get(self.epoch, NOTHING) + back).most(NOTHING)

    def serve_line(self, caller: str | None = None) -> None:
        """Grant to the first in line until one does not fit. Who has not been heard of for long loses the place."""
        if self.shut and self.pending.bytes <= (UNLIMITED if self.rules.resume is None else self.rules.resume):
            self.shut = False
        for _ in range(HANDED_OVER_A_CALL):
            if not self.line:
                return
            account = self.accounts[self.line[0]]
            silent = account.is_silent(self.now) or self.too_large(account.need - account.granted)
            before = account.granted
            if not (silent and self.line[0] != caller):
                if not self._grant(account):
                    return
                got = (account.granted - before).bytes
                if self.binding.messages < UNLIMITED:
                    head = account.need - account.used - account.returned
                    got = min(got, head.bytes * account.held.messages)
                self._take_turn(account, self.places[self.line[0]], got)
            self.line.pop(0)

    def ticket(self, sid: str) -> str:
        """Let the message that a session waits with go above the limit, if nothing is above it yet."""
        before, code = self._met(), "GONE"
        self._meet_run(0)
        if sid in self.line:
            account = self.accounts[sid]
            slowly = self.begins and account.lacks.bytes > self.slice.bytes - (self.pending + self.leased).bytes
            if self.stopped or self.learning or self.too_large(account.need - account.granted) or slowly:
                code = "REFUSED"
            elif not (self.pending + self.leased).fits(self.binding):
                code = "ABOVE"
            else:
                lacks = account.lacks
                account.granted += lacks
                self.ticketed = (sid, account.granted.bytes)
                self._take_turn(account, self.places[sid], lacks.bytes)
                self._leave_line(sid)
                return "OK"
        self._forget(before)
        return code

    def _take_turn(self, account: Account, place: int, size: int) -> None:
        """Who got much comes later next time, who has weight sooner; the clock of turns runs as all are served.

        It is never behind the turn that was served last.
        """
        account.turn = place + STEPS_A_BYTE * size // max(account.weight, 1)
        self.turns = max(place, self.turns + STEPS_A_BYTE * size // max(1, self.weights))

    def _leave_line(self, sid: str) -> None:
        if sid in self.line:
            self.line.remove(sid)

    # Consumers.

    def attach(self, sid: str, number: int, name: str, *, durable: bool, ttl_ms: int) -> str:
        cid, name = f"{sid}.{number}", name if self.kind == "topic" else "queue"
        if self.kind == "gate":
            return "KIND"
        self._meet_run(ttl_ms)
        beside = self.shelf.waits or self.shelf.turns or self.shadow.text
        ruled = beside or replace(self.rules, retry=0) != Rules()
        if self.housekeeping(sid):
            self.serve_line()
        if cid in self.orphans or (name in self.shelf.subscriptions and self.shelf.subscriptions[name].ending):
            return "GONE"
        account = self.accounts.setdefault(sid, Account(0, ttl_ms, self.now))
        account.consumers = max(account.consumers, number)
        self._renew(account, ttl_ms)
        sub = self.shelf.subscribe(name, durable=durable or self.kind == "queue")
        if cid not in self.shelf.consumers:
            self.shelf.consumers[cid] = Consumer(name)
            sub.consumers += 1
            if ruled:  # rules are judged anew by the consumers there are
                self.serve_line()
        return "OK"

    def settle(
        self,
        sid: str,
        cid: str,
        accepted: list[int],
        released: list[int],
        failed: list[int],
        *,
        fetch: int,
        ttl_ms: int,
        after: int | None = None,
        room: int = 0,
    ) -> tuple[str, int]:
        """Settle, and serve the line; what a fetch then delivers is looked at by :meth:`deliver`."""
        account, consumer = self.accounts.get(sid), self.shelf.consumers.get(cid)
        if account is None or consumer is None or cid in self.orphans:
            return "EXPIRED", 0
        self._meet_run(ttl_ms)
        if account.seen > self.now:
            self._cut_leases()
        freed = self.housekeeping(sid, room=room if fetch > consumer.fetches else 0)
        sub = self.shelf.subscriptions[consumer.subscription]
        going = [seq for seq in accepted if sub.holders.get(seq) == cid]
        settled, gone = self.shelf.settle(consumer.subscription, going)
        if accepted and not self.shelf.stored:
            self.shelf.largest = 0
        known = 0 < fetch <= consumer.fetches  # a repeated call gives nothing back twice
        for back, as_failed in () if known else ((released, False), (failed, True)):
            mine = sorted({seq for seq in back if sub.holders.get(seq) == cid})
            self.shelf.put_back(consumer.subscription, mine, failed=as_failed, retry=self.rules.retry, after=after)
            settled += len(mine)
        if freed or gone:
            self.serve_line(sid)
        asked = account.seen
        self._renew(account, ttl_ms)
        if sid in self.line:  # it is heard of when it asks
            account.seen = asked
        return "OK", len(accepted) + len(released) + len(failed) - settled

    def deliver(
        self, cid: str, fetch: int, room: Amount, got: list[tuple[int, int]], after: int = 0, waits: int = 0
    ) -> None:
        """Take what a fetch delivered, as (seq, failures), and check that it is what the rules allow.

        Raises:
            AssertionError: it is not.
        """
        consumer = self.shelf.consumers[cid]
        sub = self.shelf.subscriptions[consumer.subscription]
        seqs = [seq for seq, _ in got]
        if fetch == consumer.fetches and fetch > 0:
            assert seqs == [seq for seq in sub.held_by(cid) if seq > after]
            return
        if fetch > consumer.fetches and not room.messages:
            consumer.fetches = fetch
        if fetch <= consumer.fetches:
            assert not seqs
            return
        consumer.fetches = fetch
        if waits and room.messages and self.shelf.awaiting_redelivery() and len(self.shelf.consumers) > 1:
            room = Amount(room.bytes, min(room.messages, waits))  # one each, for others may wait too
        expected = self.shelf.fetch(consumer.subscription, min(room.messages, FETCHED_A_CALL), room.bytes)
        if expected is not None:
            assert seqs == expected
            assert [failures for _, failures in got] == [sub.failures.get(seq, 0) for seq in seqs]
            for seq in seqs:
                sub.deliver(seq, cid)
            return
        if self.shelf.waits:
            expected = self.shelf.fetch_early(consumer.subscription, min(room.messages, FETCHED_A_CALL), room.bytes)
            assert seqs == expected
            assert [failures for _, failures in got] == [sub.failures.get(seq, 0) for seq in seqs]
            for seq in seqs:
                sub.deliver(seq, cid)
            return
        expected = sub.in_order()
        sizes = [self.shelf.stored[seq].size for seq in seqs]
        assert seqs == expected[: len(seqs)]
        assert [failures for _, failures in got] == [sub.failures.get(seq, 0) for seq in seqs]
        assert len(seqs) <= min(room.messages, FETCHED_A_CALL)
        assert sum(sizes) <= room.bytes or len(seqs) == 1
        if len(seqs) < min(len(expected), room.messages, FETCHED_A_CALL):
            assert seqs, "at least one is delivered"
            assert sum(sizes) + self.shelf.largest > room.bytes, "it stops where one more might be too much"
        for seq in seqs:
            sub.deliver(seq, cid)

    def detach(self, sid: str, member: str, *, failed: bool) -> str:
        ending = self.shelf.subscriptions.get(member[1:]) if member.startswith("!") else None
        if ending and (ending.consumers or (self.shelf.turns and member[1:] == "queue")):
            return "BUSY"
        self._meet_run(0)
        code = "OK"
        consumer = self.shelf.consumers.get(member)
        if ending and not ending.ending:
            self._end(member[1:], ending)
        if consumer and not failed and member not in self.orphans:
            sub = self.shelf.subscriptions[consumer.subscription]
            mine = sub.held_by(member)[:MOVED_A_CALL]
            self.shelf.put_back(consumer.subscription, mine, failed=False)
            code = "MORE" if len(mine) == MOVED_A_CALL else "OK"
        if consumer and code == "OK":
            self.orphans.setdefault(member, 0)
        self.housekeeping(sid)
        self.serve_line()
        return "MORE" if member in self.orphans else code

    # Leases, and what the dead leave behind.

    def late(self) -> list[tuple[int, str]]:
        """Return the sessions whose leases are over, and since when, the longest first."""
        return sorted((a.lease_ends, sid) for sid, a in self.accounts.items() if a.lease_ends <= self.now)

    def housekeeping(self, caller: str | None = None, *, orphans: bool = True, room: int = 0) -> bool:
        """Do one bounded piece, before a fetch with that room; returns whether that may have freed room."""
        due = self.late()
        for _, sid in due[:LEASES_A_CALL]:
            account = self.accounts[sid]
            if sid == caller:
                continue
            if account.strike is not None and account.strike + account.grace <= self.now:
                self._drop(sid)
                continue
            if account.strike is None or account.strike > self.now:
                account.strike = self.now
            account.lease_ends = account.strike + account.grace
        self.shelf.now = self.now
        if orphans:
            self.shelf.promote(0 if self.orphans else room)
        worked = orphans and bool(self.orphans)
        if worked:
            _, member = min((since, member) for member, since in self.orphans.items())
            self.orphans[member] = self.now
            done = self._drain_subscription(member[1:]) if member[0] == "!" else self._drain_consumer(member)
            if done:
                del self.orphans[member]
        return worked or bool(due)

    def reap(self) -> str:
        self._meet_run(0)
        self._cut_leases()
        if self.housekeeping():
            self.serve_line()
        return "OK"

    def _cut_leases(self) -> None:
        """Have none of the leases that end last end later than if its session had called now."""
        latest = sorted(((a.lease_ends, sid) for sid, a in self.accounts.items()), reverse=True)
        for _, sid in latest[:LEASES_A_CALL]:
            account = self.accounts[sid]
            account.lease_ends = min(account.lease_ends, self.now + account.ttl_ms * 6 // 10)

    def change(self, limit: Amount, rules: Rules) -> str:
        self._meet_run(0)
        if (limit, rules) == (self.limit, self.rules):
            return "OK"
        self.limit, self.rules, self.shut = limit, rules, False
        self.take_turns()
        self.housekeeping()
        self.serve_line()
        return "OK"

    def pause(self, ms: int) -> str:
        if self.kind != "gate":
            return "KIND"  # and nothing is written
        self._meet_run(0)
        held = self.held[1] if self.held is not None and self.held[0] <= self.now < self.held[1] else 0
        ends = max(self.now + ms, held)
        self.held = (self.now, ends) if ms else None
        self.ramp = (ends, ends + min(ends - self.now, SLOWLY_MS)) if ms else None
        self.serve_line()
        return "OK"

    def discard(self, seq: int) -> str:
        if (why := self.shelf.why_kept(seq)) is not None:
            return why
        self._meet_run(0)
        self.shelf.discard(seq)
        self.housekeeping()
        self.serve_line()
        return "OK"

    def purge(self) -> None:
        self._meet_run(0)
        self.shelf.purge()
        self.housekeeping()
        self.serve_line()

    def _renew(self, account: Account, ttl_ms: int) -> None:
        account.renew(self.now, ttl_ms)
        self.longest_ttl = max(self.longest_ttl, ttl_ms)

    def _drop(self, sid: str) -> None:
        account = self.accounts.pop(sid)
        self._leave_line(sid)
        for number in range(1, account.consumers + 1):
            if f"{sid}.{number}" in self.shelf.consumers:
                self.orphans.setdefault(f"{sid}.{number}", self.now)

    def _end(self, name: str, sub: Subscription) -> None:
        sub.ending = True
        self.orphans.setdefault(f"!{name}", self.now)

    def _drain_consumer(self, cid: str) -> bool:
        consumer = self.shelf.consumers.get(cid)
        sub = self.shelf.subscriptions.get(consumer.subscription) if consumer else None
        if consumer and sub:
            mine = sub.held_by(cid)[:MOVED_A_CALL]
            self.shelf.put_back(consumer.subscription, mine, failed=True, retry=self.rules.retry)
            if len(mine) == MOVED_A_CALL:
                return False
            sub.consumers -= 1
            if not sub.consumers and not sub.durable and not sub.ending:
                self._end(consumer.subscription, sub)
        self.shelf.consumers.pop(cid, None)
        return True

    def _drain_subscription(self, name: str) -> bool:
        sub = self.shelf.subscriptions.get(name)
        if sub:
            going = (sub.held_by(RETURNED) + sub.held_by(LATER) + sub.unread)[:MOVED_A_CALL]
            for seq in going:
                sub.deliver(seq, RETURNED)
            self.shelf.settle(name, going)
            if not self.shelf.stored:
                self.shelf.largest = 0
            if len(going) == MOVED_A_CALL:
                return False
            del self.shelf.subscriptions[name]
        return True

    def _met(self) -> tuple[int, str, int, int, int, tuple[int, int, int]]:
        return self.epoch, self.known_run, self.learning_until, self.shelf.seq, self.longest_ttl, self.losses

    def _forget(self, met: tuple[int, str, int, int, int, tuple[int, int, int]]) -> None:
        """What is refused writes nothing, the run of the server that it met included."""
        self.epoch, self.known_run, self.learning_until, self.shelf.seq, self.longest_ttl, self.losses = met

    def _meet_run(self, ttl_ms: int) -> None:
        """A run of the server that the state has not seen may have lost some of it: claim, and grant nothing new.

        One that has all that the run before had lost nothing.
        """
        if self.run != self.known_run:
            self.known_run = self.run
            if not self.handed_over:
                self._begin_epoch(ttl_ms)
        self.learning_until = min(self.learning_until, self.now + self.longest_ttl)

    def _begin_epoch(self, ttl_ms: int) -> None:
        self.losses = (self.losses[0] + 1, self.losses[1], 0)
        self.epoch = max(self.epoch + 1, self.now)
        self.shelf.seq = max(self.shelf.seq, self.now * 1000)
        leases = [account.ttl_ms for account in self.accounts.values()]
        self.longest_ttl = max(ttl_ms, max(leases, default=self.longest_ttl))
        self.learning_until = self.now + self.longest_ttl
