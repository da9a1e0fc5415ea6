"""The oracle excuses what a server did that was in charge no more, and nothing beside that."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest

from headgate.core.segment import MARK
from tests.simulation.judge.idling import WITHIN
from tests.simulation.judge.lease import TTL
from tests.simulation.judge.oracle import DRAWS, IN_FORCE, POLL, Oracle
from tests.simulation.judge.stores import Stores
from tests.simulation.judge.tokens import body_of
from tests.simulation.loop import Process, VirtualLoop
from tests.simulation.server import AGAIN, Call

HERE, OTHER = "hg:{sim/q%.1%.321}", "hg:{sim/q}"
"""Two slices of a queue."""


def call(
    name: str,
    leased: Mapping[str, int],
    *stored: str,
    limit: int = 100,
    script: str = "acquire",
    superseded: bool = False,
    waits: str = "",
    learns_ms: int = 0,
) -> Call:
    """Return a call after which so many bytes are leased there, and messages of 37 bytes each lie there.

    ``waits``: who is in line there, while values change slices. ``learns_ms``: for how long it learns.
    """
    counted = {
        "kind": "queue", "limit_bytes": limit, "epoch": 1, "slices_pool": "q%.0", "blocked": int(bool(waits)),
        "pending_bytes": 37 * len(stored), "pending_messages": len(stored), "leased_bytes": sum(leased.values()),
        "spreading": "2" if waits else "", "learning_until": learns_ms,
    }  # fmt: skip
    fields = [str(word).encode() for field in counted.items() for word in field]
    sessions = [
        word.encode()
        for sid, held in leased.items()
        for word in (sid, f"inc=1 granted={held} used=0 returned=0 need={37 if sid == waits else held}")
    ]
    line = [waits.encode()] if waits else []
    messages = [[f"{token[1:]}-37".encode(), [b"", body_of(token, 37)]] for token in stored]
    return Call("p", script, [b"1", name.encode()], [b"OK"], [fields, sessions, line, messages, [], []], 0, superseded)


@pytest.fixture
def oracle() -> Iterator[Oracle]:
    loop = VirtualLoop()
    yield Oracle(loop)
    loop.close()


@pytest.mark.parametrize("by_former", [True, False])
def test_what_a_former_master_settled_is_back_beside_those_who_have_its_room(oracle: Oracle, by_former: bool) -> None:
    oracle.saw(call(HERE, {"s": 0}, "m1"))
    oracle.saw(call(OTHER, {"t": 63}))
    oracle.kept(0)
    oracle.restored(0, lambda name: name == HERE)
    oracle.saw(call(HERE, {"s": 0}, *([] if by_former else ["m1"]), script="settle", superseded=True))
    oracle.saw(call(HERE, {"s": 37}, "m1"))
    assert [broken[:2] for broken in oracle.broken] == ([] if by_former else ["P1"])
    if by_former:
        oracle.saw(call(HERE, {"s": 37}))
        assert oracle.broken == []
        oracle.saw(call(HERE, {"s": 38}))
        assert oracle.broken[0].startswith("P1: acquire left 101 bytes"), "what is settled once more is not there"


def test_a_limiter_at_a_former_master_has_no_messages(oracle: Oracle) -> None:
    oracle.saw(Call("p", "admit", [b"1", b"hg:{sim/l}"], [b"OK"], [[b"kind", b"limiter"], []], 0, superseded=True))
    assert oracle.broken == []


@pytest.mark.parametrize("by_former", [True, False])
def test_what_is_set_at_a_former_master_is_in_force_nowhere(oracle: Oracle, by_former: bool) -> None:
    oracle.saw(call(HERE, {}, limit=90))
    oracle.applies("q", None)
    oracle.saw(call(HERE, {}, limit=150, script="apply", superseded=by_former))
    oracle.applies("q", 150)
    oracle.loop.now += 2 * IN_FORCE
    oracle.saw(call(HERE, {}, limit=90))
    assert [broken[:3] for broken in oracle.broken] == ([] if by_former else ["P12"])
    oracle.applies("q", None)
    oracle.saw(call(HERE, {}, limit=150, script="apply"))
    oracle.applies("q", 150)
    oracle.loop.now += 2 * IN_FORCE
    oracle.saw(call(HERE, {}, limit=90))
    assert oracle.broken, "another time it is"


@pytest.mark.parametrize("is_left", [True, False])
def test_a_slice_opens_once_all_is_settled_that_was_sent_before_values_changed_slices(
    oracle: Oracle, is_left: bool
) -> None:
    oracle.saw(call(OTHER, {}, *(["m1"] if is_left else [])))
    for seconds in (0.0, 0.0, DRAWS + 1):
        oracle.loop.now += seconds
        oracle.saw(call(HERE, {"s": 0}, waits="s"))
    assert [broken[:2] for broken in oracle.broken] == ([] if is_left else ["P6"])


@pytest.mark.parametrize("asked", [False, True])
def test_whoever_a_copy_put_in_line_waits_only_if_it_asks_itself(oracle: Oracle, asked: bool) -> None:
    oracle.owners["s"] = Process("p")
    oracle.saw(call(HERE, {"s": 0}))
    waits = call(HERE, {"s": 0}, waits="s")
    waits = replace(waits, words=[*waits.words, b"s"])
    oracle.saw(replace(waits, caller=f"p{AGAIN}"))
    if asked:
        oracle.saw(waits)
    for seconds in (0.0, 0.0, DRAWS + 1):
        oracle.loop.now += seconds
        oracle.saw(replace(waits, script="settle"))
    assert [broken[:2] for broken in oracle.broken] == (["P6"] if asked else [])


@pytest.mark.parametrize("is_set_back", [True, False])
def test_a_lease_is_cut_after_the_clock_was_set_back_however_long_somebody_waits(
    oracle: Oracle, is_set_back: bool
) -> None:
    oracle.saw(call(HERE, {"dead": 63, "s": 0}))
    oracle.died["dead"] = oracle.loop.now
    oracle.saw(call(HERE, {"dead": 63, "s": 0}, waits="s"))
    oracle.loop.now += TTL
    if is_set_back:
        oracle.clock_set(-TTL)
    oracle.loop.now += TTL + 1.5
    oracle.saw(call(HERE, {"dead": 63, "s": 0}, waits="s"))
    assert [broken[:2] for broken in oracle.broken] == ([] if is_set_back else ["P4"])
    oracle.loop.now += POLL
    oracle.saw(call(HERE, {"dead": 63, "s": 0}, waits="s"))
    assert oracle.broken, "one TTL and a second after that, and what it takes to notice"


@pytest.mark.parametrize("lives", [True, False])
def test_a_lease_is_cut_for_whoever_waits_and_lives(oracle: Oracle, lives: bool) -> None:
    oracle.saw(call(HERE, {"dead": 64, "s": 0}))
    oracle.clock_set(-2 * TTL)
    oracle.died |= {"dead": oracle.loop.now} | ({} if lives else {"s": oracle.loop.now})
    waits = call(HERE, {"dead": 64, "s": 0}, waits="s")
    oracle.saw(waits)
    oracle.loop.now += TTL + 1.5 + POLL
    oracle.saw(waits)
    assert [broken[:2] for broken in oracle.broken] == (["P4"] if lives else [])
    oracle.loop.now += 2 * TTL
    oracle.saw(waits)
    assert oracle.broken, "nothing is held for longer than the clock was set back"


def test_who_died_holds_what_it_had_until_all_have_claimed(oracle: Oracle) -> None:
    """Nobody may call after a failover until long after it, and only then all are asked to claim."""
    oracle.saw(call(HERE, {"dead": 64}))
    oracle.died["dead"] = oracle.loop.now
    oracle.loop.now += 3 * TTL
    oracle.saw(call(HERE, {"dead": 64}, learns_ms=3000))
    assert not oracle.broken
    oracle.loop.now += TTL
    oracle.saw(call(HERE, {"dead": 64}))
    assert [broken[:2] for broken in oracle.broken] == ["P4"]


@pytest.mark.parametrize("is_lost", [True, False])
def test_a_message_comes_again_to_who_had_it_by_a_delivery_that_was_lost(oracle: Oracle, is_lost: bool) -> None:
    oracle.saw(call(HERE, {"s": 0, "t": 0}, "m1"))
    oracle.kept(0)
    gives = call(HERE, {"s": 0, "t": 0}, "m1", script="settle")
    given = [b"OK", b"1", b"0", [b"1-37", b""], [], b"0", b"0"]
    oracle.saw(replace(gives, words=[*gives.words, b"", b"t", b"t.1"], reply=given))
    if is_lost:
        oracle.restored(0, lambda name: name == HERE)
    oracle.saw(call(HERE, {"s": 0}, script="settle"))
    oracle.heard[HERE, "t"] = oracle.loop.now
    oracle.has_accepted("q", "m1", oracle.loop.now)
    oracle.receives("m1", "t")
    assert [broken[:2] for broken in oracle.broken] == ([] if is_lost else ["P5"])


def test_what_one_loss_brought_back_is_excused_after_another_one_too(oracle: Oracle) -> None:
    oracle.saw(call(HERE, {"s": 0}, "m1"))
    oracle.saw(call(OTHER, {"t": 63}))
    oracle.kept(0)
    oracle.saw(call(HERE, {"s": 0}, script="settle"))
    oracle.saw(call(OTHER, {"t": 100}))
    oracle.restored(0, lambda name: name == HERE)
    oracle.saw(call(HERE, {"s": 0}, "m1"))
    oracle.kept(0)
    oracle.restored(0, lambda name: name == HERE)
    oracle.saw(call(HERE, {"s": 0}, "m1"))
    oracle.saw(call(OTHER, {"t": 99}))
    oracle.saw(call(OTHER, {"t": 100}))
    assert oracle.broken == []
    oracle.saw(call(OTHER, {"t": 101}))
    assert oracle.broken[0].startswith("P1")


@pytest.mark.parametrize("body", [MARK + b"disk/s-1 0 27 00000000", body_of("m2", 37)])
def test_a_consumer_that_is_given_a_reference_has_to_read_it(body: bytes) -> None:
    loop = VirtualLoop()
    oracle = Stores(loop)
    process = oracle.owners["t"] = Process("p")
    oracle.idling.waits("q", process)
    gives = call(HERE, {"t": 0}, "m1", script="settle")
    oracle.saw(replace(gives, words=[*gives.words, b"", b"t"], reply=[b"OK", b"1", b"0", [b"2-0", body], []]))
    loop.now += 2 * WITHIN
    oracle.saw(call(HERE, {"t": 0}, "m1"))
    assert [broken[:4] for broken in oracle.broken] == ([] if body.startswith(MARK) else ["idle"])
    loop.close()
