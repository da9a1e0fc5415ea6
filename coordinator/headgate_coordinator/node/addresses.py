"""Clients name destinations by addresses, and this module finds their meaning."""

import unicodedata
from typing import Final

from headgate.amqp.link import NOT_IMPLEMENTED, Link, Terminus
from headgate.core.printable import printable
from headgate.errors import AccessDenied, HeadgateError
from headgate_coordinator.security.access import Access

_SCHEMES: Final = ("amqp://", "amqps://")
_SERVICES: Final = {
    "$cbs": "no tokens are accepted here; sign in by SASL, with a password, a certificate or a token",
    "$management": "there is no management over AMQP; use the command headgate, or admin HTTP",
    "$coordinator": "there are no transactions; settle each message by itself",
}
"""Nodes of other brokers that are no destinations: what is meant for them must not be stored for anybody to read."""


class NoService(HeadgateError):
    """A client asks for a service of another broker.

    Attributes:
        condition: the AMQP error that says so.
    """

    condition: Final = NOT_IMPLEMENTED


def address_of(address: str) -> str:
    """Return the destination that an address means; of a URL, ``amqps://host/orders``, its path.

    Raises:
        NoService: it is for a service that there is not.
    """
    if address[:8].lower().startswith(_SCHEMES):
        address = address.partition("://")[2].partition("/")[2]
    if ("$" in address or not address.isascii()) and (hint := _SERVICES.get(_plain(address))) is not None:
        raise NoService(f"there is no {printable(address, 200)!r}: {hint}")
    return address


def kind_asked(terminus: Terminus) -> str:
    """Return the kind of destination that a client wants: a queue, unless it asks for a topic."""
    return "topic" if "topic" in terminus.capabilities else "queue"


def subscription_of(link: Link, container: str, access: Access, *, users: bool) -> str:
    """Return what a link calls its subscription.

    Args:
        link: the client's.
        container: the client's id.
        access: what it may do.
        users: whether there are any; then each has subscriptions of its own.

    Raises:
        AccessDenied: that is another user's.
    """
    words = link.source.capabilities
    name, _, rest = link.name.partition("|")
    if "global" in words or (link.source.address is None and rest == "global"):  # JMS, to end what it shared
        if not access.owns(name):
            raise AccessDenied(f"subscription {name!r} is kept for another user; choose another name")
        return name
    return access.subscription(container, name if "shared" in words else link.name, users=users)


def _plain(address: str) -> str:
    """Return the last word of an address as people read it: in small letters, without what is not seen."""
    seen = "".join(each for each in unicodedata.normalize("NFKC", address[:1000]) if each.isprintable())
    return seen.strip("/ ").rpartition("/")[2].strip().casefold()
