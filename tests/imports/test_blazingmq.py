"""`headgate import blazingmq`: each setting is kept or reported, none is dropped, hostile files end with one error."""

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import headgate
from headgate import policy as documents
from headgate.brokers import DIFFERS, KEPT, NOT_COVERED, words
from headgate.errors import InvalidValue
from headgate_coordinator.imports.blazingmq.files import read
from headgate_coordinator.imports.report import Imported
from headgate_coordinator.policy.lint import lint
from tests.support.servers import newest_server
from tests.support.shared import SharedServers
from tests.support.waiting import wait_until

LIMITS = {"bytes": 100_000, "messages": 10, "bytesWatermarkRatio": 0.8, "messagesWatermarkRatio": 0.8}
DOMAIN: dict[str, Any] = {
    "mode": {"priority": {}},
    "storage": {"config": {"inMemory": {}}, "queueLimits": LIMITS, "domainLimits": LIMITS | {"bytes": 170_000}},
    "consistency": {"eventual": {}},
    "messageTtl": 300,
    "maxDeliveryAttempts": 5,
    "maxConsumers": 0,
    "maxProducers": 0,
    "maxQueues": 0,
    "maxIdleTime": 0,
    "deduplicationTimeMs": 300_000,
}


def no_line(client: headgate.Client) -> Callable[[], Awaitable[bool]]:
    async def look() -> bool:
        return not any(pool.waiting for pool in await client.pools())

    return look


def of(tmp_path: Path, **changed: Any) -> Imported:
    return from_file(
        tmp_path, "shop.orders.json", {"definition": {"location": "local", "parameters": DOMAIN | changed}}
    )


def from_file(tmp_path: Path, name: str, data: Any) -> Imported:
    file = tmp_path / name
    file.write_text(data if isinstance(data, str) else json.dumps(data, indent=1))
    return read([file])


def verdicts(imported: Imported) -> dict[str, str]:
    return {row.setting.partition(".")[2]: row.verdict for row in imported.rows}


async def test_queues_and_their_domain_refuse_what_goes_beyond_their_limits(
    tmp_path: Path, cleanup_namespace: str, shared_servers: SharedServers
) -> None:
    policy = documents.loads(of(tmp_path).document)
    assert not lint(policy)
    async with headgate.connect(shared_servers.standalone(newest_server()), namespace=cleanup_namespace) as client:
        await client.apply_policy(policy)
        async with client.session("s") as session:
            senders = [await session.producer(f"shop.orders.{name}", window=1) for name in ("eu", "us", "uk")]
            await senders[0].send(bytes(60_000))
            with pytest.raises(headgate.DestinationFull):  # the limit of the queue
                await senders[0].send(bytes(60_000))
            await senders[1].send(bytes(60_000))
            with pytest.raises(headgate.DestinationFull):  # that of the domain
                await senders[2].send(bytes(60_000))
            await wait_until(no_line(client), description="it left the domain's line")
            for _ in range(9):
                await senders[0].send(b"")
            with pytest.raises(headgate.DestinationFull):  # ten messages
                await senders[0].send(b"")


def test_each_setting_is_reported_with_its_line_and_what_it_became(tmp_path: Path) -> None:
    imported = of(tmp_path)
    said = verdicts(imported)
    assert said["storage.queueLimits.bytes"] == said["storage.domainLimits.bytes"] == said["messageTtl"] == KEPT
    assert said["maxConsumers"] == said["consistency.eventual"] == said["maxDeliveryAttempts"] == KEPT
    assert said["mode.priority"] == DIFFERS
    assert said["storage.domainLimits.messages"] == said["deduplicationTimeMs"] == said["location"] == NOT_COVERED
    row = next(row for row in imported.rows if row.setting.endswith("queueLimits.messages"))
    assert (row.line, row.ours, row.states[:13]) == (14, "limit.messages = 10", "Configuration")
    fields = documents.loads(imported.document).resolve("shop.orders.eu").fields
    assert (fields["limit_bytes"], fields["message_ttl_ms"], fields["max_attempts"]) == ("100000", "300000", "5")


