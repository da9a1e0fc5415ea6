"""A policy is stored whole, switched over the version that was seen, and applied to every destination there is."""

import asyncio
import itertools
from typing import Any

import pytest
import redis

import headgate
from headgate import PolicyConflict, PolicyError
from headgate.core.policy import Policy
from headgate.redis.keys import policy_key
from headgate.redis.store import Store
from tests.policy.live import policy, settles, state
from tests.sdk.observing import learn_fast
from tests.sdk.session.test_cluster import _slot
from tests.support.leaks import delete_namespace
from tests.support.waiting import wait_until

NAMES = [f"orders.{number}" for number in range(12)]
SMALL = policy(("orders.#", {"limit": 1000, "max_attempts": 3}))
LARGE = policy(("orders.#", {"limit": 2000}))


async def test_it_reaches_every_destination_there_is(client: headgate.Client, url: str) -> None:
    for name in NAMES:
        await client.apply(name, kind="queue")
    await client.apply("other", limit=77)
    assert (await client.policy()).version == 0
    assert await client.apply_policy(SMALL) == 1
    for name in NAMES:
        fields = await state(client, name)
        assert (fields["limit_bytes"], fields["max_attempts"], fields["policy_version"]) == ("1000", "3", "1")
        assert fields["policy"] == "limit_bytes=orders.#@test.toml:1;max_attempts=orders.#@test.toml:1"
    assert (await state(client, "other"))["limit_bytes"] == "77"
    if "26" not in url:
        assert len({_slot(name, client.namespace) * 3 // 16384 for name in NAMES}) == 3, "on all masters, if there are"


async def test_what_no_rule_says_any_more_goes_back_to_its_default(client: headgate.Client) -> None:
    await client.apply("orders.1", kind="queue")
    await client.apply_policy(SMALL)
    assert await client.apply_policy(LARGE) == 2
    fields = await state(client, "orders.1")
    assert (fields["limit_bytes"], fields.get("max_attempts")) == ("2000", None)
    assert await client.apply_policy(policy()) == 3
    fields = await state(client, "orders.1")
    assert (fields["limit_bytes"], fields.get("policy"), fields["policy_version"]) == ("unlimited", None, "3")


async def test_what_is_in_force_can_be_read(client: headgate.Client, other: headgate.Client) -> None:
    await client.apply_policy(SMALL)
    read = await other.policy()
    assert (read.version, read.rules, read.source) == (1, SMALL.rules, "test.toml")
    effective = await other.effective("orders.new")
    assert (effective.fields["limit_bytes"], effective.origins["limit_bytes"]) == ("1000", "orders.#@test.toml:1")
    assert (await other.effective("else")).origins == {}


async def test_the_same_again_changes_nothing_and_finishes_what_was_begun(client: headgate.Client) -> None:
    await client.apply("orders.1", kind="queue")
    assert await client.apply_policy(SMALL) == 1
    before = await state(client, "orders.1")
    assert await client.apply_policy(SMALL) == 1
    assert await client.apply_policy(SMALL, expected=0) == 1
    assert await state(client, "orders.1") == before


async def test_only_over_the_version_that_was_expected(client: headgate.Client, other: headgate.Client) -> None:
    await client.apply_policy(SMALL, expected=0)
    with pytest.raises(PolicyConflict, match="policy version 1 is in force, not 0") as caught:
        await other.apply_policy(LARGE, expected=0)
    assert (caught.value.version, caught.value.expected) == (1, 0)
    assert (await client.policy()).rules == SMALL.rules
    assert await other.apply_policy(LARGE, expected=1) == 2


async def test_of_two_who_expect_the_same_one_wins(client: headgate.Client, other: headgate.Client) -> None:
    for name in NAMES:
        await client.apply(name, kind="queue")
    results = await asyncio.gather(
        client.apply_policy(SMALL, expected=0), other.apply_policy(LARGE, expected=0), return_exceptions=True
    )
    assert sorted(type(result).__name__ for result in results) == ["PolicyConflict", "int"]
    won = (await client.policy()).rules[0].fields["limit_bytes"]
    for name in NAMES:
        await settles(client, name, limit_bytes=won, policy_version="1")


async def test_two_who_expect_nothing_both_get_through_and_the_later_holds(
    client: headgate.Client, other: headgate.Client
) -> None:
    for name in NAMES:
        await client.apply(name, kind="queue")
    versions = await asyncio.gather(client.apply_policy(SMALL), other.apply_policy(LARGE))
    assert sorted(versions) == [1, 2]
    held = (SMALL if versions[0] == 2 else LARGE).rules[0].fields["limit_bytes"]
    for name in NAMES:
        await settles(client, name, limit_bytes=held, policy_version="2")


async def test_whoever_calls_again_finishes_a_walk_that_was_cut_short(
    client: headgate.Client, other: headgate.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in NAMES:
        await client.apply(name, kind="queue")
    batches = itertools.count()
    real = Store.apply_each

    async def failing(store: Store, *args: Any, **options: Any) -> list[tuple[str, str] | None]:
        if next(batches):
            raise headgate.CoordinatorUnavailable("cut")
        return await real(store, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "apply_each", failing)
        with pytest.raises(headgate.CoordinatorUnavailable):
            await client.apply_policy(SMALL)
    versions = {(await state(client, name))["policy_version"] for name in NAMES}
    assert "0" in versions, "in the middle of it"
    assert await other.apply_policy(SMALL) == 1
    for name in NAMES:
        await settles(client, name, limit_bytes="1000", policy_version="1")


class TestNewDestinations:
    async def test_they_are_made_as_the_policy_says(self, client: headgate.Client, other: headgate.Client) -> None:
        await client.apply_policy(
            policy(("orders.#", {"limit": 1000}), ("news.*", {"kind": "topic", "limit_messages": 5}))
        )
        async with other.session("s") as session:
            await session.producer("orders.new")
            await session.producer("news.sport")
            await session.producer("else")
        fields = await state(client, "orders.new")
        assert (fields["kind"], fields["limit_bytes"], fields["policy_version"]) == ("queue", "1000", "1")
        assert fields["policy"] == "limit_bytes=orders.#@test.toml:1"
        fields = await state(client, "news.sport")
        assert (fields["kind"], fields["limit_messages"]) == ("topic", "5")
        assert (await state(client, "else")).get("policy") is None

    async def test_a_kind_that_does_not_fit_is_refused_with_the_rule(self, client: headgate.Client) -> None:
        await client.apply_policy(policy(("news.*", {"kind": "topic"})))
        async with client.session("s") as session:
            with pytest.raises(PolicyError, match=r"makes 'news.a' a topic by its rule 'news\.\*'; this takes a gate"):
                await session.gate("news.a")
            assert await client.destinations() == []

    async def test_by_hand_they_are_made_with_both(self, client: headgate.Client) -> None:
        await client.apply_policy(SMALL)
        await client.apply("orders.new", limit=5)
        fields = await state(client, "orders.new")
        assert (fields["limit_bytes"], fields["max_attempts"]) == ("5", "3")
        assert fields["policy"] == "max_attempts=orders.#@test.toml:1"


class TestByHand:
    async def test_what_was_set_by_hand_stays_until_the_next_policy_that_has_a_rule(
        self, client: headgate.Client
    ) -> None:
        await client.apply("orders.1", kind="queue")
        await client.apply_policy(SMALL)
        await client.apply("orders.1", limit=5000)
        await client.apply_policy(SMALL)
        fields = await state(client, "orders.1")
        assert (fields["limit_bytes"], fields["policy"]) == ("5000", "max_attempts=orders.#@test.toml:1")
        await client.apply_policy(LARGE)
        assert (await state(client, "orders.1"))["limit_bytes"] == "2000"

    async def test_it_stays_where_only_the_rule_goes(self, client: headgate.Client) -> None:
        await client.apply("orders.1", kind="queue")
        await client.apply_policy(SMALL)
        await client.apply("orders.1", limit=5000)
        await client.apply_policy(policy())
        fields = await state(client, "orders.1")
        assert (fields["limit_bytes"], fields.get("max_attempts"), fields.get("policy")) == ("5000", None, None)

    async def test_a_block_by_hand_outlives_policies(self, client: headgate.Client) -> None:
        await client.apply("orders.1", kind="queue", stopped="maintenance")
        await client.apply_policy(SMALL)
        await client.apply_policy(LARGE)
        assert (await state(client, "orders.1"))["stopped"] == "maintenance"


class TestLoss:
    async def test_a_client_that_remembers_puts_the_policy_back(
        self, client: headgate.Client, other: headgate.Client, namespace: str
    ) -> None:
        await client.apply_policy(SMALL)
        await client.apply_policy(LARGE)
        async with other.session("s") as session:
            await session.producer("orders.1")
            key = policy_key(namespace)
            await client.store.server.command(key.encode(), "DEL", key)

            async def back() -> bool:
                return bool(await client.store.server.command(key.encode(), "EXISTS", key))

            await wait_until(back)
        async with headgate.connect(client.redis_url, namespace=namespace) as third:
            read = await third.policy()
        assert (read.version, read.rules) == (2, LARGE.rules)

    async def test_a_policy_after_the_loss_is_above_what_destinations_kept(
        self, url: str, namespace: str, client: headgate.Client
    ) -> None:
        async with headgate.connect(url, namespace=namespace) as before:
            await before.apply("orders.1", kind="queue")
            for limit in (1, 2, 3):
                await before.apply_policy(policy(("orders.#", {"limit": limit})))
        key = policy_key(namespace)
        await client.store.server.command(key.encode(), "DEL", key)
        assert await client.apply_policy(SMALL) == 4
        assert (await state(client, "orders.1"))["limit_bytes"] == "1000"

    async def test_a_lost_destination_gets_all_its_settings_back(self, one_url: str, namespace: str) -> None:
        async with headgate.connect(one_url, namespace=namespace) as client, client.session("s") as session:
            learn_fast(client)
            await client.apply_policy(policy(("orders.#", {"limit": 1000, "max_attempts": 3, "message_ttl": 60})))
            producer = await session.producer("orders.1")
            await client.apply("orders.1", dead_letter="dead", limit_messages=50)
            delete_namespace(one_url, namespace)
            await producer.send(b"x", timeout=30)
            await settles(
                client, "orders.1", limit_bytes="1000", limit_messages="50", max_attempts="3", message_ttl_ms="60000",
                dead_letter="dead", policy_version="1",
            )  # fmt: skip
            with redis.Redis.from_url(one_url) as direct:
                await wait_until(lambda: direct.hget(policy_key(namespace), "version") == b"1")


async def test_a_document_that_cannot_be_read_says_so(client: headgate.Client, namespace: str) -> None:
    key = policy_key(namespace)
    await client.store.server.command(key.encode(), "HSET", key, "version", 1, "document", "{}")
    with pytest.raises(PolicyError, match="not a compiled policy"):
        await client.policy()


def test_a_policy_that_is_made_by_hand_says_what_it_is() -> None:
    assert Policy(0, ()).resolve("orders").origins == {}
