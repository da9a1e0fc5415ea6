"""Presets: each does, with nothing beside it, what the document of its system states of the system as it comes."""

import asyncio
from typing import Final

import pytest

import headgate
from headgate import Hold, Refused
from headgate.policy import loads
from headgate.policy.presets import PRESETS
from tests.conformance.story import MiB, blocked_send, fill, holds
from tests.conformance.table import names
from tests.sdk.observing import GUARD, field

pytestmark = pytest.mark.one_server

STATED: Final[dict[str, dict[str, str]]] = {
    "artemis": {
        "Flow Control, consumer window: 1 MiB": "artemis::test_a01_a_consumer_buffers_one_mebibyte_by_default",
        "Flow Control, producer window: 64 KiB are asked for": "presets::test_a_producer_of_artemis_asks_for_64_kib",
        "Flow Control, blocking: by default after 10 MiB": (
            "artemis::test_a18_by_default_an_address_blocks_after_ten_mebibytes"
        ),
        "Paging: with a folder for it, nobody blocks": "artemis_spool::test_a15_paging_does_not_block_but_stores",
        "Paging: at its limit the policy for that": (
            "artemis_spool::test_a15_beyond_the_page_limit_the_policy_for_that_holds"
        ),
    },
    "activemq": {
        "What is the Prefetch Limit: 1000, 32766, 100, 500": (
            "activemq_prefetch::test_f06_each_kind_of_consumer_has_its_default"
        ),
        "What is the Prefetch Limit: slow beyond twice of it": (
            "activemq_prefetch::test_f05_a_consumer_is_slow_when_more_than_twice_its_prefetch_is_pending"
        ),
        "Producer Flow Control, system usage: 64 mb of memory": (
            "activemq_producers::test_c14_out_of_the_box_all_messages_together_have_the_64_mb_of_memory"
        ),
        "Producer Flow Control, system usage: store and temp": (
            "activemq_producers_spool::test_c14_persistent_messages_have_the_store_and_temporary_ones_the_temp_store"
        ),
        "Producer Flow Control: with a store memory is never full": (
            "activemq_producers_spool::test_c14_what_finds_no_room_in_memory_goes_to_the_store_without_any_rule"
        ),
    },
    "tibco-ems": {
        "Flow Control, enabling: off, and then where it is set": (
            "tibco_ems::test_e02_out_of_the_box_nothing_is_limited_and_then_only_where_it_is_set"
        ),
        "Flow Control, flowControl without a value: 256 KB": "tibco_ems::test_e04_without_a_value_the_target_is_256_kb",
        "Flow Control, with no receivers: not enforced": (
            "presets::test_a_limit_of_ems_holds_only_while_somebody_receives"
        ),
    },
    "blazingmq": {
        "bmqt::QueueOptions: 1000 messages": "presets::test_a_consumer_of_blazingmq_has_1000_messages_or_32_mib",
        "bmqt::QueueOptions: 33554432 bytes": "presets::test_a_consumer_of_blazingmq_has_1000_messages_or_32_mib",
    },
    "llm": {
        "docs/policy.md: 500 requests a minute, 100 of each key": (
            "presets::test_a_rate_of_a_preset_lets_its_burst_go_and_then_so_many_a_second"
        ),
        "docs/policy.md: 50 at once, 10 a key": "presets::test_so_many_calls_are_in_flight_and_so_many_of_each_key",
        "docs/policy.md: 200,000 tokens a minute, 40,000 of each key": (
            "presets::test_a_limit_of_a_preset_is_the_most_that_one_call_takes"
        ),
    },
    "http-api": {
        "docs/policy.md: 100 requests a second, 200 at once, 10 a second of each key": (
            "presets::test_a_rate_of_a_preset_lets_its_burst_go_and_then_so_many_a_second"
        ),
        "docs/policy.md: 100 at once, 10 a key": "presets::test_so_many_calls_are_in_flight_and_so_many_of_each_key",
        "docs/policy.md: 64 MiB in flight, 8 of each key": (
            "presets::test_a_limit_of_a_preset_is_the_most_that_one_call_takes"
        ),
    },
}  # fmt: skip
"""What is stated of each system as it comes, with where, and the scenario that shows it."""


def test_each_preset_has_a_scenario_for_what_is_stated_of_it() -> None:
    assert STATED.keys() == PRESETS.keys()
    for stated in STATED.values():
        for scenario in stated.values():
            file, _, name = scenario.partition("::")
            assert name in names(f"conformance/test_{file}.py"), scenario


async def test_a_producer_of_artemis_asks_for_64_kib(client: headgate.Client) -> None:
    await client.apply_policy(loads('preset = "artemis"'))
    async with client.session() as session:
        producer = await session.producer("orders")
        assert producer.in_hand == await field(client, "orders", "leased_bytes") == 64 << 10


