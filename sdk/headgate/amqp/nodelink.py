"""A client has a connection to one node: calls go out, many in one message, and answers come in, in any order."""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from headgate.amqp.calls import ANSWERS, GATEWAY, LARGE, MAX_CALLS, PING, message, pack, read
from headgate.amqp.engine import Engine
from headgate.amqp.handler import Incoming
from headgate.amqp.limits import Limits
from headgate.amqp.link import UNAUTHORIZED, Fate, Link, Terminus
from headgate.amqp.sasl import SaslClient
from headgate.amqp.url import AmqpUrl
from headgate.amqp.wire import Wire
from headgate.errors import AccessDenied, HeadgateError, MessageFormatError

SIGN_IN: Final = 1.5
"""Seconds in which a node that is to let us in must say something."""
LET_IN: Final = 6.0
"""Seconds in which it must have let us in."""
LOOK_EVERY: Final = 0.1
"""Seconds between looks whether a node that owes answers says anything."""
ASK_AFTER: Final = 7
"""Such looks without a byte, after which the node is asked for a sign of life. Looks and not seconds: when this process
itself stood still, what came meanwhile is read before the second look."""
GIVE_UP_AFTER: Final = 14
_LIMITS: Final = Limits(message=1 << 32, idle=30.0)
_NO_TLS: Final = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")
"""OpenSSL's words for an answer that is no TLS."""


class SilentNodeError(ConnectionError):
    """`SilentNodeError` is of a node that hung up before it sent anything."""


def about_tls(url: AmqpUrl, error: Exception) -> str:
    """Return what to add to the error of a first connection that fails as if one end alone spoke TLS."""
    if url.tls and isinstance(error, ssl.SSLError) and error.reason in _NO_TLS:
        return " (perhaps it speaks no TLS there: then the URL begins with amqp://)"
    if not url.tls and isinstance(error, SilentNodeError):
        return " (perhaps it wants TLS there: then the URL begins with amqps://)"
    return ""


class Call:
    """A call waits to be sent, or for its answer.

    Attributes:
        number: tells its answer from others.
        packed: what is sent.
        answer: the node's, or why there is none.
    """

    __slots__ = ("answer", "number", "packed")

    def __init__(self, number: int, packed: bytes, answer: "asyncio.Future[Any]") -> None:
        self.number = number
        self.packed = packed
        self.answer = answer


