"""What destinations of the source systems have by default."""

from typing import get_args

import pytest

from headgate.core.limits import limits_of
from headgate.core.policy import Policy
from headgate.policy import loads, needs_maxmemory
from headgate.policy.document import Preset
from headgate.policy.presets import PRESETS
from headgate_coordinator.policy.lint import lint

SET = {
    ("artemis", "queue"): {
        "limit_bytes": str(10 << 20), "when_full": "block", "producer_window": "65536",
        "consumer_window": "unlimited/1048576",
    },
    ("activemq", "queue"): {
        "consumer_window": "1000/unlimited", "browser_window": "500", "pools": "memory", "when_full": "block",
        "slow_multiple": "2.0", "slow_action": "notify",
    },
    ("activemq", "topic"): {
        "consumer_window": "32766/unlimited", "durable_window": "100/unlimited", "browser_window": "500",
        "pools": "memory", "when_full": "block", "slow_multiple": "2.0", "slow_action": "notify",
    },
    ("activemq", "gate"): {},
    ("tibco-ems", "queue"): {"enforce": "off", "when_full": "block"},
    ("blazingmq", "queue"): {"consumer_window": "1000/33554432"},
    ("artemis", "gate"): {"limit_bytes": str(10 << 20), "when_full": "block", "producer_window": "65536"},
    ("artemis", "bucket"): {},
}  # fmt: skip


LIMITERS = {"llm": ("llm", "llm.chat"), "http-api": ("api", "api.v2")}


def changed(policy: Policy, kind: str) -> dict[str, str]:
    resolved = policy.resolve("any.name", kind)
    assert set(resolved.origins.values()) <= {"#@policy.toml:1", *(f"#@preset {name}" for name in PRESETS)}
    return {field: resolved.fields[field] for field in resolved.origins}


@pytest.mark.parametrize(("preset", "kind"), SET)
def test_a_preset_sets_what_the_system_has(preset: str, kind: str) -> None:
    assert changed(loads(f'preset = "{preset}"'), kind) == SET[preset, kind]


def test_there_is_each_preset_that_can_be_named() -> None:
    assert set(get_args(Preset)) == set(PRESETS) == {preset for preset, _ in SET} | set(LIMITERS)


@pytest.mark.parametrize(("preset", "name"), [(preset, name) for preset, names in LIMITERS.items() for name in names])
def test_a_preset_of_limiters_limits_a_service_of_that_name(preset: str, name: str) -> None:
    policy = loads(f'preset = "{preset}"')
    resolved = policy.resolve(name, "limiter")
    assert set(limits_of(resolved.fields["key_limits"])) <= set(limits_of(resolved.fields["limits"])) != set()
    assert resolved.kind == policy.resolve(name).kind == "limiter"
    own = f'preset = "{preset}"\n[[limiter]]\nmatch = "{name}"\n[[limiter.limit]]\nname = "slots"\nat_once = 8'
    fields = loads(own).resolve(name).fields
    assert (fields["limits"], fields["key_limits"]) == ("slots at_once 8", ""), (
        "a limiter's own limits are all there are"
    )


def test_rules_of_the_document_are_above_the_preset() -> None:
    policy = loads('preset = "artemis"\n[[destination]]\nmatch = "#"\nlimit = "1MB"')
    resolved = policy.resolve("a", "queue")
    assert (resolved.fields["limit_bytes"], resolved.origins["limit_bytes"]) == ("1000000", "#@policy.toml:4")
    assert resolved.fields["producer_window"] == "65536"


def test_new_destinations_are_queues_whatever_the_preset() -> None:
    assert {name: loads(f'preset = "{name}"').resolve("a").kind or "queue" for name in PRESETS} == dict.fromkeys(
        PRESETS, "queue"
    )


def test_ems_has_flow_control_off_until_it_is_on_and_then_only_where_a_rule_sets_a_limit() -> None:
    rule = '[[destination]]\nmatch = "foo.bar"\nlimit = "60MB"\n'
    for switch, foo, other in (
        ("", "off", "off"),
        ('flow_control = "off"\n', "off", "off"),
        ('flow_control = "on"\n', "with-consumers", "with-consumers"),
    ):
        policy = loads(f'{switch}preset = "tibco-ems"\n{rule}')
        found = [policy.resolve(name, "queue").fields for name in ("foo.bar", "other")]
        assert [fields["enforce"] for fields in found] == [foo, other]
        assert [fields["limit_bytes"] for fields in found] == ["60000000", "unlimited"]
    (finding,) = lint(loads(f'preset = "tibco-ems"\n{rule}'))
    assert (finding.code, finding.place) == ("HG108", "policy.toml:1")
    assert "switch flow_control on" in finding.remedy


