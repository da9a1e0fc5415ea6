"""Who passes those that wait: nobody waits for a limit that it does not need, and nobody is passed for ever."""

import itertools

import pytest

from headgate.redis.stores.limiters import NO_KEY, HoldCall
from tests.lua.limiters.trial import TTL_MS, Limiter

pytestmark = pytest.mark.one_server
DAY_MS = 86_400_000


async def test_whoever_waits_for_a_quota_keeps_only_those_who_need_it_waiting(limiter: Limiter) -> None:
    """Mutants: whoever is refused keeps all others waiting; a key is one unit, whatever it asks for."""
    limiter.now += DAY_MS - limiter.now % DAY_MS - 2000
    await limiter.create("slots at_once 4;mails quota 10 day 0;tokens rate 1000 1000")
    assert await limiter.admit("ann.1", "mails=8") == "held"
    assert (await limiter.admit("bob.1", "mails=3,slots=1", wait_ms=9000)).startswith("wait ")
    assert await limiter.admit("cid.1", "slots=4") == "held", "without a key, as bob"
    assert await limiter.admit("dan.1", "tokens=900", key="t1") == "held"
    assert await limiter.admit("eve.1", "mails=1", key="t2") == "late - line all", "bob's turn"
    assert (await limiter.admit("eve.2", "mails=1", key="t2", wait_ms=9000)).endswith(" mails all")
    assert await limiter.release("cid.1") == "ok"
    assert await limiter.admit("cid.2", "slots=4", key="t3") == "held", "bob keeps no slot for a day"
    assert await limiter.release("cid.2") == "ok"
    assert await limiter.one("settle", "ann.1", "mails=7") == "ok"
    assert await limiter.admit("bob.1", "mails=3,slots=1", wait_ms=9000) == "held", "it was not to wait for midnight"
    assert (await limiter.admit("eve.2", "mails=1", key="t2", wait_ms=9000)).startswith("wait ")
    await limiter.wait(2000)
    assert await limiter.admit("fay.1", "mails=10") == "late 86400000000 mails all"
    assert await limiter.admit("eve.2", "mails=1", key="t2", wait_ms=9000) == "held", (
        "the day begins with those who wait"
    )


async def test_whoever_has_the_line_served_gets_what_is_left_of_it(limiter: Limiter) -> None:
    """Mutant: what was free before others were let in is taken as well."""
    await limiter.create("slots at_once 1")
    assert await limiter.admit("ann.1", "slots=1") == "held"
    answers = await limiter.call(
        "ann",
        HoldCall("admit", "ann.2", "a", "slots=1", TTL_MS, 9000),
        HoldCall("release", "ann.1", NO_KEY, "-", TTL_MS, 0),
        HoldCall("admit", "ann.3", "b", "slots=1", TTL_MS, 9000),
    )
    assert [answer.split()[0] for answer in answers.answers] == ["held", "ok", "wait"]


@pytest.mark.parametrize("limit", ["slots at_once 4", "slots rate 1 4"])
async def test_who_needs_much_is_not_passed_by_those_who_need_little_of_the_same(limiter: Limiter, limit: str) -> None:
    """Mutant: the first of a line keeps nothing."""
    await limiter.create(f"{limit};more at_once 100")
    small = [f"ann.{n}" for n in (1, 2, 3, 4)]
    for hold in small:
        assert await limiter.admit(hold, "slots=1") == "held"
    assert (await limiter.admit("bob.1", "slots=4,more=1", key="b", wait_ms=99_000)).startswith("wait ")
    for number in range(5, 9):
        assert (await limiter.admit(f"cid.{number}", "slots=1", key=f"c{number}", wait_ms=99_000)).startswith("wait ")
        if "rate" not in limit:
            await limiter.release(small.pop())
        await limiter.wait(1000)
        for waiter in range(5, number + 1):
            await limiter.admit(f"cid.{waiter}", "slots=1", key=f"c{waiter}", wait_ms=99_000)
        answer = await limiter.admit("bob.1", "slots=4,more=1", key="b", wait_ms=99_000)
        assert (answer == "held") == (number == 8)