async def test_a_limit_of_ems_holds_only_while_somebody_receives(client: headgate.Client) -> None:
    rule = '[[destination]]\nmatch = "foo.bar"\nlimit = 1000\n'
    await client.apply_policy(loads(f'preset = "tibco-ems"\nflow_control = "on"\n{rule}'))
    await fill(client, "foo.bar", 20)
    async with client.session() as session:
        consumer = await session.consumer("foo.bar", window=1)
        send = await blocked_send(client, await session.producer("foo.bar", window=100), 100)
        await consumer.close()
        await send


async def test_a_consumer_of_blazingmq_has_1000_messages_or_32_mib(client: headgate.Client) -> None:
    await client.apply_policy(loads('preset = "blazingmq"'))
    await fill(client, "small", 1100, 100)
    await fill(client, "large", 9, 4 * MiB)
    async with client.session() as session:
        await holds(client, await session.consumer("small"), 1000)
        await holds(client, await session.consumer("large"), 8)


@pytest.mark.parametrize(
    ("preset", "name", "total", "of_each"), [("llm", "llm.chat", 50, 10), ("http-api", "api.v2", 100, 10)]
)
async def test_so_many_calls_are_in_flight_and_so_many_of_each_key(
    client: headgate.Client, preset: str, name: str, total: int, of_each: int
) -> None:
    await client.apply_policy(loads(f'preset = "{preset}"'))
    async with client.session() as session:
        limiter = await session.limiter(name, in_hand=False)
        held: list[Hold] = []
        for number in range(total):
            hold = await limiter.attempt(key=f"tenant-{number // of_each}", in_flight=1)
            assert isinstance(hold, Hold), (number, hold)
            held.append(hold)
        refused = await limiter.attempt(key="another", in_flight=1)
        assert isinstance(refused, Refused)
        assert (refused.limit, refused.rule) == ("in_flight", "all")
        for hold in held[:of_each]:
            hold.release()
        for _ in range(of_each):
            await limiter.admit(key="another", in_flight=1, timeout=GUARD)
        held[-1].release()
        refused = await limiter.attempt(key="another", in_flight=1)
        assert isinstance(refused, Refused)
        assert refused.limit == "in_flight"


@pytest.mark.parametrize(
    ("preset", "name", "limit", "total", "of_each"),
    [("llm", "llm", "tokens", 200_000, 40_000), ("http-api", "api", "bytes", 64 * MiB, 8 * MiB)],
)
async def test_a_limit_of_a_preset_is_the_most_that_one_call_takes(
    client: headgate.Client, preset: str, name: str, limit: str, total: int, of_each: int
) -> None:
    await client.apply_policy(loads(f'preset = "{preset}"'))
    async with client.session() as session:
        limiter = await session.limiter(name, in_hand=False)
        for key, most in (("tenant", of_each), (None, total)):
            with pytest.raises(headgate.MessageTooLarge):
                await limiter.attempt(key=key, **{limit: most + 1})
        assert isinstance(await limiter.attempt(key="tenant", **{limit: of_each}), Hold)
        assert isinstance(await limiter.attempt(key="tenant", **{limit: of_each // 2}), Refused)


@pytest.mark.parametrize(
    ("preset", "name", "limit", "key", "burst", "rate"),
    [
        ("llm", "llm", "requests", None, 500, 500 / 60),
        ("llm", "llm", "requests", "tenant", 100, 100 / 60),
        ("llm", "llm", "tokens", None, 200_000, 200_000 / 60),
        ("llm", "llm", "tokens", "tenant", 40_000, 40_000 / 60),
        ("http-api", "api", "requests", None, 200, 100),
        ("http-api", "api", "requests", "tenant", 10, 10),
    ],
)
async def test_a_rate_of_a_preset_lets_its_burst_go_and_then_so_many_a_second(
    client: headgate.Client, preset: str, name: str, limit: str, key: str | None, burst: int, rate: float
) -> None:
    await client.apply_policy(loads(f'preset = "{preset}"'))
    loop = asyncio.get_running_loop()
    async with client.session() as session:
        limiter = await session.limiter(name, in_hand=False)
        began = loop.time()
        assert isinstance(await limiter.attempt(key=key, **{limit: burst}), Hold)
        refused = await limiter.attempt(key=key, **{limit: burst})
        while not isinstance(refused, Refused):  # where a machine stood still for that long
            began, refused = loop.time(), await limiter.attempt(key=key, **{limit: burst})
        gone = loop.time() - began
        assert (refused.limit, refused.rule) == (limit, "all" if key is None else "key")
        assert refused.retry_after is not None
        assert burst / rate - gone - 0.01 <= refused.retry_after <= burst / rate
