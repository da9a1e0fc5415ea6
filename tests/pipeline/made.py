"""Random ledgers that hold, made in plain Python: what scripts could have written."""

from random import Random
from typing import Any

from tests.pipeline.story import Row

BEGIN = 1_800_000_000_000
LIMIT = 4000


class Queue:
    """A queue, and what is written of it: ``rows``."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.rows: list[Row] = []
        self.ms = BEGIN
        self.pending = self.pending_m = self.leased = self.leased_m = 0
        self.sessions: dict[str, list[int]] = {}  # granted, granted_m, held, held_m
        self.consumers: list[str] = []
        self.out = self.out_m = 0  # delivered and not settled
        self.next = self.made = 1
        self.bound = True
        self.details: list[str] = []
        self.write("apply", detail=f"limits:{LIMIT}:inf;binds:yes;above:refuse:-")

    def write(
        self, op: str, who: str = "-", size: int = 0, messages: int = 0, first: int = 0, detail: str = ""
    ) -> None:
        self.ms += self.random.choice((0, 1, 7)) if self.rows else 0
        text = ";".join([*self.details, *([detail] if detail else [])])
        counters = (self.pending, self.pending_m, self.leased, self.leased_m)
        self.rows.append((len(self.rows) + 1, self.ms, op, who, size, messages, first, text, *counters, BEGIN, 1, None))
        self.details = []

    def note(self, *event: object) -> None:
        self.details.append(":".join(map(str, event)))

    def lease(self, who: str, size: int, messages: int) -> None:
        account = self.sessions[who]
        account[2] += size
        account[3] += messages
        self.leased += size
        self.leased_m += messages

    def grant(self, who: str) -> None:
        room = LIMIT - self.pending - self.leased if self.bound else LIMIT
        more, more_m = self.random.randint(0, max(0, min(room, 900))), self.random.randint(0, 9)
        if more or more_m:
            account = self.sessions[who]
            account[0] += more
            account[1] += more_m
            self.lease(who, more, more_m)
            self.note("grant", who, account[0], account[1])

    def anyone(self) -> str:
        return self.random.choice(list(self.sessions))

    # What may happen.

    def acquire(self) -> None:
        if not self.sessions or self.random.random() < 0.2:
            who = f"s~{self.made}"
            self.made += 1
            self.sessions[who] = [0, 0, 0, 0]
            self.note("open", who)
        else:
            who = self.anyone()
            if self.random.random() < 0.3 and (held := self.sessions[who][2]):
                back = self.random.randint(1, held)
                self.lease(who, -back, 0)
                self.note("return", back, 0)
        self.grant(who)
        if not self.details:
            self.note("block", who, 5, -3)
        granted, granted_m, _, _ = self.sessions[who]
        self.write("acquire", who, granted, granted_m)

    def publish(self) -> None:
        able = [who for who, account in self.sessions.items() if account[3]]
        if not able:
            return self.acquire()
        who = self.random.choice(able)
        _, _, held, held_m = self.sessions[who]
        size, messages = self.random.randint(0, held), self.random.randint(1, held_m)
        self.lease(who, -size, -messages)
        self.pending += size
        self.pending_m += messages
        if self.random.random() < 0.6:
            self.grant(self.random.choice((who, self.anyone())))
        if self.random.random() < 0.05:
            self.note("released", "link", self.next)
            self.next += self.random.randint(0, 5)
        first, self.next = self.next, self.next + messages
        return self.write("publish", who, size, messages, first)

    def settle(self) -> None:
        if not self.consumers:
            return self.attach()
        settled = self.random.randint(0, self.out)
        settled_m = self.random.randint(0, self.out_m) if settled else 0
        self.pending, self.pending_m = self.pending - settled, self.pending_m - settled_m
        self.out, self.out_m = self.out - settled, self.out_m - settled_m
        if self.sessions and self.random.random() < 0.5:
            self.grant(who := self.anyone())
            self.note("unblock", who, 12)
        fetched = self.random.randint(0, self.pending - self.out)
        fetched_m = self.random.randint(0, self.pending_m - self.out_m) if fetched else 0
        self.out, self.out_m = self.out + fetched, self.out_m + fetched_m
        self.note("settled", settled, settled_m)
        self.note("fetched", fetched, fetched_m)
        return self.write("settle", self.random.choice(self.consumers), settled, settled_m)

    def attach(self) -> None:
        self.consumers.append(f"c~{len(self.consumers)}.1")
        self.write("attach", self.consumers[-1], detail=f"attach:{self.consumers[-1]}:queue")

    def expire(self) -> None:
        size = self.random.randint(0, self.pending - self.out)
        self.pending -= size
        self.write("reap", detail=f"expired:{size}:0")

    def leave(self) -> None:
        if self.sessions:
            who = self.anyone()
            _, _, held, held_m = self.sessions[who]
            self.lease(who, -held, -held_m)
            del self.sessions[who]
            if self.random.random() < 0.5:
                self.write("leave", who, held, held_m)
            else:
                self.write("reap", detail=f"reclaim:{who}:{held}:{held_m}")

    def drop(self) -> None:
        self.write("drop", "s", self.random.randint(0, 9), 1)

    def change(self) -> None:
        self.bound = not self.bound or self.random.random() < 0.5
        self.write("apply", detail=f"limits:{LIMIT}:inf;binds:{'yes' if self.bound else 'no'};above:refuse:-")


def queue(random: Random, count: int) -> list[Row]:
    """Return a ledger of a queue with so many entries."""
    made = Queue(random)
    acts: list[tuple[Any, float]] = [
        (made.publish, 9), (made.settle, 9), (made.acquire, 4), (made.leave, 0.2), (made.expire, 0.3), (made.drop, 0.3),
        (made.change, 0.2),
    ]  # fmt: skip
    while len(made.rows) < count:
        (act,) = random.choices([act for act, _ in acts], [weight for _, weight in acts])
        act()
    return made.rows


def bucket(random: Random, count: int) -> list[Row]:
    """Return a ledger of a bucket of 50 tokens a second."""
    rows: list[Row] = [(1, BEGIN, "apply", "-", 0, 0, 0, "limits:inf:inf", 0, 0, 0, 0, BEGIN, 1, None)]
    ms, tat = BEGIN, 0
    for seq in range(2, count + 1):
        ms += random.choice((1, 30, 900))
        tokens = random.randint(1, 20)
        us = ms * 1000 + random.randint(0, 999)
        tat = max(tat, us) + tokens * 20_000
        rows.append((seq, ms, "take", "s", tokens, random.randint(0, 3), tat, "", 0, 0, 0, 0, BEGIN, 1, None))
    return rows