def test_system_usage_of_activemq_is_there_for_those_who_name_it() -> None:
    policy = loads(
        'preset = "activemq"\n[[destination]]\nmatch = "a"\npools = ["store"]\n[[pool]]\nname = "temp"\nlimit = 5\n'
        '[[destination]]\nmatch = "b"\npools = []'
    )
    assert {pool.name: pool.fields["limit_bytes"] for pool in policy.pools} == {
        "memory": str(64 << 20), "store": str(100 << 30), "temp": "5",
    }  # fmt: skip
    assert [policy.resolve(name, "queue").fields["pools"] for name in ("a", "b", "c")] == ["store", "", "memory"]


PAGING = 'preset = "artemis"\n[[store]]\nname = "paging"\nurl = "file:///a"\n'


def test_artemis_pages_once_it_is_said_where_to() -> None:
    """Mutant: the preset's store has no say."""
    policy = loads(PAGING + 'when_full = "fail"\n[[destination]]\nmatch = "kept.#"\nwhen_full = "block"')
    (store,) = policy.stores
    assert store.fields == {
        "url": "file:///a", "limit_bytes": "unlimited", "segment_bytes": str(10 << 20), "when_full": "fail",
    }  # fmt: skip
    assert (store.origins["limit_bytes"], store.origins["url"]) == ("preset artemis", "policy.toml:4")
    for kind in ("queue", "topic"):
        resolved = policy.resolve("a", kind)
        assert (resolved.fields["when_full"], resolved.fields["store"]) == ("spool", "paging")
        assert policy.resolve("kept.a", kind).fields["when_full"] == "block"
    assert policy.resolve("a", "gate").fields["when_full"] == "block"
    assert loads(PAGING + 'percent = 50\ntotal = "1GB"').stores[0].fields["limit_bytes"] == "500000000"


def test_stores_of_activemq_have_its_system_usage() -> None:
    stores = "".join(f'[[store]]\nname = "{name}"\nurl = "file:///{name}"\n' for name in ("store", "temp"))
    policy = loads('preset = "activemq"\n' + stores + '[[destination]]\nmatch = "t"\nlimit = 5\nstore = "temp"')
    assert {store.name: store.fields["limit_bytes"] for store in policy.stores} == {
        "store": str(100 << 30), "temp": str(10 << 30),
    }  # fmt: skip
    found = [(name, policy.resolve(name, "queue").fields) for name in ("a", "t")]
    assert [(name, fields["when_full"], fields["store"]) for name, fields in found] == [
        ("a", "spool", "store"), ("t", "spool", "temp"),
    ]  # fmt: skip


def test_pools_in_percent_of_redis_need_its_maxmemory() -> None:
    policy = loads(
        '[[pool]]\nname = "a"\npercent = 70\n[[pool]]\nname = "b"\npercent = 70\ntotal = "1GB"\n'
        '[[pool]]\nname = "c"\nlimit = 5'
    )
    assert needs_maxmemory(policy) == ["a"]
    assert [pool.fields.get("limit_bytes") for pool in policy.pools] == [None, "700000000", "5"]


def test_a_rule_for_every_kind_says_nothing_to_gates_with_spool() -> None:
    """Mutant: a gate gets a setting that it cannot keep."""
    stored = '[[store]]\nname = "disk"\nurl = "file:///a"\nlimit = 5\n'
    policy = loads('[[destination]]\nmatch = "#"\nlimit = 5\nwhen_full = "spool"\nstore = "disk"\n' + stored)
    assert policy.resolve("a", "queue").fields["when_full"] == "spool"
    gate = policy.resolve("a", "gate")
    assert (gate.fields["when_full"], gate.fields["limit_bytes"], "store" in gate.fields) == ("", "5", False)
    assert "when_full" not in gate.origins
