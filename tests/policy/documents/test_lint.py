"""The known traps: for each a document that stalls, and its twin that does not."""

from pathlib import Path

import pytest

from headgate.policy import loads
from headgate_coordinator.policy.finding import Finding
from headgate_coordinator.policy.lint import CODES, Setup, lint
from tests.support.extent import each

RULE = '[[destination]]\nmatch = "orders.#"\n'
BILLS = '[[destination]]\nmatch = "bills"\n'
BRIDGE = '\n[[bridge]]\nname = "b"\nfrom = "orders"\nto = "bills"\n'
PARIS = 'site_name = "paris"\n[[site]]\nname = "berlin"\nurl = "env:HEADGATE_SITE_BERLIN"\n'
ROUTE = '[[route]]\nname = "r"\nto = "berlin"\ntopics = "orders"\n'
LIMIT = 'limit = "1MB"'
REFERENCES = 'limit_references = "1MB"\n'
SPOOLS = 'when_full = "spool"\nstore = "disk"\n[[store]]\nname = "disk"\nurl = "file:///spool"\nlimit = "10MB"\n'
LLM = '[[limiter]]\nmatch = "llm"\n'
REQUESTS = '[[limiter.limit]]\nname = "requests"\nrate = "500/min"\n'
SPEND = '[[limiter.limit]]\nname = "spend"\nquota = "1000/day"\n'
SLOTS = '[[limiter.limit]]\nname = "slots"\nat_once = 10\n'
PER_KEY = "[limiter.per_key]\n"
ASKS = '[[descriptor]]\ndomain = "d"\nentries = ["t"]\nlimiter = "llm"\n'
ENDS = '[[descriptor]]\ndomain = "d"\nentries = ["e"]\nlimiter = "llm"\nrelease = "e"\n'
EVERYBODY = '[[user_limit]]\nname = "all"\nusers = ["a*", "*"]\nrate = "5/s"\n'
ANN = '[[user_limit]]\nname = "ann"\nusers = ["bob", "ann-*"]\nrate = "5/s"\n'
POOL = '[[pool]]\nname = "memory"\nlimit = "10MB"\n'
# Code, line of the finding, what is known beside the document, one that stalls, and its twin.
PAIRS: list[tuple[str, int, Setup, str, str]] = [
    (
        "HG101", 4, Setup(),
        RULE + 'limit = "1MiB"\nconsumer = { window = { bytes = "2MiB" } }',
        RULE + 'limit = "1MiB"\nconsumer = { window = { bytes = "100KiB" } }',
    ),
    (
        "HG101", 4, Setup(),
        RULE + "limit = { messages = 100 }\nconsumer = { durable = { window = 1000 } }",
        RULE + "limit = { messages = 100 }\nconsumer = { durable = { window = 10 } }",
    ),
    (
        "HG101", 4, Setup(),
        RULE + 'limit = "1MiB"\nconsumer = { window = "unlimited" }',
        RULE + 'limit = "1MiB"\nconsumer = { window = "pull" }',
    ),
    ("HG102", 4, Setup(), RULE + 'limit = "1MiB"\nresume_at = "5%"', RULE + 'limit = "1MiB"\nresume_at = "80%"'),
    (
        "HG102", 4, Setup(),
        RULE + "limit = { messages = 1000 }\nresume_at = { messages = 10 }",
        RULE + "limit = { messages = 1000 }\nresume_at = { messages = 500 }",
    ),
    (
        "HG103", 3, Setup(),
        RULE + 'consumer = { slow = { rate = "1/min", period = "30s" } }',
        RULE + 'consumer = { slow = { rate = "10/s", period = "30s" } }',
    ),
    (
        "HG104", 3, Setup(),
        RULE + 'consumer = { rate = 10, slow = { rate = 20, period = "30s" } }',
        RULE + 'consumer = { rate = 10, slow = { rate = 2, period = "30s" } }',
    ),
    (
        "HG105", 4, Setup(producers=20),
        RULE + 'limit = "1MiB"\nproducer = { window = "64KiB" }',
        RULE + 'limit = "10MiB"\nproducer = { window = "64KiB" }',
    ),
    (
        "HG106", 4, Setup(),
        RULE + 'pools = ["memory"]\nconsumer = { window = { bytes = "20MB" } }\n' + POOL,
        RULE + 'pools = ["memory"]\nconsumer = { window = { bytes = "1MB" } }\n' + POOL,
    ),
    (
        "HG107", 11, Setup(),
        RULE + 'limit = "6MB"\npools = ["memory"]\n' + BILLS + 'limit = "6MB"\npools = ["memory"]\n' + POOL,
        RULE + 'limit = "4MB"\npools = ["memory"]\n' + BILLS + 'limit = "4MB"\npools = ["memory"]\n' + POOL,
    ),
    ("HG108", 4, Setup(), RULE + 'limit = "1MB"\nenforce = "off"', RULE + 'limit = "1MB"\nenforce = "with-consumers"'),
    (
        "HG109", 6, Setup(),
        '[[destination]]\nmatch = "#"\nlimit = "1MB"\n' + RULE + 'dead_letter = "dead"',
        '[[destination]]\nmatch = "#"\nlimit = "1MB"\n' + RULE + 'dead_letter = "dead"\n'
        '[[destination]]\nmatch = "dead"\nlimit = "unlimited"',
    ),
    (
        "HG110", 3, Setup(),
        RULE + "rate = { messages = 5000, burst = 5 }",
        RULE + "rate = { messages = 5000, burst = 500 }",
    ),
    (
        "HG111", 3, Setup(),
        RULE + 'message_ttl = "5s"\nconsumer = { slow = { multiple = 2, period = "30s" } }',
        RULE + 'message_ttl = "1h"\nconsumer = { slow = { multiple = 2, period = "30s" } }',
    ),
    (
        "HG112", 3, Setup(),
        RULE + 'limit = "20MB"\npools = ["memory"]\n' + POOL,
        RULE + 'limit = "5MB"\npools = ["memory"]\n' + POOL,
    ),
    (
        "HG113", 3, Setup(largest=2_000_000),
        RULE + 'limit = "1MB"',
        RULE + 'limit = "1MB"\noversize = "allow-one"',
    ),
    (
        "HG113", 3, Setup(largest=2_000_000),
        RULE + 'rate = { bytes = "1MB/s", byte_burst = "1MB" }',
        RULE + 'rate = { bytes = "1MB/s", byte_burst = "4MB" }',
    ),
    ("HG115", 4, Setup(), BILLS + LIMIT + BRIDGE, RULE + LIMIT + "\n" + BILLS + LIMIT + BRIDGE),
    ("HG115", 5, Setup(), PARIS + ROUTE, PARIS + ROUTE + RULE + 'kind = "topic"\nlimit = "1MB"'),
    ("HG116", 3, Setup(), RULE + SPOOLS, RULE + SPOOLS.replace("when_full", LIMIT + "\nwhen_full")),
    ("HG116", 4, Setup(), RULE + "limit.messages = 5\n" + SPOOLS, RULE + "limit.bytes = 5\n" + SPOOLS),
    ("HG117", 3, Setup(mean=100), RULE + REFERENCES + LIMIT + "\n" + SPOOLS, RULE + LIMIT + "\n" + SPOOLS),
    (
        "HG118", 8, Setup(),
        RULE + LIMIT + "\n" + SPOOLS.replace("file:///", "memory://"), RULE + LIMIT + "\n" + SPOOLS,
    ),
    ("HG114", 3, Setup(), RULE + 'pools = ["memroy"]\n' + POOL, RULE + 'pools = ["memory"]\n' + POOL),
    (
        "HG119", 6, Setup(),
        LLM + REQUESTS + PER_KEY + 'requests = "600/min"', LLM + REQUESTS + PER_KEY + 'requests = "60/min"',
    ),
    ("HG119", 6, Setup(), LLM + SLOTS + PER_KEY + "slots = 11", LLM + SLOTS + PER_KEY + "slots = 10"),
    (
        "HG120", 3, Setup(),
        LLM + '[[limiter.limit]]\nname = "tokens"\nrate = "200k/min"\nburst = 100\n',
        LLM + '[[limiter.limit]]\nname = "tokens"\nrate = "200k/min"\nburst = 4000\n',
    ),
    ("HG121", 3, Setup(), LLM + SPEND + 'resets = "06:00"', LLM + SPEND + 'resets = "06:00 Europe/Berlin"'),
    ("HG121", 3, Setup(), LLM + SPEND, LLM + SPEND + 'resets = "00:00 UTC"'),
    (
        "HG122", 7, Setup(),
        LLM + SLOTS + PER_KEY + 'weight = { "gold-*" = 500 }', LLM + SLOTS + PER_KEY + 'weight = { "gold-*" = 50 }',
    ),
    (
        "HG123", 7, Setup(),
        LLM + 'unknown_keys = "refuse"\n' + SLOTS + PER_KEY + "slots = 6\nweight = { a = 1, b = 1 }",
        LLM + 'unknown_keys = "refuse"\n' + SLOTS + PER_KEY + "slots = 5\nweight = { a = 1, b = 1 }",
    ),
    ("HG124", 3, Setup(), LLM + 'lease_ahead = "1min"\n' + REQUESTS, LLM + 'lease_ahead = "1s"\n' + REQUESTS),
    (
        "HG125", 3, Setup(),
        RULE + 'fair_by = "group-id"\nlimit.messages = 800', RULE + 'fair_by = "group-id"\nlimit.messages = 8000',
    ),
    (
        "HG125", 4, Setup(mean=1000),
        RULE + 'fair_by = "group-id"\nconsumer.window.messages = 1000\n' + LIMIT,
        RULE + 'fair_by = "group-id"\nconsumer.window.messages = 100\n' + LIMIT,
    ),
    (
        "HG125", 4, Setup(),
        RULE + 'fair_by = "group-id"\nconsumer.window = "unlimited"',
        RULE + 'fair_by = "group-id"\nconsumer.window.messages = 100',
    ),
    (
        "HG135", 3, Setup(),
        RULE + 'retry.delay = "1s"', RULE + 'retry.delay = "1s"\nmax_attempts = 5',
    ),
    (
        "HG135", 3, Setup(),
        RULE + 'retry.delay = "1s"', RULE + 'retry.delay = "1s"\nmax_attempts = "default"',
    ),
    (
        "HG135", 3, Setup(),
        RULE + 'retry.delay = "1min"\nmax_attempts = 5\nmessage_ttl = "10s"',
        RULE + 'retry.delay = "1s"\nmax_attempts = 5\nmessage_ttl = "10s"',
    ),
    ("HG136", 3, Setup(), LLM + "reserve = { 7 = 0.1 }\n" + REQUESTS, LLM + "reserve = { 6 = 0.1 }\n" + REQUESTS),
    (
        "HG136", 3, Setup(), LLM + "reserve = { 0 = 0.3, 2 = 0.1 }\n" + REQUESTS,
        LLM + "reserve = { 0 = 0.1, 2 = 0.3 }\n" + REQUESTS,
    ),
    (
        "HG136", 3, Setup(), LLM + "reserve = { 1 = 0.95 }\n" + SLOTS, LLM + "reserve = { 1 = 0.9 }\n" + SLOTS,
    ),
    (
        "HG137", 3, Setup(), LLM + "shed = { 4 = 0.5, 6 = 0.8 }\n" + SLOTS,
        LLM + "shed = { 4 = 0.8, 6 = 0.5 }\n" + SLOTS,
    ),
    (
        "HG138", 4, Setup(), RULE + 'limit = "1MB"\nshadow = { bytes = "2MB" }',
        RULE + 'limit = "1MB"\nshadow = { bytes = "500kB", messages = 5 }',
    ),
    (
        "HG138", 3, Setup(), LLM + SLOTS + SLOTS + "enforce = 'shadow'\n",
        LLM + SLOTS + SLOTS.replace("10", "5") + "enforce = 'shadow'\n",
    ),
    ("HG139", 5, Setup(), EVERYBODY + ANN, ANN + EVERYBODY),
    ("HG128", 4, Setup(), LLM + "aging = 6\nband = { b = 6 }\n" + REQUESTS, LLM + "band = { b = 6 }\n" + REQUESTS),
    (
        "HG130", 1, Setup(),
        ASKS + "amounts = { requests = 1 }", ASKS + "amounts = { requests = 1 }\n" + LLM + REQUESTS,
    ),
    (
        "HG131", 1, Setup(),
        ASKS + "amounts = { slots = 1 }\nhold = 't'\n" + ENDS + LLM + SLOTS + PER_KEY + "slots = 5",
        ASKS + "amounts = { slots = 1 }\nhold = 't'\nkey = 't'\n" + ENDS + LLM + SLOTS + PER_KEY + "slots = 5",
    ),
    (
        "HG132", 1, Setup(),
        ASKS + "amounts = { slots = 1 }\nhold = 't'\n" + LLM + SLOTS,
        ASKS + "amounts = { slots = 1 }\nhold = 't'\n" + ENDS + LLM + SLOTS,
    ),
    (
        "HG140", 5, Setup(),
        POOL + 'reserve = "1MB"\nsites = { berlin = "5MB", rome = { most = "4MB", weight = 3 } }',
        POOL + 'reserve = "1MB"\nsites = { berlin = "5MB", rome = "3MB" }',
    ),
]  # fmt: skip


