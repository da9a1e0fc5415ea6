"""Journals of the demo's processes, line by line: the ground truth of the verdict.

A line is with the kernel when `write` returns, so `kill -9` loses none that was written; at most the last is torn.
"""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

_READ: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Accepted:
    """An accepted message was acknowledged to its producer.

    Attributes:
        id: of the sending, see :func:`headgate_coordinator.demo.sending.id_of`.
        connection: over which it went, as its producer counts.
    """

    id: str
    producer: str
    seq: int
    sha256: str
    size: int
    path: str
    connection: int = 1


@dataclass(frozen=True, slots=True)
class Received:
    """A received message was received and accepted by a consumer.

    Attributes:
        sha256: of the body as it arrived; ``stated``: as its header says.
        attempts: deliveries of it that failed before.
    """

    id: str
    producer: str
    seq: int
    sha256: str
    stated: str
    size: int
    attempts: int
    connection: int = 1


class Journal:
    """A journal is a file that one process appends to."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, kind: str, *values: str | float) -> None:
        """Append a line."""
        line = json.dumps([kind, *values]).encode() + b"\n"
        while line:
            line = line[os.write(self._fd, line) :]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


@dataclass
class Record:
    """A record holds all that one process wrote so far; `update` reads what is new.

    Attributes:
        session: id of its session, once it has one.
        address: of a node: where it listens; ``page``: where its page is.
        at: of an AMQP client: the node that it is at; ``since``: when it came there, on the monotonic clock.
        served: of a node: messages that went in and out.
        size: bytes of all messages it sent, received or served.
        error: what it ended with, empty if nothing went wrong.
    """

    path: Path
    session: str = ""
    accepted: list[Accepted] = field(default_factory=list)
    received: list[Received] = field(default_factory=list)
    address: str = ""
    page: str = ""
    at: str = ""
    since: float = 0.0
    served: int = 0
    size: int = 0
    error: str = ""
    _offset: int = 0
    _torn: bytes = b""

    @property
    def messages(self) -> int:
        """How many it sent, received or served."""
        return len(self.accepted) + len(self.received) + self.served

    @property
    def ready(self) -> bool:
        """Whether it has begun its work."""
        return bool(self.session or self.at)

    def update(self) -> None:
        """Read what was appended since the last time."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                while chunk := file.read(_READ):
                    self._offset += len(chunk)
                    *lines, self._torn = (self._torn + chunk).split(b"\n")
                    for line in lines:
                        self._take(json.loads(line))
        except FileNotFoundError:
            return  # it has not begun

    def _take(self, entry: list[Any]) -> None:
        kind, *values = entry
        if kind == "session":
            self.session = values[0]
        elif kind == "listens":
            self.address, self.page = values
        elif kind == "at":
            self.at, self.since = values
        elif kind == "served":
            self.served, self.size = values
        elif kind == "accepted":
            accepted = Accepted(*values)
            self.accepted.append(accepted)
            self.size += accepted.size
        elif kind == "received":
            received = Received(*values)
            self.received.append(received)
            self.size += received.size
        elif kind == "error":
            self.error = values[0]
