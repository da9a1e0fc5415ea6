"""What clients really say, recorded frame by frame, and what becomes of it when it is damaged."""

import random
import struct
from collections.abc import Callable

from headgate.amqp.limits import Limits
from headgate.amqp.link import Terminus
from headgate.amqp.proton import lib
from headgate.amqp.sasl import BARE, SaslClient, SaslServer
from headgate.core.amqp.message import AmqpMessage, Properties, encode
from tests.amqp.pair import Pair

Frames = list[bytes]
MESSAGE = encode(
    AmqpMessage(
        kind="data",
        body=b"x" * 50,
        properties=Properties(message_id="one", to="orders", reply_to="here"),
        application_properties={"colour": "red", "weight": 3.5},
    )
)


class Recorded(Pair):
    """Two engines that talk, while all that the client says is written down."""

    def __init__(self, **limits: int) -> None:
        self.said = b""
        super().__init__(client_limits=Limits(**limits))

    def talk(self) -> None:
        while True:
            there = b"".join(self.client.engine.outgoing())
            back = b"".join(self.server.engine.outgoing())
            self.said += there
            if not there and not back:
                return
            self.server.engine.receive(there)
            self.client.engine.receive(back)


def _sending(pair: Recorded) -> None:
    link = pair.sender()
    for number in range(12):
        link.send(MESSAGE, settled=number % 3 == 0)
        pair.talk()
    link.close()


def _sending_large(pair: Recorded) -> None:
    link = pair.sender("large")
    link.send(MESSAGE + b"y" * 3000)
    link.send(MESSAGE)
    pair.talk()
    lib.pn_link_detach(link.raw)


def _relaying(pair: Recorded) -> None:
    link = pair.client.engine.attach(pair.client.engine.session(), "relay", receives=False, presettled=True)
    link.accept(Terminus("here"), Terminus(capabilities=("ANONYMOUS-RELAY",)))
    pair.talk()
    for _ in range(5):
        link.send(MESSAGE, settled=True)
    pair.talk()


def _receiving(pair: Recorded) -> None:
    link = pair.receiver()
    link.set_credit(20)
    pair.talk()
    far = pair.server.links[0]
    for _ in range(10):
        far.send(MESSAGE)
    pair.talk()
    said = ("accepted", "released", "rejected", "failed", "undeliverable")
    for number, (_, delivery) in enumerate(pair.client.messages):
        if not pair.client.accepts:
            link.settle(delivery, said[number % 5], "amqp:decode-error" if number % 5 == 2 else "", "why")  # type: ignore[arg-type]
    pair.talk()
    lib.pn_link_set_drain(link.raw, True)
    link.set_credit(30)
    pair.talk()
    link.close()


def _rejecting(pair: Recorded) -> None:
    pair.client.accepts = False
    _receiving(pair)


def _subscribing(pair: Recorded) -> None:
    pair.receiver("durable", Terminus("prices", durable=True, capabilities=("topic", "shared", "global")))
    pair.receiver("dynamic", Terminus(dynamic=True))
    pair.receiver("look", Terminus("orders", browse=True)).set_credit(5)
    pair.sender("refused").set_credit(0)
    pair.talk()


def _many(pair: Recorded) -> None:
    for number in range(6):
        link = pair.sender(f"s{number}") if number % 2 else pair.receiver(f"r{number}")
        if number % 2:
            link.send(MESSAGE)
        else:
            link.set_credit(3)
        pair.talk()
    pair.client.engine.tick(1.0)
    for link in pair.client.links[:3]:
        link.close()
    pair.talk()
    lib.pn_session_close(lib.pn_link_session(pair.client.links[4].raw))


PLOTS: tuple[Callable[[Recorded], None], ...] = (
    _sending,
    _sending_large,
    _relaying,
    _receiving,
    _rejecting,
    _subscribing,
    _many,
)


def record() -> list[Frames]:
    """Return what the client says in each plot: the protocol header, then its frames."""
    found = []
    for plot in PLOTS:
        pair = Recorded(frame=1024)
        plot(pair)
        pair.talk()
        pair.client.engine.close()
        pair.talk()
        found.append(split(pair.said))
        pair.free()
    return found


