"""A node notes in Redis the deadlocks that it found; they are read from there."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from headgate.core.deadlock import Deadlock
from headgate.redis.stores.notes import NoteStore

CURRENT: Final = 2.0
"""Seconds after which a deadlock that was not seen again has ended, as far as is known."""


@dataclass(frozen=True, slots=True)
class FoundDeadlock:
    """A found deadlock is a cycle of waits that a node saw, with what was done about it.

    Attributes:
        deadlock: the cycle of waits.
        action: what the settings of its destinations say: ``alert``, ``fail`` or ``ticket``.
        done: what was done about it last, in a sentence; empty when nothing was.
        lasted: seconds from when it was found until it was last seen.
        unseen: seconds since it was last seen.
    """

    deadlock: Deadlock
    action: str
    done: str
    lasted: float
    unseen: float = 0.0

    @property
    def id(self) -> str:
        """Its identity: the same as long as the same parties wait for one another."""
        return hashlib.sha256(str(self.deadlock).encode()).hexdigest()[:12]

    @property
    def is_current(self) -> bool:
        """Whether it is there still, as far as is known."""
        return self.unseen <= CURRENT

    @property
    def destinations(self) -> tuple[str, ...]:
        """The destinations in it."""
        return tuple(party.name for party in self.deadlock.parties if party.kind not in ("session", "link"))

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data, for JSON."""
        facts = {"id": self.id, "current": self.is_current, "text": str(self.deadlock), "action": self.action}
        return facts | {"done": self.done, "lasted": self.lasted, "unseen": self.unseen} | self.deadlock.as_dict()

    @property
    def note(self) -> str:
        """The text of its note in Redis."""
        note = {"action": self.action, "done": self.done, "lasted": round(self.lasted, 3)} | self.deadlock.as_dict()
        return json.dumps(note, separators=(",", ":"))

    @classmethod
    def read(cls, text: str, age_ms: int) -> "FoundDeadlock":
        """Return what a note of that many ms ago says.

        Raises:
            KeyError, TypeError, ValueError: it is no such note.
        """
        note: Mapping[str, Any] = json.loads(text)
        return cls(Deadlock.from_dict(note), note["action"], note["done"], float(note["lasted"]), age_ms / 1000)


async def read_deadlocks(notes: NoteStore) -> list[FoundDeadlock]:
    """Return the deadlocks that were seen in the last minute; those that are there still first, the oldest first.

    Raises:
        CoordinatorUnavailable: Redis does not answer.
        AccessDenied: they may not be read.
    """
    found = []
    for text, age in (await notes.read("deadlocks")).values():
        try:
            found.append(FoundDeadlock.read(text, age))
        except (KeyError, TypeError, ValueError):  # of another version
            continue
    return sorted(found, key=lambda one: (not one.is_current, -one.lasted, one.id))
