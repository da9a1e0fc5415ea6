"""Play damaged conversations to everything that reads bytes of strangers. Run as a module, this is such a process.

A crash of the C library ends the process, and the last line it said names the seed to try again with.
"""

import argparse
import contextlib
import random
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from headgate.amqp.engine import Engine
from headgate.amqp.handler import Incoming
from headgate.amqp.limits import Limits
from headgate.amqp.link import Fate, Link, Outcome
from headgate.amqp.sasl import OK, SaslClient, SaslServer
from headgate.core.amqp import message as amqp_message
from headgate.core.amqp import sections as amqp_sections
from headgate.errors import HeadgateError
from headgate.message import decode
from tests.amqp.connecting import Playground
from tests.amqp.conversations import MESSAGE, Frames, damage, record, record_handshakes

LIMITS: Final = Limits(frame=4096, sessions=8, links=10, message=2000, slack=5)
SAY_EVERY: Final = 500


class Whimsical:
    """A handler that does all that a handler can do, as the dice fall, also much later than it is told."""

    def __init__(self, dice: random.Random) -> None:
        self.engine: Engine
        self._dice = dice
        self._owed: list[tuple[Link, Any]] = []

    def opened(self) -> None:
        assert isinstance(self.engine.peer, str)
        self.engine.open()

    def attached(self, link: Link) -> None:
        roll = self._dice.random()
        if roll < 0.1:
            link.refuse("amqp:not-found", "no")
            return
        link.accept(link.source, link.target, max_message=2000, properties={"a": "b"})
        if link.receives:
            link.set_credit(self._dice.choice((0, 1, 10, 100)))
        elif roll < 0.4 and link.credit > 0:
            link.send(MESSAGE)

    def answered(self, link: Link) -> None:
        assert link.name

    def received(self, link: Link, messages: list[Incoming]) -> None:
        assert all(len(raw) <= link.max_message for raw, _ in messages)
        self._owed += [(link, delivery) for _, delivery in messages if delivery is not None]
        roll = self._dice.random()
        if roll < 0.6:
            self.pay()
        elif roll < 0.7:
            link.set_credit(0)
        elif roll < 0.8:
            link.set_credit(50)
        elif roll < 0.83:
            link.close("amqp:internal-error", "enough")

    def pay(self) -> None:
        """Settle what came in on links that are still there."""
        owed, self._owed = self._owed, []
        outcomes: tuple[Outcome, ...] = ("accepted", "rejected", "released", "failed", "undeliverable")
        for link, delivery in owed:
            if link.alive:
                link.settle(delivery, self._dice.choice(outcomes), "amqp:decode-error", "bad")

    def flowed(self, link: Link) -> None:
        for _ in range(min(link.credit, 7)):
            link.send(MESSAGE, settled=self._dice.random() < 0.2)
        if link.drains:
            link.drained()

    def settled(self, link: Link, fates: list[Fate]) -> None:
        assert fates
        assert all(isinstance(reason, str) for _, _, reason, _ in fates)

    def detached(self, link: Link) -> None:
        self._owed = [(other, delivery) for other, delivery in self._owed if other is not link]

    def closed(self, condition: str, description: str) -> None:
        assert isinstance(condition + description, str)


def play_engine(dice: random.Random, data: bytes) -> None:
    """Play to an engine."""
    handler = Whimsical(dice)
    handler.engine = engine = Engine(
        handler, server=True, container="node", limits=LIMITS, offered=("ANONYMOUS-RELAY",)
    )
    at = 0
    while at < len(data):
        size = dice.choice((1, 7, 100, 1000, 100_000))
        engine.receive(data[at : at + size])
        at += size
        roll = dice.random()
        if roll < 0.05:
            engine.tick(at / 1000)
        elif roll < 0.1:
            handler.pay()
        elif roll < 0.11:
            engine.close("amqp:connection:forced", "enough")
        if dice.random() < 0.8:
            engine.outgoing()
    handler.pay()
    engine.hung_up()
    engine.outgoing()
    engine.free()


def play_sasl(dice: random.Random, data: bytes) -> None:
    """Play to both sides of the handshake."""
    server = SaslServer(["ANONYMOUS", "PLAIN"])
    for side in (server, SaslClient("ann", "secret", "host")):
        try:
            at = 0
            while at < len(data):
                size = dice.choice((1, 7, 100, 1000))
                side.feed(data[at : at + size])
                at += size
                if isinstance(side, SaslServer) and side.credentials is not None:
                    side.decide(OK)
                    side.rest()
                    break
        except HeadgateError:
            pass


def play_codec(dice: random.Random, data: bytes) -> None:
    """Play to what reads messages."""
    for read in (
        amqp_message.decode,
        amqp_sections.header_of,
        amqp_sections.to_of,
        decode,
        lambda raw: amqp_sections.with_delivery_count(raw, dice.randrange(3)),
        lambda raw: amqp_sections.with_application_properties(raw, {"more": 1}),
    ):
        with contextlib.suppress(HeadgateError):
            read(data)


def resident() -> int:
    """Return the bytes of memory that this process has."""
    found = re.search(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) * 1024


def run(layer: str, seed: int, count: int) -> None:
    """Play so many conversations; say now and then how far it is, and how much memory there is."""
    recorded = record()
    plays: dict[str, tuple[Callable[[random.Random, bytes], None], list[Frames]]] = {
        "engine": (play_engine, recorded),
        "sasl": (play_sasl, record_handshakes()),
        "codec": (play_codec, [[MESSAGE[at : at + 20] for at in range(0, len(MESSAGE), 20)]]),
    }
    ground = Playground() if layer == "node" else None
    began = time.monotonic()
    for number in range(seed, seed + count):
        dice = random.Random(number)
        if (number - seed) % SAY_EVERY == 0:
            print(f"{layer} seed {number} after {time.monotonic() - began:.0f} s rss {resident()}", flush=True)
        if ground is not None:
            frames = dice.choice(recorded)
            ground.play(dice, damage(dice, frames, recorded) if dice.random() < 0.99 else b"".join(frames))
            continue
        play, sources = plays[layer]
        play(dice, damage(dice, dice.choice(sources), sources))
    print(f"{layer} done rss {resident()}", flush=True)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("layer", choices=("engine", "node", "sasl", "codec"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    said = parser.parse_args()
    run(said.layer, said.seed, said.count)


if __name__ == "__main__":
    main()
