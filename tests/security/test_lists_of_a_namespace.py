"""Lists of a namespace cost a node no turn of its loop, however long they are, and nothing for who is shown none."""

import asyncio
from typing import Any

import pytest

import headgate
from headgate.core.policy import Policy
from headgate.policy import loads
from headgate.redis.keys import index_keys
from headgate_coordinator.node import shown_policies
from headgate_coordinator.node.shown_policies import ShownPolicies, _part_of
from headgate_coordinator.security.document import parse_grant
from tests.amqp.doors.test_floods import Turns, yardstick
from tests.remote.grants import B, C
from tests.remote.people import node_with, sdk_as

pytestmark = [pytest.mark.one_server, pytest.mark.usefixtures("patient")]
MANY = 6000
WORDS = ("alpha", "beta", "gamma")


def grants_of(*texts: str) -> Any:
    return tuple(parse_grant(text).grant() for text in texts)


def large() -> Policy:
    return loads("".join(f'[[destination]]\nmatch = "a{n}.*.b{n % 7}.#"\nlimit = "1MB"\n' for n in range(1500)))


@pytest.mark.parametrize("who", ["nobody", "narrow"])
async def test_a_namespace_of_many_destinations_is_listed_in_short_turns(
    redis_url: str, cleanup_namespace: str, monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    """Breaks where all names are compared with grants in one turn, or Redis is asked for who has none."""
    people: Any = {"nobody": {}, "narrow": {"of.1.#": {B, C}}}
    async with node_with(redis_url, cleanup_namespace, people) as node, sdk_as(node, who) as client:
        server, asked = node.client.store.server, 0

        async def scan(pattern: str) -> list[str]:
            nonlocal asked
            asked += 1
            return [pattern.replace("*", f"of.{number}.{'.'.join(WORDS)}") for number in range(MANY)]

        monkeypatch.setattr(server, "scan", scan)
        turns = Turns()
        with turns.watched():
            turns.begin()
            found = await client.destinations()
        assert (found, asked) == ((["of.1.alpha.beta.gamma"], 1) if who == "narrow" else ([], 0))
        assert turns.longest < yardstick(), "50 ms on a machine of today"


async def test_who_is_shown_no_list_has_redis_asked_for_none(
    redis_url: str, cleanup_namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with node_with(redis_url, cleanup_namespace, {"nobody": {}}) as node, sdk_as(node, "nobody") as client:
        asked = []
        ask = node.client.store.server.command

        async def command(key: bytes, *words: Any) -> Any:
            asked.append(words[0])
            return await ask(key, *words)

        monkeypatch.setattr(node.client.store.server, "command", command)
        wildcards, _, topics = index_keys(cleanup_namespace)
        theirs = client.store.server
        assert await theirs.command(topics, "SSCAN", topics, b"0", "COUNT", 1000) == [b"0", []]
        assert await theirs.command(wildcards, "HGETALL", wildcards) == []
        assert asked == []
        with pytest.raises(headgate.InvalidValue, match="at most"):
            await theirs.command(topics, "SSCAN", topics, b"0", "COUNT", 1001)


async def test_a_part_of_a_large_policy_is_made_once_and_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks where each connection makes its own, or the loop waits for it."""
    policy, grants = large(), grants_of("consume:*.x.#", "produce:a5.*.b3.>")
    made = []

    def part(*asked: Any) -> bytes:
        made.append(asked)
        return _part_of(*asked)

    monkeypatch.setattr(shown_policies, "_part_of", part)
    shown, turns = ShownPolicies(), Turns()
    with turns.watched():
        turns.begin()
        parts = await asyncio.gather(*(shown.part(policy, grants) for _ in range(20)))
    assert len(set(parts)) == len(made) == 1
    assert turns.longest < yardstick()
    assert await shown.part(policy, grants_of("consume:a1.#")) != parts[0]
    monkeypatch.setattr(shown_policies, "MOST_PARTS", 4)
    for number in range(8):
        await shown.part(policy, grants_of(f"consume:q{number}.#"))
    assert len(shown._parts) == shown_policies.MOST_PARTS


def test_the_part_that_is_shown_is_that_of_the_grants_and_of_where_their_dead_letters_go() -> None:
    text = "".join(
        f'[[destination]]\nmatch = "{match}"\nlimit = {at + 1}\n{more}'
        for at, (match, more) in enumerate((
            ("orders.#", 'dead_letter = "graves.of.orders"\n'),
            ("*.eu", ""),
            ("graves.*.orders", ""),
            ("secret.#", 'dead_letter = "graves.of.secrets"\n'),
            ("graves.of.secrets", ""),
            ("#", ""),
        ))
    )  # fmt: skip
    policy = loads(text)

    def shown(*grants: str) -> set[str]:
        return {rule.pattern.text for rule in Policy.from_json(_part_of(policy, grants_of(*grants)).decode()).rules}

    assert shown("consume:orders.eu") == {"orders.#", "*.eu", "graves.*.orders", "#"}
    assert shown("consume:secret.x.y") == {"secret.#", "graves.of.secrets", "#"}
    assert shown("consume:>") == {rule.pattern.text for rule in policy.rules}
