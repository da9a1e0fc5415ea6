"""Random calls to the scripts and to the model of them: both must answer alike, and what there is must be alike."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headgate.redis.replies import Credit
from headgate.redis.stores.limiters import LimiterStore
from headgate.redis.stores.moves import MoveStore
from tests.lua.observing import Observation, observe, seq_of, would_have_waited
from tests.lua.world import Client, Reader, World, text, wire
from tests.model.credit import NOTHING, UNLIMITED, Amount, Answer, Rules, Totals
from tests.model.destination import Destination
from tests.model.shadow import Shadow

BEGIN_MS: Final = 1_800_000_000_000
SESSIONS: Final = ("ann", "bob", "cid", "dan")
SUBSCRIPTIONS: Final = ("red", "blue")
TTL_MS: Final = 10_000

amounts = st.integers(0, 60)
weights = st.sampled_from((1, 1, 1, 2, 3, 0))
sessions = st.sampled_from(SESSIONS)
repeats = st.sampled_from((0, 0, 0, 1, 2))
limits = st.builds(
    Amount,
    st.sampled_from((100, 160, 400, 60, UNLIMITED)),
    st.sampled_from((UNLIMITED, UNLIMITED, 12, 5)),
)
rules_beside = st.one_of(
    st.just(Rules()),
    st.builds(
        Rules, off=st.sampled_from((False, False, True)), stopped=st.sampled_from((False, False, False, True)),
        resume=st.sampled_from((None, 20, 50)), allow_one=st.booleans(),
        fair=st.sampled_from(("", "header:tenant", "priority")),
        retry=st.sampled_from((0, 0, 300, 2000)),
    ),
)  # fmt: skip
shadows = st.sampled_from((
    "", "bytes at_once 60;messages at_once 3", "messages at_once 1;rate rate 2.0 3", "byte_rate rate 20.0 30",
))  # fmt: skip


class Machine(RuleBasedStateMachine):
    """Drives one destination. ``world`` and ``kind`` are set by whoever runs it."""

    world: World
    kind: str

    def __init__(self) -> None:
        super().__init__()
        self.store = self.world.store
        self.clients = {sid: Client(sid) for sid in SESSIONS}
        self.readers: dict[str, Reader] = {}
        self.said: list[Callable[[], None]] = []
        self.runs = 1
        self.run_before = "run0"
        self.usage = NOTHING
        self.now = BEGIN_MS
        self.address = self.world.address()
        self.model = Destination(self.kind, NOTHING, self.now, "run1")
        self.world.server.run = b"run1"

    @initialize(limit=limits, rules=rules_beside, consumers=st.sampled_from((1, 2, 3, 0)), shadow=shadows)
    def create(self, limit: Amount, rules: Rules, consumers: int, shadow: str = "") -> None:
        self.set_clock()
        self.model.shadow.text = "" if self.kind == "gate" else shadow
        self.apply(limit, rules, "ensure")
        self.model.limit, self.model.rules = limit, rules
        self.model.take_turns()
        for number in range(consumers):
            self.attach(SESSIONS[number], 1, SUBSCRIPTIONS[number % 2], durable=number == 1, times=0)

    def teardown(self) -> None:
        self.world.run(self.world.server.forget(self.address, *SESSIONS))

    # Calls, each to both sides.

    def set_clock(self) -> None:
        self.world.run(self.world.server.set_clock(self.address, self.now))
        self.model.now = self.now

    def apply(self, limit: Amount, rules: Rules, mode: Any) -> str:
        settings = {
            "limit_bytes": text(limit.bytes),
            "limit_messages": text(limit.messages),
            "enforce": "off" if rules.off else "",
            "stopped": "for a while" if rules.stopped else "",
            "resume_bytes": "" if rules.resume is None else str(rules.resume),
            "oversize": "allow-one" if rules.allow_one else "",
            "fair_by": rules.fair,
            "fair_weights": "7=2" if rules.fair == "header:tenant" else "",
            "max_overtaken": "16" if rules.fair == "priority" else "",
            "retry_delay_ms": str(rules.retry) if rules.retry else "",
            "retry_factor": "2.0" if rules.retry else "",
            "retry_max_ms": str(3 * rules.retry) if rules.retry else "",
            "shadow": self.model.shadow.text,
        }
        if mode != "change":
            settings["kind"] = self.kind
        code, _ = self.world.run(self.store.apply(self.address, settings, mode=mode, ttl_ms=TTL_MS))
        return str(code)

    def repeatedly(self, call: Callable[[], None], times: int) -> None:
        """Make a call once and then again; only housekeeping that was not done yet may change anything more."""
        call()
        for _ in range(times):
            leases = [account.lease_ends for account in self.model.accounts.values()]
            idle = not self.model.orphans and all(until > self.now for until in [*leases, *self.model.shelf.moments()])
            before = self.essence() if idle else None
            call()
            assert before is None or before == self.essence(), "a repeated call changed something"
        self.said.append(call)

    def essence(self) -> Any:
        """What a repeated call must leave as it is."""
        seen = self.look()
        totals = ("inc", "granted", "used", "returned", "granted_m", "used_m", "returned_m", "need", "want", "weight")
        accounts = {sid: [s[name] for name in totals] for sid, s in seen.sessions.items()}
        return seen.messages, seen.holders, seen.line, accounts, seen.failures, seen.references, seen.orphans

    def look(self) -> Observation:
        seen = self.world.run(observe(self.world.server, self.address))
        assert seen is not None
        return seen  # type: ignore[no-any-return]

    def acquire(self, totals: Totals, *, leave: bool = False, resume: bool = False) -> Credit:
        credit: Credit = self.world.run(
            self.store.acquire(
                self.address, wire(totals), ttl_ms=totals.ttl_ms, leave=leave, resume=resume, sent=totals.sent
            )
        )
        self.compare(credit, self.model.acquire(totals, leave=leave, resume=resume))
        return credit

    def publish(
        self, totals: Totals, seq: int, sizes: tuple[int, ...], keys: tuple[str, ...] = (), later: tuple[str, ...] = ()
    ) -> Credit:
        bodies = [b"x" * size for size in sizes]
        credit: Credit = self.world.run(
            self.store.publish(
                self.address, wire(totals), seq=seq, bodies=bodies, ttl_ms=totals.ttl_ms, keys=" ".join(keys),
                later=" ".join(later),
            )
        )  # fmt: skip
        self.compare(credit, self.model.publish(totals, seq, list(sizes), list(keys), list(later)))
        return credit

    @staticmethod
    def compare(credit: Credit, answer: Answer) -> None:
        assert (credit.code, credit.epoch) == (answer.code, answer.epoch)
        if credit.code in ("OK", "DUPLICATE", "LEFT", "OVERUSE"):
            assert Amount(credit.granted, credit.granted_m) == answer.granted
        if credit.code in ("OK", "DUPLICATE", "LEFT"):
            assert (credit.place, credit.blocked, credit.first) == (answer.place, answer.blocked, answer.first)
            assert credit.lost == answer.lost

    # Producers.

    @rule(
        sid=sessions, more=amounts, messages=st.integers(0, 2), window=amounts, back=amounts, weight=weights,
        ttl=st.sampled_from((TTL_MS, TTL_MS, 1000)), times=repeats,
    )  # fmt: skip
    def ask(
        self, sid: str, more: int, messages: int, window: int, back: int, weight: int, ttl: int, times: int
    ) -> None:
        client = self.clients[sid]
        if not more:  # who waits for nothing may give back what is in hand
            client.returned += Amount(back, messages).least(client.in_hand).most(NOTHING)
        need = Amount(more, messages + 1 if more else 0)
        totals = replace(client.totals(need, Amount(window, window // 8), weight), ttl_ms=ttl)
        self.repeatedly(lambda: client.hear(self.acquire(totals)), times)

    def claim_wildly(self, sid: str, granted: int, used: int, returned: int, behind: int) -> None:
        """As a client with a defect might, or one that slept through a failover."""
        client = self.clients[sid]
        totals = replace(
            client.totals(NOTHING, Amount(20, 2), 1),
            epoch=max(0, client.epoch - behind),
            granted=Amount(granted, granted // 8),
            used=Amount(used, used // 8),
            returned=Amount(returned, returned // 8),
        )
        client.hear(self.acquire(totals))

    def open_anew(self, sid: str) -> None:
        """As a session that has forgotten, or never heard, what it has."""
        client = self.clients[sid]
        client.hear(Credit("EXPIRED"))
        totals = client.totals(Amount(10, 1), Amount(20, 2), 1)
        self.repeatedly(lambda: client.hear(self.acquire(totals)), 1)

    def leave(self, sid: str, *, keep: bool = False) -> None:
        totals = self.clients[sid].totals(NOTHING, NOTHING, 0)

        def call() -> None:
            self.acquire(totals, leave=True, resume=keep)

        self.repeatedly(call, 1)
        self.clients[sid].hear(Credit("LEFT"))

    @precondition(lambda self: self.kind != "gate")
    @rule(
        sid=sessions, sizes=st.lists(st.integers(1, 25), min_size=1, max_size=4), more=amounts, window=amounts,
        too_much=st.sampled_from((False,) * 7 + (True,)), skip=st.sampled_from((0, 0, 0, 3)), times=repeats,
        later=st.sampled_from(("", "", "400", "@400", "@-1", "3000")),
    )  # fmt: skip
    def send(
        self, sid: str, sizes: list[int], more: int, window: int, too_much: bool, skip: int, times: int, later: str = ""
    ) -> None:
        client = self.clients[sid]
        if client.in_hand == NOTHING:
            self.ask(sid, sum(sizes), 1, sum(sizes), 0, 1, TTL_MS, 0)
        while sizes and not too_much and not Amount(sum(sizes), len(sizes)).fits(client.in_hand):
            sizes = sizes[:-1]
        if not sizes:
            return
        spent = Amount(sum(sizes), len(sizes))
        totals = client.totals(NOTHING, spent + Amount(window, window // 8), 1)
        if more:
            totals = replace(totals, need=client.used + client.returned + spent + Amount(more, 1))
        seq = client.next_seq + skip
        keys = tuple("a70*"[(seq + size) % 4] for size in sizes)
        moment = f"@{self.now + int(later[1:])}" if later[:1] == "@" else later
        when = tuple((moment, "-")[(seq + at) % 2] for at in range(len(sizes))) if later else ()
        codes: list[str] = []

        def call() -> None:
            answer = self.publish(totals, seq, tuple(sizes), keys, when)
            codes.append(answer.code)
            client.hear(answer)

        self.repeatedly(call, times)
        if "OK" in codes:
            client.used += spent
            client.next_seq = seq + len(sizes)

    send_more = send
    send_most = send

    @precondition(lambda self: any(client.next_seq > 1 for client in self.clients.values()))
    @rule(data=st.data(), behind=st.integers(1, 5))
    def send_an_old_batch(self, data: st.DataObject, behind: int) -> None:
        client = data.draw(st.sampled_from([client for client in self.clients.values() if client.next_seq > 1]))
        totals = client.totals(NOTHING, NOTHING, 1)
        self.publish(totals, max(1, client.next_seq - behind), (1,))

    @precondition(lambda self: self.model.line)
    @rule(data=st.data(), times=repeats)
    def give_a_ticket(self, data: st.DataObject, times: int) -> None:
        """As who found a deadlock does: one message goes above the limit."""
        sid = data.draw(st.sampled_from(self.model.line))
        since = self.look().sessions[sid]["since"]

        def call() -> None:
            there = self.look().sessions.get(sid, {}).get("since") == since
            code = self.world.run(self.store.resolve(self.address, sid, since=since, mode="ticket"))
            assert code == (self.model.ticket(sid) if there else "GONE")
            if code == "OK":
                self.usage = self.model.pending + self.model.leased

        self.repeatedly(call, times)

    # Consumers.

    def attach(self, sid: str, number: int, name: str, durable: bool, times: int) -> None:
        def call() -> None:
            code, _ = self.world.run(
                self.store.attach(
                    self.address, sid, number=number, subscription=name, durable=durable, window="9/99", ttl_ms=TTL_MS
                )
            )
            assert code == self.model.attach(sid, number, name, durable=durable, ttl_ms=TTL_MS)

        known = f"{sid}.{number}" in self.model.shelf.consumers
        self.repeatedly(call, times)
        reader = Reader(sid, number)
        if reader.cid in self.model.shelf.consumers and not known:
            self.readers[reader.cid] = reader

    @precondition(lambda self: self.readers and self.model.shelf.stored)
    @rule(
        data=st.data(), settle=st.booleans(), fetch=st.sampled_from((1, 1, 1, 0)), room=st.integers(0, 8),
        room_bytes=st.integers(1, 80), times=repeats, waits=st.integers(0, 2),
        wait=st.sampled_from((None, None, None, 0, 500)),
    )  # fmt: skip
    def receive(
        self, data: st.DataObject, settle: bool, fetch: int, room: int, room_bytes: int, times: int, waits: int,
        wait: int | None,
    ) -> None:  # fmt: skip
        reader = self.readers[data.draw(st.sampled_from(sorted(self.readers)))]
        fates: tuple[list[str], ...] = ([], [], [], [])
        if settle and reader.got:
            chosen = st.lists(st.sampled_from(sorted(reader.got.values())), max_size=4)
            fates = tuple(data.draw(chosen) for _ in range(4))
            if set(fates[0] + fates[1]) - self.held_now(reader):
                times = 0  # it settles what it gave back: repeated after the redelivery, that is another settlement
        number = reader.fetches + 1 if fetch else 0
        reader.fetches = max(reader.fetches, number)
        self.repeatedly(
            lambda: self.settle(reader, number, Amount(room_bytes, room), fates, waits=waits, wait=wait), times
        )

    receive_more = receive

    def held_now(self, reader: Reader) -> set[str]:
        consumer = self.model.shelf.consumers.get(reader.cid)
        sub = self.model.shelf.subscriptions.get(consumer.subscription) if consumer else None
        return {reader.got[seq] for seq in sub.held_by(reader.cid) if seq in reader.got} if sub else set()

    @precondition(lambda self: any(reader.fetches for reader in self.readers.values()))
    @rule(data=st.data(), late=st.integers(0, 2), known=st.booleans())
    def fetch_again(self, data: st.DataObject, late: int, known: bool) -> None:
        cid = data.draw(st.sampled_from(sorted(cid for cid, reader in self.readers.items() if reader.fetches)))
        reader = self.readers[cid]
        after = max(reader.got, default=0) if known else 0
        self.settle(reader, max(1, reader.fetches - late), Amount(50, 5), ([], [], [], []), after=after)

    def settle(
        self, reader: Reader, fetch: int, room: Amount, fates: tuple[list[str], ...], *, after: int = 0, waits: int = 0,
        wait: int | None = None,
    ) -> None:  # fmt: skip
        accepted, rejected, released, failed = fates
        if wait is not None:
            released, failed = ([f"{identifier}+{wait}" for identifier in ids] for ids in (released, failed))
        reply = self.world.run(
            self.store.settle(
                self.address, reader.session, reader.cid, ttl_ms=TTL_MS, fetch=fetch, max_messages=room.messages,
                max_bytes=room.bytes, after=reader.got.get(after, "0"), waits=waits, accepted=accepted,
                released=released, rejected=rejected, failed=failed,
            )
        )  # fmt: skip
        numbers = [[seq_of(identifier) for identifier in ids] for ids in (accepted + rejected, released, failed)]
        consumer = self.model.shelf.consumers.get(reader.cid)
        again = bool(consumer and consumer.fetches == fetch > 0)
        code, stale = self.model.settle(
            reader.session, reader.cid, *numbers, fetch=fetch, ttl_ms=TTL_MS, after=wait, room=room.messages
        )
        assert (reply.code, reply.stale) == ("AGAIN" if code == "OK" and again else code, stale)
        if code != "OK":
            return
        messages = [(raw.decode(), body, failures) for raw, body, failures in reply.messages]
        for identifier, body, _ in messages:
            assert identifier == f"{seq_of(identifier)}-{len(body)}"
        got = [(seq_of(identifier), 0 if again else failures) for identifier, _, failures in messages]
        self.model.deliver(reader.cid, fetch, room, got, after if after in reader.got else 0, waits)
        reader.got |= {seq_of(identifier): identifier for identifier, _, _ in messages}

    def detach(self, data: st.DataObject, *, failed: bool, times: int) -> None:
        if not self.readers:
            return
        reader = self.readers[data.draw(st.sampled_from(sorted(self.readers)))]
        self.repeatedly(lambda: self.end(reader.session, reader.cid, failed=failed), times)

    def unsubscribe(self, data: st.DataObject, times: int) -> None:
        there = set(self.model.shelf.subscriptions) - {"queue"}  # which stays while keys take turns
        name = data.draw(st.sampled_from((*sorted(there), "none")))
        self.repeatedly(lambda: self.end("ann", f"!{name}", failed=False), times)

    def end(self, sid: str, member: str, *, failed: bool) -> None:
        code = self.world.run(self.store.detach(self.address, sid, member, failed=failed))
        assert code == self.model.detach(sid, member, failed=failed)

    # The operator, time, and mishaps.

    def change(self, limit: Amount, rules: Rules, times: int) -> None:
        def call() -> None:
            assert self.apply(limit, rules, "change") == self.model.change(limit, rules)

        self.repeatedly(call, times)

    def reap(self, times: int) -> None:
        def call() -> None:
            code, _ = self.world.run(self.store.reap(self.address))
            assert code == self.model.reap()

        self.repeatedly(call, times)

    def pause(self, ms: int, times: int) -> None:
        def call() -> None:
            code, _ = self.world.run(LimiterStore(self.world.server).pause(self.address, "ann", ms=ms, reason="429"))
            assert code == self.model.pause(ms)

        self.repeatedly(call, times)

    def purge(self) -> None:
        pending = self.model.pending
        assert self.world.run(self.store.remove(self.address, everything=False)) == (pending.messages, pending.bytes)
        self.model.purge()

    def discard(self, number: int) -> None:
        """Delete one message, or try to: it is not there, or somebody has it."""
        stored = sorted(self.model.shelf.stored)
        seq = stored[number % len(stored)] if stored else 1
        size = self.model.shelf.stored[seq].size if stored else 1
        code, _ = self.world.run(MoveStore(self.world.server).discard(self.address, f"{seq}-{size}"))
        assert code == ("KIND" if self.kind == "gate" else self.model.discard(seq))

    @rule(ms=st.sampled_from((1, 50, 400, 1000, 1000, 2500, 3500)))
    def pass_time(self, ms: int) -> None:
        self.now += ms
        self.set_clock()

    def restart(self, *, back: bool) -> None:
        """The server comes back with its state, so that what it may have lost is claimed; or the one before it does."""
        self.runs += 1
        before, self.run_before = self.run_before, self.model.run
        self.model.run, self.model.handed_over = before if back else f"run{self.runs}", False
        self.world.server.run = self.model.run.encode()

    def hand_over(self) -> None:
        """A replica that has everything takes the server's place."""
        self.runs += 1
        self.run_before, self.model.run, self.model.handed_over = self.model.run, f"run{self.runs}", True
        self.world.server.run = f"{self.model.run}<{self.model.known_run}".encode()

    def lose_everything(self, *, recover: bool) -> None:
        self.world.run(self.world.server.forget(self.address, *SESSIONS))
        self.set_clock()
        self.apply(self.model.limit, self.model.rules, "recover" if recover else "ensure")
        self.model = Destination(
            self.kind, self.model.limit, self.now, self.model.run, rules=self.model.rules,
            learning_until=self.now + TTL_MS if recover else 0, losses=(int(recover), 0, 0),
            shadow=Shadow(self.model.shadow.text),
        )  # fmt: skip
        self.model.shelf.seq = self.now * 1000 if recover else 0
        self.said.clear()  # a repeated apply would not change an existing destination
        self.readers.clear()
        self.usage = NOTHING

    @rule(
        what=st.sampled_from((
            *("leave", "keep", "open", "wild", "jump") * 2, "restart", "restart", "hand over", "purge", "discard",
            "lose",
        )),
        sid=sessions, granted=amounts, used=amounts, returned=amounts, behind=st.integers(0, 1),
        ms=st.sampled_from((6000, 6000, 10_000, 3_600_000, -3000)),
    )  # fmt: skip
    def mishap(self, what: str, sid: str, granted: int, used: int, returned: int, behind: int, ms: int) -> None:
        """What is rare in life is rare here: most of an example runs on what earlier steps built up."""
        match what:
            case "leave" | "keep":
                self.leave(sid, keep=what == "keep")
            case "open":
                self.open_anew(sid)
            case "wild":
                self.claim_wildly(sid, granted, used, returned, behind)
            case "jump":
                if ms < 0:  # it ends a hold-off once somebody calls, which has a test of its own
                    self.pause(0, 0)
                self.pass_time(ms)
            case "purge":
                self.purge()
            case "discard":
                self.discard(granted)
            case "restart":
                self.restart(back=behind == 0)
            case "hand over":
                self.hand_over()
            case _:
                self.lose_everything(recover=behind == 1)

    @rule(
        data=st.data(), limit=limits, rules=rules_beside, times=repeats,
        what=st.sampled_from(
            ("attach", "attach", "reap", "detach", "detach failed", "unsubscribe", "limit", "limit", "pause")
        ),
        sid=sessions, number=st.integers(1, 2), name=st.sampled_from(SUBSCRIPTIONS), durable=st.booleans(),
        ms=st.sampled_from((0, 400, 3000)),
    )  # fmt: skip
    def administer(
        self, data: st.DataObject, limit: Amount, rules: Rules, times: int, what: str, sid: str, number: int, name: str,
        durable: bool, ms: int,
    ) -> None:  # fmt: skip
        match what:
            case "attach":
                self.attach(sid, number, name, durable, times)
            case "reap":
                self.reap(times)
            case "unsubscribe":
                self.unsubscribe(data, times)
            case "limit":
                self.change(limit, rules, times)
            case "pause":
                self.pause(ms, times)
            case _:
                self.detach(data, failed=what == "detach failed", times=times)

    @precondition(lambda self: self.said)
    @rule(back=st.integers(1, 20))
    def say_again_late(self, back: int) -> None:
        self.said[-min(back, len(self.said))]()

    # What always holds.

    @invariant()
    def all_is_well(self) -> None:
        seen = self.look()
        self.what_is_counted_is_there()
        self.nothing_grows_beyond_the_limit(seen)
        self.accounts_are_alike(seen)
        self.messages_are_alike(seen)
        assert would_have_waited(seen) == self.model.shadow.told

    def what_is_counted_is_there(self) -> None:
        count = self.world.run(self.store.recount(self.address))
        assert count.equal, count
        assert min(count.stored) >= 0

    def nothing_grows_beyond_the_limit(self, seen: Observation) -> None:
        usage = seen.pending + seen.leased
        if not self.model.rules.off and not self.model.rules.allow_one:
            assert usage.fits(self.model.limit.most(self.usage))
        self.usage = usage

    def accounts_are_alike(self, seen: Observation) -> None:
        model = self.model
        assert (seen.pending, seen.leased, seen.line) == (model.pending, model.leased, model.line)
        assert (seen.number("epoch"), seen.number("learning_until")) == (model.epoch, model.learning_until)
        counted = (seen.fields.get(name, "0") for name in ("epochs", "lost_messages", "epoch_lost"))
        assert tuple(map(int, counted)) == model.losses
        assert seen.leases == {sid: account.lease_ends for sid, account in model.accounts.items()}
        assert {sid: (seen.granted(sid), seen.held(sid)) for sid in seen.sessions} == {
            sid: (account.granted, account.held) for sid, account in model.accounts.items()
        }
        assert all(seen.held(sid).bytes >= 0 and seen.held(sid).messages >= 0 for sid in seen.sessions)

    def messages_are_alike(self, seen: Observation) -> None:
        shelf = self.model.shelf
        assert {seq: len(body) for seq, body in seen.messages.items()} == {
            seq: message.size for seq, message in shelf.stored.items()
        }
        assert sorted(seen.orphans) == sorted(self.model.orphans)
        assert sorted(seen.consumers) == sorted(shelf.consumers)
        assert {name: int(s["consumers"]) for name, s in seen.subscriptions.items()} == {
            name: sub.consumers for name, sub in shelf.subscriptions.items()
        }
        for name, sub in shelf.subscriptions.items():
            held = {seq: who for seq, who in seen.holders[name].items() if who != "~ended"}
            assert held == sub.holders
        assert seen.failures == {
            f"{name}|{seq}-{shelf.stored[seq].size}": count
            for name, sub in shelf.subscriptions.items()
            for seq, count in sub.failures.items()
        }
        counted = {seq: len(m.waited_for_by) for seq, m in shelf.stored.items()}
        assert all(counted[seq] == left for seq, left in seen.references.items())
        assert all(left == 1 or seq in seen.references for seq, left in counted.items())
        assert seen.number("returned") == seen.returned
        turns = shelf.turns
        assert seen.fair == {(key, seq) for key, line in (turns.filed if turns else {}).items() for seq in line}
        assert seen.rota == (turns.rota if turns else {}), (seen.rota, turns)
        assert seen.later == {f"{seq}-{shelf.stored[seq].size}": moment for seq, moment in shelf.sent.items()} | {
            f"{name}|{seq}-{shelf.stored[seq].size}": moment
            for name, sub in shelf.subscriptions.items()
            for seq, moment in sub.later.items()
        }
        assert int(seen.fields.get("next_due", 0)) == min(seen.later.values(), default=0)
        assert seen.number("orphans") == len(seen.orphans)
        assert seen.number("consumers") == len(seen.consumers)
        assert seen.number("subscriptions") == len(shelf.live())
