"""One AMQP link of one connection, as its user sees it. :class:`headgate.amqp.engine` reports its events."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from headgate.amqp.proton import (
    lib,
    put_lifetime,
    put_selector,
    put_symbols,
    put_text_map,
    read_condition,
    read_filters,
    read_number,
    read_text_map,
    set_condition,
    symbols,
    text,
)
from headgate.amqp.streaming import PIECE

if TYPE_CHECKING:
    from headgate.amqp.engine import Engine

Outcome = Literal["accepted", "rejected", "released", "failed", "undeliverable"]
Fate = tuple[Any, Outcome, str, int | None]
"""A delivery that went out, as its identity; its outcome; why it was rejected; and ms that it is to wait, if any."""
NOT_FOUND: Final = "amqp:not-found"
NOT_ALLOWED: Final = "amqp:not-allowed"
NOT_IMPLEMENTED: Final = "amqp:not-implemented"
UNAUTHORIZED: Final = "amqp:unauthorized-access"
INVALID_FIELD: Final = "amqp:invalid-field"
ILLEGAL_STATE: Final = "amqp:illegal-state"
DECODE_ERROR: Final = "amqp:decode-error"
INTERNAL_ERROR: Final = "amqp:internal-error"
RESOURCE_LIMIT: Final = "amqp:resource-limit-exceeded"
RESOURCE_DELETED: Final = "amqp:resource-deleted"
TRANSFER_LIMIT: Final = "amqp:link:transfer-limit-exceeded"
ERRANT_LINK: Final = "amqp:session:errant-link"
TOO_LARGE: Final = "amqp:link:message-size-exceeded"
FRAMING_ERROR: Final = "amqp:connection:framing-error"
DELIVERY_DELAY: Final = "x-opt-delivery-delay"
"""An annotation: ms for which a message is to wait before it is delivered, again or for the first time."""
CONNECTION_FORCED: Final = "amqp:connection:forced"


# Names of the module, not attributes of the library: they are looked up for each message.
_new_delivery, _send, _advance = lib.pn_delivery, lib.pn_link_send, lib.pn_link_advance
_update, _settle, _remote_state = lib.pn_delivery_update, lib.pn_delivery_settle, lib.pn_delivery_remote_state
_ACCEPTED = lib.PN_ACCEPTED


@dataclass(frozen=True, slots=True)
class Terminus:
    """A terminus is one end of a link, as one side described it.

    Attributes:
        address: the destination's name; None where there is none, as at an anonymous relay.
        dynamic: whether the other side is asked to make the destination.
        durable: whether what is there outlives the link.
        capabilities: words such as ``queue`` and ``topic``.
        filters: names of the filters asked for, without a selector.
        browse: whether messages are only looked at.
        coordinator: whether it wants transactions.
        selector: a condition on messages, and the name of the filter that says it.
    """

    address: str | None = None
    dynamic: bool = False
    durable: bool = False
    capabilities: tuple[str, ...] = ()
    filters: tuple[str, ...] = ()
    browse: bool = False
    coordinator: bool = False
    selector: tuple[str, str] | None = None

    @classmethod
    def read(cls, terminus: Any) -> "Terminus":
        """Return the peer's value.

        Raises:
            UnicodeDecodeError: the address is not UTF-8.
        """
        selector, filters = read_filters(lib.pn_terminus_filter(terminus))
        return cls(
            text(lib.pn_terminus_get_address(terminus)),
            bool(lib.pn_terminus_is_dynamic(terminus)),
            lib.pn_terminus_get_durability(terminus) != lib.PN_NONDURABLE
            or lib.pn_terminus_get_expiry_policy(terminus) == lib.PN_EXPIRE_NEVER,
            symbols(lib.pn_terminus_capabilities(terminus)),
            filters,
            lib.pn_terminus_get_distribution_mode(terminus) == lib.PN_DIST_MODE_COPY,
            lib.pn_terminus_get_type(terminus) == lib.PN_COORDINATOR,
            selector,
        )

    def write(self, terminus: Any, kind: Any) -> None:
        """Say it to the peer; filters other than a selector are left out, which refuses them."""
        if self.address is None and not self.dynamic and not self.capabilities:
            return
        lib.pn_terminus_set_type(terminus, kind)
        if self.address is not None:
            lib.pn_terminus_set_address(terminus, self.address.encode())
        if self.dynamic:
            lib.pn_terminus_set_dynamic(terminus, True)
            put_lifetime(lib.pn_terminus_properties(terminus))
        if self.durable:
            lib.pn_terminus_set_durability(terminus, lib.PN_DELIVERIES)
            lib.pn_terminus_set_expiry_policy(terminus, lib.PN_EXPIRE_NEVER)
        if self.browse:
            lib.pn_terminus_set_distribution_mode(terminus, lib.PN_DIST_MODE_COPY)
        if self.selector is not None:
            put_selector(lib.pn_terminus_filter(terminus), *self.selector)
        if self.capabilities:  # to look at what is empty makes it, and it stays
            put_symbols(lib.pn_terminus_capabilities(terminus), self.capabilities)


@dataclass(slots=True, eq=False)
class Link:
    """A link moves messages one way: at a receiver they come in, at a sender they go out.

    Attributes:
        engine: the connection's.
        raw: what the library calls it; not to be used once :attr:`alive` is False.
        name: chosen by whoever opened it.
        receives: whether messages come in over it.
        source: where they come from, as the peer says.
        target: where they go to, as the peer says.
        presettled: whether its sender wants to settle everything as it sends it.
        alive: whether it can still be used.
        closed: whether the peer closed it, and did not just go: what is durable ends.
        ended: whether the peer has ended it in order, by itself or with its session or connection.
        user: whatever its user keeps with it.
        slack: transfers that may come although their credit was taken back: they may have been under way.
        max_message: bytes that a message may have that comes in.
        peer_max_message: bytes that a message may have that goes out; 0 where the peer says nothing.
        lingers: whether the peer's end of it waits for our answer until :meth:`leave`: its deliveries may be settled.
    """

    engine: "Engine"
    raw: Any
    name: str
    receives: bool
    source: Terminus
    target: Terminus
    presettled: bool = False
    alive: bool = True
    closed: bool = False
    ended: bool = False
    user: Any = None
    slack: int = 0
    max_message: int = 0
    peer_max_message: int = 0
    lingers: bool = False
    tag: int = 0
    partial: bytearray = field(default_factory=bytearray)

    @classmethod
    def begun(cls, engine: "Engine", raw: Any, name: str, source: Terminus, target: Terminus) -> "Link":
        """Return a link that the peer began."""
        return cls(
            engine,
            raw,
            name,
            bool(lib.pn_link_is_receiver(raw)),
            source,
            target,
            lib.pn_link_remote_snd_settle_mode(raw) == lib.PN_SND_SETTLED,
            max_message=engine.limits.message,
            peer_max_message=int(lib.pn_link_remote_max_message_size(raw)),
        )

    @property
    def credit(self) -> int:
        """Transfers that may still be made, by the peer at a receiver, by us at a sender.

        A peer that makes transfers itself over a link at which it receives has none: the library would take them for
        ours, and crash later.
        """
        if not self.alive or self.has_foreign:
            return 0
        credit, streams = int(lib.pn_link_credit(self.raw)), self.engine.streams
        return credit - streams.waiting(self) if streams.links else credit

    @property
    def window(self) -> int:
        """Frames that the peer's session takes now, whatever the credit; what is sent beyond that stays here."""
        return self.engine.windows.room(self)

    @property
    def room(self) -> int:
        """Transfers of one frame that may be made now; where the peer's session takes none, `flowed` tells of more."""
        credit = self.credit
        room = min(credit, self.window) if credit > 0 else credit
        if room <= 0 < credit:
            self.engine.windows.wait(self, 0)
        return room

    @property
    def has_foreign(self) -> bool:
        """Whether a peer has made a transfer over a link at which it receives: ours are not current once sent."""
        current = None if self.receives else lib.pn_link_current(self.raw)
        return bool(current) and not self.engine.streams.has(self, current)

    @property
    def is_open(self) -> bool:
        """Whether we opened it, and did not close it."""
        return self.alive and bool(lib.pn_link_state(self.raw) & lib.PN_LOCAL_ACTIVE)

    @property
    def _begun_by_peer(self) -> bool:
        return bool(lib.pn_link_state(self.raw) & lib.PN_REMOTE_ACTIVE)

    @property
    def asks_unsettled(self) -> bool:
        """Whether the peer wants an outcome of its own for each message that it gets."""
        return bool(lib.pn_link_remote_snd_settle_mode(self.raw) == lib.PN_SND_UNSETTLED)

    @property
    def drains(self) -> bool:
        """Whether the peer wants its credit used up now."""
        return bool(lib.pn_link_get_drain(self.raw))

    @property
    def unsettled(self) -> int:
        """Deliveries whose outcome is open."""
        return int(lib.pn_link_unsettled(self.raw))

    @property
    def condition(self) -> tuple[str, str]:
        """Why the peer detached: an error's name and description, or twice nothing; while its end is dealt with."""
        return read_condition(lib.pn_link_remote_condition(self.raw))

    @property
    def properties(self) -> dict[str, str]:
        """The peer's further properties of the link."""
        return read_text_map(lib.pn_link_remote_properties(self.raw))

    def accept(
        self, source: Terminus, target: Terminus, *, max_message: int = 0, properties: Mapping[str, str] | None = None
    ) -> None:
        """Answer the peer's attach, or send ours: this is what both ends are. Nothing happens once it is over."""
        if not self.alive:
            return
        raw = self.raw
        source.write(lib.pn_link_source(raw), lib.PN_SOURCE)
        target.write(lib.pn_link_target(raw), lib.PN_TARGET)
        if self.presettled:
            lib.pn_link_set_snd_settle_mode(raw, lib.PN_SND_SETTLED)
        elif self._begun_by_peer:  # whatever it asks for is what is done, so it is what is answered
            lib.pn_link_set_snd_settle_mode(raw, lib.pn_link_remote_snd_settle_mode(raw))
        if self._begun_by_peer:
            lib.pn_link_set_rcv_settle_mode(raw, lib.pn_link_remote_rcv_settle_mode(raw))
        if max_message:
            self.max_message = max_message
            lib.pn_link_set_max_message_size(raw, max_message)
        if properties:
            put_text_map(lib.pn_link_properties(raw), properties)
        lib.pn_link_open(raw)

    def refuse(self, condition: str, description: str) -> None:
        """Answer the peer's attach with an end of it, and why."""
        if self.alive:
            self.engine.let_go(self)
            refuse(self.raw, condition, description)

    def linger(self) -> None:
        """Ask, when the peer ends the link, for an answer only at :meth:`leave`."""
        self.lingers = True

    def leave(self) -> None:
        """Answer the end of a link that lingered."""
        if self.lingers:
            self.lingers = False
            self.engine.lingering.leave(self.raw)

    def close(self, condition: str = "", description: str = "") -> None:
        """End the link, durable subscriptions included."""
        if self.alive:
            self.engine.let_go(self)
            set_condition(lib.pn_link_condition(self.raw), condition, description)
            lib.pn_link_close(self.raw)

    def set_credit(self, credit: int) -> None:
        """Let the peer make that many transfers from now on; fewer than before takes credit back at once."""
        if not self.alive:
            return
        more = credit - self.credit
        if more < 0:
            self.slack = min(self.slack - more, self.engine.limits.slack)
        if more:
            lib.pn_link_flow(self.raw, more)

    def send(self, message: bytes, *, settled: bool = False) -> Any:
        """Send one message; returns the delivery, as its identity, or None when it is settled at once."""
        raw, engine = self.raw, self.engine
        self.tag += 1
        engine.tag.number[0] = self.tag
        delivery = _new_delivery(raw, engine.tag.raw)
        streams = engine.streams
        if len(message) > PIECE or streams.waiting(self):
            streams.add(self, delivery, message, settled=settled)
            return None if settled else delivery
        _send(raw, message, len(message))
        if settled:
            _settle(delivery)
            return None
        _advance(raw)
        return delivery

    def drained(self) -> None:
        """Say that there is nothing to use the credit for, once what was sent has left."""
        if self.alive:
            self.engine.drains.add(self)

    @staticmethod
    def accept_delivery(delivery: Any) -> None:
        """Say that a message that came in is accepted."""
        _update(delivery, _ACCEPTED)
        _settle(delivery)

    @staticmethod
    def settle(delivery: Any, outcome: Outcome = "accepted", condition: str = "", description: str = "") -> None:
        """Say what became of a message that came in."""
        if outcome == "accepted":
            lib.pn_delivery_update(delivery, lib.PN_ACCEPTED)
        elif outcome == "rejected":
            set_condition(lib.pn_disposition_condition(lib.pn_delivery_local(delivery)), condition, description)
            lib.pn_delivery_update(delivery, lib.PN_REJECTED)
        elif outcome == "released":
            lib.pn_delivery_update(delivery, lib.PN_RELEASED)
        else:
            local = lib.pn_delivery_local(delivery)
            lib.pn_disposition_set_failed(local, outcome == "failed")
            lib.pn_disposition_set_undeliverable(local, outcome == "undeliverable")
            lib.pn_delivery_update(delivery, lib.PN_MODIFIED)
        lib.pn_delivery_settle(delivery)


