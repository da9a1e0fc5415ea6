"""A message has a form as it is stored, one for its consumer, and a receipt for its producer.

A stored message has one of two forms, and whoever reads it need not know which: the SDK's own (a msgpack array of body
and headers), and a message of AMQP 1.0 as it came.
"""

from asyncio import Future
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, Literal, Protocol

from headgate.core.amqp import mapping as amqp_mapping
from headgate.core.amqp import message as amqp_message
from headgate.core.amqp import msgpack_form
from headgate.core.amqp import sections as amqp_sections
from headgate.core.amqp.types import MAX_VALUES
from headgate.core.due_time import delay_ms
from headgate.core.limits.priority import HIGHEST, USUAL, check_priority
from headgate.core.names import shown_id
from headgate.errors import InvalidValue, MessageFormatError

Headers = Mapping[str, Any]
Outcome = Literal["accepted", "released", "rejected", "failed"]
"""The outcomes that settle a delivery."""
MAX_MESSAGE: Final = 128 << 20
"""Bytes; more than this is a file, not a message."""
_PRIORITY: Final = "amqp.priority"
_pack: Final = msgpack_form.pack


def encode(body: bytes | bytearray | memoryview | str, headers: Headers | None) -> bytes:
    """Return a message as the SDK stores it: a msgpack array of body and, where there are any, headers.

    Raises:
        InvalidValue: the body is neither bytes nor text, a header cannot be stored, or it is all too long.
    """
    if type(body) is not bytes and not isinstance(body, bytes | bytearray | memoryview | str):
        raise InvalidValue(f"a body is bytes or text, not {type(body).__name__}")
    try:
        stored: bytes = _pack((body, _checked(headers)) if headers else (body,))
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidValue(f"headers {headers!r} cannot be stored: {error}") from None
    if headers and len(stored) - len(body) > msgpack_form.SMALL:
        _check_readable(stored)
    if len(stored) > MAX_MESSAGE:
        raise InvalidValue(f"a message of {len(stored)} bytes; at most {MAX_MESSAGE} can be stored")
    return stored


def _check_readable(stored: bytes) -> None:
    try:
        msgpack_form.read_headers(stored)
    except MessageFormatError as error:
        raise InvalidValue(f"headers that no client could read: {error.problem}") from None


def _checked(headers: Headers) -> dict[str, Any]:
    for name in headers:
        if not isinstance(name, str):
            raise InvalidValue(f"header name {name!r}: names are text")
    return dict(headers)


def decode(stored: bytes, most: int = MAX_VALUES) -> tuple[bytes | str, dict[str, Any]]:
    """Return body and headers of a stored message, whatever its form.

    Raises:
        MessageFormatError: it is damaged, in neither form, or of AMQP and has more values than that.
    """
    return amqp_mapping.shown(amqp_message.decode(stored, most)) if is_amqp(stored) else msgpack_form.read(stored)


def is_amqp(stored: bytes) -> bool:
    """Return whether a stored message is one of AMQP 1.0, as it came."""
    return stored[:1] == b"\0"


def is_durable(stored: bytes) -> bool:
    """Return whether a stored message is not to be lost, as AMQP's header says it, or the SDK's ``amqp.durable``.

    A message that nobody can read is.
    """
    try:
        if is_amqp(stored):
            return amqp_sections.header_of(stored).durable
        return msgpack_form.read_headers(stored).get("amqp.durable") is True
    except MessageFormatError:
        return True


def to_amqp(stored: bytes, *, delivery_count: int = 0) -> bytes:
    """Return a stored message as an AMQP client gets it. One of AMQP 1.0 is itself, but for its header.

    Args:
        stored: in either form.
        delivery_count: attempts that failed.

    Raises:
        InvalidValue: the delivery count is not a number from 0 to 2**32 - 1.
        MessageFormatError: it is damaged, or in neither form.
    """
    if is_amqp(stored):
        return amqp_sections.with_delivery_count(stored, delivery_count) if delivery_count else stored
    if delivery_count and not amqp_sections.is_number(delivery_count, 32):
        raise InvalidValue(f"delivery count {delivery_count!r}: use a number from 0 to 4294967295")
    return amqp_mapping.written(*msgpack_form.read(stored), delivery_count)


def had_before(stored: bytes) -> bytes:
    """Return a stored message as it is once somebody had it: its AMQP header does not say that nobody did."""
    try:
        return amqp_sections.acquired(stored) if is_amqp(stored) else stored
    except MessageFormatError:
        return stored


def with_headers(stored: bytes, more: Headers) -> bytes:
    """Return a stored message with more headers, in the form that it has; all else stays as it is.

    Raises:
        InvalidValue: a header cannot be stored, or it is all too long.
        MessageFormatError: it is damaged, or in neither form.
    """
    if is_amqp(stored):
        return amqp_sections.with_application_properties(stored, more)
    body, headers = msgpack_form.read(stored)
    return encode(body, headers | dict(more))


