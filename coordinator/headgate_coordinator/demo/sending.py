"""A message of the demo describes itself in headers, and so in the journals of all its holders."""

import hashlib
from dataclasses import dataclass, field
from typing import Any

from headgate_coordinator.demo.corpus import Piece


@dataclass(frozen=True, slots=True)
class Sending:
    """A sending is one message on its way.

    Attributes:
        producer: who sends it.
        seq: the producer's number for the piece; what is sent again keeps it.
        connection: the producer's number for the connection it goes over: 1, until an AMQP client had to reconnect.
    """

    piece: Piece
    producer: str
    seq: int
    connection: int = 1
    sha256: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sha256", hashlib.sha256(self.piece.body).hexdigest())

    @property
    def headers(self) -> dict[str, Any]:
        """The headers that travel with it."""
        return {
            "path": self.piece.path,
            "part": self.piece.part,
            "sha256": self.sha256,
            "producer": self.producer,
            "seq": self.seq,
            "connection": self.connection,
        }

    def accepted(self, size: int) -> tuple[str | int, ...]:
        """Return what its producer writes down, once it is acknowledged."""
        name = id_of(self.producer, self.seq, self.connection)
        return name, self.producer, self.seq, self.sha256, size, self.piece.path, self.connection


def received(body: bytes | str, headers: dict[str, Any], size: int, attempts: int) -> tuple[str | int, ...]:
    """Return what its consumer writes down, once it has accepted it."""
    producer, seq, connection = headers["producer"], headers["seq"], headers["connection"]
    arrived = hashlib.sha256(body if isinstance(body, bytes) else body.encode()).hexdigest()
    return id_of(producer, seq, connection), producer, seq, arrived, headers["sha256"], size, attempts, connection


def id_of(producer: str, seq: int, connection: int) -> str:
    """Return what a sending is called: the same piece, sent again over another connection, is another one."""
    return f"{producer}-{seq}" if connection == 1 else f"{producer}-{seq}.{connection}"
