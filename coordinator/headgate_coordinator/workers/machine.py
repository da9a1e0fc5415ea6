"""A machine decides which worker begins, drains or is ended next.

No I/O and no clock: ``now`` is in seconds of one that never goes back.

Each place has one worker. One that ends without having been asked to is replaced: at once the first time, later and
later if that goes on. A rolling restart takes the places in turn: the next worker of a place listens before the one
before it drains, and that one has ended before the next place is begun with.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

FIRST: Final = 0.1
"""Seconds to the first replacement; twice as many to each one more."""
LONGEST: Final = 30.0
STEADY: Final = 60.0
"""Seconds after which a worker's end has nothing to do with those before it."""
State = Literal["starting", "ready", "draining"]


@dataclass(frozen=True, slots=True)
class Begin:
    """Begin a worker at a place."""

    worker: int
    place: int


@dataclass(frozen=True, slots=True)
class Drain:
    """Have a worker let in nobody more and end; its clients find others at the address, or the whole of it stops."""

    worker: int
    others: bool


@dataclass(frozen=True, slots=True)
class Kill:
    """End a worker that had its time to drain."""

    worker: int


@dataclass(frozen=True, slots=True)
class Replace:
    """A worker has ended by itself; another one begins in that many seconds."""

    worker: int
    place: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Abandon:
    """A rolling restart goes no further: what was to take a worker's place ended before it listened."""

    worker: int
    place: int


@dataclass(frozen=True, slots=True)
class RestartDone:
    """All workers were replaced."""


@dataclass(frozen=True, slots=True)
class AllEnded:
    """Nobody is left: all drained, or the very first worker could not begin and reported why."""

    failed: int | None = None


Order = Begin | Drain | Kill | Replace | Abandon | RestartDone | AllEnded


@dataclass(slots=True)
class _Worker:
    number: int
    state: State
    since: float
    kill_at: float | None = None


class _Place:
    def __init__(self, number: int) -> None:
        self.number = number
        self.workers: list[_Worker] = []
        self.failures = 0
        self.again_at: float | None = None

    def one(self, state: State) -> _Worker | None:
        return next((worker for worker in self.workers if worker.state == state), None)


class WorkerMachine:
    """The places of all workers.

    Args:
        count: of places.
        patience: seconds that a worker has to drain.
    """

    def __init__(self, count: int, patience: float) -> None:
        self._places = [_Place(number) for number in range(1, count + 1)]
        self._patience = patience
        self._of: dict[int, _Place] = {}
        self._listened = self._stopping = False
        self._to_roll: deque[_Place] = deque()
        self._last = 0
        self._outdated = 0
        """The last worker that a rolling restart is to replace."""

    @property
    def states(self) -> dict[int, State]:
        """The state of each worker that there is."""
        return {worker.number: worker.state for place in self._places for worker in place.workers}

    def unserved(self) -> list[int]:
        """Return the places where no worker listens, or it drains and has no successor."""
        return [place.number for place in self._places if place.one("ready") is None]

    def begin(self, now: float) -> list[Order]:
        """Begin, with one worker: if it cannot, neither could the others."""
        return [self._begin(self._places[0], now)]

    def listens(self, number: int, now: float) -> list[Order]:
        """Hear that a worker lets clients in."""
        place = self._of[number]
        before, worker = place.one("ready"), self._worker(number)
        if worker.state != "starting":
            return []  # it drains already
        orders: list[Order] = []
        if before is not None:
            orders.append(self._drain(before, now, others=True))
        worker.state, worker.since = "ready", now
        if not self._listened:
            self._listened = True
            orders += [self._begin(each, now) for each in self._places if not each.workers]
        return orders + self._roll_on(now)

    def ended(self, number: int, now: float) -> list[Order]:
        """Hear that a worker is gone, however it ended."""
        place = self._of.pop(number)
        worker = next(one for one in place.workers if one.number == number)
        place.workers.remove(worker)
        if self._stopping:
            return [] if self._of else [AllEnded()]
        if not self._listened:
            return [AllEnded(number)]
        orders: list[Order] = []
        if worker.state == "starting" and place.one("ready") is not None:
            orders.append(Abandon(number, place.number))
            self._to_roll.clear()
        elif worker.state != "draining" and place.one("starting") is None:
            if worker.state == "ready" and now - worker.since > STEADY:
                place.failures = 0
            seconds = min(FIRST * 2.0**place.failures, LONGEST)
            place.failures = min(place.failures + 1, 20)
            place.again_at = now + seconds
            orders.append(Replace(number, place.number, seconds))
        return orders + self._roll_on(now)

    def roll(self, now: float) -> list[Order]:
        """Replace every worker that there is, one that only begins too: it may have read its files already."""
        if self._stopping:
            return []
        self._outdated = self._last
        self._to_roll.extend(self._places)  # one that is new by then is passed over
        again = [self._begin(place, now) for place in self._places if place.again_at is not None]
        return again + self._roll_on(now)

    def stop(self, now: float) -> list[Order]:
        """Have all of them drain."""
        self._stopping = True
        for place in self._places:
            place.again_at = None
        if not self._of:
            return [AllEnded()]
        every = [worker for place in self._places for worker in place.workers]
        return [self._drain(worker, now, others=False) for worker in every]

    def due(self, now: float) -> list[Order]:
        """Return what is due by now."""
        orders: list[Order] = []
        for place in self._places:
            if place.again_at is not None and place.again_at <= now:
                orders.append(self._begin(place, now))
            for worker in place.workers:
                if worker.kill_at is not None and worker.kill_at <= now:
                    worker.kill_at = None
                    orders.append(Kill(worker.number))
        return orders

    def next_due(self) -> float | None:
        """Return when something is due next; None when nothing is."""
        return min(self._moments(), default=None)

    def _moments(self) -> Iterator[float]:
        for place in self._places:
            for moment in (place.again_at, *(worker.kill_at for worker in place.workers)):
                if moment is not None:
                    yield moment

    def _begin(self, place: _Place, now: float) -> Begin:
        place.again_at = None
        self._last = number = self._last + 1
        place.workers.append(_Worker(number, "starting", now))
        self._of[number] = place
        return Begin(number, place.number)

    def _drain(self, worker: _Worker, now: float, *, others: bool) -> Drain:
        worker.state, worker.kill_at = "draining", now + self._patience
        return Drain(worker.number, others)

    def _worker(self, number: int) -> _Worker:
        return next(one for one in self._of[number].workers if one.number == number)

    def _roll_on(self, now: float) -> list[Order]:
        """Go on with the next place once this one has a worker alone that began after the last request."""
        while self._to_roll:
            place = self._to_roll[0]
            if len(place.workers) != 1 or place.workers[0].state != "ready":
                return []  # it begins, drains, or is to begin again by and by
            if place.workers[0].number <= self._outdated:
                return [self._begin(place, now)]
            self._to_roll.popleft()
            if not self._to_roll:
                return [RestartDone()]
        return []
