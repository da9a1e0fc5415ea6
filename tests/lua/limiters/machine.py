"""Random calls to a limiter. The plain model does what its ledger says, and must allow it."""

import re
from typing import Any, Final

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headgate.redis.stores.limiters import HoldCall, LimiterStore
from tests.lua.place import BEGIN_MS
from tests.lua.world import World
from tests.model.adaptive import Adaptive
from tests.model.bands import USUAL, Bands, Waiter
from tests.model.limiter import ALL, Limit, Limiter
from tests.support.audited import audit

TTL_MS: Final = 5000
SESSIONS: Final = ("ann", "bob", "cid")
KEYS: Final = ("*", "t1", "t2")
FORMS: Final = {
    "tokens": st.builds(
        Limit, st.just("tokens"), st.just("rate"), st.integers(1, 50), st.sampled_from((1.0, 10.0, 33.3))
    ),
    "slots": st.builds(Limit, st.just("slots"), st.just("at_once"), st.integers(1, 8)),
    "seats": st.builds(Limit, st.just("seats"), st.just("at_once"), st.integers(1, 4)),
    "mails": st.builds(Limit, st.just("mails"), st.just("quota"), st.integers(1, 30)),
}
OF_ALL: Final = FORMS | {
    "slots": st.one_of(
        FORMS["slots"],
        st.builds(
            Limit, st.just("slots"), st.just("at_once"), st.integers(4, 9), floor=st.integers(1, 4),
            adapt=st.sampled_from(("aimd", "gradient")),
        ),
    ),
}  # fmt: skip
"""Those of all keys together may adapt."""
KEY_BANDS: Final = {"t2": 5}
MOST_PATIENCE_MS: Final = 300_000
some_shares = st.dictionaries(st.integers(0, 7), st.sampled_from((250, 500, 800)), max_size=2)
some_limits = st.lists(st.sampled_from(sorted(FORMS)), min_size=1, unique=True)
some_shadows = st.lists(st.sampled_from(sorted(FORMS)), unique=True)
numbers = st.fixed_dictionaries({}, optional={name: st.integers(0, 12) for name in FORMS})


def shares_text(shares: dict[int, int]) -> str:
    return ";".join(f"{band}={share}" for band, share in sorted(shares.items()))


def amounts_text(amounts: dict[str, int]) -> str:
    return ",".join(f"{name}={number}" for name, number in amounts.items()) or "-"