class NodeLink(Wire):
    """A node link makes one client's calls over one connection to a node.

    Args:
        url: of the nodes, with who we are.
        host: this node.
        container: what operators call us.
        hear: called with each answer and hint.

    Attributes:
        ready: done when calls can be made; says why they never will.
        over: done when the connection is.
        reason: why it ended.
        facts: what the node says of itself.
        heard: whether it has sent something.
    """

    def __init__(self, url: AmqpUrl, host: str, container: str, hear: Callable[[list[Any]], None]) -> None:
        sasl = SaslClient(url.username, url.password, host, token=url.token(), certified=url.has_certificate)
        super().__init__(sasl, handshake=LET_IN)
        self.ready: asyncio.Future[None] = self._loop.create_future()
        self.over: asyncio.Future[None] = self._loop.create_future()
        self.reason: Exception = ConnectionError("the node hung up")
        self.facts: dict[str, str] = {}
        self._host = host
        self._container = container
        self._hear = hear
        self._waiting: deque[Call] = deque()
        self._owed: set[int] = set()
        self._large: int | None = None
        self._posting = False
        self._quiet = 0
        self.heard = False
        self._look: asyncio.TimerHandle | None = None
        self._calls: Link
        self._answers: Link

    def make_engine(self) -> Engine:
        """Return the engine of a connection to a node, with a link for calls and one for answers."""
        engine = Engine(
            self,
            server=False,
            container=self._container,
            limits=_LIMITS,
            hostname=self._host,
            properties={"product": "Headgate SDK"},
        )
        engine.open()
        session = engine.session()
        self._answers = engine.attach(session, "answers", receives=True, presettled=True)
        self._answers.accept(Terminus(GATEWAY), Terminus(), max_message=_LIMITS.message)
        self._answers.set_credit(ANSWERS)
        self._calls = engine.attach(session, "calls", receives=False, presettled=True)
        self._calls.accept(Terminus(), Terminus(GATEWAY))
        return engine

    async def let_in(self) -> None:
        """Wait until calls can be made; a node that many push at may take some time, but not without a word.

        Raises:
            TimeoutError: it has sent nothing for :data:`SIGN_IN` seconds, or has not let us in for :data:`LET_IN`.
            HeadgateError: it refuses us.
            OSError: it is gone.
        """
        async with asyncio.timeout(LET_IN):
            while not self.ready.done():
                self.heard = False
                await asyncio.wait((self.ready,), timeout=SIGN_IN)
                if not self.heard and not self.ready.done():
                    raise TimeoutError
        self.ready.result()

    def offer(self, call: Call) -> None:
        """Send a call, with all others of this turn of the loop."""
        self._waiting.append(call)
        if not self._posting:
            self._posting = True
            self._loop.call_soon(self._post)

    def _post(self) -> None:
        self._posting = False
        link = self._calls
        while self._waiting and not self.lost and link.alive and not self.congested and link.credit > 1:
            if not (batch := self._batch(link.peer_max_message)):
                break
            link.send(message(batch), settled=True)
        if self._owed and self._look is None:
            self._quiet = 0
            self._look = self._loop.call_later(LOOK_EVERY, self._listen)
        self.flush()

    def _batch(self, most: int) -> list[bytes]:
        batch: list[bytes] = []
        size = 0
        while self._waiting and len(batch) < MAX_CALLS:
            call = self._waiting[0]
            length = len(call.packed)
            if call.answer.done():
                self._waiting.popleft()
                continue
            if most and length + 16 > most:
                self._waiting.popleft()
                call.answer.set_exception(HeadgateError(f"a call of {length} bytes; the node takes {most}"))
                continue
            if batch and size + length > (min(LARGE, most - 16) if most else LARGE):
                break
            if length > LARGE:
                if self._large is not None:
                    break
                self._large = call.number
            self._waiting.popleft()
            self._owed.add(call.number)
            batch.append(call.packed)
            size += length
        return batch

    def _listen(self) -> None:
        """Give up a node that owes answers and says nothing at all."""
        self._look = None
        if self.lost or not self._owed:
            return
        self._quiet += 1
        if self._quiet == ASK_AFTER and self._calls.alive and self._calls.credit > 0:
            self._calls.send(message([pack((PING, "ping"))]), settled=True)
            self.flush()
        if self._quiet >= GIVE_UP_AFTER:
            self.give_up(TimeoutError(f"{self.peername} owes answers and has sent nothing for a while"))
            return
        self._look = self._loop.call_later(LOOK_EVERY, self._listen)

    def data_received(self, data: bytes) -> None:
        """Take bytes: the node lives."""
        self.heard = True
        self._quiet = 0
        super().data_received(data)

    def opened(self) -> None:
        """Note that the node let us in; the links follow."""
        self.settled_in()

    def attached(self, link: Link) -> None:
        """Refuse a link: a node begins none."""
        link.refuse("amqp:not-allowed", "Headgate's own client accepts no links")

    def answered(self, link: Link) -> None:
        """Note that the node answered a link."""
        if link is self._calls:
            self.facts = link.properties

    def flowed(self, link: Link) -> None:
        """Send what waits: there is credit."""
        if link is not self._calls or link.credit <= 0:
            return
        if not self.ready.done():
            self.ready.set_result(None)
        if self._waiting and not self._posting:
            self._posting = True
            self._loop.call_soon(self._post)

    def relieved(self) -> None:
        """Send what waits: the node reads again."""
        if not self._posting:
            self._posting = True
            self._loop.call_soon(self._post)

    def received(self, link: Link, messages: list[Incoming]) -> None:
        """Pass answers and hints on."""
        for raw, _ in messages:
            try:
                answers = read(raw)
            except MessageFormatError as error:
                self.give_up(error)
                return
            for answer in answers:
                number = answer[0]
                self._owed.discard(number)
                if number == self._large:
                    self._large = None
                if number >= 0:
                    self._hear(answer)
        if link.alive and link.credit <= ANSWERS // 2:
            link.set_credit(ANSWERS)
        if self._waiting and not self._posting:
            self._posting = True
            self._loop.call_soon(self._post)

    def settled(self, link: Link, fates: list[Fate]) -> None:
        """Everything is settled as it is sent."""

    def detached(self, link: Link) -> None:
        """Give the connection up: without its links it is of no use."""
        condition, description = link.condition
        denied = condition == UNAUTHORIZED
        self.give_up(AccessDenied(description) if denied else ConnectionError(f"{condition}: {description}"))

    def closed(self, condition: str, description: str) -> None:
        """Note why the node closed the connection."""
        self.give_up(ConnectionError(f"{condition}: {description}" if condition else "the node closed the connection"))

    def hang_up(self, error: Exception) -> None:
        """Close the socket: we were not let in."""
        self.reason = error
        super().hang_up(error)

    def give_up(self, reason: Exception) -> None:
        """Close the socket as soon as the engine is at rest, and say why."""
        self.reason = reason
        self._loop.call_soon(self.abort)

    def part(self) -> None:
        """Close the connection in order, without waiting for the node."""
        if self._secured and not self.lost:
            self.engine.close()
            self.flush()
        if self._transport is not None:
            self._transport.close()

    def went(self, error: Exception | None) -> None:
        """Tell that it is over."""
        if type(self.reason) is ConnectionError:
            spoke = self.heard or self.ready.done()
            self.reason = (error or self.reason) if spoke else SilentNodeError(str(error or self.reason))
        if self._look:
            self._look.cancel()
        if not self.ready.done():
            self.ready.set_exception(self.reason)
            self.ready.exception()  # looked at: whoever waits for it may have gone
        if not self.over.done():
            self.over.set_result(None)
