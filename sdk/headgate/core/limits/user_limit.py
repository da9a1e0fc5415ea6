"""Users may have quotas over all nodes: here is whom they are for, and the limiter that holds them."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

PREFIX: Final = "user-limits."
"""The limiters of such quotas are called so, with the quota's name behind it."""
CONNECTIONS: Final = "connections"
IN_FLIGHT: Final = "in_flight"
IN_FLIGHT_BYTES: Final = "in_flight_bytes"
MESSAGES: Final = "messages"
BYTES: Final = "bytes"


@dataclass(frozen=True, slots=True)
class UserLimit:
    """A user limit is a quota for some users.

    Attributes:
        name: of the quota.
        users: names, or beginnings of names with ``*``.
        limits: the limits that its limiter has, as the state keeps them; of each user, or of all together.
        together: whether all its users share it.
        destinations: that each may have made; None where the user's own bound holds.
        origin: where it was written: ``<file>:<line>``.
    """

    name: str
    users: tuple[str, ...]
    limits: str
    together: bool = False
    destinations: int | None = None
    origin: str = ""

    @property
    def limiter(self) -> str:
        """The name of its limiter; the key there is the user."""
        return f"{PREFIX}{self.name}"

    def has(self, *limits: str) -> bool:
        """Return whether it bounds any of these."""
        return any(entry.partition(" ")[0] in limits for entry in self.limits.split(";"))

    def covers(self, user: str) -> bool:
        """Return whether it is for a user.

        >>> UserLimit("a", ("eu-*", "ann"), "").covers("eu-7")
        True
        """
        return any(user.startswith(one[:-1]) if one.endswith("*") else user == one for one in self.users)

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return asdict(self) | {"users": list(self.users)}

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> "UserLimit":
        """Return what :meth:`as_dict` wrote."""
        return cls(**{**table, "users": tuple(map(str, table["users"]))})


def limit_of(user: str, limits: Iterable[UserLimit]) -> UserLimit | None:
    """Return the quota of a user: the first that covers it; None without one."""
    return next((one for one in limits if one.covers(user)), None)
