"""Deliveries that a lost state forgot: others get these messages too, while the first consumer still has them."""

from collections.abc import Collection, Mapping

from tests.simulation.server import Call

Delivery = tuple[str, str, str]
"""A destination, the session to which it gave a message, and that message."""


class Deliveries:
    """Which session was given which message; ``known`` where the state says so as well."""

    def __init__(self) -> None:
        self.known: set[Delivery] = set()
        self._forgotten: set[Delivery] = set()

    def saw(self, name: str, call: Call, stored: Mapping[bytes, str]) -> None:
        """Take in what a call brought, of the messages that lie there; nobody knows what a former master gives."""
        if call.script != "settle" or not isinstance(call.reply, list) or len(call.reply) < 5:
            return
        session = call.words[2 + int(call.words[0])].decode()
        given = {(name, session, stored[at]) for at in call.reply[3][::2] if at in stored}
        if call.superseded:
            self._forgotten |= given
        else:
            self.known |= given
            self._forgotten -= given

    def restored(self, names: Collection[str], known: set[Delivery]) -> None:
        """Note that destinations are back as they were when they knew of these deliveries."""
        lost = {one for one in self.known - known if one[0] in names}
        self._forgotten |= lost
        self.known = self.known - lost | {one for one in known if one[0] in names}

    def was_forgotten(self, session: str, token: str) -> bool:
        """Return whether a session may have a message of which the state does not know that it has it."""
        return any(one[1:] == (session, token) for one in self._forgotten)
