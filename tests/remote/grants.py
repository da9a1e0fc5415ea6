"""Users with rights, as few lines as they take: a node sees nothing else of them."""

from collections.abc import Callable
from typing import cast

from headgate_coordinator.security import Action, Grant, Identity, Users
from headgate_coordinator.security.password_queue import NOBODY, Network

P, C, B, M = Action.PRODUCE, Action.CONSUME, Action.BROWSE, Action.MANAGE


class People:
    """Each comes with the password `secret`; nobody comes without a name. `may` changes what one is granted."""

    is_open = False
    has_any = True
    take_tokens = False

    def __init__(self, **people: dict[str, set[Action]]) -> None:
        self._people = {name: Identity(name, _grants(grants)) for name, grants in people.items()}
        self._listeners: list[Callable[[], None]] = []

    def certified(self, name: str) -> Identity | None:
        return None

    def anonymous(self) -> Identity | None:
        return None

    def on_change(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    async def authenticate(self, name: str, password: str, *, peer: Network = NOBODY) -> Identity | None:
        return self._people.get(name) if password == "secret" else None

    def may(self, name: str, grants: dict[str, set[Action]] | None) -> None:
        """Let a user do that and nothing else; None: the user is gone."""
        if grants is None:
            self._people.pop(name).revoke()
        else:
            self._people[name].follow(_grants(grants), None)
        for listener in self._listeners:
            listener()


def _grants(grants: dict[str, set[Action]]) -> list[Grant]:
    return [Grant(frozenset(actions), match) for match, actions in grants.items()]


def users(**people: dict[str, set[Action]]) -> Users:
    return cast(Users, People(**people))
