"""Random calls to a limiter. The plain model does what its ledger says, and must allow it."""

import re
from typing import Any, Final

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headgate.redis.stores.limiters import HoldCall, LimiterStore
from tests.lua.place import BEGIN_MS
from tests.lua.world import World
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
some_limits = st.lists(st.sampled_from(sorted(FORMS)), min_size=1, unique=True)
some_shadows = st.lists(st.sampled_from(sorted(FORMS)), unique=True)
numbers = st.fixed_dictionaries({}, optional={name: st.integers(0, 12) for name in FORMS})


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
        self.seen = 0

    @initialize(
        data=st.data(), names=some_limits, of_keys=some_limits, shadowed=some_shadows, key_shadowed=some_shadows
    )
    def create(
        self, data: st.DataObject, names: list[str], of_keys: list[str], shadowed: list[str], key_shadowed: list[str]
    ) -> None:
        limits = {name: data.draw(FORMS[name]) for name in names}
        key_limits = {name: data.draw(FORMS[name]) for name in of_keys if name in limits}
        shadows = {name: data.draw(FORMS[name]) for name in shadowed if name in limits}
        key_shadows = {name: data.draw(FORMS[name]) for name in key_shadowed if name in limits}
        self.model = Limiter(limits, key_limits, shadows, key_shadows)
        self.noted: dict[str, set[tuple[str, str]]] = {}
        self.would_wait = 0
        self.tick(0)
        settings = {
            "kind": "limiter", "limits": ";".join(limit.text for limit in limits.values()),
            "key_limits": ";".join(limit.text for limit in key_limits.values()),
            "shadow_limits": ";".join(limit.text for limit in shadows.values()),
            "shadow_key_limits": ";".join(limit.text for limit in key_shadows.values()),
            "bands": "t2=5", "aging": "0.5",
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
        calls = []
        for _ in range(times):
            self.numbers[session] += 1
            text = amounts_text(self.known(amounts)) + band
            calls.append(HoldCall("admit", f"{session}.{self.numbers[session]}", key, text, TTL_MS, wait))
        self.call(session, *calls)

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
        for _, (_, entry) in self.world.run(
            self.read("XRANGE", "ledger", f"({self.seen}-0" if self.seen else "-", "+")
        ):
            self.seen += 1
            for event in entry.decode().split(",")[7].split(";"):
                self.happened(*event.split(":", 3))

    @staticmethod
    def amounts(text: str) -> dict[str, int]:
        return {name: int(number) for name, number in re.findall(r"(\w+)[=:](\d+)", text)}

    def happened(self, event: str, hold: str = "", key: str = "", amounts: str = "") -> None:
        if event == "held":
            taken = self.amounts(amounts)
            assert hold not in self.model.holds
            assert self.model.fits(key, taken), f"{hold} of {key} was let in with {taken}"
            above = self.model.would_wait(key, taken)
            assert self.noted.pop(hold, set()) == above
            self.would_wait += bool(above)
            self.model.take(hold, key, taken)
        elif event == "would-wait":
            self.noted.setdefault(hold, set()).add((amounts.split(":", maxsplit=1)[0], amounts.split(":")[1]))
        elif event == "used":
            self.model.settle(hold, {name: int(number) for name, number in re.findall(r"(\w+)=(\d+)", key)})
        elif event in ("freed", "lapsed"):
            del self.model.holds[hold]

    @invariant()
    def what_is_taken_is_what_the_model_says(self) -> None:
        if not hasattr(self, "model"):
            return
        for key in KEYS:
            levels = self.world.run(self.store.levels(self.address, key=key, most=1000))
            owner = ALL if key == "*" else f"key {key}"
            for row in levels.limits if key == "*" else levels.of_key:
                name, form, most, left, whole_us, _, withheld = row.split()
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
        assert not set(bands.values()) - {"", "~0", "~1", "~5", "~7"}
        units = {f"{record[4]} {','.join(wanted[i])}{bands[i]}" for i, record in waiting.items()}
        assert {unit.decode() for unit in line[::2]} == units
        assert set(shares[::2]) <= set(line[::2])
        stuck = {i for i, record in waiting.items() if not self.model.fits(record[4], wanted[i])}
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
