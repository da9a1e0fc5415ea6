"""A connection knows who its client is, and which of the node's ends its links lead to."""

import asyncio
import contextlib
import logging
import time
from typing import Any, Final

from headgate import __version__
from headgate.amqp import link as amqp
from headgate.amqp.calls import GATEWAY
from headgate.amqp.engine import Engine
from headgate.amqp.handler import Incoming
from headgate.amqp.link import Fate, Link
from headgate.amqp.sasl import OK, REFUSED, UNAVAILABLE, Credentials, SaslServer
from headgate.amqp.wire import MOST_AHEAD, WRITE_AHEAD, Wire
from headgate.core.printable import printable
from headgate.errors import AccessDenied, HeadgateError
from headgate.namespace.topics import is_pattern
from headgate.session.session import Session
from headgate_coordinator.node.addresses import address_of, kind_asked, subscription_of
from headgate_coordinator.node.conditions import condition_of
from headgate_coordinator.node.connection_share import NOTHING, REFUSALS, standing_of
from headgate_coordinator.node.ends.browser import LinkBrowser
from headgate_coordinator.node.ends.end import LinkEnd
from headgate_coordinator.node.ends.pattern_receiver import as_meant, by_pattern, refusal_by_pattern
from headgate_coordinator.node.ends.reattaching import SubscriptionCloser
from headgate_coordinator.node.ends.receiver import LinkReceiver
from headgate_coordinator.node.ends.relay import Relay
from headgate_coordinator.node.ends.selecting import looks_only, refusal_by_filter
from headgate_coordinator.node.ends.sender import LinkSender
from headgate_coordinator.node.ends.temporary import TemporarySender, claim, kind_of
from headgate_coordinator.node.gateway.gateway import Gateway
from headgate_coordinator.node.gateway.replies import Replies
from headgate_coordinator.node.home import ConnectionHome
from headgate_coordinator.node.log_in import log_in, name_of
from headgate_coordinator.security import Identity
from headgate_coordinator.security.access import Access
from headgate_coordinator.security.password_queue import PasswordQueueFull, network_of
from headgate_coordinator.security.tokens import TokenRefused

_log = logging.getLogger("headgate.node")
SILENT: Final = 1000
"""Connections that have not logged in; of more, the oldest is cut off, so that they keep nobody out."""
EXPIRED: Final = "the token has expired; connect again with a new one"
REFUSED_WITH_ERROR: Final = 100
"""Connections above the limit that get an error; further ones are cut off."""


