"""Presets: each does, with nothing beside it, what the document of its system states of the system as it comes."""

import asyncio
import json
from typing import Any, Final

import pytest

import headgate
from headgate import Hold, Refused
from headgate.core.limits import limits_of
from headgate.policy import loads
from headgate.policy.presets import PRESETS
from headgate_coordinator.policy.lint import lint
from tests.conformance.presets.preset_rows import TABLES, PresetRow, field_of, fields_of, in_force
from tests.conformance.story import MiB, blocked_send, fill, holds
from tests.conformance.table import names
from tests.docs.test_readme import blocks
from tests.sdk.observing import GUARD, field

pytestmark = pytest.mark.one_server

EVERY: Final = [
    pytest.param(preset, row, id=f"{preset}-{row.setting}") for preset in TABLES for row in TABLES[preset].rows
]
KINDS: Final = ("queue", "topic", "gate", "bucket")


def test_each_preset_has_rows_and_each_row_a_scenario() -> None:
    assert TABLES.keys() == PRESETS.keys()
    for table in TABLES.values():
        for row in table.rows:
            file, _, name = row.shown.partition("::")
            assert name in names(f"conformance/test_{file}.py"), row


@pytest.mark.parametrize(("preset", "row"), EVERY)
def test_a_preset_has_what_its_row_says(preset: str, row: PresetRow) -> None:
    policy = in_force(preset, row)
    for kind in row.kinds:
        assert fields_of(row, kind)
        assert fields_of(row, kind).items() <= policy.resolve("x", kind).fields.items()
    if row.unset:
        assert not any(field_of(row.unset) in policy.resolve("x", kind).origins for kind in KINDS)
    if row.pool or row.store:
        held = policy.pools if row.pool else policy.stores
        (fields,) = (one.fields for one in held if one.name == (row.pool or row.store))
        url = "" if row.pool else 'url = "file:///s"\n'
        own = loads(f'[[{"pool" if row.pool else "store"}]]\nname = "x"\n{url}{row.ours}')
        (expected,) = own.pools or own.stores
        assert {name: expected.fields[name] for name in expected.origins if name != "url"}.items() <= fields.items()
    if row.limit:
        assert limits_of_row(row) == limits_of_preset(preset, row.setting)
    assert row.kinds or row.unset or row.pool or row.store or row.limit or row.call or row.node


def limits_of_row(row: PresetRow) -> list[str]:
    words = dict(row.limit)
    of_each = {row.setting: words.pop("of_each")}
    limiter = {"match": "x", "limit": [{"name": row.setting, **words}], "per_key": of_each}
    own = loads(json.dumps({"limiter": [limiter]}), "own.json", "json")
    return [own.resolve("x", "limiter").fields[name] for name in ("limits", "key_limits")]


def limits_of_preset(preset: str, limit: str) -> list[str]:
    fields = in_force(preset).resolve({"llm": "llm", "http-api": "api"}[preset], "limiter").fields
    return [limits_of(fields[name])[limit].text for name in ("limits", "key_limits")]


@pytest.mark.parametrize("preset", TABLES)
def test_a_preset_sets_nothing_that_no_row_is_about(preset: str) -> None:
    rows = TABLES[preset].rows
    for row in (None, *rows):
        policy = in_force(preset, row)
        for kind in KINDS:
            said = {name for one in rows if kind in one.kinds for name in fields_of(one, kind)}
            assert policy.resolve("x", kind).origins.keys() <= said, (row, kind)
        assert {pool.name for pool in policy.pools} == {one.pool for one in rows if one.pool}
        assert {store.name for store in policy.stores} <= {one.store for one in rows if one.store}
    limiters = [in_force(preset).resolve(name, "limiter").fields.get("limits", "") for name in ("llm", "api")]
    limits = {name for text in limiters if text for name in limits_of(text)}
    assert limits == {row.setting for row in rows if row.limit}


async def test_a_browser_of_classic_reads_500_at_a_time(client: headgate.Client) -> None:
    await client.apply_policy(loads('preset = "activemq"'))
    await fill(client, "orders", 600, 10)
    pages: list[int] = []
    browse = client.store.browse

    async def counted(*arguments: Any, **more: Any) -> Any:
        pages.append(len(page := await browse(*arguments, **more)))
        return page

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client.store, "browse", counted)
        assert len([message async for message in client.browse("orders")]) == 600
    assert pages == [500, 100]


async def test_a_destination_of_classic_may_have_all_the_memory(client: headgate.Client) -> None:
    await client.apply_policy(loads('preset = "activemq"'))
    await fill(client, "orders", 64, MiB)
    assert await field(client, "orders", "pending_bytes") == 64 * MiB
    async with client.session() as session:
        await blocked_send(client, await session.producer("orders"), MiB)


async def test_blazingmq_as_it_comes_limits_no_queue(client: headgate.Client) -> None:
    await client.apply_policy(loads('preset = "blazingmq"'))
    await fill(client, "orders", 5, 4 * MiB)
    assert await field(client, "orders", "pending_bytes") == 20 * MiB


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


async def test_the_rules_for_rabbitmq_stop_senders_at_its_watermark_and_bound_no_consumer(
    client: headgate.Client,
) -> None:
    (rules,) = (text for language, text, _ in blocks("docs/from-rabbitmq.md") if language == "toml")
    text = rules.replace("percent = 60", 'percent = 60\ntotal = "10MiB"')  # the Redis of tests has no maxmemory
    assert text != rules
    assert lint(loads(text)) == []
    await client.apply_policy(loads(text))
    await fill(client, "small", 3000, 10)
    async with client.session() as session:
        await holds(client, await session.consumer("small"), 3000)
        await fill(client, "large", 5, MiB)
        await blocked_send(client, await session.producer("large"), MiB)