class Machine(RuleBasedStateMachine):
    """Drives one limiter. ``world`` is set by whoever runs it."""

    world: World

    def __init__(self) -> None:
        super().__init__()
        self.store = LimiterStore(self.world.server)
        self.address = self.world.address()
        self.now = BEGIN_MS
        self.seq = dict.fromkeys(SESSIONS, 0)
        self.last: dict[str, tuple[int, tuple[HoldCall, ...], Any]] = {}
        self.numbers = dict.fromkeys(SESSIONS, 0)
        self.seen = self.tickets = 0
        self.decides = False

    @initialize(
        data=st.data(), names=some_limits, of_keys=some_limits, shadowed=some_shadows, key_shadowed=some_shadows,
        alone=st.booleans(), by_deadline=st.booleans(), aging=st.sampled_from((0.005, 0.05, 0.5)),
    )  # fmt: skip
    def create(
        self, data: st.DataObject, names: list[str], of_keys: list[str], shadowed: list[str], key_shadowed: list[str],
        alone: bool, by_deadline: bool, aging: float,
    ) -> None:  # fmt: skip
        """Make it. Where one limit stands ``alone`` the model knows of each that is let in whether it was its turn."""
        limits = {name: data.draw(OF_ALL[name]) for name in (names[:1] if alone else names)}
        key_limits = {name: data.draw(FORMS[name]) for name in of_keys if name in limits and not alone}
        shadows = {name: data.draw(FORMS[name]) for name in shadowed if name in limits}
        key_shadows = {name: data.draw(FORMS[name]) for name in key_shadowed if name in limits}
        reserve, shed = data.draw(some_shares), data.draw(some_shares)
        self.model = Limiter(limits, key_limits, reserve, shed, shadows=shadows, key_shadows=key_shadows)
        self.alone, self.by_deadline, self.line = (limits[names[0]] if alone else None), by_deadline, Bands(aging)
        self.bands: dict[str, int] = {}
        self.wanted: dict[str, dict[str, int]] = {}
        self.asked: set[str] = set()
        self.counts = {band: [0, 0] for band in range(8)}
        self.adaptive = next((Adaptive(limit) for limit in limits.values() if limit.adapt), None)
        if self.adaptive is not None:
            self.model.now_most[self.adaptive.limit.name] = self.adaptive.most
        self.noted: dict[str, set[tuple[str, str]]] = {}
        self.would_wait = 0
        self.tick(0)
        settings = {
            "kind": "limiter", "limits": ";".join(limit.text for limit in limits.values()),
            "key_limits": ";".join(limit.text for limit in key_limits.values()),
            "shadow_limits": ";".join(limit.text for limit in shadows.values()),
            "shadow_key_limits": ";".join(limit.text for limit in key_shadows.values()),
            "bands": "t2=5", "aging": f"{aging:g}", "order": "deadline" if by_deadline else "",
            "reserve": shares_text(reserve), "shed": shares_text(shed),
        }  # fmt: skip
        self.world.run(self.world.store.apply(self.address, settings, mode="ensure", ttl_ms=TTL_MS))

    def tick(self, ms: int) -> None:
        self.now += ms
        self.world.run(self.world.server.set_clock(self.address, self.now))

    def known(self, amounts: dict[str, int]) -> dict[str, int]:
        return {name: number for name, number in amounts.items() if name in self.model.limits}

    def call(self, session: str, *calls: HoldCall) -> None:
        self.seq[session] += 1
        answers = self.world.run(self.store.admit(self.address, session, seq=self.seq[session], epoch=0, calls=calls))
        assert answers.code == "OK"
        self.last[session] = (self.seq[session], calls, answers)
        self.follow()

    @rule(
        session=st.sampled_from(SESSIONS),
        key=st.sampled_from(KEYS),
        amounts=numbers,
        wait=st.sampled_from((0, 9000)),
        times=st.integers(1, 3),
        band=st.sampled_from(("", "", "~0", "~1", "~7", "~3")),
    )
    def admit(self, session: str, key: str, amounts: dict[str, int], wait: int, times: int, band: str) -> None:
        calls, wanted = [], self.known(amounts)
        if self.alone is not None:  # small amounts that wait: lines of several bands, of which one after the other goes
            wanted, times, wait = {self.alone.name: 1 + amounts.get(self.alone.name, 0) // 10}, 1, wait or 9000
        for _ in range(times):
            self.numbers[session] += 1
            text = amounts_text(wanted) + band
            calls.append(HoldCall("admit", f"{session}.{self.numbers[session]}", key, text, TTL_MS, wait))
            best = KEY_BANDS.get(key)
            self.bands[calls[-1].id] = max(int(band[1:]) if band else best or USUAL, best or 0)
        self.asked = {call.id for call in calls}
        self.call(session, *calls)
        self.asked = set()
        for call, answer in zip(calls, self.last[session][2].answers, strict=True):
            self.judge(call, answer, only=len(calls) == 1)

    def judge(self, call: HoldCall, answer: str, *, only: bool) -> None:
        """See that what was not let in was shed as far as limits are filled so far, and note whoever waits."""
        band, (word, *said) = self.bands[call.id], answer.split(" ")
        if word in ("held", "limit"):
            return
        above, fills = self.model.shed_above(band), self.fills(call.key, self.amounts(call.amounts))
        if word == "shed":
            assert above is not None
            assert above <= int(said[1]) <= fills[said[2], said[3]] + 1
            assert int(said[0]) == band
            assert not only or int(said[1]) >= fills[said[2], said[3]] - 1
            self.counts[band][1] += 1
        elif only:
            assert above is None or max(fills.values()) <= above, f"{call.id}, of band {band}, was not shed"
        if self.alone and word == "wait":
            turn = self.model.now // 1000 + min(call.wait_ms, MOST_PATIENCE_MS) if self.by_deadline else self.tickets
            self.tickets += 1
            self.wanted[call.id] = self.amounts(call.amounts)
            self.line.join(call.id, Waiter(call.key, band, turn))
        elif self.alone:
            self.line.name(band)

    def fills(self, key: str, amounts: dict[str, int]) -> dict[tuple[str, str], int]:
        """Return how far the limits are filled of which it takes some, in thousandths."""
        return {
            (name, "all" if owner == ALL else "key"): self.model.fill(owner, limit)
            for name, amount in amounts.items() if amount
            for owner, limit in self.model.owners(key, name)
        }  # fmt: skip

    @rule(session=st.sampled_from(SESSIONS), ok=st.integers(0, 90), ms=st.integers(1, 3000), over=st.integers(0, 5))
    def sample(self, session: str, ok: int, ms: int, over: int) -> None:
        """Say how holds ended, of a time that differs by a tenth."""
        sums = {
            "ok": ok, "us": ok * ms * 1000, "squares": ok * (ms * 1000 // 64) ** 2 * 101 // 100, "over": over,
            "late": over * ms * 1000, "busy": ok * ms,
        }  # fmt: skip
        self.call(session, HoldCall("sample", f"{session}.999999", amounts=amounts_text(sums)))
        if self.adaptive is not None:
            self.adaptive.hear(**sums)

    def pick(self, data: st.DataObject) -> str:
        stored = [field.decode() for field in self.world.run(self.read("HKEYS", "holds"))]
        return data.draw(st.sampled_from(sorted(stored))) if stored else "ann.999"

    @rule(data=st.data(), session=st.sampled_from(SESSIONS), amounts=numbers)
    def settle(self, data: st.DataObject, session: str, amounts: dict[str, int]) -> None:
        hold = self.pick(data)
        self.call(session, HoldCall("settle", hold, amounts=amounts_text(self.known(amounts))))

    @rule(
        data=st.data(), session=st.sampled_from(SESSIONS), op=st.sampled_from(("release", "release", "renew", "claim"))
    )
    def other(self, data: st.DataObject, session: str, op: Any) -> None:
        self.call(session, HoldCall(op, self.pick(data), ttl_ms=TTL_MS))

    @rule(ms=st.sampled_from((0, 1, 30, 100, 1000, 3001, 40_000_000, -2000)))
    def wait(self, ms: int) -> None:
        self.tick(ms)
        self.world.run(self.store.sweep(self.address))
        self.follow()

    @rule(session=st.sampled_from(SESSIONS), back=st.integers(0, 1))
    def repeat(self, session: str, back: int) -> None:
        """Send a call again, or an older number: it changes nothing."""
        if session not in self.last:
            return
        seq, calls, answers = self.last[session]
        before = self.everything()
        again = self.world.run(self.store.admit(self.address, session, seq=max(seq - back, 1), epoch=0, calls=calls))
        assert again.code == "STALE" if back and seq > 1 else again == answers
        assert self.everything() == before

    async def read(self, command: str, part: str, *more: Any) -> Any:
        key = f"{self.address.key}:{part}" if part else self.address.key
        return await self.world.server.command(self.address.shared[0], command, key, *more)

    def everything(self) -> list[Any]:
        parts = [("HGETALL", ""), ("HGETALL", "holds"), ("HGETALL", "keyed")]
        lines = [("ZRANGE", part) for part in ("line", "shares", "waiters", "leases")]
        return [
            *(self.world.run(self.read(*part)) for part in parts),
            *(self.world.run(self.read(*part, 0, -1, "WITHSCORES")) for part in lines),
        ]

    def follow(self) -> None:
        """Do to the model what the ledger says, and have it allow that."""
        self.model.tick(self.now)
        self.decides = self.adaptive is not None and self.adaptive.is_due(self.model.now // 1_000_000)
        for _, (_, entry) in self.world.run(
            self.read("XRANGE", "ledger", f"({self.seen}-0" if self.seen else "-", "+")
        ):
            self.seen += 1
            for event in entry.decode().split(",")[7].split(";"):
                self.happened(*event.split(":", 3))
        assert not self.decides, "nothing was decided in a new second"

    @staticmethod
    def amounts(text: str) -> dict[str, int]:
        return {name: int(number) for name, number in re.findall(r"(\w+)[=:](\d+)", text)}

    def happened(self, event: str, hold: str = "", key: str = "", amounts: str = "") -> None:
        if event == "held":
            taken = self.amounts(amounts)
            assert hold not in self.model.holds
            band = self.bands[hold]
            assert self.model.fits(key, taken, band), f"{hold} of {key} was let in with {taken}"
            if self.asked == {hold} and (above := self.model.shed_above(band)) is not None:
                assert min(self.fills(key, taken).values()) <= above, f"{hold}, of band {band}, was not shed"
            self.take_turn(hold, key, taken, band)
            self.counts[band][0] += 1
            shadowed = self.model.would_wait(key, taken)
            assert self.noted.pop(hold, set()) == shadowed
            self.would_wait += bool(shadowed)
            self.model.take(hold, key, taken)
        elif event == "would-wait":
            self.noted.setdefault(hold, set()).add((amounts.split(":", maxsplit=1)[0], amounts.split(":")[1]))
        elif event == "used":
            self.model.settle(hold, {name: int(number) for name, number in re.findall(r"(\w+)=(\d+)", key)})
        elif event in ("freed", "lapsed"):
            del self.model.holds[hold]
        elif event == "quit":
            self.line.leave(hold)
        elif event == "adapted":
            assert self.adaptive is not None
            assert self.decides
            self.decides = False
            told = f"{hold}:{key}:{amounts}"
            assert told == self.adaptive.step(pressed=told.split(":")[6].endswith(" 1"))
            self.model.now_most[hold] = self.adaptive.most

    def take_turn(self, hold: str, key: str, taken: dict[str, int], band: int) -> None:
        """See that it was the turn of what is let in, where one limit stands alone."""
        if self.alone is None:
            return
        if hold in self.asked:
            self.line.name(band)

        def stuck(other: str, waiter: Waiter) -> bool:
            return not self.model.fits(waiter.key, self.wanted[other], waiter.band)

        turn = self.line.may_go(band, self.model.kept_from, stuck)
        assert turn, f"{hold} went first, of band {band}, of {self.line}"
        share = None
        if self.alone.form == "at_once" and not self.alone.adapt and not self.by_deadline:
            share = {key: self.model.held(f"key {key}", self.alone.name) for key in KEYS}
            share["*"] = sum(h.amounts.get(self.alone.name, 0) for h in self.model.holds.values() if h.key == "*")
        other = self.line.before(hold, share, by_deadline=self.by_deadline)
        assert not other, f"{hold} went before {other} of its band, of {self.line}"
        limit = self.alone
        self.line.let_in(hold, band, taken[limit.name] / (limit.rate or max(1, self.model.most(ALL, limit))))

    @invariant()
    def what_is_taken_is_what_the_model_says(self) -> None:
        if not hasattr(self, "model"):
            return
        for key in KEYS:
            levels = self.world.run(self.store.levels(self.address, key=key, most=1000))
            owner = ALL if key == "*" else f"key {key}"
            for row in levels.limits if key == "*" else levels.of_key:
                name, form, most, left, whole_us, _, withheld, *_ = row.split()
                assert withheld == "0"
                if form == "at_once":
                    assert int(most) - int(left) == self.model.held(owner, name)
                elif form == "quota":
                    assert int(most) - int(left) == self.model.used(owner, name)
                else:
                    assert int(whole_us) == max(0, self.model.level(owner, name).tat - self.model.now)
            assert levels.would_wait == self.would_wait
            of_key = "shadow" if key == "*" else f"shadow of {key}"
            for row in levels.shadows if key == "*" else levels.of_key_shadows:
                name, form, most, left, whole_us, _, _ = row.removeprefix("S_").split()
                if form == "rate":
                    assert int(whole_us) == max(0, self.model.level(of_key, name).tat - self.model.now)
                else:
                    count = self.model.held(owner, name) if form == "at_once" else self.model.used(of_key, name)
                    assert int(most) - int(left) == count

    @invariant()
    def whoever_waits_is_in_line_and_could_not_be_let_in(self) -> None:
        if not hasattr(self, "model"):
            return
        fields, holds, _, line, shares, waiters, leases = self.everything()
        fields = dict(zip(fields[::2], fields[1::2], strict=True))
        holds = {i.decode(): record.decode().split() for i, record in zip(holds[::2], holds[1::2], strict=True)}
        waiting = {i: record for i, record in holds.items() if record[0] == "W"}
        assert int(fields[b"blocked"]) == len(waiters) // 2 == len(waiting)
        assert {i for i, record in holds.items() if record[0] == "H"} == set(self.model.holds)
        assert {i.decode() for i in leases[::2]} == set(holds)
        wanted = {i: self.amounts(record[6]) for i, record in waiting.items()}
        bands = {i: "".join(record[6].partition("~")[1:]) for i, record in waiting.items()}
        assert bands == {i: f"~{self.bands[i]}" if self.bands[i] != USUAL else "" for i in waiting}
        told = {
            int(row.split()[0]): [*map(int, row.split()[1:])]
            for row in fields.get(b"by_band", b"").decode().split(";")
            if row
        }
        for band, (admitted, shed) in self.counts.items():
            there = sum(self.bands[i] == band for i in waiting)
            usual = [0, 0, shed]
            assert told.get(band, [0, 0, 0]) == (usual if band == USUAL else [there, admitted, shed])
        units = {f"{record[4]} {','.join(wanted[i])}{bands[i]}" for i, record in waiting.items()}
        assert {unit.decode() for unit in line[::2]} == units
        assert set(shares[::2]) <= set(line[::2])
        stuck = {i for i, record in waiting.items() if not self.model.fits(record[4], wanted[i], self.bands[i])}
        for i in set(waiting) - stuck:
            assert any(wanted[i].keys() & wanted[j].keys() for j in stuck), f"{i} waits for nobody, and is not let in"

    def teardown(self) -> None:
        """Once all was released, and time has passed, nothing is left of anybody."""
        if not hasattr(self, "model"):
            return
        for _ in range(20):
            holds = [field.decode() for field in self.world.run(self.read("HKEYS", "holds"))]
            for hold in holds:
                self.call("ann", HoldCall("release", hold))
        self.tick(100 * 86_400_000)
        for _ in range(3):
            self.world.run(self.store.sweep(self.address))
        self.follow()
        assert not self.model.holds
        ledger = self.world.run(self.read("XRANGE", "ledger", "-", "+"))
        assert audit([(number, tuple(entry)) for number, entry in ledger]) == []
        assert [self.world.run(self.read("HLEN", part)) for part in ("holds", "keyed")] == [0, 0]
        assert [self.world.run(self.read("ZCARD", part)) for part in ("line", "shares", "waiters", "leases")] == [0] * 4
        self.world.run(self.world.server.forget(self.address, *SESSIONS))