@pytest.mark.parametrize(
    "limits",
    [
        "left rate 1000 10;right rate 100 10",
        "left at_once 10;right at_once 10",
        "left at_once 10;right rate 1000 10",
        "left rate 1000 10;right at_once 10",
    ],
)
async def test_who_needs_two_limits_is_not_passed_for_ever_by_those_who_need_one(limiter: Limiter, limits: str) -> None:
    """Each frees while the other is taken. Mutants: what has room is not kept; what is held at once is not."""
    await limiter.create(limits)
    numbers = itertools.count(1)
    held: dict[str, list[str]] = {"left": [], "right": []}

    async def busy() -> None:
        """Take all that others may have of both limits, and wait for more."""
        for name, holds in held.items():
            for session in (f"{name}x", f"{name}y"):
                hold = f"{session}.{next(numbers)}"
                answer = await limiter.admit(hold, f"{name}=5", key=session, wait_ms=9000)
                holds.append(hold)
                assert answer.split()[0] in ("held", "wait")

    await busy()
    assert (await limiter.admit("big.1", "left=10,right=10", key="big", wait_ms=9000)).startswith("wait ")
    for step in range(40):
        holds = held[("left", "right")[step % 2]]
        for hold in holds[:2]:
            await limiter.release(hold)
        del holds[:2]
        await busy()
        await limiter.wait(20)
        if await limiter.admit("big.1", "left=10,right=10", key="big", wait_ms=9000) == "held":
            break
    else:
        pytest.fail("it was passed for ever")


async def test_a_rate_goes_on_for_others_while_somebody_waits_for_a_slot(limiter: Limiter) -> None:
    """Mutant: all that the first needs is kept for it."""
    await limiter.create("requests rate 1 1;slots at_once 1")
    assert await limiter.admit("ann.1", "slots=1", ttl=60_000) == "held"
    assert (await limiter.admit("bob.1", "requests=1,slots=1", wait_ms=99_000)).endswith(" slots all")
    for number in range(1, 5):
        assert await limiter.admit(f"cid.{number}", "requests=1", key="c") == "held"
        await limiter.wait(1000)
        assert (await limiter.admit("bob.1", "requests=1,slots=1", wait_ms=99_000)).startswith("wait ")
    assert await limiter.release("ann.1") == "ok"
    assert await limiter.admit("bob.1", "requests=1,slots=1", wait_ms=99_000) == "held"


async def test_within_a_key_too_only_those_who_need_what_it_waits_for_wait(limiter: Limiter) -> None:
    """Mutant: what needs little of the key's limit, and something else beside, goes first."""
    await limiter.create("tokens rate 1000 1000;slots at_once 10", "tokens rate 10 10")
    assert await limiter.admit("ann.1", "tokens=10", key="t1") == "held"
    assert (await limiter.admit("bob.1", "tokens=10", key="t1", wait_ms=9000)).endswith(" tokens key")
    assert await limiter.admit("cid.1", "slots=1", key="t1") == "held"
    await limiter.wait(500)
    assert await limiter.admit("dan.1", "slots=1,tokens=1", key="t1") == "late - line all"
    assert (await limiter.admit("dan.2", "slots=1,tokens=1", key="t1", wait_ms=9000)).endswith(" tokens all")
    await limiter.wait(500)
    assert await limiter.admit("bob.1", "tokens=10", key="t1", wait_ms=9000) == "held"
    await limiter.wait(101)
    assert await limiter.admit("dan.2", "slots=1,tokens=1", key="t1", wait_ms=9000) == "held"


@pytest.mark.parametrize("much", [2, 3], ids=["would fit", "would not"])
async def test_calls_of_a_key_that_ask_for_other_limits_too_go_in_order(limiter: Limiter, much: int) -> None:
    """Mutant: whoever comes after one that was let in loses its place among those who ask for more, or less."""
    await limiter.create("slots at_once 9;tokens rate 1000 1000", "slots at_once 3")
    assert await limiter.admit("ann.1", "slots=3", key="a") == "held"
    waits = {"bob.1": "slots=1", "bob.2": f"slots={much}", "cid.1": "slots=2,tokens=1"}
    for hold, amounts in waits.items():
        assert (await limiter.admit(hold, amounts, key="a", wait_ms=9000)).startswith("wait ")
    order = []
    for gone in ("ann.1", "bob.1", "bob.2"):
        await limiter.release(gone)
        events = [text.split(":")[1] for _, text in await limiter.events() if text.startswith("held:")]
        order.append([hold for hold in events if hold in waits])
    assert order[0] == (["bob.1", "bob.2"] if much == 2 else ["bob.1"])
    assert order[-1] == ["bob.1", "bob.2", "cid.1"]


