"""A process that admits, settles, renews and releases under a limiter, and writes down what it holds and for how long.

Run as a module: its URL, namespace, the file of its witness, a seed, the TTL of its session, and whether it takes
slices in hand. It ends when its standard input does.
"""

import asyncio
import os
import random
import sys
from contextlib import suppress
from time import monotonic
from typing import Final

import headgate

TASKS: Final = 8
LIMITER: Final = "llm"
CALM: Final = 1.5
"""Seconds; where nobody waits for one, a session takes slices in hand."""
KEYS: Final = (None, "a", "b", "b", "b", "c")
"""Whom an admission is for; one of them asks for more than the others."""


class Witness:
    """Writes a line of each step of a hold with the time, before what ends it and after what begins it.

    All processes of a machine share its monotonic clock. What is written is there although its process is killed.
    """

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._held: dict[int, tuple[headgate.Hold, float]] = {}
        self._number = 0

    def _write(self, *words: object) -> None:
        os.write(self._file, f"{os.getpid()} {' '.join(map(str, words))}\n".encode())

    def begins(self, hold: headgate.Hold, asked: float, reserved: dict[str, int]) -> int:
        """Write down a hold that was admitted, when it was asked for, and until when it is surely held."""
        heard = monotonic()
        until = heard + hold.expires_in
        self._number += 1
        try:
            mark = hold.id
        except headgate.InvalidValue:
            mark = "-"
        amounts = ",".join(f"{name}={number}" for name, number in reserved.items())
        self._write("begin", self._number, asked, heard, until, mark, hold.key or "*", amounts)
        self._held[self._number] = hold, until
        return self._number

    def settles(self, number: int, **used: int) -> None:
        """Write down what is about to be settled."""
        self._write("settle", number, monotonic(), ",".join(f"{name}={value}" for name, value in used.items()))

    def ends(self, number: int) -> None:
        """Write down that a hold is about to be released."""
        self._write("end", number, monotonic())
        del self._held[number]

    async def watch(self) -> None:
        """Write down how long each hold is held, each time that more is known of it."""
        while True:
            await asyncio.sleep(0.05)
            for number, (hold, until) in tuple(self._held.items()):
                now = monotonic()
                later = now + hold.expires_in
                if later > max(until, now) + 0.01:
                    self._write("until", number, now, later)
                    self._held[number] = hold, later


def _requested(dice: random.Random) -> dict[str, int]:
    """Return amounts that are admitted together."""
    return dice.choice((
        {"slots": 1},
        {"slots": 1, "requests": 1},
        {"slots": 2, "requests": 1, "tokens": dice.randrange(1, 400)},
        {"slots": 1, "bytes": dice.randrange(1, 20_000)},
        {"requests": 1},
        {"requests": 1, "tokens": dice.randrange(1, 200)},
        {"mails": 1},
    ))  # fmt: skip


async def _work(limiter: headgate.Limiter, witness: Witness, dice: random.Random) -> None:
    """Admit again and again: alone and many at a time, waiting and not; every other while few, for one key."""
    while True:
        key, requested, number = dice.choice(KEYS), _requested(dice), dice.choice((1, 1, 16))
        if int(monotonic() / CALM) % 2:
            asked = monotonic()
            with suppress(headgate.HeadgateError):
                async with limiter.admit(key="b", slots=1, requests=1, timeout=1) as hold:
                    number = witness.begins(hold, asked, {"slots": 1, "requests": 1})
                    try:
                        await asyncio.sleep(dice.random() / 50)
                    finally:
                        witness.ends(number)
            continue
        async with asyncio.TaskGroup() as group:
            for _ in range(number):
                group.create_task(_admit(limiter, witness, dice, key, dict(requested)))
        await asyncio.sleep(dice.random() / 20)


async def _admit(
    limiter: headgate.Limiter, witness: Witness, dice: random.Random, key: str | None, requested: dict[str, int]
) -> None:
    asked = monotonic()
    with suppress(headgate.HeadgateError):
        if dice.random() < 0.3:
            hold = await limiter.attempt(key=key, **requested)
        else:  # whoever waits for tomorrow's quota has others wait
            patience = 0.05 if "mails" in requested else dice.choice((0.05, 0.5, 30))
            hold = await limiter.admit(key=key, timeout=patience, **requested)
        if isinstance(hold, headgate.Hold):
            await _hold(hold, witness, dice, asked, requested)


async def _hold(
    hold: headgate.Hold, witness: Witness, dice: random.Random, asked: float, reserved: dict[str, int]
) -> None:
    number = witness.begins(hold, asked, reserved)
    try:
        await asyncio.sleep(dice.choice((0, 0.005, 0.02, 0.1, dice.random() / 2)))
        if reserved.get("slots") == 2 and dice.random() < 0.5:
            witness.settles(number, slots=1)
            hold.settle(slots=1)
        if "tokens" in reserved:
            used = dice.randrange(0, 500)
            witness.settles(number, tokens=used)
            hold.settle(tokens=used)
        if dice.random() < 0.2:
            with suppress(headgate.InvalidValue):  # it is of a slice, whose lease is renewed
                await hold.renew()
        await asyncio.sleep(dice.choice((0, 0, 0.05)))
    finally:
        witness.ends(number)
        hold.release()


async def _main(url: str, namespace: str, path: str, seed: str, ttl: str, in_hand: str) -> None:
    witness, ended = Witness(path), asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), ended.set)
    async with headgate.connect(url, namespace=namespace) as client, client.session("p", ttl=float(ttl)) as session:
        limiter = await session.limiter(LIMITER, in_hand=in_hand == "yes")
        print("ready", session.id, flush=True)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(witness.watch())]
            for number in range(TASKS):
                dice = random.Random(f"{seed}/{number}")
                tasks.append(group.create_task(_work(limiter, witness, dice)))
            await ended.wait()
            for task in tasks:
                task.cancel()
    print("ended", flush=True)


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