def with_priority(headers: Headers | None, priority: int) -> Headers:
    """Return headers that say a priority, 0 to 9; 4 is the usual one, which needs no word.

    Raises:
        InvalidValue: it is another number, or none.
    """
    check_priority(priority)
    others = {name: value for name, value in (headers or {}).items() if name != _PRIORITY}
    return others if priority == USUAL else others | {_PRIORITY: priority}


class Stored:
    """A stored message has parts, which are read when they are first asked for.

    Attributes:
        stored: its bytes, in either form.
        size: how many they are: what it counts for.
    """

    __slots__ = ("_decoded", "size", "stored")

    def __init__(self, stored: bytes) -> None:
        self.stored = stored
        self.size = len(stored)
        self._decoded: tuple[bytes | str, dict[str, Any]] | None = None

    @property
    def id(self) -> str:
        """The message's id at its destination; empty where it has none."""
        return ""

    @property
    def body(self) -> bytes | str:
        """Bytes, or text if it was sent as text.

        Raises:
            MessageFormatError: the message is damaged, or in no form that is known.
        """
        return (self._decoded or self._read())[0]

    @property
    def headers(self) -> dict[str, Any]:
        """As they were sent; of an AMQP client's message, what it says beside the body. Errors as :attr:`body`."""
        return (self._decoded or self._read())[1]

    @property
    def priority(self) -> int:
        """The priority that it was sent with, 0 to 9; 4 where its sender gave none. Errors as :attr:`body`."""
        priority = self.headers.get(_PRIORITY)
        return min(priority, HIGHEST) if isinstance(priority, int) and priority >= 0 else USUAL

    def _read(self) -> tuple[bytes | str, dict[str, Any]]:
        try:
            self._decoded = decode(self.stored)
        except MessageFormatError as error:
            raise MessageFormatError(error.problem, at=error.at, id=self.id) from None
        return self._decoded


@dataclass(slots=True, eq=False, repr=False)
class Receipt:
    """A receipt proves that a message is stored, or was dropped where the destination says ``when_full = drop``.

    Attributes:
        seq: number of the message at its destination, dense from 1; 0 when it was dropped.
        size: bytes as stored: what it counts for.
        dropped: there was no room, and so it was not stored; it is counted in the destination's ``dropped_messages``.
        slice: number of the slice that it is in, and that ``seq`` is of; 0 for the first.
    """

    seq: int
    size: int
    dropped: bool = field(default=False, kw_only=True)
    slice: int = field(default=0, kw_only=True)

    @property
    def id(self) -> str:
        """The message's id at its destination; empty when it was dropped."""
        if self.dropped:
            return ""
        return f"{self.slice}:{self.seq}-{self.size}" if self.slice else f"{self.seq}-{self.size}"

    def __repr__(self) -> str:
        return "Receipt(dropped)" if self.dropped else f"Receipt({self.id})"


class Named(Protocol):
    """A named address has the names that a message needs of it."""

    @property
    def name(self) -> str:
        """The name of the destination, or of a slice of it."""

    @property
    def shown(self) -> str:
        """The name of the destination."""


class Holder(Protocol):
    """A holder is the consumer that a delivery came to, as far as its message needs it."""

    generation: int

    @property
    def address(self) -> Named:
        """The address of its destination."""

    def settle(self, message: "Message", outcome: Outcome, *, confirm: bool, reason: str = "") -> "Future[None] | None":
        """Settle with the next call; the future, if ``confirm`` asks for one, is done when Redis has it."""

    def accept(self, messages: "Sequence[Message]") -> int:
        """Settle as accepted with the next call; returns how many others have by now."""

    async def confirm(
        self, message: "Message", outcome: Outcome, timeout: float | str | None, *, reason: str = ""
    ) -> None:
        """Settle, and wait until Redis has it."""


