"""Shadow limits: they count what they would have kept waiting, and keep nobody waiting."""

import pytest

from headgate.errors import InvalidValue
from headgate.redis.stores.limiters import NO_KEY
from tests.lua.limiters.trial import Limiter
from tests.support.audited import audit

FREE = "tokens rate 1e15 4503599627370496;slots at_once 4503599627370496;mails quota 4503599627370496 day 0"


async def told(limiter: Limiter) -> list[str]:
    return [event for _, event in await limiter.events() if event.startswith("would-wait")]


async def level(limiter: Limiter, name: str, key: str = NO_KEY) -> tuple[int, int]:
    """Return what is taken and left of a shadow limit."""
    look = await limiter.look(key)
    rows = [row.split() for row in (look.shadows if key == NO_KEY else look.of_key_shadows)]
    return next((int(row[5]), int(row[3])) for row in rows if row[0] == name)


async def test_each_form_counts_what_it_would_have_kept_waiting_and_keeps_nobody(limiter: Limiter) -> None:
    """Mutants: a shadow limit keeps somebody waiting; is not charged; counts those that it lets through."""
    await limiter.create(FREE, shadow_limits="tokens rate 10 5;slots at_once 2;mails quota 1 day 0")
    for number in range(1, 4):
        assert await limiter.admit(f"ann.{number}", "tokens=4,slots=1,mails=1", wait_ms=9000) == "held"
    assert await told(limiter) == [
        "would-wait:ann.2:*:tokens:all:300000:3",
        f"would-wait:ann.2:*:mails:all:{86_400_000_000 - limiter.now % 86_400_000 * 1000}:1",
        "would-wait:ann.3:*:tokens:all:700000:7",
        "would-wait:ann.3:*:slots:all:-:1",
        f"would-wait:ann.3:*:mails:all:{86_400_000_000 - limiter.now % 86_400_000 * 1000}:2",
    ]
    look = await limiter.look()
    assert look.would_wait == 2
    assert await limiter.admit("ann.4", "tokens=1", wait_ms=9000) == "held"
    await limiter.wait(700)
    assert await limiter.admit("ann.5", "tokens=1", wait_ms=9000) == "held"
    look = await limiter.look()
    assert look.would_wait == 4
    assert set(look.shadowed) == {"tokens:all:4:8", "slots:all:1:1", "mails:all:2:2"}
    assert await level(limiter, "S_tokens") == (7, -2)
    assert await level(limiter, "slots") == (3, -1)
    assert await level(limiter, "S_mails") == (3, -2)
    assert look.waiting == look.refused == 0
    key = f"{limiter.address.key}:ledger"
    assert audit(await limiter.server.command(key.encode(), "XRANGE", key, "-", "+")) == []


async def test_a_shadow_beside_the_real_limit_judges_what_that_admits_alone(limiter: Limiter) -> None:
    """Mutants: it judges what was refused; settling passes it by."""
    await limiter.create("tokens rate 10 10", shadow_limits="tokens rate 5 5")
    assert await limiter.admit("ann.1", "tokens=5") == "held"
    assert await told(limiter) == []
    assert await limiter.admit("ann.2", "tokens=5") == "held"
    assert (await limiter.admit("ann.3", "tokens=5")).startswith("late ")
    assert await limiter.admit("bob.1", "tokens=1", wait_ms=9000) == "wait 100000 tokens all"
    assert await limiter.one("settle", "ann.2", "tokens=1") == "ok"
    assert await limiter.one("renew", "bob.1") == "ok"
    await limiter.store.sweep(limiter.address)
    assert await told(limiter) == ["would-wait:ann.2:*:tokens:all:1000000:5", "would-wait:bob.1:*:tokens:all:400000:2"]
    assert await level(limiter, "S_tokens") == (7, -2)


