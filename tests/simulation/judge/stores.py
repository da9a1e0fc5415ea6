"""An oracle of a queue with slices that spools to a store what finds no room in memory."""

from typing import Final

import fsspec

from headgate.core.segment import Reference, is_reference
from tests.simulation.judge.oracle import Oracle, place_of, whole
from tests.simulation.judge.sight import Sight
from tests.simulation.judge.tokens import token_in
from tests.simulation.loop import VirtualLoop
from tests.simulation.server import Call

STORE: Final = "disk"
ROOT: Final = "/sim"
LIMIT: Final = 600
"""Bytes of segments: at times the store is full, too."""


MESSAGES: Final = (b"pending_messages", b"leased_messages")
MOST_MESSAGES: Final = 7
"""A limit in messages, of some histories: at times there are bytes and no messages, and the reverse."""


class Stores(Oracle):
    """What must hold there is what holds anywhere: a reference counts as the message for which it stands."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__(loop)
        self._files = fsspec.filesystem("memory")
        self._files.store.clear()
        self._tokens: dict[tuple[str, bytes], str] = {}

    def saw(self, call: Call) -> None:
        """Judge one script; whoever is given a reference has to read what it stands for."""
        super().saw(call)
        given = (
            call.reply[3] if call.script == "settle" and isinstance(call.reply, list) and len(call.reply) > 4 else ()
        )
        owner = self.owners.get(call.words[2 + int(call.words[0])].decode()) if given else None
        if owner and any(map(is_reference, given[1::2])):
            self.idling.reads(place_of(call.words[1].decode()), owner)

    def _read(self, name: str, call: Call) -> Sight:
        sight, flat = super()._read(name, call), call.seen[0]
        fields = dict(zip(flat[::2], flat[1::2], strict=True))
        if (most := fields.get(b"limit_messages", b"")).isdigit():
            sight.messages, sight.most_messages = sum(int(fields[one]) for one in MESSAGES), int(most)
        return sight

    def _limit(self, name: str, call: Call, before: Sight, sight: Sight, total_before: int) -> None:
        super()._limit(name, call, before, sight, total_before)
        there = sum(part.messages for part in self._parts(name))
        again = sum(
            len(back.stored) + sum(back.leased.values())
            for one, back in self._back.items()
            if whole(one) == whole(name)
        )
        if sight.sliced and there > max(sight.most_messages + again, there - sight.messages + before.messages):
            self.breaks("P1", f"{call.script} left {there} messages of {sight.most_messages} at slices of {name}")

    def _line(self, name: str, call: Call, before: Sight, sight: Sight) -> None:
        if sum(part.messages for part in self._parts(name)) >= sight.most_messages:
            self._idle.pop(name, None)  # there may be bytes for the first in line, and no message
        super()._line(name, call, before, sight)

    def _token(self, name: str, stored: bytes) -> str:
        if not is_reference(stored):
            return super()._token(name, stored)
        if (name, stored) not in self._tokens:
            one, folder = Reference.parse(stored), name[4:-1].partition("/")[2]
            payload = self._files.cat_file(f"{ROOT}/sim/{folder}/{one.name}", one.offset, one.offset + one.size)
            self._tokens[name, stored] = token_in(payload)
        return self._tokens[name, stored]