async def test_who_waits_for_more_than_there_is_any_more_is_refused(limiter: Limiter) -> None:
    """Mutant: it waits on, and keeps others waiting."""
    await limiter.create("slots at_once 4")
    assert await limiter.admit("ann.1", "slots=4") == "held"
    assert (await limiter.admit("bob.1", "slots=4", wait_ms=9000)).startswith("wait ")
    assert (await limiter.admit("cid.1", "slots=1", key="c", wait_ms=9000)).startswith("wait ")
    await limiter.change(limits="slots at_once 2")
    assert await limiter.admit("bob.1", "slots=4", wait_ms=9000) == "never 2 slots all"
    assert await limiter.release("ann.1") == "ok"
    assert await limiter.admit("cid.1", "slots=1", key="c", wait_ms=9000) == "held"


async def test_those_who_wait_are_found_where_limits_come_in_another_order(limiter: Limiter) -> None:
    """Mutant: lines keep the numbers that limits had."""
    await limiter.create("slots at_once 1;mails quota 1 day 0")
    assert await limiter.admit("ann.1", "slots=1,mails=1") == "held"
    assert (await limiter.admit("bob.1", "mails=1", key="b", wait_ms=9000)).endswith(" mails all")
    assert (await limiter.admit("cid.1", "slots=1", key="c", wait_ms=9000)).endswith(" slots all")
    await limiter.change(limits="mails quota 2 day 0;slots at_once 1")
    assert await limiter.admit("bob.1", "mails=1", key="b", wait_ms=9000) == "held"
    assert await limiter.release("ann.1") == "ok"
    assert await limiter.admit("cid.1", "slots=1", key="c", wait_ms=9000) == "held"


@pytest.mark.parametrize("key_limits", ["", "tokens rate 0.5 1"], ids=["in line", "of its key"])
@pytest.mark.parametrize("changes", [(1,), (1, 3)], ids=["once", "twice"])
async def test_who_waits_for_a_rate_keeps_its_turn_where_limits_change(
    limiter: Limiter, changes: tuple[int, ...], key_limits: str
) -> None:
    """Mutants: all begin anew, by their names; one that waited for a limit of its key goes first."""
    await limiter.create("tokens rate 1 1", key_limits)
    keys = {
        "ann.1": "y",
        "bob.1": "z",
        "cid.1": "m",
        "dan.1": "b",
        "eve.1": "a",
        "fay.1": "c",
        "bob.2": "z",
        "fay.2": "c",
    }
    there = [*keys][:5]

    async def all_ask() -> None:
        for hold in there:
            answer = await limiter.admit(hold, "tokens=1", key=keys[hold], wait_ms=99_000, ttl=60_000)
            assert answer.split()[0] in ("wait", "held")

    await all_ask()
    for second in range(1, 9):
        await limiter.wait(1000)
        if second in changes:
            await limiter.change(limits=f"more at_once {second};tokens rate 1 1")
            there += ["fay.1", "bob.2"] if second == 1 else ["fay.2"]
        await all_ask()
    order = [text.split(":")[1] for _, text in await limiter.events() if text.startswith("held:")]
    assert order == [*keys][: 6 + len(changes)]


async def test_who_waited_for_a_rate_by_deadline_goes_before_those_who_come_later(limiter: Limiter) -> None:
    """Mutant: a deadline is taken for what a key got."""
    await limiter.create("tokens rate 1 1", order="deadline")
    assert await limiter.admit("ann.1", "tokens=1") == "held"
    assert (await limiter.admit("bob.1", "tokens=1", key="z", wait_ms=90_000)).startswith("wait ")
    await limiter.change(order="")
    assert (await limiter.admit("cid.1", "tokens=1", key="a", wait_ms=90_000)).startswith("wait ")
    await limiter.wait(1000)
    assert (await limiter.admit("cid.1", "tokens=1", key="a", wait_ms=90_000)).startswith("wait ")
    assert await limiter.admit("bob.1", "tokens=1", key="z", wait_ms=90_000) == "held"


