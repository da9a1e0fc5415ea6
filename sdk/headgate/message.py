"""Messages: how they are stored, what a consumer gets, what a producer gets back."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgpack

from headgate.errors import InvalidValue

if TYPE_CHECKING:
    from headgate.consumer import Consumer

Headers = Mapping[str, Any]
MAX_MESSAGE: Final = 128 << 20
"""Bytes; more than this is a file, not a message."""
_pack: Final = msgpack.Packer(autoreset=True, use_bin_type=True).pack


def encode(body: bytes | bytearray | memoryview | str, headers: Headers | None) -> bytes:
    """Return a message as it is stored: a msgpack array of body and, where there are any, headers.

    Raises:
        InvalidValue: the body is neither bytes nor text, a header cannot be stored, or it is all too long.
    """
    if type(body) is not bytes and not isinstance(body, bytes | bytearray | memoryview | str):
        raise InvalidValue(f"a body is bytes or text, not {type(body).__name__}")
    try:
        stored: bytes = _pack((body, _checked(headers)) if headers else (body,))
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidValue(f"headers {headers!r} cannot be stored: {error}") from None
    if len(stored) > MAX_MESSAGE:
        raise InvalidValue(f"a message of {len(stored)} bytes; at most {MAX_MESSAGE} can be stored")
    return stored


def _checked(headers: Headers) -> dict[str, Any]:
    for name in headers:
        if not isinstance(name, str):
            raise InvalidValue(f"header name {name!r}: names are text")
    return dict(headers)


def decode(stored: bytes) -> tuple[bytes | str, dict[str, Any]]:
    """Return body and headers of a stored message."""
    parts = msgpack.unpackb(stored)
    return parts[0], parts[1] if len(parts) > 1 else {}


class Receipt:
    """Proof that a message is stored.

    Attributes:
        seq: number of the message at its destination, dense from 1.
        size: bytes as stored: what it counts for.
    """

    __slots__ = ("seq", "size")

    def __init__(self, seq: int, size: int) -> None:
        self.seq = seq
        self.size = size

    @property
    def id(self) -> str:
        """What the message is called at its destination; empty when a topic had nobody to keep it for."""
        return f"{self.seq}-{self.size}"

    def __repr__(self) -> str:
        return f"Receipt({self.id})"


class Message:
    """One delivery. Settle it once: :meth:`accept`, :meth:`release`, :meth:`reject` or :meth:`modify`.

    Attributes:
        size: bytes as stored.
        body: bytes, or text if it was sent as text.
        headers: as they were sent.
        delivery_count: attempts that failed before this one.
    """

    __slots__ = ("_consumer", "_generation", "body", "delivery_count", "headers", "raw_id", "settled", "size")

    def __init__(
        self, consumer: "Consumer", generation: int, raw_id: bytes, stored: bytes, delivery_count: int
    ) -> None:
        self._consumer = consumer
        self._generation = generation
        self.raw_id = raw_id
        self.size = len(stored)
        self.delivery_count = delivery_count
        self.settled = False
        self.body, self.headers = decode(stored)

    @property
    def id(self) -> str:
        """What the message is called at its destination."""
        return self.raw_id.decode()

    @property
    def is_current(self) -> bool:
        """Whether it can still be settled: False once it was given to another consumer."""
        return self._generation == self._consumer._generation  # noqa: SLF001

    @property
    def destination(self) -> str:
        """The name of the queue or topic that it comes from."""
        return self._consumer.address.name

    def __repr__(self) -> str:
        return f"Message({self.id}, {len(self.body)} bytes{', settled' if self.settled else ''})"

    async def accept(self, *, confirm: bool = False) -> None:
        """Say that it is done with: it is removed and its bytes are free.

        Settlements go out together, a moment later; ``confirm`` waits until Redis has it. Settling never waits behind
        sends, and a second settlement of the same delivery is refused.

        Raises:
            SessionExpired: the delivery was given to somebody else meanwhile.
            InvalidValue: it was settled already.
        """
        done = self._consumer.settle(self, "accepted", confirm=confirm)
        if done is not None:
            await done

    async def release(self, *, confirm: bool = False) -> None:
        """Give it back untried: it is delivered again, before newer ones. Errors as :meth:`accept`."""
        done = self._consumer.settle(self, "released", confirm=confirm)
        if done is not None:
            await done

    async def reject(self, reason: str = "", *, confirm: bool = False) -> None:
        """Say that it can never be used: it is removed and counted as rejected. Errors as :meth:`accept`."""
        done = self._consumer.settle(self, "rejected", confirm=confirm, reason=reason)
        if done is not None:
            await done

    async def modify(self, *, failed: bool = True, confirm: bool = False) -> None:
        """Give it back after a failed attempt: :attr:`delivery_count` grows. Errors as :meth:`accept`."""
        done = self._consumer.settle(self, "failed" if failed else "released", confirm=confirm)
        if done is not None:
            await done