async def test_each_key_has_shadow_limits_of_its_own(limiter: Limiter) -> None:
    """Mutants: those of keys are judged without a key; one key is charged for another."""
    await limiter.create(FREE, shadow_key_limits="slots at_once 1;tokens rate 1 5")
    assert await limiter.admit("ann.1", "slots=5,tokens=50") == "held"
    assert await limiter.admit("ann.2", "slots=1,tokens=5", key="t1") == "held"
    assert await limiter.admit("ann.3", "slots=1,tokens=6", key="t2") == "held"
    assert await limiter.admit("ann.4", "slots=1", key="t1") == "held"
    assert await told(limiter) == ["would-wait:ann.3:t2:tokens:key:never:1", "would-wait:ann.4:t1:slots:key:-:1"]
    assert await level(limiter, "S_tokens", "t1") == (5, 0)
    assert await level(limiter, "slots", "t1") == (2, -1)
    for number in range(1, 5):
        assert await limiter.release(f"ann.{number}") == "ok"
    await limiter.sweep(20_000)
    for _ in range(70):
        await limiter.store.sweep(limiter.address)
    assert await limiter.left("keyed") == 0


async def test_keys_that_only_a_shadow_limit_counts_keep_nobody_out(limiter: Limiter) -> None:
    """Mutants: their records count for `max_keys`; a key known by its shadow alone comes in above it; they have no end
    of their own; what is owed to a shadow keeps a key counted that owes nothing else; one that went is counted still.
    """
    quotas = "mails quota 9 day 0;tokens rate 0.001 5"
    await limiter.create(FREE, "tokens rate 10 10", shadow_key_limits=quotas, max_keys="3")
    for number in range(1, 10):
        assert await limiter.admit(f"ann.{number}", "mails=1,tokens=1", key=f"t{number}") == "held"
        assert await limiter.release(f"ann.{number}") == "ok"
        await limiter.wait(200)
        await limiter.store.sweep(limiter.address)
    assert await limiter.left("keyed") <= 2 * 3, "as many again for shadows, and no more"
    assert (await limiter.look()).keys == 0
    assert await limiter.admit("bob.1", "slots=1", key="t1") == "held", "of which a shadow has something to say"
    assert await limiter.admit("bob.2", "slots=1", key="u1") == "held"
    assert await limiter.admit("bob.3", "slots=1", key="u2") == "held"
    assert (await limiter.look()).keys == 3
    assert await limiter.admit("bob.4", "slots=1", key="t2") == "keys", "max_keys binds as ever"
    assert await limiter.admit("bob.4", "slots=1", key="u3") == "keys"
    assert await limiter.release("bob.1") == "ok"
    assert await limiter.admit("bob.4", "slots=1", key="u3") == "held"
    await limiter.change(shadow_key_limits="")
    for number in range(2, 5):
        assert await limiter.release(f"bob.{number}") == "ok"
    for _ in range(70):
        await limiter.store.sweep(limiter.address)
    assert await limiter.left("keyed") == (await limiter.look()).keys == 0
    assert await limiter.field("shadow_keys") == b"0"


