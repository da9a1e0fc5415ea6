"""A limiter as policies make it of a quota of users: each user's limits bind, or those of all its users together."""

import pytest

from headgate.policy import loads
from tests.lua.limiters.trial import TTL_MS, Limiter

QUOTA = '[[user_limit]]\nname = "t"\nusers = ["*"]\nconnections = 2\nin_flight = 3\nrate = "2/s"\nbyte_rate = "1kB/s"\n'


async def create(limiter: Limiter, more: str = "", *, mode: str = "ensure") -> None:
    fields = loads(QUOTA + more).rules[0].fields
    assert not any(fields[name] for name in fields.keys() - {"limits", "key_limits"})
    await limiter.create(fields["limits"], fields["key_limits"], mode=mode)


@pytest.mark.parametrize("held", ["connections=1", "connections=1,in_flight=1"])
async def test_each_user_has_so_many_at_once_and_those_that_go_make_room(limiter: Limiter, held: str) -> None:
    """Mutants: nothing is counted of a user; what was released is counted still; all users have one quota."""
    await create(limiter)
    for number, node in enumerate(("one", "two"), 1):
        assert await limiter.admit(f"{node}.{number}", held, key="ann") == "held"
    assert await limiter.admit("two.3", held, key="ann") == "late - connections key"
    assert await limiter.admit("two.4", held, key="bob") == "held"
    assert await limiter.admit("two.5", held, key="Ann") == "held", "names differ by case"
    await limiter.release("one.1")
    assert await limiter.admit("two.6", held, key="ann") == "held"
    assert await limiter.admit("two.7", held, key="ann") == "late - connections key"


async def test_users_together_share_what_they_have_at_once(limiter: Limiter) -> None:
    """Mutant: it is counted of each of them."""
    await create(limiter, "together = true\n")
    assert await limiter.admit("one.1", "connections=1", key="ann") == "held"
    assert await limiter.admit("two.1", "connections=1", key="bob") == "held"
    assert await limiter.admit("two.2", "connections=1", key="eve") == "late - connections all"


async def test_what_each_user_sends_is_charged_to_it_alone(limiter: Limiter) -> None:
    """Mutants: more than a burst goes at once; another user pays."""
    await create(limiter)
    assert await limiter.admit("one.1", "messages=2,bytes=400", key="ann") == "held"
    assert await limiter.admit("two.1", "messages=1", key="ann") == "late 500000 messages key"
    assert await limiter.admit("two.1", "bytes=700", key="ann") == "late 100000 bytes key"
    assert await limiter.admit("two.2", "messages=2,bytes=1000", key="bob") == "held"
    assert await limiter.admit("two.3", "messages=3", key="bob") == "never 2 messages key"
    await limiter.wait(500)
    assert await limiter.admit("two.4", "messages=1,bytes=100", key="ann") == "held"


async def test_what_is_claimed_after_a_loss_is_held_and_its_rates_are_not_paid_again(limiter: Limiter) -> None:
    """Mutants: rates are charged with each claim; a new connection comes before those that are there."""
    await create(limiter)
    assert await limiter.admit("one.1", "connections=1,messages=2", key="ann") == "held"
    known = limiter.epoch
    await limiter.server.forget(limiter.address, *limiter.sequence)
    limiter.now += 1000
    await create(limiter, mode="recover")
    limiter.sequence.clear()
    assert (await limiter.admit("two.1", "connections=1", key="ann")).endswith("connections key")
    limiter.epoch = known
    assert await limiter.one("claim", "one.1", "connections=1,messages=2", key="ann") == "ok"
    await limiter.wait(1000)
    assert await limiter.admit("two.2", "messages=2", key="ann") == "held"
    await limiter.wait(TTL_MS - 1000)
    assert await limiter.one("renew", "one.1") == "ok"
    assert await limiter.admit("two.3", "connections=1", key="ann") == "held"
    assert await limiter.admit("two.4", "connections=1", key="ann") == "late - connections key"
