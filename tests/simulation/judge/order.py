"""A judge of order: what a process sends is stored in its order, by values where these say the slice, each in one."""

from collections.abc import Iterator, Mapping

from tests.simulation.judge.sight import Sight
from tests.simulation.judge.tokens import value_of
from tests.simulation.loop import Process


class Order:
    """What was sent, and what was stored last."""

    def __init__(self) -> None:
        self._sent: dict[str, tuple[str, int]] = {}
        """Token -> the process that sends it, where that comes to Redis itself, and as which of its messages."""
        self._latest: dict[tuple[str, str, int | None], int] = {}
        """Destination, process, and value where that says the slice -> which of these was stored last."""
        self._spread_after: dict[str, int] = {}
        """Destination -> how many had been sent when values began to say the slice."""
        self._strays: set[str] = set()
        """Tokens of those before that go where they were to go, for their sender hears late of that."""
        self.late = False
        """Whether somebody may hear late of what changes."""

    def sends(self, token: str, process: Process) -> None:
        """Note that a process sends a message, after those that it sent before."""
        self._sent[token] = process.name, len(self._sent) + 1

    def stored(self, token: str, place: str, name: str, slices: Mapping[str, Sight]) -> Iterator[str]:
        """Take in that a message is stored at one of these slices; returns what is wrong with that.

        Before the first spread values may lie anywhere, and all that a process sends keeps its order. Whoever hears
        late of the first one goes on as before with what it waits to send (docs/scale.md).
        """
        spread = next((sight.spread for sight in slices.values() if sight.spread), "")
        sender, number = self._sent.get(token, ("", 0))
        sequence = place, sender, value_of(token) if spread else None
        if number < self._latest.get(sequence, 0):
            yield f"{token} of {sender} is stored at {name} behind what it sent later"
        self._latest[sequence] = number
        if spread and 0 < number <= self._spread_after.setdefault(place, len(self._sent)) and self.late:
            self._strays.add(token)
        for one, sight in slices.items() if spread and not spread.endswith(" -") and token not in self._strays else ():
            others = (at for at in sight.stored.values() if at not in self._strays)
            if one != name and value_of(token) in map(value_of, others):
                yield f"{token} is stored at {name}, and {sorted(sight.stored.values())} at {one}"
