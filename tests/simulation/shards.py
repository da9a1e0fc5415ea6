"""A shard of a world: a master and its replica, which take each other's place, with all that was there or without."""

from collections.abc import Callable
from typing import Any, Final, Protocol

from tests.simulation.loop import VirtualLoop
from tests.simulation.server import Redis, lost_after

HEARS_WITHIN: Final = 0.5
"""Seconds in which a former master that goes on learns that another is in charge."""
SHARD_FAULTS: Final = ("down", "failover", "usurp", "hand over", "hang")


class Owner(Protocol):
    """The deployment that a shard is of: it hears what becomes of it."""

    loop: VirtualLoop
    later: Callable[..., None]

    def kept(self, shard: "Shard", *, anew: bool = False) -> None:
        """Hear of a state that its replica, which lags from now on, may take over with."""

    def restored(self, shard: "Shard", lost: int) -> None:
        """Hear that this replica takes over, without so many of the last calls."""

    def led(self, shard: "Shard") -> None:
        """Hear that another server is in charge."""


class Shard:
    """A master, its replica, and what befalls them; each begins only once the one before is over.

    Attributes:
        busy: whether something is under way.
        led: how often they took each other's place.
    """

    def __init__(self, master: Redis, replica: Redis, owner: Owner) -> None:
        self.master, self.replica = master, replica
        self.busy = False
        self.led = 0
        self._owner = owner
        replica.follow(master, goes_on=False)

    def befall(self, what: str, seconds: float) -> None:
        """Have something happen to it, which ends by itself."""
        if not self.begins():
            return
        lost = lost_after(seconds)
        former, later, thaw = self.master, self._owner.later, self._owner.loop.thaw
        match what:
            case "down":  # and it comes back with all that it had
                former.stop()
                later(seconds, former.start)
                later(seconds, self.ends)
            case "hang":
                former.process.frozen = True
                later(seconds, thaw, former.process)
                later(seconds, self.ends)
            case "failover":  # its last writes die with the master, which comes back as a replica
                self._lag()
                later(seconds / 4, former.stop)
                later(seconds / 2, self._take_over, lost)
                later(seconds, former.start)
                later(seconds, self._demote, former)
            case "usurp":  # the master was frozen, and goes on as one until it learns that another is in charge
                self._lag()
                later(seconds / 4, self._freeze, former)
                later(seconds / 2, self._take_over, lost)
                later(seconds, thaw, former.process)
                later(seconds + HEARS_WITHIN * (seconds % 1), self._demote, former)
            case "hand over":  # the replica has all that the master had, which follows it
                former.keep(self.replica.database)
                self._swap()
                former.follow(self.master, goes_on=True)
                self.ends()
            case _:
                raise AssertionError(what)

    def begins(self) -> bool:
        """Return whether nothing is under way; then something is."""
        begins = not self.busy
        self.busy = True
        return begins

    def ends(self) -> None:
        """Have nothing be under way any more."""
        self.busy = False

    def _lag(self) -> None:
        """Have its replica get no more until it takes over, as if it lagged: how far shows then."""
        self.master.keep(self.replica.database, lags=True)
        self.master.after_unsent = lambda: self._owner.kept(self)
        self._owner.kept(self, anew=True)

    @staticmethod
    def _freeze(server: Redis) -> None:
        server.process.frozen = True

    def _take_over(self, lost: int) -> None:
        self.master.superseded = True
        self._owner.restored(self, self.master.catch_up(self.replica.database, lost))
        self._swap()

    def _swap(self) -> None:
        self.master, self.replica = self.replica, self.master
        self.master.promote()
        self.led += 1
        self._owner.led(self)

    def _demote(self, server: Redis) -> None:
        server.follow(self.master, goes_on=False)
        self.ends()

    def __contains__(self, server: Any) -> bool:
        return server in (self.master, self.replica)