class Connection(Wire):
    """A connection holds what the node knows of one client.

    Attributes:
        node: the node.
        access: what it may do.
        held: bytes of its messages that wait to be stored.
        leaving: whether it was asked to go elsewhere.
    """

    def __init__(self, node: ConnectionHome, *, encrypted: bool) -> None:
        super().__init__(SaslServer(()), handshake=node.options.handshake)
        self.node = node
        self._encrypted = encrypted
        self._certified = ""
        self.access = Access()
        self.held = 0
        self.ends: dict[Link, LinkEnd] = {}
        self.standing = standing_of(None)
        """How much of the node it may take."""
        self._session: Session | None = None
        self.leaving = self._asked = self._over = False
        self._refused = 0
        self._identifying: asyncio.Task[None] | None = None
        self._stuck: Any = None
        self._expiry: asyncio.TimerHandle | None = None

    @property
    def identity(self) -> Identity | None:
        """The client's user, once it has logged in."""
        return self.access.identity

    @property
    def client(self) -> str:
        """The client's name for operators: its container id, as it may be printed, and its address."""
        return f"{printable(self.engine.peer, 100) or 'unnamed'} at {self.peername}" if self._secured else self.peername

    @property
    def busy(self) -> bool:
        """Whether messages are on their way to Redis, or with the client and not settled."""
        return self.held > 0 or any(end.unsettled for end in self.ends.values())

    def session(self) -> Session:
        """Return the session of its consumers, opened with the first."""
        if self._session is None:
            user = self.identity.name if self.identity else None
            self._session = self.node.quotas.session(self.engine.peer or self.peername, user)
        return self._session

    def connection_made(self, transport: Any) -> None:
        """Take it on, unless there are too many."""
        self.node.connections.add(self)
        self._certified = name_of(transport.get_extra_info("peercert"))
        assert isinstance(self.sasl, SaslServer)  # noqa: S101 -- a node is never a client here
        self.sasl.offer(self.node.ways_in(encrypted=self._encrypted, certified=self._certified))
        super().connection_made(transport)
        self.node.silent[self] = None
        if len(self.node.silent) > SILENT:
            oldest = next(iter(self.node.silent))
            del self.node.silent[oldest]
            oldest.abort()
        if len(self.node.connections) > self.node.options.connections + REFUSED_WITH_ERROR:
            self.node.counters.refused("connections")
            self.abort()

    def identified(self) -> None:
        """Have checked who it says it is."""
        credentials = self.sasl.credentials if isinstance(self.sasl, SaslServer) else None
        if credentials is not None and not self._asked:
            self._asked = True
            self.node.silent.pop(self, None)
            self._identifying = self.node.spawn(self._identify(credentials))

    def hang_up(self, error: Exception) -> None:
        """Close the socket without a word of AMQP; what it wanted checked is not checked any more."""
        if self._identifying is not None and self.identity is None:
            self._identifying.cancel()
        super().hang_up(error)

    async def _identify(self, credentials: Credentials) -> None:
        sasl, name = self.sasl, credentials.name
        assert isinstance(sasl, SaslServer)  # noqa: S101 -- a node is never a client here
        code, expires = UNAVAILABLE, None
        try:
            peer = network_of(self.peername)
            self.access.identity, expires = await log_in(self.node.users, credentials, self._certified, peer)
            if self.identity is not None:
                await self.node.quotas.enter(self, self.identity.name)
            code = OK if self.identity is not None else REFUSED
        except PasswordQueueFull:
            self.node.counters.refused("crowd")
        except TokenRefused as error:
            code = REFUSED
            self.node.refusals.warn("%s: %s", self.peername, error)
        except HeadgateError as error:
            self.node.refusals.warn("%s: user %r is not let in yet: %s", self.peername, name[:80], error)
        except Exception:  # noqa: BLE001 -- any error goes to the client, and the node goes on
            _log.exception("%s: its password could not be checked", self.peername)
        if self.lost:
            self.node.quotas.leave(self)
            return
        code = UNAVAILABLE if code == OK and self.node.has_too_many(self) else code
        sasl.decide(code)
        if code == OK:
            self._identifying = None
            if expires is not None:
                self._expiry = self._loop.call_later(expires - time.time(), self._shut_out, EXPIRED)
            self.secure()
        else:
            self._send_sasl()
            self.node.counters.refused("password" if code == REFUSED else "users")
            self.node.refusals.warn("%s: user %r is refused", self.peername, name[:80])
            self.end()

    def _shut_out(self, why: str) -> None:
        for end in self.ends.values():
            end.abandon()
        _log.info("%s: %s", self.client, why)
        self.send_away(amqp.UNAUTHORIZED, why)

    def make_engine(self) -> Engine:
        """Return the engine of a client's connection."""
        self.standing = standing_of(self.identity)
        self._bound_writing()
        return Engine(
            self, server=True, container=self.node.name, limits=self.standing.limits(self.node.options.limits),
            offered=("ANONYMOUS-RELAY", "SHARED-SUBS", "DELAYED_DELIVERY"),
            properties={"product": "Headgate", "version": __version__},
        )  # fmt: skip

    def _stand(self) -> None:
        """Heed that grants have changed: what it may take of the node goes by them."""
        standing = standing_of(self.identity)
        if standing is self.standing or not self._secured or self.lost:
            return
        self.standing = standing
        self._bound_writing()
        self.engine.bound(standing.limits(self.node.options.limits))
        for end in tuple(self.ends.values()):
            end.changed()

    def _bound_writing(self) -> None:
        self.most_ahead = min(MOST_AHEAD, 4 * self.standing.ahead)
        self._transport.set_write_buffer_limits(high=min(WRITE_AHEAD, self.standing.ahead))

    def opened(self) -> None:
        """Answer the client's open; a node that is full or about to stop says so in a close."""
        self.engine.open()
        if reason := self.node.refusal() or self.node.quotas.refusal(self):
            self.engine.close(*reason)
        self.settled_in()

    def attached(self, link: Link) -> None:
        """Lead a new link to where it belongs."""
        wanted = (link.target if link.receives else link.source).address
        try:
            if self.standing is NOTHING and wanted != GATEWAY:
                self.node.counters.refused("permission")
                raise AccessDenied("a user without any grant has no links; ask an operator for a grant")
            if link.receives:
                self._incoming(link)
            else:
                self._outgoing(link)
        except HeadgateError as error:
            self._refuse(link, *condition_of(error))
            self._refused += self.standing is NOTHING
            if self._refused >= REFUSALS:
                self.engine.give_up(amqp.UNAUTHORIZED, f"{REFUSALS} links were refused to a user without any grant")

    def _refuse(self, link: Link, condition: str, description: str) -> None:
        link.refuse(condition, description)
        _log.info("%s: link %s is refused: %s", self.client, printable(link.name, 100), description)

    def _incoming(self, link: Link) -> None:
        target = link.target
        address = target.address and address_of(target.address)
        if target.coordinator:
            self._refuse(link, amqp.NOT_IMPLEMENTED, "there are no transactions; settle each message by itself")
        elif target.dynamic:
            self._begin(link, TemporarySender(self, link, claim(self), kind_of(target)))
        elif address is None:
            self._begin(link, Relay(self, link))
        elif address == GATEWAY:
            self._begin(link, Gateway(self, link))
        else:
            self._begin(link, LinkSender(self, link, address, kind_asked(target)))

    def _outgoing(self, link: Link) -> None:
        source = link.source
        address = source.address and address_of(source.address)
        if unfit := refusal_by_filter(source):
            self._refuse(link, amqp.NOT_IMPLEMENTED, unfit)
        elif source.dynamic:
            self._receive(link, LinkReceiver(self, link, claim(self)))
        elif address is None:
            self._begin(link, SubscriptionCloser(self, link, self._subscription(link)))
        elif address == GATEWAY:
            self._begin(link, Replies(self, link))
        elif is_pattern(name := address.partition("?")[0]):
            if unfit := refusal_by_pattern(name, source):
                self._refuse(link, amqp.NOT_IMPLEMENTED, unfit)
            else:
                self._receive(link, LinkReceiver(self, link, as_meant(self.node.client, address), by_pattern))
        elif looks_only(source):
            self._begin(link, LinkBrowser(self, link, address))
        else:
            self._receive(link, LinkReceiver(self, link, address))

    def _receive(self, link: Link, receiver: LinkReceiver) -> None:
        source = link.source
        named = source.durable or "shared" in source.capabilities
        subscription = self._subscription(link) if named else None
        kind = "topic" if subscription else kind_asked(source)
        self._begin(link, receiver, receiver.open(kind, subscription=subscription, durable=source.durable))

    def _subscription(self, link: Link) -> str:
        return subscription_of(link, self.engine.peer or "", self.access, users=not self.node.users.is_open)

    def _begin(self, link: Link, end: LinkEnd, opening: Any = None) -> None:
        link.user = end
        self.ends[link] = end
        end.begin(opening if opening is not None else end.open())  # type: ignore[attr-defined]
        end.look_again()  # asks for the first time, before anything of it was begun
        shared = GATEWAY in (link.source.address, link.target.address) or "shared" in link.source.capabilities
        if link.alive and not shared:  # links of an SDK, and those that share, may be called the same
            self.node.claims.take(end)

    def look_again(self) -> None:
        """End what the client may not do any more, now that users have changed; all of it where its user is gone."""
        if self.identity is not None and not self.identity.valid:
            self._shut_out(f"what user {self.identity.name!r} signed in with is no longer valid")
            return
        self._stand()
        for end in tuple(self.ends.values()):
            end.look_again()

    def received(self, link: Link, messages: list[Incoming]) -> None:
        """Pass on what came in."""
        if link.user is not None:
            link.user.received(messages)

    def flowed(self, link: Link) -> None:
        """Pass on that the client gave credit."""
        if link.user is not None:
            link.user.flowed()

    def settled(self, link: Link, fates: list[Fate]) -> None:
        """Pass on what the client says of messages."""
        if link.user is not None:
            link.user.settled(fates)

    def answered(self, link: Link) -> None:
        """A node begins no links."""

    def detached(self, link: Link) -> None:
        """Pass on that a link is over."""
        if end := self.ends.pop(link, None):
            end.gone(lost=False)
            self.node.spawn(end.finish())

    def part(self, end: LinkEnd, *, lost: bool = False) -> None:
        """Forget an end whose link the node itself has closed."""
        if self.ends.pop(end.link, None):
            end.link.alive = False
            end.gone(lost=lost)

    def closed(self, condition: str, description: str) -> None:
        """Note why it ends; a client that closes it in order has failed at nothing that it held."""
        if self.engine.farewell:
            ends, self.ends = self.ends, {}
            for link, end in ends.items():
                link.alive = False
                end.gone(lost=False)
                self.node.spawn(end.finish())
        if condition and not self._over:  # of one end the library tells more than once
            self._over = True
            if description == "connection aborted":
                condition, description = "gone", "it hung up without a close"
            elif description.startswith("local-idle-timeout"):
                description = f"it has been silent for {self.node.options.limits.idle:g} s"
            _log.info("%s: %s: %s", self.client, condition, description)

    def pause_writing(self) -> None:
        """Wait for a client that does not read, for some time."""
        super().pause_writing()
        self._stuck = self._loop.call_later(self.node.options.slow_reader, self._too_slow_a_reader)

    def _too_slow_a_reader(self) -> None:
        if self.congested:
            self.node.counters.refused("slow-reader")
            _log.warning("%s: has not read for %g s", self.client, self.node.options.slow_reader)
            self.abort()

    def relieved(self) -> None:
        """Go on with what waited for the client to read."""
        if self._stuck:
            self._stuck.cancel()
        for end in tuple(self.ends.values()):
            end.relieved()

    def rest(self) -> None:
        """Let the client send no more, and give it no more."""
        if self._secured and not self.lost:
            self.on_flush = self.node.stir
            for end in tuple(self.ends.values()):
                end.rest()
            self.flush_soon()

    def send_away(self, condition: str, reason: str, elsewhere: tuple[str, int] | None = None) -> None:
        """Close the connection; say why, and at which host and port another node is, if that is known."""
        info: dict[str, str | int] = {}
        if elsewhere is not None:
            host, port = elsewhere
            info = {"hostname": host, "network-host": host, "port": port}
        self.leaving = True
        if self._secured and not self.lost:
            for end in tuple(self.ends.values()):
                self.part(end)  # without a word: who reconnects takes up links that no error has ended
            self.engine.close(condition, reason, info)
            self.flush()
        else:
            self.abort()

    def went(self, _error: Exception | None) -> None:
        """Let go of everything that it had."""
        for timer in (self._stuck, self._expiry):
            if timer:
                timer.cancel()
        if self._identifying is not None and self.identity is None:
            self._identifying.cancel()  # nobody waits for that any more
        self.node.silent.pop(self, None)
        self.node.connections.discard(self)
        self.node.quotas.leave(self)
        self.node.stir()
        if not self.node.connections:
            self.node.emptied.set()
        ends, self.ends = self.ends, {}
        for link, end in ends.items():
            link.alive = False
            end.gone(lost=True)
        if ends or self._session is not None:
            self.node.spawn(self._finish(list(ends.values())))

    async def _finish(self, ends: list[LinkEnd]) -> None:
        for end in ends:
            await end.finish()
        if self._session is not None:
            with contextlib.suppress(HeadgateError):  # when its TTL is over, the same happens without us
                await self._session.close()