async def test_a_shadow_that_binds_from_now_on_counts_what_is_held_and_owed(limiter: Limiter) -> None:
    """Mutants: what is held, owed or used is forgotten with the change; a shadow that is given up binds."""
    shadows = "slots at_once 2;tokens rate 10 10;mails quota 5 day 0"
    await limiter.create(FREE, shadow_limits=shadows, shadow_key_limits="tokens rate 1 5")
    for number in range(1, 4):
        amounts = "slots=1,tokens=5,mails=1"
        assert await limiter.admit(f"ann.{number}", amounts, key="t1") == "held"
    real = {"limits": "tokens rate 10 10;slots at_once 2;mails quota 5 day 0", "key_limits": "tokens rate 1 5"}
    await limiter.change(**real, shadow_limits="", shadow_key_limits="")
    assert await limiter.taken("slots") == 3
    assert await limiter.taken("tokens") == 10  # of more than a burst nothing is owed
    assert await limiter.taken("mails") == 3
    assert await limiter.taken("tokens", "t1") == 5
    assert await limiter.admit("bob.1", "slots=1", wait_ms=9000) == "wait 1000000 slots all"
    assert await limiter.release("ann.1") == "ok"
    assert await limiter.one("renew", "bob.1") == "ok"
    assert (await limiter.look()).waiting == 1
    assert await limiter.release("ann.2") == "ok"
    assert (await limiter.look()).waiting == 0
    # And back again: nobody waits any more, and what is held and owed counts in the shadow.
    assert await limiter.admit("bob.2", "slots=1", wait_ms=9000) == "wait 1000000 slots all"
    await limiter.change(limits=FREE, key_limits="", shadow_limits=shadows, shadow_key_limits="tokens rate 1 5")
    await limiter.store.sweep(limiter.address)
    assert (await limiter.look()).waiting == 0
    assert await level(limiter, "slots") == (3, -1)
    assert await level(limiter, "S_tokens") == (10, 0)
    assert await level(limiter, "S_mails") == (3, 2)
    assert await limiter.admit("ann.9", "tokens=1", key="t1") == "held"
    assert await level(limiter, "S_tokens", "t1") == (6, -1)
    await limiter.change(shadow_limits="", shadow_key_limits="")
    assert await limiter.admit("ann.10", "tokens=1000", key="t1") == "held"
    assert (await limiter.look()).shadows == ()
    await limiter.change(shadow_limits=shadows)
    assert (await limiter.look()).would_wait == 0, "it counts anew with other shadow limits"


async def test_of_a_limit_that_is_none_and_of_another_sort_nothing_is_counted(limiter: Limiter) -> None:
    """Mutant: a shadow of another sort is charged with what is not held at once."""
    await limiter.create("tokens rate 10 10", shadow_limits="tokens at_once 1;others rate 1 1")
    assert await limiter.admit("ann.1", "tokens=2") == "held"
    assert await limiter.admit("ann.2", "others=1") == "limit others"
    assert await told(limiter) == []


async def test_a_hold_off_and_a_loss_are_as_real_limits_have_them(limiter: Limiter) -> None:
    """Mutants: a shadow saves up through a hold-off; an unlimited limit waits for what is learnt."""
    await limiter.create(FREE, shadow_limits="tokens rate 10 10", mode="recover")
    assert await limiter.admit("ann.1", "slots=1") == "held"
    assert await limiter.store.hold_off(limiter.address, "ann", key=NO_KEY, ms=1000, reason="429") == ("OK", 1000)
    await limiter.wait(1500)
    assert await limiter.admit("ann.2", "tokens=9") == "held"
    assert await told(limiter) == ["would-wait:ann.2:*:tokens:all:400000:4"]


async def test_a_shadow_beside_another_limit_ends_and_leaves_that_as_it_is(limiter: Limiter) -> None:
    """Mutant: what a shadow limit counted is owed to the real one once it ends."""
    shadow = "tokens rate 1 5"
    await limiter.create("tokens rate 10 20", "tokens rate 10 20", shadow_limits=shadow, shadow_key_limits=shadow)
    assert await limiter.admit("ann.1", "tokens=20", key="t1") == "held"
    await limiter.wait(1000)
    await limiter.change(shadow_limits="", shadow_key_limits="")
    assert await limiter.taken("tokens") == 10
    assert await limiter.admit("ann.2", "tokens=10", key="t1") == "held"
    assert await limiter.taken("tokens", "t1") == 20


async def test_shadow_limits_that_mean_nothing_are_refused(limiter: Limiter) -> None:
    """Mutant: texts of shadow limits are not read before they are written."""
    await limiter.create(FREE)
    for bad in ({"shadow_limits": "tokens rate 0 5"}, {"shadow_key_limits": "tokens"}):
        with pytest.raises(InvalidValue, match="ARGUMENT apply"):
            await limiter.change(**bad)
    with pytest.raises(InvalidValue, match="ARGUMENT apply"):
        await limiter.change(shadow_limits="tokens rate 1 5", shadow_key_limits="tokens quota 5 day 0")
