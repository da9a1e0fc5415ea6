"""What the ledger of a limiter says of those who wait, and of those who are refused."""

from tests.lua.limiters.trial import Limiter
from tests.support.audited import audit

LLM = "requests rate 10 5;tokens rate 1000 4000;in_flight at_once 3"


async def test_the_ledger_has_who_waited_for_what_and_who_left_unserved(limiter: Limiter) -> None:
    """Mutants: a wait is noted each time that it is asked for; one that is given up is not."""
    await limiter.create(LLM)
    assert await limiter.admit("ann.1", "in_flight=3,tokens=100") == "held"
    for _ in range(2):
        answer = await limiter.admit("bob.1", "in_flight=1,tokens=7", key="t1", wait_ms=9000)
        assert answer == "wait 1000000 in_flight all"
    assert (await limiter.admit("bob.2", "in_flight=1", wait_ms=9000)).startswith("wait ")
    await limiter.wait(40)
    assert await limiter.release("bob.2") == "ok"
    assert await limiter.release("ann.1") == "ok"
    assert await limiter.release("bob.1") == "ok"
    found = [(ms - limiter.now, event) for ms, event in await limiter.events() if not event.startswith("levels")]
    assert found == [
        (-40, "held:ann.1:*:tokens=100 in_flight:3"),
        (-40, "waits:bob.1:t1:in_flight:all:tokens=7 in_flight:1"),
        (-40, "waits:bob.2:*:in_flight:all:in_flight:1"),
        (0, "quit:bob.2"),
        (0, "freed:ann.1"),
        (0, "held:bob.1:t1:tokens=7 in_flight:1"),
        (0, "freed:bob.1"),
    ]


async def test_many_refusals_are_one_entry_a_second_and_none_is_lost(limiter: Limiter) -> None:
    """Mutants: each refusal has an entry of its own; they are counted anew with each call."""
    await limiter.create(LLM, "tokens rate 100 500")
    assert await limiter.admit("ann.1", "in_flight=3") == "held"
    for number in range(1, 21):
        assert (await limiter.admit(f"bob.{number}", "in_flight=1")).startswith("late ")
        assert (await limiter.admit(f"bob.1{number}", "tokens=501", key="t1")).startswith("never ")
    assert not [event for _, event in await limiter.events() if event.startswith("refused")]
    await limiter.sweep(1000)
    assert await limiter.admit("bob.99", "in_flight=1") == "late - in_flight all"
    assert await limiter.release("ann.1") == "ok"
    assert [event for _, event in await limiter.events() if event.startswith("refused")] == [
        "refused:in_flight:all:20",
        "refused:tokens:key:20",
        "refused:in_flight:all:1",
    ]


async def test_where_the_clock_was_set_back_the_ledger_has_that_of_the_limiter(limiter: Limiter) -> None:
    """Mutant: it has Redis' alone, by which more was admitted than a rate allows."""
    await limiter.create("tokens rate 10 10")
    assert await limiter.admit("ann.1", "tokens=10") == "held"
    begun = limiter.now
    await limiter.wait(-1000)
    assert (await limiter.admit("ann.2", "tokens=1")).startswith("late ")
    await limiter.wait(1000)
    assert await limiter.admit("ann.2", "tokens=10") == "held"
    assert [event for _, event in await limiter.events() if event.startswith("clock")] == [f"clock:{begun + 1000}"]
    key = f"{limiter.address.key}:ledger"
    entries = await limiter.server.command(key.encode(), "XRANGE", key, "-", "+")
    assert audit([(number, tuple(entry)) for number, entry in entries]) == []
