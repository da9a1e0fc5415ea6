"""The judge of consumers excuses one beside a message while a server may wake one that died, and no longer."""

from collections.abc import Iterator

import pytest

from tests.simulation.judge.idling import LEASE, READS, RECOVERS, WITHIN, Idling
from tests.simulation.judge.sight import Sight
from tests.simulation.loop import Process, VirtualLoop

HERE, READY = "hg:{sim/q}", Sight(stored={b"1-37": "m1"})


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    loop = VirtualLoop()
    yield loop
    loop.close()


@pytest.mark.parametrize(("what", "excused"), [("kill", LEASE), ("hang", LEASE), ("reset", RECOVERS), ("send", 0.0)])
def test_a_consumer_is_beside_a_message_for_as_long_as_an_event_excuses(
    loop: VirtualLoop, what: str, excused: float
) -> None:
    idling = Idling(loop)
    idling.waits("q", Process("p"))
    idling.saw("q", HERE, READY)
    idling.happens(what, 0.0)
    loop.now += excused + WITHIN - 0.01
    assert idling.saw("q", HERE, READY) == ""
    loop.now += 0.02
    assert idling.saw("q", HERE, READY).startswith("p waits ")


def test_whoever_is_dead_waits_beside_nothing(loop: VirtualLoop) -> None:
    idling, process = Idling(loop), Process("p")
    idling.waits("q", process)
    idling.saw("q", HERE, READY)
    process.dead = True
    loop.now += WITHIN + 0.01
    assert idling.saw("q", HERE, READY) == ""


@pytest.mark.parametrize("other", [True, False])
def test_whoever_reads_from_a_storage_is_beside_a_message_meanwhile(loop: VirtualLoop, other: bool) -> None:
    idling, process = Idling(loop), Process("p")
    idling.waits("q", process)
    idling.saw("q", HERE, READY)
    idling.reads("q", Process("other") if other else process)
    loop.now += READS + WITHIN - 0.01
    assert bool(idling.saw("q", HERE, READY)) == other
    loop.now += 0.02
    assert idling.saw("q", HERE, READY)
