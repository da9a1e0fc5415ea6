"""Users with rights, as few lines as they take: a node sees nothing else of them."""

from dataclasses import dataclass, field
from typing import cast

from headgate.core.pattern import Pattern
from headgate_coordinator.security import Action, Users

P, C, B, M = Action.PRODUCE, Action.CONSUME, Action.BROWSE, Action.MANAGE


@dataclass(frozen=True)
class Person:
    name: str
    grants: dict[str, set[Action]] = field(default_factory=dict)
    valid: bool = True
    max_connections: int | None = None

    def may(self, action: Action, destination: str) -> bool:
        return any(
            action in actions and Pattern.parse(text).matches(destination) for text, actions in self.grants.items()
        )


class People:
    """Each comes with the password `secret`; nobody comes without a name."""

    def __init__(self, **people: dict[str, set[Action]]) -> None:
        self._people = {name: Person(name, grants) for name, grants in people.items()}

    is_open = False

    def anonymous(self) -> Person | None:
        return None

    async def authenticate(self, name: str, password: str) -> Person | None:
        return self._people.get(name) if password == "secret" else None


def users(**people: dict[str, set[Action]]) -> Users:
    return cast(Users, People(**people))