def refuse(raw: Any, condition: str, description: str) -> None:
    """Answer an attach with one that has no ends (2.6.3), and with the end of the link."""
    for end in (lib.pn_link_source(raw), lib.pn_link_target(raw)):  # some clients look for ours, some for both
        lib.pn_terminus_set_type(end, lib.PN_UNSPECIFIED)
    lib.pn_link_open(raw)
    set_condition(lib.pn_link_condition(raw), condition, description)
    lib.pn_link_close(raw)


def fate_of(delivery: Any) -> Fate:
    """Return what the peer says became of a message that went out, and let go of its delivery."""
    outcome, reason = _outcome_of(delivery)
    fate = delivery, outcome, reason, _delay_of(delivery) if outcome in ("failed", "released") else None
    _settle(delivery)
    return fate


def _delay_of(delivery: Any) -> int | None:
    """Return for how many ms the peer says that a modified message is to wait; None where it does not, or cannot."""
    if _remote_state(delivery) != lib.PN_MODIFIED:
        return None
    ms = read_number(lib.pn_disposition_annotations(lib.pn_delivery_remote(delivery)), DELIVERY_DELAY)
    return ms if ms is not None and ms >= 0 else None


def _outcome_of(delivery: Any) -> tuple[Outcome, str]:
    """Return what the peer says became of a message, and why if it was rejected.

    A peer that settles without an outcome has done nothing with it: it counts as released.
    """
    state = _remote_state(delivery)
    if state == _ACCEPTED:
        return "accepted", ""
    remote = lib.pn_delivery_remote(delivery)
    if state == lib.PN_REJECTED:
        name, description = read_condition(lib.pn_disposition_condition(remote))
        return "rejected", description or name
    if state == lib.PN_MODIFIED:
        if lib.pn_disposition_is_undeliverable(remote):
            return "undeliverable", ""
        return ("failed" if lib.pn_disposition_is_failed(remote) else "released"), ""
    return "released", ""
