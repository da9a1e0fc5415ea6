"""Short notes of a namespace: which consumers are tied to sends that wait, and which deadlocks were found."""

import itertools
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

import redis.exceptions as rx

from headgate.core.names import decode_name, encode_name
from headgate.errors import AccessDenied, CoordinatorUnavailable
from headgate.redis.backend import Backend, call
from headgate.redis.keys import notes_key

Sort = Literal["waits", "deadlocks"]
KEEP_MS: Final[Mapping[Sort, int]] = {"waits": 3000, "deadlocks": 60_000}
"""Milliseconds after which a note is over that was not written again."""
TELL_EVERY: Final = 1.0
"""Seconds after which a note that still holds is written again."""
PAGE: Final = 128
"""Notes that one call writes."""


@dataclass(frozen=True, slots=True)
class Tie:
    """A tie is a consumer that settles nothing, or a hold that is not released, until a wait ends.

    It is used only by the one that waits.

    Attributes:
        destination: where the consumer is, or what is held.
        consumer: its id; of a hold of a limiter its id, of permits of a gate that of the session and ``.0``, and ``/``
            with a number where several waits each have a part in it.
        at: the destination, the gate or the limiter where the wait is.
        wait: names that wait: another send has another word, without blanks.
        waited_ms: how long it had waited when it was written.
        left_ms: how long it would go on then; None for ever.
        limit: ``all:<name>`` or ``key:<name>``, the limit of a limiter that it is for; empty elsewhere.
        held: whether it is a hold, or permits, and no consumer.
    """

    destination: str
    consumer: str
    at: str
    wait: str
    waited_ms: int = 0
    left_ms: int | None = None
    limit: str = ""
    held: bool = False

    @property
    def holder(self) -> str:
        """Id of the consumer or of the hold, without the number of a part."""
        return self.consumer.partition("/")[0]

    @property
    def session(self) -> str:
        """Id of the session, or of the link, whose consumer and send they are."""
        return self.consumer.rpartition(".")[0]

    @property
    def name(self) -> str:
        """The name of its note."""
        return f"{encode_name(self.destination)} {self.consumer}"

    @property
    def text(self) -> str:
        """The text of its note."""
        left = "-" if self.left_ms is None else str(self.left_ms)
        limit = f"{' held=yes' if self.held else ''}{f' limit={self.limit}' if self.limit else ''}"
        return f"at={encode_name(self.at)} wait={self.wait} waited={self.waited_ms} left={left}{limit}"

    @classmethod
    def read(cls, name: str, text: str, age_ms: int) -> "Tie":
        """Return the tie that a note of that many ms ago tells of.

        Raises:
            KeyError, ValueError: it is no such note.
        """
        destination, consumer = name.split(" ")
        note = dict(word.split("=", 1) for word in text.split(" "))
        left = None if note["left"] == "-" else max(0, int(note["left"]) - age_ms)
        return cls(
            decode_name(destination), consumer, decode_name(note["at"]), note["wait"],
            int(note["waited"]) + age_ms, left, note.get("limit", ""), "held" in note,
        )  # fmt: skip


class NoteStore:
    """The notes of one namespace. Each call may be repeated."""

    def __init__(self, server: Backend, namespace: str) -> None:
        self._server = server
        self._keys: Mapping[Sort, bytes] = {sort: notes_key(namespace, sort) for sort in KEEP_MS}

    async def write(self, sort: Sort, notes: Mapping[str, str]) -> None:
        """Write notes, or write them again; an empty text takes one away.

        Raises:
            CoordinatorUnavailable: Redis does not answer.
        """
        pairs = list(notes.items())
        for first in range(0, len(pairs), PAGE):
            rest = itertools.chain(*pairs[first : first + PAGE])
            await call(self._server, "note", (self._keys[sort],), rest, keep_ms=KEEP_MS[sort])

    async def read(self, sort: Sort) -> dict[str, tuple[str, int]]:
        """Return the notes that are not over: what each says, and its age in ms by Redis' clock.

        Raises:
            CoordinatorUnavailable: Redis does not answer.
            AccessDenied: they may not be read.
        """
        key = self._keys[sort]
        clock, flat = await self._server.burst([(key, ("TIME",)), (key, ("HGETALL", key))])
        for reply in (clock, flat):
            if isinstance(reply, AccessDenied):
                raise reply
            if isinstance(reply, rx.NoPermissionError):
                text = f"notes of {sort} cannot be read: {reply}"
                raise AccessDenied(f"{text}; `headgate acl` prints the ACL that each role needs")
            if isinstance(reply, Exception):
                raise CoordinatorUnavailable(f"notes of {sort} cannot be read: {reply}")
        now_ms = int(clock[0]) * 1000 + int(clock[1]) // 1000
        found = {}
        for i in range(0, len(flat), 2):
            seen, _, text = flat[i + 1].decode().partition(" ")
            age = now_ms - int(seen.removeprefix("seen="))
            if abs(age) <= KEEP_MS[sort]:
                found[flat[i].decode()] = (text, max(0, age))
        return found

    async def ties(self) -> list[Tie]:
        """Return the tied consumers of the last seconds' notes; those that cannot be read are left out.

        Raises:
            CoordinatorUnavailable: Redis does not answer.
        """
        found = []
        for name, (text, age) in (await self.read("waits")).items():
            try:
                found.append(Tie.read(name, text, age))
            except (KeyError, ValueError):  # of another version
                continue
        return found


class AnnouncedTies:
    """The ties that one party reports. They are written when they change, and once a second while there are any."""

    def __init__(self, notes: NoteStore) -> None:
        self._notes = notes
        self._waits: dict[str, str] = {}
        self._at = 0.0

    @property
    def names(self) -> Collection[str]:
        """Names of the notes that are there, as far as is known."""
        return self._waits.keys()

    async def tell(self, ties: Iterable[Tie], now: float) -> None:
        """Tell which consumers are tied now, in seconds of a clock that never goes back.

        Raises:
            CoordinatorUnavailable, AccessDenied: it was not written; earlier notes expire in a moment.
        """
        found = {tie.name: tie for tie in ties}
        waits = {name: tie.wait for name, tie in found.items()}
        if waits == self._waits and not (waits and now - self._at >= TELL_EVERY):
            return
        gone, self._waits = dict.fromkeys(self._waits.keys() - waits.keys(), ""), {}
        await self._notes.write("waits", gone | {name: tie.text for name, tie in found.items()})
        self._waits, self._at = waits, now