def record_handshakes() -> list[Frames]:
    """Return what clients say before AMQP begins."""
    found = [[BARE]]
    for name, password in ((None, None), ("ann", "secret"), ("a" * 300, "b" * 300)):
        client, server = SaslClient(name, password, "a-host"), SaslServer(["ANONYMOUS", "PLAIN"])
        said = client.outgoing
        server.feed(client.outgoing)
        client.outgoing = b""
        client.feed(server.outgoing)
        found.append(split(said + client.outgoing))
    return found


def split(data: bytes) -> Frames:
    """Return the header and the frames that ``data`` is made of."""
    frames, at = [data[:8]], 8
    while at < len(data):
        size = struct.unpack_from(">I", data, at)[0]
        frames.append(data[at : at + size])
        at += size
    return frames


NASTY = (
    b"\x00",
    b"\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff",
    b"\x00\x00\x00\x00",
    b"\xc0\xff",
)


def damage(dice: random.Random, frames: Frames, others: list[Frames]) -> bytes:
    """Return what a client says, damaged in one to six places."""
    frames = list(frames)
    for _ in range(dice.randint(1, 6)):
        if not frames:
            break
        at = dice.randrange(len(frames))
        dice.choice(DAMAGES)(dice, frames, at, others)
    return b"".join(frames)


def _flip(dice: random.Random, frames: Frames, at: int, _: list[Frames]) -> None:
    data = bytearray(frames[at])
    for _bit in range(dice.choice((1, 1, 2, 8))):
        if data:
            data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    frames[at] = bytes(data)


def _resize(dice: random.Random, frames: Frames, at: int, _: list[Frames]) -> None:
    size = dice.choice((0, 7, 8, len(frames[at]) - 1, len(frames[at]) + 1, 65_536, 65_537, 0xFFFFFFFF))
    frames[at] = struct.pack(">I", size & 0xFFFFFFFF) + frames[at][4:]


def _overwrite(dice: random.Random, frames: Frames, at: int, _: list[Frames]) -> None:
    data, nasty = frames[at], dice.choice(NASTY)
    where = dice.randrange(len(data) + 1)
    frames[at] = data[:where] + nasty + data[where + len(nasty) :]


def _insert(dice: random.Random, frames: Frames, at: int, _: list[Frames]) -> None:
    """Put bytes into a frame whose length says so."""
    data = frames[at]
    where = dice.randrange(len(data) + 1)
    data = data[:where] + dice.randbytes(dice.choice((1, 4, 40))) + data[where:]
    frames[at] = struct.pack(">I", len(data)) + data[4:]


def _cut(dice: random.Random, frames: Frames, at: int, _: list[Frames]) -> None:
    frames[at] = frames[at][: dice.randrange(len(frames[at]) + 1)]
    if dice.random() < 0.3:
        del frames[at + 1 :]


def _double(dice: random.Random, frames: Frames, at: int, _: list[Frames]) -> None:
    frames[at:at] = [frames[at]] * dice.choice((1, 1, 2, 30))


def _swap(dice: random.Random, frames: Frames, at: int, _: list[Frames]) -> None:
    other = dice.randrange(len(frames))
    frames[at], frames[other] = frames[other], frames[at]


def _drop(_: random.Random, frames: Frames, at: int, __: list[Frames]) -> None:
    del frames[at]


def _graft(dice: random.Random, frames: Frames, at: int, others: list[Frames]) -> None:
    other = dice.choice(others)
    start = dice.randrange(len(other))
    frames[at:at] = other[start : start + dice.randint(1, 5)]


def _rechannel(dice: random.Random, frames: Frames, at: int, _: list[Frames]) -> None:
    """Say a frame on another channel."""
    frames[at] = frames[at][:6] + struct.pack(">H", dice.choice((0, 1, 2, 63, 64, 65_535))) + frames[at][8:]


DAMAGES = (_flip, _flip, _flip, _resize, _overwrite, _insert, _cut, _double, _swap, _drop, _graft, _rechannel)