@each(("code", "line", "known", "stalls", "twin"), PAIRS)
def test_what_stalls_is_found_and_its_twin_is_not(code: str, line: int, known: Setup, stalls: str, twin: str) -> None:
    (finding,) = lint(loads(stalls, "shop.toml"), known)
    assert (finding.code, finding.place) == (code, f"shop.toml:{line}")
    assert str(finding) == f"{finding.place}: {code} {finding.key}: {finding.stalls}; {finding.remedy}"
    assert "inf " not in str(finding)
    assert lint(loads(twin, "shop.toml"), known) == []


def test_each_rule_has_its_pair() -> None:
    assert sorted({code for code, *_ in PAIRS}) == list(CODES)


def test_a_trap_that_two_rules_lay_together_is_found() -> None:
    text = (
        '[[destination]]\nmatch = "*.eu"\nlimit = "1MB"\n[[destination]]\nmatch = "a.#"\nconsumer.window.bytes = "2MB"'
    )
    (finding,) = lint(loads(text, "x"))
    assert (finding.code, finding.place) == ("HG101", "x:6")


def test_limits_that_are_switched_off_everywhere_are_told_once() -> None:
    text = 'flow_control = "off"\n' + RULE + 'limit = "1MB"\n[[destination]]\nmatch = "bills"\nlimit = "1MB"'
    found = lint(loads(text, "x"))
    assert [(finding.code, finding.place) for finding in found] == [("HG108", "x:1")]


@pytest.mark.parametrize("preset", ["artemis", "activemq", "tibco-ems", "blazingmq", "llm", "http-api"])
def test_presets_lay_no_traps(preset: str) -> None:
    assert lint(loads(f'preset = "{preset}"')) == []


def test_the_documentation_names_every_rule() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "policy.md").read_text(encoding="utf-8")
    assert [code for code in CODES if code not in page] == []


def test_a_finding_is_facts() -> None:
    finding = Finding("HG101", "x:1", "limit", "it stalls", "do not")
    assert finding.as_dict() == {
        "code": "HG101", "place": "x:1", "key": "limit", "stalls": "it stalls", "remedy": "do not",
    }  # fmt: skip
