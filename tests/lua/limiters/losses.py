"""Random calls to a limiter that is a quota of users, while its server loses what it wrote last, again and again.

Its limits of all keys bind nothing, or something; those of a key bind. Clients do as the SDK does: they renew, and in a
new epoch they claim what they hold. That is never more than the limits, and in the end nobody is left waiting.
"""

from dataclasses import dataclass, field
from typing import Any, Final

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headgate.redis.stores.limiters import HoldAnswers, HoldCall, LimiterStore
from tests.lua.place import BEGIN_MS
from tests.lua.world import World

TTL_MS: Final = 5000
USERS: Final = ("ann", "bob")
UNLIMITED: Final = 2**52
some_amounts = st.fixed_dictionaries({"slots": st.integers(1, 2)}, optional={"sizes": st.integers(1, 5)})


@dataclass(slots=True)
class Node:
    """A session: what it holds, as it was answered, and what it waits for: the user and the amounts, by id."""

    name: str
    epoch: int = 0
    seq: int = 0
    numbers: int = 0
    held: dict[str, tuple[str, dict[str, int]]] = field(default_factory=dict)
    waits: dict[str, tuple[str, dict[str, int]]] = field(default_factory=dict)


def text_of(amounts: dict[str, int]) -> str:
    return ",".join(f"{name}={number}" for name, number in amounts.items())


class Losses(RuleBasedStateMachine):
    """Drives one limiter. ``world`` is set by whoever runs it."""

    world: World

    def __init__(self) -> None:
        super().__init__()
        self.store = LimiterStore(self.world.server)
        self.address = self.world.address()
        self.now, self.losses = BEGIN_MS, 0
        self.nodes = [Node("one"), Node("two")]
        self.saved: dict[bytes, bytes] = {}

    @initialize(
        all_slots=st.sampled_from((UNLIMITED, UNLIMITED, 3, 5)), slots=st.integers(2, 4), sizes=st.integers(5, 9)
    )
    def create(self, all_slots: int, slots: int, sizes: int) -> None:
        self.most = {"slots": slots, "sizes": sizes}
        self.most_of_all = {"slots": all_slots, "sizes": UNLIMITED}
        self.tick(0)
        settings = {
            "kind": "limiter",
            "limits": ";".join(f"{name} at_once {most}" for name, most in self.most_of_all.items()),
            "key_limits": ";".join(f"{name} at_once {most}" for name, most in self.most.items()),
        }
        self.world.run(self.world.store.apply(self.address, settings, mode="ensure", ttl_ms=TTL_MS))

    def tick(self, ms: int) -> None:
        self.now += ms
        self.world.run(self.world.server.set_clock(self.address, self.now))

    def command(self, *words: Any) -> Any:
        return self.world.run(self.world.server.command(self.address.shared[0], *words))

    def call(self, node: Node, *calls: HoldCall, epoch: int | None = None) -> HoldAnswers:
        node.seq += 1
        known = node.epoch if epoch is None else epoch
        admit = self.store.admit(self.address, node.name, seq=node.seq, epoch=known, calls=calls)
        answers: HoldAnswers = self.world.run(admit)
        assert answers.code == "OK"
        before, node.epoch = node.epoch, answers.epoch
        for call, answer in zip(calls, answers.answers, strict=True):
            if call.op == "admit" and answer == "held":
                node.held[call.id] = node.waits.pop(call.id)
            elif call.op == "admit" and not answer.startswith("wait"):
                del node.waits[call.id]
        if 0 < before < answers.epoch:
            for hold, (user, amounts) in node.held.items():
                claim = HoldCall("claim", hold, user, text_of(amounts), TTL_MS)
                assert self.call(node, claim, epoch=before).answers == ("ok",)
        return answers

    def renew(self) -> None:
        """Have each node do what it does each second: it renews what it holds, and asks again for what it waits for."""
        for node in self.nodes:
            calls = [HoldCall("renew", hold, ttl_ms=TTL_MS) for hold in node.held]
            calls += [
                HoldCall("admit", hold, user, text_of(amounts), TTL_MS, 600_000)
                for hold, (user, amounts) in node.waits.items()
            ]
            for at in range(0, len(calls), 60):
                self.call(node, *calls[at : at + 60])

    @rule(number=st.integers(0, 1), user=st.sampled_from(USERS), amounts=some_amounts)
    def admit(self, number: int, user: str, amounts: dict[str, int]) -> None:
        node = self.nodes[number]
        node.numbers += 1
        hold = f"{node.name}.{node.numbers}"
        node.waits[hold] = user, amounts
        self.call(node, HoldCall("admit", hold, user, text_of(amounts), TTL_MS, 600_000))

    @rule(number=st.integers(0, 1), data=st.data())
    def release(self, number: int, data: st.DataObject) -> None:
        node = self.nodes[number]
        if node.held:
            hold = data.draw(st.sampled_from(sorted(node.held)))
            del node.held[hold]
            self.call(node, HoldCall("release", hold))

    @rule(seconds=st.integers(1, 3))
    def wait(self, seconds: int) -> None:
        for _ in range(seconds):
            self.tick(1000)
            self.renew()

    @rule()
    def save(self) -> None:
        """Let a replica have all that there is so far."""
        keys = self.command("KEYS", f"{self.address.key}*")
        self.saved = {bytes(key): self.command("DUMP", key) for key in keys if b"clock" not in bytes(key)}

    @rule(whole=st.booleans())
    def lose(self, whole: bool) -> None:
        """Have a replica take over, which has all, or what was saved. Nodes hear of it with their next call."""
        self.losses += 1
        self.tick(1)  # an epoch is a moment: of two losses in one millisecond nobody would hear
        if self.saved and not whole:
            for key in self.command("KEYS", f"{self.address.key}*"):
                if b"clock" not in bytes(key):
                    self.command("DEL", key)
            for key, dump in self.saved.items():
                self.command("RESTORE", key, 0, dump)
        self.command("HSET", self.address.key, "run_id", f"another{self.losses}")
        self.renew()

    @invariant()
    def nobody_has_more_than_the_limits(self) -> None:
        if not hasattr(self, "most"):
            return
        held = [one for node in self.nodes for one in node.held.values()]
        for name, most in self.most.items():
            for user in USERS:
                assert sum(amounts.get(name, 0) for of, amounts in held if of == user) <= most, (name, user)
            assert sum(amounts.get(name, 0) for _, amounts in held) <= self.most_of_all[name], name

    def teardown(self) -> None:
        """Whoever waits has its turn, as others end."""
        if not hasattr(self, "most"):
            return
        for _ in range(200):
            for node in self.nodes:
                for hold in list(node.held)[:1]:
                    del node.held[hold]
                    self.call(node, HoldCall("release", hold))
            if not any(node.held or node.waits for node in self.nodes):
                break
            self.wait(1)
        assert not any(node.waits for node in self.nodes), "somebody waits for ever"
        self.world.run(self.world.server.forget(self.address, *(node.name for node in self.nodes)))