class Message(Stored):
    """A message is one delivery. Settle it once: :meth:`accept`, :meth:`release`, :meth:`reject` or :meth:`modify`.

    Attributes:
        delivery_count: attempts that failed before this one.
    """

    __slots__ = ("_consumer", "_generation", "_put_off", "delivery_count", "raw_id", "settled")

    def __init__(self, consumer: Holder, generation: int, raw_id: bytes, stored: bytes, delivery_count: int) -> None:
        self.stored = stored  # as Stored does; a call for it would be a third of the time that this takes
        self.size = len(stored)
        self._decoded = None
        self._consumer = consumer
        self._generation = generation
        self.raw_id = raw_id
        self.delivery_count = delivery_count
        self.settled = False

    @property
    def id(self) -> str:
        """The message's id at its destination."""
        return shown_id(self._consumer.address.name, self.raw_id.decode())

    @property
    def is_current(self) -> bool:
        """Whether it can still be settled: False once it was given to another consumer."""
        return self._generation == self._consumer.generation

    def is_of(self, holder: Holder) -> bool:
        """Return whether it was delivered to that consumer."""
        return self._consumer is holder

    @property
    def destination(self) -> str:
        """The name of the queue or topic that it comes from."""
        return self._consumer.address.shown

    def __repr__(self) -> str:
        return f"Message({self.id}, {self.size} bytes{', settled' if self.settled else ''})"

    def put_off(self, after: float | str) -> None:
        """Have it wait that many seconds before it is delivered again, where it is given back next.

        Raises:
            InvalidValue: it was settled already, or it is no duration, or more than 366 days.
        """
        if self.settled:
            raise InvalidValue(f"{self!r} cannot be settled twice")
        self._put_off = delay_ms(after, "after")

    @property
    def given_back_id(self) -> bytes:
        """The id as ``lua/settle.lua`` takes it of one that is given back: with the time that it is to wait, if any."""
        ms = getattr(self, "_put_off", None)
        return self.raw_id if ms is None else b"%b+%d" % (self.raw_id, ms)

    def settle(self, outcome: Outcome, *, reason: str = "") -> None:
        """Settle with the next call, without a wait; what the other verbs do, for who has an outcome in hand.

        Raises:
            SessionExpired, InvalidValue, Closed: as :meth:`accept`.
        """
        self._consumer.settle(self, outcome, confirm=False, reason=reason)

    async def confirm(self, outcome: Outcome, timeout: float | str | None = None, *, reason: str = "") -> None:
        """Settle, and wait until Redis has it; arguments and errors as :meth:`accept`."""
        await self._consumer.confirm(self, outcome, timeout, reason=reason)

    async def accept(self, *, confirm: bool = False, timeout: float | str | None = None) -> None:
        """Say that it is done with: it is removed and its bytes are free.

        Settlements go out together, a moment later; ``confirm`` waits until Redis has it. Settling never waits behind
        sends, and a second settlement of the same delivery is refused.

        Args:
            confirm: wait until Redis has it.
            timeout: seconds for which that is waited for: 30 when None, ``"unlimited"`` for as long as it takes.

        Raises:
            SessionExpired: the delivery was given to somebody else meanwhile.
            CoordinatorUnavailable: Redis did not confirm it in time; it is settled later, or given to somebody else.
                Or a failover lost that it was delivered, and it comes again.
            NotDurable: it is settled, and was not as safe in time as its durability asks.
            InvalidValue: it was settled already, or the timeout cannot be read.
        """
        if confirm:
            await self._consumer.confirm(self, "accepted", timeout)
        else:
            self._consumer.settle(self, "accepted", confirm=False)

    async def release(self, *, confirm: bool = False, timeout: float | str | None = None) -> None:
        """Give it back untried: it is delivered again, before newer ones. Arguments and errors as :meth:`accept`."""
        if confirm:
            await self._consumer.confirm(self, "released", timeout)
        else:
            self._consumer.settle(self, "released", confirm=False)

    async def reject(self, reason: str = "", *, confirm: bool = False, timeout: float | str | None = None) -> None:
        """Say that it can never be used: it is removed and counted as rejected, or stored as a dead letter.

        Arguments and errors as :meth:`accept`; where dead letters find no room, that is waited for too.
        """
        if confirm:
            await self._consumer.confirm(self, "rejected", timeout, reason=reason)
        else:
            self._consumer.settle(self, "rejected", confirm=False, reason=reason)

    async def modify(
        self,
        *,
        failed: bool = True,
        after: float | str | None = None,
        confirm: bool = False,
        timeout: float | str | None = None,
    ) -> None:
        """Give it back after a failed attempt: :attr:`delivery_count` grows.

        Args:
            failed: whether the attempt counts as failed.
            after: seconds that it waits before it is delivered again, 0 for none, at most 366 days; where None, a
                failed one waits as the destination's ``retry`` says.
            confirm: as :meth:`accept`.
            timeout: the same.

        Raises:
            InvalidValue: as :meth:`accept`, or ``after`` is no such duration.
            SessionExpired, CoordinatorUnavailable, NotDurable: as :meth:`accept`.
        """
        if after is not None:
            self.put_off(after)
        if confirm:
            await self._consumer.confirm(self, "failed" if failed else "released", timeout)
        else:
            self._consumer.settle(self, "failed" if failed else "released", confirm=False)


_holder_of: Final = attrgetter("_consumer")


def accept(messages: Iterable[Message]) -> int:
    """Settle deliveries as accepted, without a wait; returns how many of them were others' by then, and stay so."""
    return sum(holder.accept(list(some)) for holder, some in groupby(messages, _holder_of))
