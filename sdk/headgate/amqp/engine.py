"""An engine speaks one connection's AMQP 1.0, without socket or clock: bytes in, calls to a handler, bytes out.

Duties that the C library leaves to its user are done here: a peer that sends without credit or too much at once loses
its link, and one that has more links than it may is refused the next.
"""

from collections.abc import Mapping
from typing import Any, Final

from headgate.amqp.handler import Handler
from headgate.amqp.intake import ignore, take
from headgate.amqp.limits import Limits, RetainedLinks
from headgate.amqp.link import (
    DECODE_ERROR,
    ERRANT_LINK,
    FRAMING_ERROR,
    ILLEGAL_STATE,
    RESOURCE_LIMIT,
    TRANSFER_LIMIT,
    Fate,
    Link,
    Terminus,
    fate_of,
    refuse,
)
from headgate.amqp.link_closing import ClosingLinks, DrainingLinks
from headgate.amqp.proton import delivery_tag, ffi, lib, put_text_map, read_condition, scratch, set_condition
from headgate.amqp.rereading import MalformedAttach, echoes, read_attach, repeated
from headgate.amqp.streaming import Streams
from headgate.amqp.transport import MUCH, STRIDE, Buffers, InputChunks, begun, open_session
from headgate.amqp.windows import SessionWindows

MOST_IGNORED: Final = 200
"""Messages over closed links that a connection may send; fewer than the frames of a session's window."""
RECEIVED: Final = lib.PN_RECEIVED  # how far the peer is with a message; what is above is an outcome

# Names of the module, not attributes of the library: they are looked up for each message.
_peek, _pop, _event_type = lib.pn_collector_peek, lib.pn_collector_pop, lib.pn_event_type
_event_link, _event_delivery = lib.pn_event_link, lib.pn_event_delivery
_current, _settled, _settle = lib.pn_link_current, lib.pn_delivery_settled, lib.pn_delivery_settle
_remote_state, _ACCEPTED = lib.pn_delivery_remote_state, lib.PN_ACCEPTED
_DELIVERY, _FLOW = lib.PN_DELIVERY, lib.PN_LINK_FLOW
_credit = lib.pn_link_credit


