"""Spool stores of a policy: set before what names them, kept while they hold something, and never moved from it."""

import asyncio
import logging
from pathlib import Path

import pytest

import headgate
from headgate import PolicyError
from headgate.policy import loads
from headgate.redis.replies import Account
from headgate.spool.stores import Spools, store_fields
from headgate_coordinator.cli.policy import kept
from tests.policy.live import state
from tests.sdk.observing import GUARD, drain
from tests.support.waiting import wait_until

SPOOLS = '[[destination]]\nmatch = "orders"\nlimit = "10KB"\nwhen_full = "spool"\nstore = "disk"\n'
STORE = '[[store]]\nname = "disk"\nurl = "file://{0}"\nlimit = "1MB"\nwhen_full = "fail"\n'
NOTHING = "destination = []"


def spools(client: headgate.Client) -> Spools:
    return client.parts.registry.spooling.spools


async def fill(session: headgate.Session, count: int = 40) -> None:
    producer = await session.producer("orders")
    async with asyncio.timeout(GUARD):
        await asyncio.gather(*(producer.send(b"x" * 1000) for _ in range(count)))


async def test_a_policy_sets_the_stores_that_its_rules_name(client: headgate.Client, tmp_path: Path) -> None:
    """Mutant: stores are not set."""
    version = await client.apply_policy(loads(SPOOLS + STORE.format(tmp_path)))
    (store,) = await client.stores()
    assert (store.name, store.url, store.limit, store.when_full) == ("disk", f"file://{tmp_path}", 1_000_000, "fail")
    assert store.origins["limit_bytes"] == "policy.toml:9"
    assert (await spools(client).fields("disk"))["policy_version"] == str(version)
    async with client.session("s") as session:
        await fill(session)
        assert (await client.stores())[0].held >= 20_000
        assert int((await state(client, "orders"))["spooled_bytes"]) >= 20_000
        await drain(await session.consumer("orders"), 40)
    await wait_until(lambda: empty(client), description="the store is empty")


async def empty(client: headgate.Client) -> bool:
    return not (await client.stores())[0].segments


async def test_a_changed_store_holds_at_once_and_goes_with_its_policy(client: headgate.Client, tmp_path: Path) -> None:
    """Mutants: what a policy leaves out stays as it was; stores are not removed."""
    await client.apply_policy(loads(SPOOLS + STORE.format(tmp_path)))
    await client.apply_policy(loads(SPOOLS + STORE.format(tmp_path).replace('"1MB"\nwhen_full = "fail"', '"2MB"')))
    (store,) = await client.stores()
    assert (store.limit, store.when_full, "when_full" in store.origins) == (2_000_000, "block", False)
    await client.apply_policy(loads(NOTHING))
    assert await client.stores() == []


async def test_a_store_that_holds_segments_is_kept_until_they_are_gone(
    client: headgate.Client, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Mutant: what no policy names is removed, and its messages with it."""
    await client.apply_policy(loads(SPOOLS + STORE.format(tmp_path)))
    async with client.session("s") as session:
        await fill(session)
        with caplog.at_level(logging.WARNING, "headgate"):
            await client.apply_policy(loads(NOTHING))
        assert "spool store 'disk' is named by no policy any more, and is kept while" in caplog.text
        assert len(kept(await client.stores(), loads(NOTHING))) == 1
        await drain(await session.consumer("orders"), 40)
    await wait_until(lambda: empty(client), description="the store is empty")
    await client.apply_policy(loads(NOTHING))
    assert await client.stores() == []


async def test_a_store_goes_once_the_leases_of_the_dead_are_over_where_no_node_sweeps(
    client: headgate.Client, tmp_path: Path
) -> None:
    """Mutant: what is leased is asked for, and nobody ends leases that are over."""
    await client.apply_policy(loads(SPOOLS + STORE.format(tmp_path)))
    dead = Account("dead~1", 1, 0, want=10, want_m=1)
    await client.store.acquire(spools(client).address("disk"), dead, ttl_ms=1000)

    async def is_gone() -> bool:
        await client.apply_policy(loads(NOTHING))
        return await client.stores() == []

    assert not await is_gone()
    await wait_until(is_gone, timeout=GUARD)


async def test_a_store_does_not_move_away_from_its_segments(client: headgate.Client, tmp_path: Path) -> None:
    """Mutant: the URL changes, and segments are looked for where they are not."""
    await client.apply_policy(loads(SPOOLS + STORE.format(tmp_path / "a")))
    async with client.session("s") as session:
        await fill(session)
        with pytest.raises(
            PolicyError, match=r"policy.toml:8: spool store 'disk' has \d+ segment\(s\) at file://.*/a,"
        ):
            await client.apply_policy(loads(SPOOLS + STORE.format(tmp_path / "b")))
        with pytest.raises(PolicyError, match="let this one drain"):
            await client.set_store("disk", f"file://{tmp_path}/b", limit=5000)
        with pytest.raises(PolicyError, match=r"holds \d+ bytes"):
            await client.remove_store("disk")
        await drain(await session.consumer("orders"), 40)
    await wait_until(lambda: empty(client), description="the store is empty")
    await client.apply_policy(loads(SPOOLS + STORE.format(tmp_path / "b")))
    assert (await client.stores())[0].url.endswith("/b")


async def test_stores_that_were_set_by_hand_stay(client: headgate.Client, tmp_path: Path) -> None:
    """Mutant: every store that the policy does not name is removed."""
    await client.set_store("mine", f"file://{tmp_path}", percent=50, total="2MB")
    await client.apply_policy(loads(NOTHING))
    (store,) = await client.stores()
    assert (store.limit, store.percent, store.origins) == (1_000_000, "50 % of 2000000 bytes", {})
    await client.remove_store("mine")
    assert await client.stores() == []


async def test_an_older_policy_does_not_set_what_a_newer_has(client: headgate.Client, other: headgate.Client) -> None:
    """Mutant: the version is not given along."""
    await client.apply_policy(loads(SPOOLS + STORE.format("/new")))
    fields = store_fields("file:///old", limit=5000)
    with pytest.raises(PolicyError, match="set by a newer policy"):
        await spools(other).set("disk", {**fields, "policy_version": "0"})
    assert (await client.stores())[0].url == "file:///new"


async def test_by_hand_a_destination_spools_to_a_store_that_there_is(client: headgate.Client) -> None:
    """Mutants: the store is not looked for; one of the two settings is enough."""
    with pytest.raises(PolicyError, match="'orders': store: there is no spool store 'disk'"):
        await client.apply("orders", limit="10KB", when_full="spool", store="disk")
    await client.set_store("disk", "memory://by-hand", limit="1MB")
    with pytest.raises(PolicyError, match="'orders': when_full: spool without a store"):
        await client.apply("orders", limit="10KB", when_full="spool")
    with pytest.raises(PolicyError, match="'orders': store: nothing goes to 'disk'; give when_full='spool' too"):
        await client.apply("orders", store="disk")
    with pytest.raises(PolicyError, match="store: nothing goes to 'disk', for when_full is not 'spool'"):
        await client.apply("orders", store="disk", when_full="fail")
    assert await state(client, "orders") == {}, "nothing was changed"
    await client.apply("orders", limit="10KB", when_full="spool", store="disk")
    await client.apply("orders", limit="20KB")
    await client.apply("orders", when_full="block")
    with pytest.raises(PolicyError, match="spool without a store"):
        await client.apply("orders", when_full="spool", store="default")
