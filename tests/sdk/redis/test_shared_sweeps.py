"""Calls that go in rounds: in one write, each once, and nobody's trouble is another's."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
import redis.exceptions as rx

from headgate.errors import CoordinatorUnavailable
from headgate.redis.scripts import script
from headgate.redis.shared_sweeps import BEAT, MOST, MOST_TURNS, SweepRounds, beat

OP = script("reap")


class Recorder:
    """A backend that notes what it is asked; what ``failing`` names fails in a round, and not by itself."""

    def __init__(self, *, away: bool = False, failing: bytes = b"-") -> None:
        self.away, self.failing = away, failing
        self.bursts: list[list[bytes]] = []
        self.alone: list[bytes] = []
        self.places: dict[bytes, str] = {}
        self.silent: bytes | str = ""
        """A key whose server does not answer before it may; where there is none, no server does."""
        self.answers = asyncio.Event()
        self.answers.set()

    async def burst(self, commands: Sequence[tuple[bytes, Sequence[Any]]]) -> list[Any]:
        self.bursts.append([key for key, _ in commands])
        if self.silent in ("", *self.bursts[-1]):
            await self.answers.wait()
        if self.away:
            raise CoordinatorUnavailable("away")
        return [rx.NoScriptError("no") if key == self.failing else [key] for key, _ in commands]

    def place(self, key: bytes) -> str:
        return self.places.get(key, "")

    async def call(self, _: Any, keys: Sequence[bytes], __: Any) -> Any:
        self.alone.append(keys[0])
        return [keys[0]]


def begin(rounds: SweepRounds, *keys: bytes) -> list["asyncio.Task[Any]"]:
    return [asyncio.create_task(rounds.call(OP, (key,), [None])) for key in keys]


async def test_calls_of_one_turn_go_in_one_write() -> None:
    backend = Recorder()
    rounds = SweepRounds(backend)  # type: ignore[arg-type]  # as much of it as is needed
    assert await asyncio.gather(*begin(rounds, b"a", b"b")) == [[b"a"], [b"b"]]
    assert backend.bursts == [[b"a", b"b"]]
    await asyncio.gather(*begin(rounds, b"c"))
    assert backend.alone == [b"c"]


async def test_one_write_is_bounded() -> None:
    backend = Recorder()
    rounds = SweepRounds(backend)  # type: ignore[arg-type]
    await asyncio.gather(*begin(rounds, *(b"%d" % n for n in range(MOST + 1))))
    assert [len(one) for one in backend.bursts] == [MOST, 1]


async def test_what_fails_in_a_round_is_called_by_itself() -> None:
    backend = Recorder(failing=b"b")
    rounds = SweepRounds(backend)  # type: ignore[arg-type]
    assert await asyncio.gather(*begin(rounds, b"a", b"b")) == [[b"a"], [b"b"]]
    assert backend.alone == [b"b"]


async def test_everyone_hears_that_redis_does_not_answer() -> None:
    rounds = SweepRounds(Recorder(away=True))  # type: ignore[arg-type]
    told = await asyncio.gather(*begin(rounds, b"a", b"b"), return_exceptions=True)
    assert [type(error) for error in told] == [CoordinatorUnavailable] * 2


async def test_each_server_has_a_write_of_its_own_and_one_that_is_silent_is_no_other_ones_trouble() -> None:
    """Mutants: one burst for all; whoever comes first waits for the whole round."""
    backend = Recorder()
    backend.places = dict.fromkeys((b"a", b"c"), "one") | dict.fromkeys((b"b", b"d"), "other")
    backend.silent = b"a"
    rounds = SweepRounds(backend)  # type: ignore[arg-type]
    backend.answers.clear()
    silent, *answered = calls = begin(rounds, b"a", b"b", b"d", b"c")
    assert await asyncio.gather(*answered[:2]) == [[b"b"], [b"d"]]
    assert backend.bursts == [[b"a", b"c"], [b"b", b"d"]]
    assert not silent.done()
    backend.answers.set()
    assert await asyncio.gather(*calls) == [[b"a"], [b"b"], [b"d"], [b"c"]]
    backend = Recorder(away=True)
    backend.places[b"a"] = "away"
    told = await asyncio.gather(*begin(SweepRounds(backend), b"a", b"b"), return_exceptions=True)  # type: ignore[arg-type]
    assert told == [[b"a"], [b"b"]], "one alone is called by itself, wherever it is"


@pytest.mark.parametrize("who", [0, 1])
@pytest.mark.parametrize("turns", [1, 3])
async def test_one_that_gives_up_takes_no_other_along(who: int, turns: int) -> None:
    backend = Recorder()
    backend.answers.clear()
    rounds = SweepRounds(backend)  # type: ignore[arg-type]
    calls = begin(rounds, b"a", b"b", b"c")
    for _ in range(turns):
        await asyncio.sleep(0)
    calls.pop(who).cancel()
    await asyncio.sleep(0)
    backend.answers.set()
    left = [b"b", b"c"] if who == 0 else [b"a", b"c"]
    assert await asyncio.gather(*calls) == [[key] for key in left]
    assert await asyncio.gather(*begin(rounds, b"d", b"e")) == [[b"d"], [b"e"]], "the next round is made"


async def test_one_of_many_looks_for_all_who_wait_there() -> None:
    rounds, now = SweepRounds(Recorder()), asyncio.get_running_loop().time()  # type: ignore[arg-type]
    assert rounds.takes_turn(b"a", now + 60)
    assert not rounds.takes_turn(b"a", now + 61), "another looks before"
    assert rounds.takes_turn(b"b", now - 1), "it waits elsewhere"
    assert rounds.takes_turn(b"b", now + 60), "its turn is over"
    for number in range(MOST_TURNS):
        assert rounds.takes_turn(b"%d" % number, now + 60)
    assert len(rounds._turns) <= MOST_TURNS


def test_a_beat_is_near() -> None:
    times = [n * 0.01 for n in range(200)]
    assert all(abs(beat(when) - when) <= BEAT / 2 + 1e-9 for when in times)
    assert len({round(beat(when), 6) for when in times}) <= 2 / BEAT + 1
