"""`headgate policy lint`, `schema` and `show --file`: what they print, and how they exit."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from headgate.core.settings_table import KEYED, LIMITERS, PATHS, ROWS
from headgate.errors import InvalidName, InvalidValue
from headgate.policy.document import schema
from headgate.settings import DEFAULTS, FIELD_OF
from headgate_coordinator.cli.commands import command_line
from headgate_coordinator.cli.policy import schema_text
from tests.demo.command import run

REPOSITORY = Path(__file__).resolve().parents[2]
SHOP = """
[[destination]]
match = "orders.#"
kind = "queue"
limit = { bytes = "10MiB", messages = 100_000 }
resume_at = "80%"

[[destination]]
match = "orders.eu"
when_full = "fail-after 3s"
"""
TRAP = '[[destination]]\nmatch = "orders"\nlimit = "1MiB"\nresume_at = "1%"\n'
BAD = '[[destination]]\nmatch = "a..b"\nlimt = 5\n[[pool]]\nname = "a"\n'


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    file = tmp_path / "shop.toml"
    file.write_text(SHOP)
    return file


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(command_line(), ["policy", *map(str, arguments)])


def test_lint_is_content(shop: Path) -> None:
    done = invoke("lint", shop)
    assert (done.exit_code, done.stdout) == (0, "shop.toml: no known traps\n")


def test_lint_tells_traps_and_exits_with_1(shop: Path) -> None:
    shop.write_text(TRAP)
    done = invoke("lint", shop)
    assert done.exit_code == 1
    assert done.stdout.startswith("shop.toml:4: HG102 resume_at.bytes: once full, nobody is served")
    assert done.stdout.splitlines()[-1] == "shop.toml: 1 known trap(s)"
    told = json.loads(invoke("lint", shop, "--json").stdout)
    assert [(finding["code"], finding["place"]) for finding in told["findings"]] == [("HG102", "shop.toml:4")]


def test_lint_takes_what_the_document_does_not_say(shop: Path) -> None:
    assert "HG113" in invoke("lint", shop, "--largest", "20MiB").stdout
    shop.write_text('[[destination]]\nmatch = "a"\nlimit = "1MiB"\nproducer.window = "64KiB"')
    assert invoke("lint", shop, "--producers", 16).exit_code == 0
    assert "HG105" in invoke("lint", shop, "--producers", 17).stdout
    assert isinstance(invoke("lint", shop, "--largest", "wide").exception, InvalidValue)


@pytest.mark.parametrize("command", [["lint"], ["show", "orders", "--file"]])
def test_all_that_is_wrong_is_printed_and_the_exit_code_is_2(shop: Path, command: list[str]) -> None:
    shop.write_text(BAD)
    done = invoke(*command, shop)
    assert (done.exit_code, done.stdout) == (2, "")
    assert [line.split(": ")[:3] for line in done.stderr.splitlines()] == [
        ["headgate", "shop.toml:3", "destination[1].limt"],
        ["headgate", "shop.toml:4", "pool[1]"],
    ]
    shop.write_text(BAD.replace("limt", "limit").replace('name = "a"', 'name = "a"\nlimit = 1\nreserve = 2'))
    done = invoke(*command, shop, "--json")
    assert [problem["place"] for problem in json.loads(done.stdout)["problems"]] == ["shop.toml:2", "shop.toml:7"]
    assert len(done.stderr.splitlines()) == 2


def test_show_tells_rule_and_line_of_each_value(shop: Path) -> None:
    done = invoke("show", "orders.eu", "--file", shop)
    assert done.exit_code == 0
    assert [line.split() for line in done.stdout.splitlines()] == [
        ["orders.eu", "(queue)"],
        ["setting", "value", "rule", "from"],
        ["limit.bytes", "10485760", "orders.#", "shop.toml:5"],
        ["limit.messages", "100000", "orders.#", "shop.toml:5"],
        ["resume_at.bytes", "80.0%", "orders.#", "shop.toml:6"],
        ["resume_at.messages", "80.0%", "orders.#", "shop.toml:6"],
        ["when_full", "fail-after", "3s", "orders.eu", "shop.toml:10"],
    ]


def test_show_effective_tells_defaults_too(shop: Path) -> None:
    told = json.loads(invoke("show", "orders.eu", "--file", shop, "--effective", "--json").stdout)
    assert (told["destination"], told["kind"]) == ("orders.eu", "queue")
    assert set(told["settings"]) == set(DEFAULTS)
    assert told["settings"]["hard_bytes"] == {"key": "hard_limit", "value": "", "rule": None, "place": None}
    assert told["settings"]["limit_bytes"]["rule"] == "orders.#"
    assert "default" in invoke("show", "orders.eu", "--file", shop, "--effective").stdout


def test_show_takes_a_kind(shop: Path) -> None:
    assert json.loads(invoke("show", "orders", "--file", shop, "--kind", "gate", "--json").stdout)["settings"] == {}
    assert isinstance(invoke("show", "orders", "--file", shop, "--kind", "stream").exception, InvalidValue)
    for name in ("orders.#", "orders#1"):
        assert isinstance(invoke("show", name, "--file", shop).exception, InvalidName)


def test_the_command_itself_does_so_too(shop: Path) -> None:
    shop.write_text(BAD)
    done = run("policy", "lint", str(shop))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("headgate: shop.toml:3: destination[1].limt: unknown key; did you mean 'limit'?")


def test_the_published_schema_is_that_of_the_models() -> None:
    published = (REPOSITORY / "docs" / "policy.schema.json").read_text(encoding="utf-8")
    assert published == schema_text() == invoke("schema").stdout, (
        "run: headgate policy schema > docs/policy.schema.json"
    )


def test_the_schema_has_every_key() -> None:
    tables = schema()["$defs"]

    def keys(table: dict[str, Any]) -> dict[str, Any]:
        """Return the properties of the table that a schema refers to, itself or among its alternatives."""
        text = json.dumps(table)
        names = re.findall(r'"#/\$defs/(\w+)"', text)
        found: dict[str, Any] = tables[names[0]]["properties"] if names else {}
        return found

    for path in PATHS.values():
        known = tables["Destination"]["properties"]
        for step in path:
            assert step in known, path
            known = keys(known[step])


def test_every_setting_can_be_said_in_a_document() -> None:
    never = {"stopped", "confirm"}  # blocked by hand, never by a policy; said by its channels
    of_limiters = {name for name, row in ROWS.items() if row.kinds in (LIMITERS, KEYED)}
    keyed = {name for name, row in ROWS.items() if row.kinds == KEYED}
    assert set(PATHS) == set(FIELD_OF) - never - (of_limiters - keyed)
    tables = schema()["$defs"]
    said = {*tables["LimiterTable"]["properties"], *tables["LimitTable"]["properties"], *tables["PerKey"]["properties"]}
    other = {"limits": "limit", "key_limits": "per_key", "key_weights": "weight", "zone": "resets"}
    other |= {"shadow_limits": "limit", "shadow_key_limits": "shadow_per_key", "bands": "band"}
    assert {other.get(name, name) for name in of_limiters} <= said


@pytest.mark.parametrize(
    ("table", "key", "good", "bad"),
    [
        ("Producer", "window", ["64KiB", "10 MB", "512", ".5kb", "default"], ["64 stones", "KB", "-1"]),
        ("Producer", "timeout", ["250ms", "3s", "1.5 s", "2min", "1h"], ["1 week", "s", "1.5", "3000"]),
        ("Producer", "rate", ["90/min", "1MB/s", "5 / h", "5/day", "1/2s", "2k/week"], ["5/year", "5"]),
        ("Destination", "when_full", ["block", "spool", "fail-after 3s"], ["fail-after", "wait"]),
        ("StoreTable", "when_full", ["block", "fail", "drop", "fail-after 3s"], ["spool", "fail-after", "wait"]),
        ("StoreTable", "url", ["file:///a", "s3://bucket/a"], ["/a", "s3://me:pw@host/a", "s3://a?key=b"]),
        ("Resume", "bytes", ["80%", "64KiB", "12.5 %"], ["%", "much"]),
        ("WindowTable", "messages", ["unlimited"], ["5k"]),
        ("LimitTable", "at_once", ["64MiB", "200k", "1_000"], ["5/s", "much"]),
        ("LimitTable", "quota", ["1_000/day", "5 / h", "64MiB/month"], ["5/s", "5/min", "5"]),
        ("LimitTable", "resets", ["00:15", "06:00 Europe/Berlin", "mon 06:00 UTC", "28 00:00 UTC"], ["6:00", "noon"]),
        ("LimitTable", "name", ["in_flight"], ["In-Flight", "9"]),
    ],
)
def test_the_schema_takes_the_same_texts(table: str, key: str, good: list[str], bad: list[str]) -> None:
    told = schema()["$defs"][table]["properties"][key]
    patterns = [
        form["pattern"] for form in told.get("anyOf", [told]) for form in form.get("anyOf", [form]) if "pattern" in form
    ]
    assert patterns
    for text in good:
        assert any(re.search(pattern, text) for pattern in patterns), text
    for text in bad:
        assert not any(re.search(pattern, text) for pattern in patterns), text
