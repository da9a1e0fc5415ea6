"""Layered documents: thirty of them against a plain reading of the text, and those where layers meet by name."""

import random

from headgate.policy import loads
from headgate.settings import DEFAULTS
from tests.policy.documents.test_patterns import reference
from tests.support.extent import each

MATCHES = ["#", "orders.#", "orders.>", "orders.*", "orders.eu", "orders.eu.#", "*.eu", "*.eu.>", "orders.eu.paid"]
NAMES = ["orders", "orders.eu", "orders.eu.paid", "orders.us", "bills.eu", "bills.eu.paid.late", "x"]
# Key as written, field, how a number is written, and how the state spells it.
SETTINGS = [
    ("limit.bytes", "limit_bytes", "{}", "{}"),
    ("max_attempts", "max_attempts", "{}", "{}"),
    ("message_ttl", "message_ttl_ms", "'{}s'", "{}000"),
    ("producer.window", "producer_window", "{}", "{}"),
    ("consumer.browser.window", "browser_window", "{}", "{}"),
]


def strength(match: str) -> list[int]:
    return ["#> *".index(word) if word in "#>*" else 9 for word in match.split(".")] + [2]


@each("seed", range(30))
def test_layers_add_up_as_the_text_reads(seed: int) -> None:
    chance = random.Random(seed)
    text: list[str] = []
    said: list[tuple[str, str, str, int]] = []  # match, field, value, line
    for _ in range(chance.randint(2, 9)):
        match = chance.choice(MATCHES)
        text += ["[[destination]]", f'match = "{match}"']
        for key, field, written, spelled in chance.sample(SETTINGS, chance.randint(1, 4)):
            number = chance.randint(1, 999)
            text += [""] * chance.randint(0, 2) + [f"{key} = {written.format(number)}"]
            said.append((match, field, spelled.format(number), len(text)))
    policy = loads("\n".join(text), "shop.toml")
    for name in NAMES:
        resolved = policy.resolve(name, "queue")
        for _, field, _, _ in SETTINGS:
            layers = [told for told in said if told[1] == field and reference(told[0]).fullmatch("." + name)]
            layers.sort(key=lambda told: strength(told[0]))  # stable: later lines stay later
            if layers:
                match, _, value, line = layers[-1]
                assert (resolved.fields[field], resolved.origins[field]) == (value, f"{match}@shop.toml:{line}")
            else:
                assert (resolved.fields[field], resolved.origins.get(field)) == (DEFAULTS[field], None)


SHARED = """
[[destination]]
match = "telemetry.#"
limit = { bytes = "10MB", scope = "shared" }
pools = ["memory"]

[[destination]]
match = "telemetry.eu.*"
limit = { bytes = "1MB", scope = "shared" }

[[destination]]
match = "telemetry.eu.a"
limit = "100KB"
pools = []
reserved = true

[[pool]]
name = "memory"
percent = 50
total = "1GB"
reserve = "1MB"
"""


def test_a_shared_limit_is_a_pool_that_no_other_rule_takes_away() -> None:
    policy = loads(SHARED)
    pools = {pool.name: pool.fields for pool in policy.pools}
    assert pools == {
        "memory": {
            "limit_bytes": "500000000", "percent": "50", "total_bytes": "1000000000", "reserve_bytes": "1000000",
        },
        "~telemetry.~all": {"limit_bytes": "10000000"},
        "~telemetry.eu.~any": {"limit_bytes": "1000000"},
    }  # fmt: skip
    for name, limit, own in (
        ("telemetry.us", "unlimited", "memory ~telemetry.~all"),
        ("telemetry.eu.b", "unlimited", "memory ~telemetry.~all ~telemetry.eu.~any"),
        ("telemetry.eu.a", "100000", "~telemetry.~all ~telemetry.eu.~any"),
        ("other", "unlimited", ""),
    ):
        fields = policy.resolve(name, "queue").fields
        assert (fields["limit_bytes"], fields["pools"]) == (limit, own)
        assert "shared_pool" not in fields
    assert policy.resolve("telemetry.us").origins["pools"] == "telemetry.#@policy.toml:5"
    assert policy.resolve("telemetry.eu.a").origins["pools"] == "telemetry.eu.a@policy.toml:14"
    assert [policy.resolve(name, "queue").fields["reserved"] for name in ("telemetry.eu.a", "telemetry.us")] == [
        "yes",
        "",
    ]
    assert "pools" not in policy.resolve("telemetry.eu.a", "bucket").fields


def test_the_global_switch_is_stronger_than_every_rule() -> None:
    text = '[[destination]]\nmatch = "a"\nenforce = "always"\nlimit = 5\n'
    off = loads('flow_control = "off"\n' + text).resolve("a", "queue")
    assert (off.fields["enforce"], off.origins["enforce"]) == ("off", "#@policy.toml:1")
    assert off.fields["limit_bytes"] == "5"
    assert loads('flow_control = "on"\n' + text).resolve("a", "queue").fields["enforce"] == "always"


def test_default_takes_a_setting_back() -> None:
    policy = loads(
        '[[destination]]\nmatch = "#"\nwhen_full = "fail"\nmessage_ttl = "5s"\nconsumer.window = 5\n'
        'dead_letter = "dlq"\n'
        '[[destination]]\nmatch = "a"\nwhen_full = "default"\nmessage_ttl = "default"\nconsumer.window = "default"\n'
        'dead_letter = "default"\nlimit = "default"'
    )
    assert policy.resolve("a", "queue").fields == DEFAULTS
    assert policy.resolve("b", "queue").fields["when_full"] == "fail"


def test_rules_of_a_kind_are_for_that_kind_and_give_it_to_new_ones() -> None:
    policy = loads(
        '[[destination]]\nmatch = "#"\nkind = "topic"\nlimit = 5\n'
        '[[destination]]\nmatch = "q.#"\nkind = "queue"\nlimit = 6\n'
        '[[destination]]\nmatch = "emails"\nkind = "bucket"\nrate = 90\nburst = 7\n'
        '[[destination]]\nmatch = "other.#"\nlimit = 7'
    )
    assert [policy.resolve(name).kind for name in ("a", "q.b", "emails", "other")] == [
        "topic",
        "queue",
        "bucket",
        "topic",
    ]
    assert policy.resolve("q.b", "topic").fields["limit_bytes"] == "5"
    assert policy.resolve("q.b", "gate").fields["limit_bytes"] == "unlimited"
    emails = {"rate": "90.0", "burst": "7", "shadow": "", "ledger": "all", "ledger_keep": "10000"}
    assert policy.resolve("emails").fields == emails