async def test_who_waited_in_turn_goes_by_when_it_came_once_deadlines_count(limiter: Limiter) -> None:
    """Mutant: what a key got is taken for a deadline."""
    await limiter.create("tokens rate 1 1")
    keys = {"ann.1": "y", "bob.1": "z", "dan.1": "b", "bob.2": "z", "cid.1": "a"}

    async def ask(*holds: str) -> list[str]:
        asked = [await limiter.admit(hold, "tokens=1", key=keys[hold], wait_ms=90_000, ttl=60_000) for hold in holds]
        return [answer.split()[0] for answer in asked]

    assert await ask("ann.1", "bob.1", "dan.1") == ["held", "wait", "wait"]
    await limiter.wait(1000)
    assert await ask("bob.1", "bob.2", "cid.1") == ["held", "wait", "wait"]
    await limiter.change(order="deadline")
    assert await ask("dan.1", "bob.2", "cid.1") == ["wait", "wait", "wait"]
    await limiter.wait(1000)
    assert await ask("dan.1", "bob.2", "cid.1") == ["held", "wait", "wait"]
    await limiter.wait(1000)
    assert await ask("cid.1", "bob.2") == ["wait", "held"]


async def test_those_who_hold_alike_go_in_turn(limiter: Limiter) -> None:
    """Mutant: they go by their names, so that some never go."""
    await limiter.create("slots at_once 1")
    assert await limiter.admit("ann.1", "slots=1") == "held"
    for session, key in (("bob", "z"), ("cid", "a"), ("dan", "m")):
        assert (await limiter.admit(f"{session}.1", "slots=1", key=key, wait_ms=9000)).startswith("wait ")
    for last, session, key in (("ann", "bob", "z"), ("bob", "cid", "a"), ("cid", "dan", "m")):
        assert await limiter.release(f"{last}.1") == "ok"
        assert await limiter.admit(f"{session}.1", "slots=1", key=key, wait_ms=9000) == "held"


async def test_new_keys_do_not_come_before_one_that_waits(limiter: Limiter) -> None:
    """Mutant: each begins where the one that was served last began, and goes by its name."""
    await limiter.create("tokens rate 1 1")
    assert await limiter.admit("ann.1", "tokens=1") == "held"
    assert (await limiter.admit("bob.1", "tokens=1", key="z", wait_ms=9000)).startswith("wait ")
    assert (await limiter.admit("cid.1", "tokens=1", key="a", wait_ms=9000)).startswith("wait ")
    await limiter.wait(1000)
    assert await limiter.admit("bob.1", "tokens=1", key="z", wait_ms=9000) == "held"


async def test_a_call_that_waits_for_its_key_and_for_all_is_not_passed_by_its_key(limiter: Limiter) -> None:
    """Mutant: only what waits for a limit of its key for the longest keeps its place in the key."""
    await limiter.create("slots at_once 5;tokens rate 1000 1000", "slots at_once 3")
    assert await limiter.admit("ann.1", "slots=2", key="a") == "held"
    assert (await limiter.admit("bob.1", "slots=2", key="a", wait_ms=9000)).endswith(" slots key")
    assert await limiter.admit("cid.1", "slots=2", key="c") == "held"
    assert (await limiter.admit("bob.1", "slots=2", key="a", wait_ms=9000)).startswith("wait "), "two of five are left"
    assert (await limiter.admit("dan.1", "slots=1,tokens=1", key="a", wait_ms=9000)).endswith(" slots all")
    assert await limiter.admit("eve.1", "slots=1", key="e") == "held", "whom no other key keeps waiting"
    await limiter.release("ann.1")
    assert await limiter.admit("bob.1", "slots=2", key="a", wait_ms=9000) == "held"
    assert (await limiter.admit("dan.1", "slots=1,tokens=1", key="a", wait_ms=9000)).startswith("wait ")
    await limiter.release("cid.1")
    assert await limiter.admit("dan.1", "slots=1,tokens=1", key="a", wait_ms=9000) == "held"


async def test_what_one_call_brings_back_and_asks_for_again_goes_to_those_of_the_key_who_wait(limiter: Limiter) -> None:
    """Mutant: who waits for a limit of a key is looked at again only at the end of the call that brings it back."""
    await limiter.create("slots at_once 9;tokens rate 1000 1000", "slots at_once 3")
    assert await limiter.admit("ann.1", "slots=2", key="a") == "held"
    assert (await limiter.admit("bob.1", "slots=2", key="a", wait_ms=9000)).endswith(" slots key")
    answers = await limiter.call(
        "ann",
        HoldCall("release", "ann.1", "a", "-", TTL_MS, 0),
        HoldCall("admit", "ann.2", "a", "slots=2,tokens=1", TTL_MS, 9000),
    )
    assert [answer.split()[0] for answer in answers.answers] == ["ok", "wait"]
    assert await limiter.admit("bob.1", "slots=2", key="a", wait_ms=9000) == "held"