class Engine:
    """An engine keeps the protocol of one connection.

    Args:
        handler: gets the events.
        server: whether the peer is a client.
        container: our name.
        limits: what the peer may take.
        hostname: of the server, as the client calls it.
        offered: capabilities that we have.
        properties: what else we say about ourselves.
    """

    __slots__ = (
        "_at", "_behind", "_buffers", "_chunks", "_collector", "_connection", "_data", "_given_up", "_handler",
        "_ignored", "_kept", "_opened", "_over", "_scratch", "_transport", "alive", "drains", "farewell", "limits",
        "lingering", "links", "streams", "tag", "windows",
    )  # fmt: skip

    def __init__(
        self,
        handler: Handler,
        *,
        server: bool,
        container: str,
        limits: Limits,
        hostname: str | None = None,
        offered: tuple[str, ...] = (),
        properties: dict[str, str] | None = None,
    ) -> None:
        self.links: Final[dict[Any, Link]] = {}
        self.streams: Final = Streams()
        self.drains: Final = DrainingLinks(self.streams)
        self.alive = True
        self.limits, self._kept = limits, RetainedLinks(limits)
        self.lingering: Final = ClosingLinks(self._kept)
        self._ignored = 0
        self.farewell = False
        """Whether the peer has closed the connection, and not just gone."""
        self._handler = handler
        self._scratch, self.tag = scratch(), delivery_tag()
        self._transport, self._connection, self._collector = begun(
            server=server,
            container=container,
            limits=limits,
            hostname=hostname,
            offered=offered,
            properties=properties or {},
        )
        self._buffers = Buffers(self._transport)
        self._chunks = InputChunks(self._transport, self._scratch, self._buffers)
        self.windows: Final = SessionWindows(self._transport, self._chunks, self.streams)
        self._opened = self._given_up = self._over = self._behind = False
        self._data, self._at = b"", 0

    @property
    def peer(self) -> str:
        """The peer's container id; empty when it is not known."""
        raw = self.alive and lib.pn_connection_remote_container(self._connection)
        return ffi.string(raw).decode(errors="replace") if raw else ""

    @property
    def is_open(self) -> bool:
        """Whether both sides opened the connection."""
        both = lib.PN_LOCAL_ACTIVE | lib.PN_REMOTE_ACTIVE
        return self.alive and bool(lib.pn_connection_state(self._connection) & both == both)

    def open(self) -> None:
        """Open the connection, or answer that the peer did."""
        if not self._opened:
            self._opened = True
            lib.pn_connection_open(self._connection)

    def close(self, condition: str = "", description: str = "", info: Mapping[str, str | int] | None = None) -> None:
        """Close the connection; the bytes that say so are still to be taken from :meth:`outgoing`."""
        if self.alive:
            self.open()  # an error is sent in a close, which comes after an open
            raw = lib.pn_connection_condition(self._connection)
            set_condition(raw, condition, description)
            put_text_map(lib.pn_condition_info(raw), info or {})
            lib.pn_connection_close(self._connection)

    def bound(self, limits: Limits) -> None:
        """Hold the peer to other limits from now on; those of frames, sessions and links that are open stay."""
        self.limits = self._kept.limits = limits

    def session(self) -> Any:
        """Begin a session; what it returns is for :meth:`attach`."""
        session = lib.pn_session(self._connection)
        self._chunks.sessions += 1
        open_session(session, self.limits.window)
        return session

    def attach(self, session: Any, name: str, *, receives: bool, presettled: bool = False) -> Link:
        """Begin a link; :meth:`Link.accept` says what its ends are."""
        make = lib.pn_receiver if receives else lib.pn_sender
        raw = make(session, name.encode())
        link = Link(self, raw, name, receives, Terminus(), Terminus(), presettled, max_message=self.limits.message)
        self.links[raw] = link
        self._kept.add(raw)
        return link

    def receive(self, data: bytes) -> None:
        """Take bytes from the peer and tell the handler what they mean."""
        if not self.alive or self._given_up:
            return
        self._data = data
        buffer, at, size = ffi.from_buffer(data), 0, len(data)
        if size > MUCH and not self._buffers.used:
            self._buffers.grow()
        while at < size and not self._given_up:
            self._at, until = at, min(size, at + self._chunks.next)
            # The library takes 8 KiB at once; what a stride brought is dealt with together.
            while at < until and (taken := lib.pn_transport_push(self._transport, buffer + at, until - at)) > 0:
                at += taken
            if at < until:  # it has heard the end, or an error that it tells by an event
                break
            self._process()
            self._chunks.taken(self.limits.frame, alive=self.alive)
        self._process()
        if data[-1:] == b"A" and self.alive and echoes(data):
            self._kept.say_windows()
        if self._behind and self.alive and (again := repeated(data, self.links.values())):
            lib.pn_transport_push(self._transport, again, len(again))
            self._process()
        self._behind, self._data = False, b""
        if self.windows.waiting:
            self.windows.tell(self._handler)
        if self.alive and not self._over and lib.pn_transport_capacity(self._transport) < 0:
            self.give_up(DECODE_ERROR, "a frame whose body has a descriptor that AMQP 1.0 does not define")

    def hung_up(self) -> None:
        """Note that nothing more will come."""
        if self.alive:
            lib.pn_transport_close_tail(self._transport)
            self._process()

    def tick(self, now: float) -> float | None:
        """Keep the heartbeat, at ``now`` in seconds of any clock that never goes back; returns when to call again."""
        if not self.alive:
            return None
        again = lib.pn_transport_tick(self._transport, int(now * 1000))
        self._process()
        self._buffers.rest(self._kept.sessions)
        return again / 1000 if again else None

    def outgoing(self) -> list[bytes]:
        """Return the bytes to send, and forget them."""
        pieces = self._chunks.written()
        if not self.alive:
            return pieces
        while True:
            self._chunks.write(pieces)
            fed, known = self.streams.feed() if self.streams.links else (False, [])
            for link, delivery in known:
                self._handler.settled(link, [fate_of(delivery)])
            if not fed and not (self.drains.links and self.drains.answer()):
                return pieces

    @property
    def ended(self) -> bool:
        """Whether nothing more is to be sent, ever."""
        return not self.alive or lib.pn_transport_pending(self._transport) < 0

    def free(self) -> None:
        """Let go of the memory; links and deliveries are gone after this."""
        if not self.alive:
            return
        self.alive = False
        for link in self.links.values():
            link.alive = False
        self.links.clear()
        self.lingering.drop()
        lib.pn_transport_unbind(self._transport)
        lib.pn_collector_release(self._collector)
        lib.pn_connection_release(self._connection)
        lib.pn_decref(self._connection)
        lib.pn_collector_free(self._collector)
        lib.pn_decref(self._transport)

    def _process(self) -> None:
        """Deal with all events; the messages of a link are taken together, once all of them are in.

        Outcomes are reported a run at a time: those of one link, and before anything else is done, for the
        next message may have the memory of one whose fate is known.
        """
        collector, links = self._collector, self.links
        arrived: dict[Link, None] = {}
        fates: list[Fate] = []
        of: Link | None = None
        while self.alive and (event := _peek(collector)):
            kind = _event_type(event)
            if kind == _DELIVERY:
                link = links.get(raw := _event_link(event))
                if link is None:
                    self._ignore(raw)
                elif link.receives:
                    arrived[link] = None
                elif link is of:
                    self._hear(link, _event_delivery(event), fates)
                else:
                    self._tell(of, fates)
                    fates, of = [], link
                    if link.has_foreign:  # all that came is in the library already: to look once is enough
                        self.give_up(ILLEGAL_STATE, f"a transfer over link {link.name!r}, sent by that link's receiver")
                    else:
                        self._hear(link, _event_delivery(event), fates)
            else:
                self._tell(of, fates)
                fates, of = [], None
                if kind == _FLOW:
                    self._flow(links.get(_event_link(event)))
                elif step := self._STEPS.get(kind):
                    self._take_all(arrived)  # what came before the link's end belongs to the link
                    self._chunks.stepped = True
                    step(self, event)
            if self.alive:
                _pop(collector)
        self._tell(of, fates)
        self._take_all(arrived)

    def _flow(self, link: Link | None) -> None:
        if link and not link.receives:
            self._handler.flowed(link)
            self._behind |= self.alive and _credit(link.raw) < 0

    def _hear(self, link: Link, delivery: Any, fates: list[Fate]) -> None:
        """Note the peer's outcome of a message that was sent in full."""
        if self.streams.links and self.streams.has(link, delivery):
            return
        state = _remote_state(delivery)
        if state == _ACCEPTED:  # as nearly always
            fates.append((delivery, "accepted", "", None))
            _settle(delivery)
        elif state > RECEIVED or _settled(delivery):
            fates.append(fate_of(delivery))

    def _tell(self, link: Link | None, fates: list[Fate]) -> None:
        if link is not None and fates:
            self._handler.settled(link, fates)

    def _take_all(self, arrived: dict[Link, None]) -> None:
        for link in arrived:
            if link.alive and self.alive:
                self._take_from(link)
            elif self.alive:
                self._ignore(link.raw)
        arrived.clear()

    def _take_from(self, link: Link) -> None:
        messages, fault, aborted = take(link, self._scratch, self._kept)
        if messages:
            self._handler.received(link, messages)
        elif aborted:
            self._handler.flowed(link)
        if fault and link.alive:
            self._fault(link, *fault)
        if not link.alive:
            return
        credit = link.credit
        if credit < 0:  # what was taken back while it was under way is forgiven, once
            link.slack += credit
            if link.slack < 0:
                self._fault(link, TRANSFER_LIMIT, f"{-link.slack} more than the credit of link {link.name!r}")
            else:
                lib.pn_link_flow(link.raw, -credit)

    def _ignore(self, raw: Any) -> None:
        """Drop what comes over a link that we have closed, for a while: in the end the library tells a wrong window."""
        self._ignored += ignore(raw, self._scratch)
        if self._ignored > MOST_IGNORED:
            self.give_up(ERRANT_LINK, f"{self._ignored} messages over links that were closed by an error")

    def _fault(self, link: Link, condition: str, description: str) -> None:
        link.close(condition, description)
        self._forget(link)

    def give_up(self, condition: str, description: str) -> None:
        """Close the connection of a peer that the library cannot bear any longer: nothing more of it is read."""
        if self._given_up:
            return
        self._given_up = self._over = True
        for link in tuple(self.links.values()):
            self._forget(link)
        self._handler.closed(condition, description)
        self.close(condition, description)

    def let_go(self, link: Link) -> None:
        """Forget a link that is over."""
        self.links.pop(link.raw, None)
        link.alive = False
        self._kept.unfinished -= len(link.partial)
        link.partial.clear()

    def _forget(self, link: Link) -> None:
        self._part(link)
        link.lingers = False

    def _part(self, link: Link) -> None:
        self.let_go(link)
        self._handler.detached(link)

    def _connection_opened(self, _: Any) -> None:
        if "\ufffd" in self.peer:  # two of those would share durable subscriptions
            self.give_up(DECODE_ERROR, "the container id is not UTF-8 (U+FFFD stands for what is not)")
        else:
            self._handler.opened()

    def _connection_closed(self, _: Any) -> None:
        self.farewell = self._over = True
        for link in (links := tuple(self.links.values())):
            link.ended = True
        self._handler.closed(*read_condition(lib.pn_connection_remote_condition(self._connection)))
        for link in links:
            link.lingers = False
        self.close()

    def _broken(self, _: Any) -> None:
        self._over = True
        self._handler.closed(*read_condition(lib.pn_transport_condition(self._transport)))

    def _session_opened(self, event: Any) -> None:
        session = lib.pn_event_session(event)
        if not lib.pn_connection_state(self._connection) & lib.PN_REMOTE_ACTIVE:
            condition = lib.pn_transport_condition(self._transport)  # a close of ours would wait for its open
            set_condition(condition, FRAMING_ERROR, "a session was begun before the connection was opened")
            lib.pn_transport_close_tail(self._transport)
        elif not lib.pn_session_state(session) & lib.PN_LOCAL_ACTIVE:
            self._chunks.sessions += 1
            if self._chunks.sessions > self.limits.sessions:  # without a channel to answer on, it falls silent
                self.give_up(RESOURCE_LIMIT, f"more than {self.limits.sessions} sessions, including those ending")
                return
            open_session(session, self.limits.window)

    def _session_closed(self, event: Any) -> None:
        if self._given_up:
            return
        session = lib.pn_event_session(event)
        self.lingering.drop(raws := self._kept.end(session))
        for raw in raws:
            if link := self.links.get(raw):
                link.ended = True
                self._forget(link)
        self._chunks.ended += 1
        lib.pn_session_close(session)
        lib.pn_session_free(session)

    def _link_opened(self, event: Any) -> None:
        raw = lib.pn_event_link(event)
        if self._given_up:
            return
        known = self.links.get(raw)
        try:
            near = self._data[max(0, self._at - STRIDE) : self._at + self._chunks.next]
            source, target, name = read_attach(raw, b"" if known else near)
        except MalformedAttach as error:
            refuse(raw, *error.condition)
            return
        if known:
            known.source, known.target = source, target
            known.peer_max_message = int(lib.pn_link_remote_max_message_size(raw))
            self._handler.answered(known)
            return
        self._kept.add(raw)
        if excess := self._kept.excess:
            self.give_up(RESOURCE_LIMIT, excess)
            return
        if len(self.links) >= self.limits.links:
            refuse(raw, RESOURCE_LIMIT, f"{self.limits.links} links are open on this connection; close some")
            return
        link = Link.begun(self, raw, name, source, target)
        self.links[raw] = link
        self._handler.attached(link)

    def _link_ended(self, event: Any) -> None:
        raw, closed = lib.pn_event_link(event), lib.pn_event_type(event) == lib.PN_LINK_REMOTE_CLOSE
        link = self.links.get(raw)
        if link is not None:
            link.closed, link.ended = closed, True
            self._part(link)
        self.lingering.end(raw, link, lib.pn_link_close if closed else lib.pn_link_detach)

    _STEPS: Final = {
        lib.PN_CONNECTION_REMOTE_OPEN: _connection_opened,
        lib.PN_CONNECTION_REMOTE_CLOSE: _connection_closed,
        lib.PN_TRANSPORT_ERROR: _broken,
        lib.PN_SESSION_REMOTE_OPEN: _session_opened,
        lib.PN_SESSION_REMOTE_CLOSE: _session_closed,
        lib.PN_LINK_REMOTE_OPEN: _link_opened,
        lib.PN_LINK_REMOTE_CLOSE: _link_ended,
        lib.PN_LINK_REMOTE_DETACH: _link_ended,
    }
