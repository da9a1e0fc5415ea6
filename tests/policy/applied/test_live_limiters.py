"""Limiters under a policy in force: made as it says, changed with it, refused where nothing limits them."""

from typing import Any, Final

import pytest

import headgate
from headgate.core.policy import Policy, Rule
from headgate.errors import InvalidValue, PolicyError, UnknownDestination
from headgate.policy import loads
from headgate.redis.keys import Address
from tests.policy.live import settles, state

SMALL: Final = """
[[limiter]]
match = "llm"
max_keys = 10
[[limiter.limit]]
name = "requests"
rate = "10/s"
[[limiter.limit]]
name = "spend"
quota = "1000/day"
resets = "00:00 Europe/Berlin"
[limiter.per_key]
requests = "1/s"
weight = { "gold-*" = 4 }
"""
NONE: Final = loads("destination = []")


async def ensure(client: headgate.Client, name: str, kind: str) -> str:
    """Make a destination exist, as what opens one of that kind does."""
    return await client.parts.registry.ensure(Address.of(client.namespace, name), (kind,), recover=False)


async def test_a_limiter_is_made_as_the_policy_says_and_follows_it(client: headgate.Client) -> None:
    await client.apply_policy(loads(SMALL))
    assert await ensure(client, "llm", "limiter") == "limiter"
    made = await state(client, "llm")
    assert made["limits"] == "requests rate 10.0 10;spend quota 1000 day 0"
    assert (made["key_limits"], made["max_keys"]) == ("requests rate 1.0 1", "10")
    await client.apply_policy(loads(SMALL.replace("10/s", "20/s").replace("1/s", "2/s").replace("max_keys = 10", "")))
    await settles(
        client, "llm", limits="requests rate 20.0 20;spend quota 1000 day 0", key_limits="requests rate 2.0 2",
        before="requests rate 1.0 1", generation="1", max_keys=None,
    )  # fmt: skip
    await client.apply_policy(NONE)
    await settles(client, "llm", limits=None, key_limits=None, zone=None, key_weights=None)
    with pytest.raises(UnknownDestination, match="there is no destination 'lmm'"):
        await ensure(client, "lmm", "limiter")


async def test_a_limiter_that_nothing_limits_is_refused_with_names_that_are_near(client: headgate.Client) -> None:
    """Mutant: a misspelled name is an unlimited limiter."""
    await client.apply_policy(loads(SMALL))
    with pytest.raises(UnknownDestination) as caught:
        await ensure(client, "lllm", "limiter")
    assert caught.value.near == ("llm",)
    assert "did you mean 'llm'? Else give that limiter limits in a policy, as [[limiter]]" in str(caught.value)
    assert await client.destinations() == []
    await client.apply_policy(
        Policy(0, [Rule("bare", "limiter", {}, {})])
    )  # as an earlier version of the linter let pass
    with pytest.raises(UnknownDestination, match=r"'bare'.*for nothing limits it") as caught:
        await ensure(client, "bare", "limiter")
    assert caught.value.near == (), "its own name is not another that may be meant"


@pytest.mark.parametrize(
    ("kind", "rule", "by_hand"), [("gate", "limit = 50", {"limit": 5}), ("bucket", "rate = 5", {"rate": 5})]
)
async def test_strict_gates_and_buckets_need_limits(
    kind: str, rule: str, by_hand: dict[str, Any], client: headgate.Client
) -> None:
    """Mutants: only limiters are strict; limits set by hand do not count."""
    rules = f'[[destination]]\nmatch = "db.main"\nkind = "{kind}"\n{rule}\n'
    await client.apply_policy(loads(rules))
    assert await ensure(client, "db.mian", kind) == kind, "not strict"
    await client.remove("db.mian")
    await client.apply_policy(loads(f"strict = true\n{rules}"))
    with pytest.raises(UnknownDestination) as caught:
        await ensure(client, "db.mian", kind)
    assert caught.value.near == ("db.main",)
    assert await ensure(client, "db.main", kind) == kind
    await client.apply("other", kind=kind, **by_hand)
    assert await ensure(client, "other", kind) == kind
    assert await ensure(client, "orders", "queue") == "queue", "of queues nothing is asked"


async def test_a_limiter_by_hand(client: headgate.Client) -> None:
    with pytest.raises(PolicyError, match="a limiter needs limits"):
        await client.apply("mine", kind="limiter")
    await client.apply("mine", kind="limiter", limits={"slots": {"at_once": 5}}, key_limits={"slots": {"at_once": 2}})
    await client.apply("mine", limits={"slots": {"at_once": 6}})
    assert (await state(client, "mine"))["limits"] == "slots at_once 6"
    with pytest.raises(PolicyError, match="a kind does not change"):
        await client.apply("mine", kind="queue")


async def test_a_policy_with_limiters_is_read_back_from_redis_as_it_was(client: headgate.Client, other: Any) -> None:
    policy = loads(f"strict = true\n{SMALL}")
    await client.apply_policy(policy)
    there: Policy = await other.policy()
    assert there.strict
    assert there.resolve("llm").origins == policy.resolve("llm").origins
    assert await other.apply_policy(policy) == there.version, "it says what is in force already"
    assert await other.apply_policy(loads(SMALL)) > there.version, "without strict it says something else"


async def test_keys_of_gates_and_buckets_are_limited_by_a_rule_that_goes_as_it_came(client: headgate.Client) -> None:
    """Mutants: only limiters follow; a rule that says nothing of keys takes away what was set by hand."""
    await client.apply("by-hand", kind="gate", key_limits={"calls": {"at_once": 2}})
    rule = """
    [[destination]]
    match = "#"
    limit.messages = 8
    [[destination]]
    match = "legacy"
    kind = "gate"
    max_keys = 10
    hold_off = "1min"
    [destination.per_key]
    calls = 1
    weight = { "gold-*" = 3 }
    """
    await client.apply_policy(loads(rule))
    assert await ensure(client, "legacy", "gate") == "gate"
    await settles(
        client, "legacy", key_limits="calls at_once 1", key_weights="gold-*=3", max_keys="10", hold_off_ms="60000"
    )
    await settles(client, "by-hand", limit_messages="8", key_limits="calls at_once 2")
    gate = await client.session("shop").gate("legacy")
    async with gate.admit(key="t1"):
        assert not await gate.attempt(key="t1")
        assert await gate.attempt(key="t2")
    await client.apply_policy(loads(rule.replace("calls = 1", "calls = 2")))
    await settles(client, "legacy", key_limits="calls at_once 2")
    await client.apply_policy(NONE)
    await settles(client, "legacy", key_limits=None, key_weights=None, max_keys=None, hold_off_ms=None)


async def test_what_is_no_policy_is_refused_with_what_makes_one(client: headgate.Client) -> None:
    wrongs: tuple[Any, ...] = (SMALL, SMALL.encode(), {"limiter": []}, None)
    for wrong in wrongs:
        for call in (client.apply_policy, client.check_policy):
            with pytest.raises(InvalidValue, match=r"policy.* is not a policy; headgate\.policy\.loads\(text\)"):
                await call(wrong)