@pytest.mark.parametrize(
    ("changed", "setting", "verdict", "ours"),
    [
        ({"mode": {"fanout": {"appIDs": ["a", "b"]}}}, "mode.fanout.appIDs", DIFFERS, 'kind = "topic"'),
        ({"mode": {"broadcast": {}}}, "mode.broadcast", DIFFERS, 'kind = "topic"'),
        ({"consistency": {"strong": {}}}, "consistency.strong", DIFFERS, 'durability = "replicas:1"'),
        ({"maxDeliveryAttempts": 0}, "maxDeliveryAttempts", KEPT, "no max_attempts"),
        ({"maxDeliveryAttempts": -1}, "maxDeliveryAttempts", NOT_COVERED, ""),
        ({"maxDeliveryAttempts": True}, "maxDeliveryAttempts", NOT_COVERED, ""),
        ({"messageTtl": 0}, "messageTtl", NOT_COVERED, ""),
        ({"messageTtl": "5 min"}, "messageTtl", NOT_COVERED, ""),
        ({"messageTtl": 10**30}, "messageTtl", NOT_COVERED, ""),
        ({"maxConsumers": 3}, "maxConsumers", NOT_COVERED, ""),
        ({"maxIdleTime": 3}, "maxIdleTime", NOT_COVERED, ""),
        ({"storage": {"queueLimits": {"bytes": 0}}}, "storage.queueLimits.bytes", NOT_COVERED, ""),
        ({"madeUp": {"x": [1]}}, "madeUp.x", NOT_COVERED, ""),
        ({"msgGroupIdConfig": {"rebalance": False}}, "msgGroupIdConfig.rebalance", NOT_COVERED, ""),
    ],
)
def test_what_a_value_means_there_is_what_is_kept(
    tmp_path: Path, changed: dict[str, Any], setting: str, verdict: str, ours: str
) -> None:
    imported = of(tmp_path, **changed)
    rows = [row for row in imported.rows if row.setting == f"domain.{setting}"]
    assert {(row.verdict, row.ours) for row in rows} == {(verdict, ours)}
    assert verdict == KEPT or all(row.why for row in rows)
    assert not lint(documents.loads(imported.document))


def test_a_queue_has_no_more_than_its_domain_and_a_consumer_no_more_than_half(tmp_path: Path) -> None:
    storage = {"queueLimits": {"bytes": 1 << 20}, "domainLimits": {"bytes": 1 << 10}}
    fields = documents.loads(of(tmp_path, storage=storage).document).resolve("shop.orders.eu").fields
    assert (fields["limit_bytes"], fields["consumer_window"]) == ("1024", "1000/512")


def test_every_setting_of_the_table_is_reported_once_and_makes_a_policy_that_lints_clean(tmp_path: Path) -> None:
    for setting in words("blazingmq")["domain"]:
        if setting in ("name", "location", "redirect"):
            continue
        value: Any = 1
        for key in reversed(setting.split(".")):
            value = {key: value}
        imported = from_file(tmp_path, "a.json", {"definition": {"parameters": value}})
        assert [row.setting for row in imported.rows[1:]] == [f"domain.{setting}"]
        assert imported.rows[1].verdict == KEPT or imported.rows[1].why
        assert not lint(documents.loads(imported.document)), setting
    for area in words("blazingmq")["area"]:
        value = {"more": "secret" if area.startswith("app") else 1}
        for key in reversed(area.split(".")):
            value = {key: value}
        (row,) = from_file(tmp_path, "b.json", value).rows
        assert row.why == words("blazingmq")["area"][area].differs
        assert row.value != "secret"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "x.json:1: is not JSON: Expecting value"),
        ('{"definition":\n{,', "x.json:2: is not JSON: Expecting property name"),
        ("[]", "x.json:1: is not a file of BlazingMQ"),
        ('"definition"', "x.json:1: is not a file of BlazingMQ"),
        ('{"definition": {},\n"definition": {}}', "x.json:1: 'definition' stands twice"),
        ('{"definition": ' + "[" * 70 + "]" * 70 + "}", "x.json:1: more than 64 objects"),
        ('{"definition": ' + "[" * 90_000, "x.json:1: objects or lists in one another, too deep"),
        ('{"definition": [' + "0," * 100_000 + "0]}", "x.json:1: more than 100,000 values"),
        ('{"definition": ' + "9" * 5000 + "}", "x.json:1: is not JSON that can be read: Exceeds the limit"),
        ('{"definition": NaN}', "x.json:1: is not JSON that can be read: NaN is not a number"),
        ('{"definition": "\\ud800"}', "x.json:1: half a character"),
        (" " * (4 << 20) + "{}", "x.json:1: more than 4 MiB"),
    ],
)
def test_a_file_of_no_good_ends_with_one_error_that_names_its_line(tmp_path: Path, text: str, error: str) -> None:
    with pytest.raises(InvalidValue) as raised:
        from_file(tmp_path, "x.json", text)
    assert str(raised.value).startswith(error)


def test_names_of_others_make_no_other_document_and_no_output_that_a_terminal_obeys(tmp_path: Path) -> None:
    for name in ("a\n[[pool]]", "a.#", "x" * 300, "a..b", "\x1b[2J", ""):
        imported = of(tmp_path, name=name)
        documents.loads(imported.document)
        assert all(str(row).isprintable() for row in imported.rows)
