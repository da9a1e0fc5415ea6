"""A judge of consumers: none waits for a message beside one that nobody has."""

from typing import Final

from tests.simulation.judge.sight import Sight
from tests.simulation.loop import Process, VirtualLoop

WITHIN: Final = 0.05
"""Seconds within which a message that nobody has comes to a consumer that has nothing, where nothing fails."""
RECOVERS: Final = 2.0
"""Seconds after a fault in which somebody may not have heard of messages yet, or of consumers."""
LEASE: Final = 4.0
"""Seconds after which one that died is not there any more, where the clock of leases is not set back."""
READS: Final = 0.3
"""Seconds in which a storage has surely been read: fifteen times what that takes on the average."""
OUTLIVED: Final = ("kill", "hang")
"""Events after which a server may take one that is dead for one that waits."""
HARMLESS: Final = ("send", "forward", "admit", "limit")
"""Events that keep no consumer from what there is."""


class Idling:
    """Those who consume at each destination, and since when there has been something for them."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._recovers_until = 0.0
        self._lease = LEASE
        self._waits: dict[tuple[str, Process], float] = {}
        """Destination and consumer there -> since when its application has waited for a message."""
        self._reads: dict[tuple[str, Process], float] = {}
        """Likewise -> until when it may be busy with what it has to read from a storage."""
        self._ready: dict[str, dict[str, float]] = {}
        """Destination -> slices of it with messages that nobody has, and since when."""

    def happens(self, what: str, seconds: float) -> None:
        """Note an event that lasts for some seconds.

        A server wakes one that was killed for what comes, until its lease is over. One that hung then does what
        somebody asked for who is dead by now, and takes him for one that waits.
        """
        recovers = self._lease if what in OUTLIVED else RECOVERS
        if what not in HARMLESS:
            self._recovers_until = max(self._recovers_until, self._loop.now + seconds + recovers)

    def set_back(self, seconds: float) -> None:
        """Note that the clock of leases was set back, or not: so much longer they last."""
        self._lease += seconds
        self._recovers_until = max(self._recovers_until, self._loop.now + self._lease)

    def waits(self, place: str, process: Process) -> None:
        """Note that an application waits for a message, if it does not yet."""
        self._waits.setdefault((place, process), self._loop.now)

    def works(self, place: str, process: Process) -> None:
        """Note that it has something to do, or has no consumer."""
        self._waits.pop((place, process), None)

    def reads(self, place: str, process: Process) -> None:
        """Note that a consumer was given what it has to read from a storage."""
        self._reads[place, process] = self._loop.now + READS

    def saw(self, place: str, name: str, sight: Sight | None) -> str:
        """Take in what lies at a slice from now on; returns who had waited for too long beside a message till then."""
        idle, ready = "", self._ready.setdefault(place, {})
        for (where, process), since in self._waits.items():
            for one, begun in ready.items() if where == place and not process.dead else ():
                busy_until = max(self._recovers_until, self._reads.get((where, process), 0.0))
                if self._loop.now > max(since, begun, busy_until) + WITHIN:
                    waited = self._loop.now - max(since, begun)
                    idle = f"{process} waits {waited:.3f} s beside a message at {one} that nobody has"
        if sight and len(sight.stored) > sight.in_hand:
            ready.setdefault(name, self._loop.now)
        else:
            ready.pop(name, None)
        return idle
