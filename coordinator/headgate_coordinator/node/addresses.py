"""Addresses by which clients name destinations, and their meaning."""

import unicodedata
from typing import Final

from headgate.amqp.link import NOT_IMPLEMENTED
from headgate.core.printable import printable
from headgate.errors import HeadgateError

_SCHEMES: Final = ("amqp://", "amqps://")
_SERVICES: Final = {
    "$cbs": "tokens are not taken here; sign in by SASL, with a user's name and password",
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


def _plain(address: str) -> str:
    """Return the last word of an address as people read it: in small letters, without what is not seen."""
    seen = "".join(each for each in unicodedata.normalize("NFKC", address[:1000]) if each.isprintable())
    return seen.strip("/ ").rpartition("/")[2].strip().casefold()
