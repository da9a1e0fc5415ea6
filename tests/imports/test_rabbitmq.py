"""`headgate import rabbitmq`: each setting is kept or reported, none is dropped, hostile files end with one error."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

import headgate
from headgate import policy as documents
from headgate.brokers import DIFFERS, KEPT, NOT_COVERED, words
from headgate.errors import InvalidValue
from headgate_coordinator.imports.rabbitmq.definitions import read
from headgate_coordinator.imports.rabbitmq.patterns import finds, globs_of, pattern_of
from headgate_coordinator.imports.report import Imported, SettingReport
from headgate_coordinator.policy.lint import lint
from tests.support.servers import newest_server
from tests.support.shared import SharedServers

SAMPLES: dict[str, Any] = {
    "max-length": 500, "max-length-bytes": 1_000_000, "overflow": "reject-publish", "message-ttl": 60_000,
    "dead-letter-exchange": "", "dead-letter-routing-key": "dead", "delivery-limit": 5,
    "delayed-retry-type": "failed", "delayed-retry-min": 1000, "delayed-retry-max": 30_000,
    "dead-letter-strategy": "at-least-once", "max-priority": 10, "queue-type": "classic",
}  # fmt: skip
"""A value of each key that becomes a setting of ours."""


def of(tmp_path: Path, text: Any, name: str = "definitions.json") -> Imported:
    file = tmp_path / name
    file.write_text(text if isinstance(text, str) else json.dumps(text, indent=1))
    return read([file])


def policy(name: str, pattern: str, priority: int = 0, apply_to: str = "queues", **definition: Any) -> dict[str, Any]:
    said = {key.replace("_", "-"): value for key, value in definition.items()}
    return {
        "vhost": "/",
        "name": name,
        "pattern": pattern,
        "apply-to": apply_to,
        "priority": priority,
        "definition": said,
    }


def queue(name: str, **arguments: Any) -> dict[str, Any]:
    said = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
    return {"name": name, "vhost": "/", "durable": True, "auto_delete": False, "arguments": said}


def fields(imported: Imported, name: str) -> dict[str, str]:
    found = documents.loads(imported.document).resolve(name, "queue").fields
    return {key: value for key, value in found.items() if value}


def row_of(imported: Imported, setting: str) -> SettingReport:
    return next(row for row in imported.rows if row.setting == setting)


async def test_the_page_s_example_keeps_two_messages_and_refuses_the_third(
    tmp_path: Path, cleanup_namespace: str, shared_servers: SharedServers
) -> None:
    imported = of(tmp_path, [policy("my-pol", "^two-messages$", max_length=2, overflow="reject-publish")])
    applied = documents.loads(imported.document)
    assert not lint(applied)
    async with headgate.connect(shared_servers.standalone(newest_server()), namespace=cleanup_namespace) as client:
        await client.apply_policy(applied)
        async with client.session("s") as session:
            sender = await session.producer("two-messages")
            await sender.send(b"1")
            await sender.send(b"2")
            with pytest.raises(headgate.DestinationFull):
                await sender.send(b"3")


@pytest.mark.parametrize("group", ["policy", "argument"])
def test_every_key_that_is_known_is_reported_once_and_makes_a_policy_that_lints_clean(
    tmp_path: Path, group: str
) -> None:
    known = words("rabbitmq")
    for key, word in (known["policy"] | known[group]).items():
        if key in ("pattern", "apply-to", "priority"):
            continue
        value = SAMPLES.get(key, 1)
        if group == "policy":
            imported = of(tmp_path, [policy("p", "^a$", **{key: value})])
        else:
            imported = of(tmp_path, {"queues": [queue("a", **{key: value})]})
        shown = f"{'x-' * (group == 'argument')}{key}"
        rows = [row for row in imported.rows if row.setting in (f"{group}.{shown}", f"queue.{shown}")]
        assert len(rows) == 1, key
        assert rows[0].verdict == KEPT or rows[0].why, key
        assert rows[0].ours or not word.ours or rows[0].why
        assert not lint(documents.loads(imported.document)), key


def test_all_keys_of_one_policy_together_make_one_rule(tmp_path: Path) -> None:
    said = {key: value for key, value in SAMPLES.items() if key not in ("max-priority", "queue-type")}
    imported = of(tmp_path, [policy("p", r"^orders\.", **said)])
    assert not lint(documents.loads(imported.document))
    for field, value in {
        "limit_bytes": "1000000", "limit_messages": "500", "when_full": "fail", "message_ttl_ms": "60000",
        "dead_letter": "dead", "max_attempts": "6", "retry_delay_ms": "1000", "retry_max_ms": "30000",
    }.items():  # fmt: skip
        assert fields(imported, "orders.eu")[field] == value, field
    assert len(imported.rows) == 4 + len(said)


@pytest.mark.parametrize(
    ("key", "value", "verdict", "ours"),
    [
        ("overflow", "reject-publish", KEPT, 'when_full = "fail"'),
        ("overflow", "drop-head", DIFFERS, 'when_full = "fail"'),
        ("overflow", "reject-publish-dlx", DIFFERS, 'when_full = "fail"'),
        ("overflow", "block", NOT_COVERED, ""),
        ("max-length", 0, NOT_COVERED, ""),
        ("max-length", -1, NOT_COVERED, ""),
        ("max-length", "5", NOT_COVERED, ""),
        ("max-length", True, NOT_COVERED, ""),
        ("max-length-bytes", 1 << 60, NOT_COVERED, ""),
        ("max-length-bytes", 5, DIFFERS, "limit.bytes = 5"),
        ("message-ttl", 1, KEPT, 'message_ttl = "1ms"'),
        ("message-ttl", 0, NOT_COVERED, ""),
        ("delivery-limit", -1, KEPT, 'max_attempts = "default", which is no bound'),
        ("delivery-limit", 0, KEPT, "max_attempts = 1, for the first attempt counts here"),
        ("delivery-limit", -5, NOT_COVERED, ""),
        ("delayed-retry-max", 5, NOT_COVERED, ""),
        ("dead-letter-routing-key", "x", NOT_COVERED, ""),
        ("dead-letter-exchange", "nowhere", NOT_COVERED, ""),
        ("made-up", {"x": [1]}, NOT_COVERED, ""),
    ],
)
def test_what_a_value_means_there_is_what_is_kept(
    tmp_path: Path, key: str, value: Any, verdict: str, ours: str
) -> None:
    imported = of(tmp_path, [policy("p", "^a$", **{key: value})])
    row = row_of(imported, f"policy.{key}")
    assert (row.verdict, row.ours) == (verdict, ours)
    assert not lint(documents.loads(imported.document))


@pytest.mark.parametrize(
    ("regex", "patterns"),
    [
        ("", ["#"]), (".*", ["#"]), ("^.*$", ["#"]), (".+", ["#"]), ("^", ["#"]), ("^orders$", ["orders"]),
        (r"^orders\.", ["orders.>"]), (r"^orders\..*$", ["orders.>"]), (r"^orders\..+", ["orders.>"]),
        (r"^(eu|us)\.", ["eu.>", "us.>"]), ("^(?:a|b)$", ["a", "b"]), (r"^a\-b$", ["a-b"]), ("^a$|^b$", None),
        ("^a|b$", [None, None]), ("^ord", [None]), ("orders$", [None]), ("^a.b$", [None]), ("[ab]", None),
        (r"\d+", None), ("(a+)+$", None), ("a{3}", None), ("(", None), ("x" * 501, None), ("a**", None), ("\\", None),
        ("(a|b)" * 7, None), ("(" * 9 + "a" + ")" * 9, None), (r"^\^a\$$", ["^a$"]), ("a\x01", None),
    ],
)  # fmt: skip
def test_a_regular_expression_is_a_pattern_where_one_finds_the_same(regex: str, patterns: list[str] | None) -> None:
    globs = globs_of(regex)
    assert (None if globs is None else [pattern_of(glob) for glob in globs]) == patterns


@pytest.mark.parametrize(
    ("regex", "name", "is_found"),
    [
        ("^ord", "orders", True), ("^ord", "border", False), ("ord", "border", True), ("s$", "orders", True),
        ("^a.c$", "abc", True), ("^a.c$", "ac", False), ("^a.+c$", "ac", False), ("^a.*c$", "ac", True),
        ("^a.*b.*c$", "axxbxxc", True), ("^a.*b.*c$", "axxcxxb", False), ("a" + ".*a" * 100 + "b", "a" * 250, False),
    ],
)  # fmt: skip
def test_a_glob_finds_what_the_regular_expression_finds(regex: str, name: str, is_found: bool) -> None:
    begun = time.thread_time()
    assert any(finds(glob, name) for glob in globs_of(regex) or []) == is_found
    assert time.thread_time() - begun < 1


def test_one_policy_holds_for_a_queue_as_a_whole_and_the_highest_priority_wins(tmp_path: Path) -> None:
    imported = of(
        tmp_path,
        {
            "policies": [
                policy("all", ".*", message_ttl=1000, max_length=5),
                policy("eu", r"^eu\.", priority=5, max_length=7),
                policy("hidden", r"^eu\.de$", priority=1, max_length=9),
                policy("begins", "^us", priority=3, delivery_limit=2),
                policy("exchanges", "^x", priority=9, apply_to="exchanges", alternate_exchange="y"),
            ],
            "queues": [queue("us-1"), queue("us-2", max_length=1, message_ttl=5), queue("other", max_length=3)],
        },
    )
    assert not lint(documents.loads(imported.document))
    own = {"limit_messages": "7", "when_full": "fail"}
    assert fields(imported, "eu.fr").items() >= own.items()
    assert fields(imported, "eu.de").items() >= own.items()
    assert "message_ttl_ms" not in fields(imported, "eu.de")
    assert fields(imported, "us-1")["limit_messages"] == "unlimited"
    assert fields(imported, "us-1")["max_attempts"] == "3"
    assert (fields(imported, "us-2")["limit_messages"], fields(imported, "us-2")["max_attempts"]) == ("1", "3")
    assert fields(imported, "us-3")["limit_messages"] == "5"
    assert (fields(imported, "other")["limit_messages"], fields(imported, "other")["message_ttl_ms"]) == ("3", "1000")
    whys = {(row.setting, row.value): row.why for row in imported.rows}
    assert "'eu', of a higher priority" in whys["policy.max-length", "9"]
    assert "exchanges" in whys["policy.alternate-exchange", "y"]
    assert "whole word" in whys["policy.pattern", "^us"]


def test_queues_of_each_type_exchanges_and_shovels(tmp_path: Path) -> None:
    imported = of(
        tmp_path,
        {
            "rabbit_version": "4.1.0",
            "users": [{"name": "guest", "password_hash": "aGFzaA==", "tags": "administrator"}],
            "vhosts": [{"name": "/"}, {"name": "other"}],
            "queues": [
                queue("q", queue_type="quorum"),
                queue("s", queue_type="stream", max_age="1h"),
                queue("c", dead_letter_exchange="dlx"),
                {"name": "elsewhere", "vhost": "other", "durable": True},
            ],
            "exchanges": [
                {"name": "dlx", "vhost": "/", "type": "fanout", "durable": True, "arguments": {}},
                {"name": "t", "vhost": "/", "type": "topic", "auto_delete": True},
            ],
            "bindings": [
                {"source": "dlx", "vhost": "/", "destination": "q", "destination_type": "queue", "routing_key": ""},
                {"source": "t", "vhost": "/", "destination": "c", "destination_type": "queue", "routing_key": "a.#"},
            ],
            "parameters": [
                {
                    "component": "shovel", "name": "mv", "vhost": "/",
                    "value": {"src-uri": "a://u:p@h", "dest-uri": "a://u:p@h", "src-queue": "c", "dest-queue": "q"},
                },
                {"component": "shovel", "name": "far", "vhost": "/", "value": {"src-uri": "a", "dest-uri": "b"}},
            ],
        },
    )  # fmt: skip
    applied = documents.loads(imported.document)
    assert not lint(applied)
    assert (fields(imported, "q")["durability"], fields(imported, "q")["max_attempts"]) == ("replicas:1", "21")
    assert fields(imported, "c")["dead_letter"] == "q"
    links = {link.name: link.as_dict() for link in applied.links}
    assert (links["dlx"]["from"], links["mv"]["from"]) == ("dlx", "c")
    assert len(links) == 2
    text = "\n".join(map(str, imported.rows))
    assert "aGFzaA" not in text
    assert "u:p@" not in text
    assert row_of(imported, "queues.vhost").value == "other elsewhere"
    assert row_of(imported, "definitions.queues.durable").why == "as of other"
    assert row_of(imported, "argument.x-max-age").verdict == NOT_COVERED
    settings = {row.setting for row in imported.rows}
    assert {"definitions.users.password_hash", "binding.routing_key", "exchange.auto_delete"} <= settings


def test_dead_letters_that_come_back_are_retries_here(tmp_path: Path) -> None:
    imported = of(
        tmp_path,
        {
            "policies": [policy("all", "^c", dead_letter_exchange="", dead_letter_routing_key="c3")],
            "queues": [
                queue("work", dead_letter_exchange="", dead_letter_routing_key="wait"),
                queue("wait", dead_letter_exchange="", dead_letter_routing_key="work", message_ttl=5000),
                queue("self", dead_letter_exchange="", dead_letter_routing_key="self"),
                queue("c1"), queue("c2", dead_letter_routing_key="c1"), queue("c3"),
            ],
        },
    )  # fmt: skip
    assert not lint(documents.loads(imported.document))
    assert fields(imported, "work")["dead_letter"] == "wait"
    assert "dead_letter" not in fields(imported, "wait")
    assert "dead_letter" not in fields(imported, "self")
    rows = [row for row in imported.rows if row.value == "work" and row.setting.endswith("routing-key")]
    assert [(row.verdict, "retry" in row.why) for row in rows] == [(NOT_COVERED, True)]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "definitions.json:1: is not JSON"),
        ("[]", "definitions.json:1: has no definitions of RabbitMQ"),
        ("{}", "definitions.json:1: has no definitions of RabbitMQ"),
        ('[{"pattern": "a"}]', "definitions.json:1: has no definitions of RabbitMQ"),
        ('{"queues": [' + "{}," * 4000 + "{}]}", "definitions.json:1: more than 4,000 policies and queues"),
    ],
)
def test_a_file_of_no_good_ends_with_one_error_that_names_its_line(tmp_path: Path, text: str, error: str) -> None:
    with pytest.raises(InvalidValue) as raised:
        of(tmp_path, text)
    assert str(raised.value).startswith(error)


@pytest.mark.parametrize(
    "text",
    [
        '{"queues": 5}',
        '{"queues": [5, null, [], "x"]}',
        '{"policies": {"a": 1}, "queues": {"b": 2}}',
        '{"queues": [{"name": 5, "arguments": []}], "bindings": [[]], "exchanges": [{}]}',
        '[{"pattern": 5, "definition": []}]',
        '{"policies": [{"pattern": "a", "priority": "high", "definition": {"max-length": {}}}]}',
        '{"parameters": [{"component": "shovel", "value": 5}], "users": "x"}',
        '{"queues": [{"name": "a\\n[[pool]]"}, {"name": "\\u001b[2J"}], "exchanges": [{"name": "#"}]}',
        '{"queues": [{"name": "a", "arguments": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "a"}}]}',
    ],
)
def test_nonsense_is_reported_and_makes_no_other_document(tmp_path: Path, text: str) -> None:
    imported = of(tmp_path, text)
    assert not lint(documents.loads(imported.document))
    assert all(str(row).isprintable() for row in imported.rows)
