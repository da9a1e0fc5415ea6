"""A namespace has named leases: they say who works on which link, shared out evenly over all who do."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from headgate.redis.backend import Backend, call
from headgate.redis.keys import owned_keys
from headgate.redis.replies import pairs

PAGE: Final = 256
"""Leases that one call is about."""
Mode = Literal["hold", "known", "alone", "watch", "release", "leave", "forget"]


@dataclass(frozen=True, slots=True)
class LeaseAnswer:
    """A lease answer holds what ``lua/lease.lua`` returns.

    Attributes:
        fair: how many leases the caller may have; who has more lets some go.
        again_ms: when another of those asked for may be free; None when that is not known.
        fences: name -> fencing number, of those asked for that the caller has.
    """

    fair: int
    again_ms: int | None
    fences: dict[str, int] = field(default_factory=dict)


class LeaseStore:
    """A lease store keeps the named leases of one namespace. Each call may be repeated."""

    def __init__(self, server: Backend, namespace: str) -> None:
        self._server = server
        self._keys = owned_keys(namespace)

    async def call(
        self,
        owner: str,
        names: Sequence[str],
        *,
        mode: Mode,
        ttl_ms: int,
        held: int = 0,
        total: int = 0,
        above: int = 0,
    ) -> LeaseAnswer:
        """Renew and claim, or let go.

        Args:
            owner: who calls; an id without blanks.
            names: at most 256, without blanks.
            mode: ``hold`` renews and claims, ``known`` the same of leases that there are, ``alone`` as ``hold`` for
                what is not shared out, ``watch`` renews only, ``release`` gives these up, ``leave`` also gives up the
                owner's part of the whole, ``forget`` removes what nobody else has.
            ttl_ms: how long a lease lasts without being renewed; renew it every quarter.
            held: leases that the caller has by now, these included.
            total: leases that there are to share.
            above: claims get a fencing number above this one: a target may remember more than this namespace.

        Raises:
            CoordinatorUnavailable: no answer.
        """
        values = {"owner": owner, "mode": mode, "ttl_ms": ttl_ms, "held": held, "total": total, "above": above}
        reply = await call(self._server, "lease", self._keys, names, **values)
        fences = {name: int(fence) for name, fence in pairs(reply[3]).items()}
        return LeaseAnswer(int(reply[1]), int(reply[2]) or None, fences)


def pages(names: Sequence[str]) -> Iterator[Sequence[str]]:
    """Return names in parts, each of as many leases as one call may be about."""
    for first in range(0, len(names), PAGE):
        yield names[first : first + PAGE]
