"""Says how safely a write is kept before it is confirmed."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from headgate.errors import InvalidValue, PolicyError

MAX_REPLICAS: Final = 20
WAITAOF_SINCE: Final = (7, 2)
_WORD: Final = re.compile(r"replicas:([1-9][0-9]?)")
_NEVER: Final = ("unknown command", "no permissions", "can't run this command", "appendonly is disabled")
"""Redis' answer to a wait that no other will get a better one to."""
Command = tuple[bytes | int, ...]
Trouble = Literal["", "refused", "interrupted"]


@dataclass(frozen=True, slots=True)
class WriteProgress:
    """The progress of a write when the wait for it was over.

    Attributes:
        replicas: that have it.
        fsynced: whether it is on the disk of the server that took it.
        trouble: ``refused`` where Redis will answer no such wait, ``interrupted`` where it answered this one with an
            error that passes, and empty where it answered.
        problem: what Redis answered then.
    """

    replicas: int = 0
    fsynced: bool = False
    trouble: Trouble = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Durability:
    """Says where a write must be before it is confirmed.

    Attributes:
        replicas: that are to have it in memory.
        fsync: whether it is to be on the disk of the server that took it.
    """

    replicas: int = 0
    fsync: bool = False

    @classmethod
    def parse(cls, value: Any, what: str = "durability") -> "Durability":
        """Return what a text says: ``memory``, ``fsync``, ``replicas:N``, or the last two together.

        Raises:
            InvalidValue: it says something else.
        """
        words = value.split() if isinstance(value, str) else []
        counts = [int(match[1]) for word in words if (match := _WORD.fullmatch(word))]
        fsyncs = words.count("fsync")
        if words != ["memory"] and (not words or len(counts) > 1 or fsyncs > 1 or len(counts) + fsyncs < len(words)):
            raise InvalidValue(f"{value!r}; use memory, fsync, replicas:1, or 'fsync replicas:1'", setting=what)
        if counts and counts[0] > MAX_REPLICAS:
            raise InvalidValue(f"{value!r}; use 1 to {MAX_REPLICAS} replicas", setting=what)
        return cls(counts[0] if counts else 0, fsyncs > 0)

    @property
    def text(self) -> str:
        """The text that says it."""
        words = [*(["fsync"] if self.fsync else ()), *([f"replicas:{self.replicas}"] if self.replicas else ())]
        return " ".join(words) or "memory"

    def __or__(self, other: "Durability") -> "Durability":
        return Durability(max(self.replicas, other.replicas), self.fsync or other.fsync)

    def __bool__(self) -> bool:
        return self.fsync or self.replicas > 0

    def is_met(self, held: WriteProgress) -> bool:
        """Return whether that is enough."""
        return held.replicas >= self.replicas and (held.fsynced or not self.fsync)

    def check(self, version: Sequence[int]) -> None:
        """See that a server of some version can say when it is so.

        Raises:
            PolicyError: it is too old.
        """
        if self.fsync and tuple(version[:2]) < WAITAOF_SINCE:
            raise PolicyError(
                f"durability {self.text!r} needs the WAITAOF of Redis 7.2 or newer, and this one is "
                f"{'.'.join(map(str, version))}; use 'replicas:1', 'memory', or a newer Redis with appendonly"
            )

    def waits(self, within_ms: int) -> tuple[Command, ...]:
        """Return the commands that wait for it, right after a write and on the same connection."""
        share = max(1, within_ms // (2 if self.fsync and self.replicas else 1))
        wait: tuple[Command, ...] = ((b"WAIT", self.replicas, share),) if self.replicas else ()
        return (*wait, (b"WAITAOF", 1, 0, share)) if self.fsync else wait

    def read(self, answers: Sequence[Any]) -> WriteProgress:
        """Return what the answers to these commands say; an error is one of them."""
        problem = next((str(one) for one in answers if isinstance(one, Exception)), "")
        if problem:
            never = any(mark in problem.lower() for mark in _NEVER)
            return WriteProgress(trouble="refused" if never else "interrupted", problem=problem)
        replicas = int(answers[0]) if self.replicas else 0
        return WriteProgress(replicas, self.fsync and int(answers[-1][0]) > 0)


MEMORY: Final = Durability()
