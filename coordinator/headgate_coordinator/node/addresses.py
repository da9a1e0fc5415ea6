"""Addresses by which clients name destinations, and their meaning."""

from typing import Final

from headgate.amqp.link import NOT_IMPLEMENTED
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
    if address.startswith(_SCHEMES):
        address = address.partition("://")[2].partition("/")[2]
    if (hint := _SERVICES.get(address.rpartition("/")[2])) is not None:
        raise NoService(f"there is no {address!r}: {hint}")
    return address
