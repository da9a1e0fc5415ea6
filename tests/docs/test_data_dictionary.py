"""lua/README.md against the scripts, in both directions: what is there is listed, and what is listed is there."""

import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from headgate.core.ledger import EVENTS
from headgate.namespace.pool_limits import FIELDS
from headgate.redis.keys import INDEX, LIMITER_PARTS, NODES, NOTES, OWNED, PARTS, POOL_PARTS
from headgate.redis.scripts import script, script_names
from headgate.settings import FIELD_OF
from headgate_coordinator.fleet.registry import NodeEntry
from tests.support.extent import each

LUA = Path(__file__).resolve().parents[2] / "lua"
README = (LUA / "README.md").read_text(encoding="utf-8")
SOURCES = {path.relative_to(LUA).as_posix(): path.read_text(encoding="utf-8") for path in sorted(LUA.rglob("*.lua"))}
ALL = "\n".join(SOURCES.values())


def section(heading: str) -> str:
    """Return what stands under a heading, down to the next one of any level."""
    level, title = heading.split(" ", 1)
    match = re.search(rf"^{level} {re.escape(title)}\n(.*?)(?=^#|\Z)", README, flags=re.MULTILINE | re.DOTALL)
    assert match, f"lua/README.md has no heading {heading!r}"
    return match[1]


def rows(text: str, header: str = "") -> list[list[str]]:
    """Return the rows of the tables in a text, without their heads; those only whose head begins with ``header``."""
    found: list[list[str]] = []
    lines = text.splitlines()
    wanted = False
    for number, line in enumerate(lines):
        if not line.startswith("|"):
            continue
        cells = [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if number + 1 < len(lines) and lines[number + 1].startswith("|---"):
            wanted = cells[0].startswith(header)
        elif wanted and not line.startswith("|---"):
            found.append(cells)
    return found


def names(text: str, header: str = "") -> list[str]:
    """Return what stands in backticks in the first column."""
    return [row[0].strip("`") for row in rows(text, header)]


def calls(source: str) -> Iterator[list[str]]:
    """Yield the arguments of each redis.call, as they are written."""
    for match in re.finditer(r"redis\.call\(", source):
        depth, start, arguments = 1, match.end(), []
        for at in range(match.end(), len(source)):
            depth += {"(": 1, "{": 1, ")": -1, "}": -1}.get(source[at], 0)
            if (source[at] == "," and depth == 1) or depth == 0:
                arguments.append(source[start:at].strip())
                start = at + 1
            if depth == 0:
                break
        yield arguments


def literal(arguments: list[str]) -> set[str]:
    return {argument.strip("'") for argument in arguments if re.fullmatch(r"'\w+'", argument)}


def fields_in_use() -> set[str]:
    """Return the fields of a destination's own hash that the scripts read or write by name."""
    found = set(re.findall(r"'(\w+)'", re.findall(r"^local FIELDS = \{(.*?)\}", ALL, re.DOTALL | re.MULTILINE)[0]))
    for listed in ("RULES", "NUMBERS"):
        names_listed = re.search(rf"(?ms)^ +local {listed} = \{{(.*?)\}}", SOURCES["lib/rules.lua"])
        assert names_listed, f"lib/rules.lua has no {listed}"
        found |= set(re.findall(r"'(\w+)'", names_listed[1]))
    found |= {*FIELD_OF.values(), "policy_version", "policy", "sought_ms", "read_to"}  # the last two by subscription
    found |= {f"{rate}_{what}" for rate in ("send", "send_byte", "delivery") for what in ("hand", "lent", "line")}
    found |= {f"{rate}_kept" for rate in ("send", "send_byte")}
    for command, key, *rest in (call for call in calls(ALL) if len(call) > 1):
        if key == "K_DESTINATION":
            found |= literal(rest[::2] if command == "'HSET'" else rest[:1] if command == "'HINCRBY'" else rest)
    return found


def test_every_key() -> None:
    listed = [re.sub(r"^hg:\{ns/name\}:?", "", name) for name in names(section("## Keys"), "key")]
    assert listed == ["", *PARTS, "receipt:<session>"]
    declared = re.findall(r"^local K_(\w+) = KEYS\[(\d+)\]$", SOURCES["lib/keys.lua"], re.MULTILINE)
    assert [name.lower() for name, _ in declared] == ["destination", *PARTS, "receipt"]
    assert [int(number) for _, number in declared] == list(range(1, len(PARTS) + 3))


def test_every_key_of_a_limiter() -> None:
    listed = [name.removeprefix("hg:{ns/name}:") for name in names(section("### Limiters"), "limiter key")]
    assert listed == list(LIMITER_PARTS)


def test_every_key_of_a_namespace() -> None:
    parts = (*INDEX, "policy", *NODES, "users", "made:<user>", *OWNED, *NOTES)
    assert names(section("### Keys of a namespace")) == [f"hg:{{ns}}:{part}" for part in parts]


def test_every_word_to_a_namespace() -> None:
    spoken = re.findall(r"PUBLISH', .*, '(\w+) ' \.\.", ALL)
    assert {name.split()[0] for name in names(section("### Channel of a namespace"))} == set(spoken)


def test_every_word_of_slices_that_share_a_limit() -> None:
    spoken = re.findall(r"PUBLISH', .*(?:'\}:wake'|'wake'\)), (?:table\.concat\(\{ )?'(\w+)'", ALL)
    assert {name.split()[0] for name in names(section("### Channel of a limit that slices share"))} == set(spoken)


def test_every_field_of_a_policy() -> None:
    written = next(call for call in calls(SOURCES["policy.lua"]) if call[:2] == ["'HSET'", "K_POLICY"])
    assert set(names(section("### Policy"))) == literal(written[2::2])


def test_every_field() -> None:
    listed = names(section("### Fields"))
    assert len(listed) == len(set(listed))
    assert set(listed) == fields_in_use()


def test_every_key_field_and_record_of_a_pool() -> None:
    text = section("### Pools")
    assert [name.removeprefix("hg:{ns}:pool:<name>") for name in names(text, "pool key")] == [
        "",
        *(f":{part}" for part in POOL_PARTS),
        ":site:<site>",
    ]
    used = {"policy"}
    for command, _, *rest in (call for call in calls(ALL) if len(call) > 1 and call[1] == "K_POOL"):
        if command != "'PUBLISH'":
            used |= literal(rest[::2] if command == "'HSET'" else rest)
    assert set(names(text, "pool field")) == used | set(FIELDS)
    record = re.findall(
        r"^local (?:MEMBER|HEARD|LEAST|REFUSED|OVERDRAWN|PENDING|WEIGHT) = (.*?)(?: --.*)?$",
        SOURCES["lib/member.lua"],
        re.MULTILINE,
    )
    assert names(text, "member record") == re.findall(r"(\w+)=%", " ".join(record))


@pytest.mark.parametrize(
    ("heading", "source", "record"),
    [
        ("### Session record", "lib/session.lua", "RECORD"),
        ("### Consumer record", "lib/consumer.lua", "CONSUMER"),
        ("### Subscription record", "lib/consumer.lua", "SUBSCRIPTION"),
        ("### Slice record", "lib/slice.lua", "SLICE"),
        ("### Record of a rate in hand", "lib/lent_rate.lua", "RATE_HAND"),
        ("### Share record", "lib/share.lua", "SHARE"),
        ("### Wildcard record", "lib/index.lua", "ENTRY"),
        ("### Link record at the source", "lib/link.lua", "SOURCE"),
        ("### Link record at the target", "lib/link.lua", "TARGET"),
        ("### Lease record", "lib/owned.lua", "OWNED"),
        ("### Pace record", "lib/pace.lua", "PACE"),
    ],
)
def test_every_record(heading: str, source: str, record: str) -> None:
    match = re.search(rf"^local {record} = ((?:.*\n)(?:  \.\. .*\n)*)", SOURCES[source], re.MULTILINE)
    assert match, f"{source} has no {record}"
    assert names(section(heading)) == re.findall(r"(\w+)=%", match[1])


def test_every_name_of_a_node_record() -> None:
    assert names(section("### Node record")) == [
        field.name for field in fields(NodeEntry) if field.name not in ("id", "silent")
    ]


def test_every_channel_message() -> None:
    spoken = set(re.findall(r"\bwake\([^,()]+(?:\([^)]*\))?, '(\w+)'", ALL)) | set(re.findall(r"wake_all\('(\w+)", ALL))
    assert {name.split()[0] for name in names(section("## Channels"))} == spoken


def test_every_column_of_the_ledger() -> None:
    layout = re.search(r"string\.format\('(1,[^']+)'", SOURCES["lib/ledger.lua"])
    assert layout, "the ledger's layout is not where it was"
    columns = rows(section("## Ledger"), "column")
    assert [row[0] for row in columns] == [str(number) for number in range(1, len(layout[1].split(",")) + 1)]


def test_every_operation_in_the_ledger() -> None:
    assert set(names(section("## Ledger"), "op")) == set(re.findall(r"(?<!function )write_ledger\('(\w+)'", ALL))


def test_every_detail_event() -> None:
    listed = names(section("### Detail events"))
    assert set(listed) == set(re.findall(r"(?:\bnote\(|\bnotes\[#notes \+ 1\] = )'([\w-]+)", ALL))
    assert listed == list(EVENTS)
    for name, arguments, _ in rows(section("### Detail events")):
        count = len(re.split(r", | or ", arguments.split(";")[0])) if "`yes` or" not in arguments else 1
        assert len(EVENTS[name.strip("`")]) == (count if name != "`above`" else 2), name


def test_every_script() -> None:
    assert sorted(re.findall(r"^### `(\w+)`$", README, re.MULTILINE)) == list(script_names())


@each("name", script_names())
def test_every_argument_and_code(name: str) -> None:
    text = section(f"### `{name}`")
    declared = script(name)
    listed = re.search(r"^ARGV: ((?:.+\n)+)", text, re.MULTILINE)
    assert listed, f"{name} lists no arguments"
    arguments = [word for argument in declared.arguments for word in argument.split(", ")]
    assert re.findall(r"`(\w+)`", listed[1]) == arguments
    codes = names(text, "code")
    assert len(codes) == len(set(codes))
    assert set(codes) == set(declared.codes)


@each("name", script_names())
def test_every_code_that_is_returned_is_declared(name: str) -> None:
    body = script(name).source
    returned = set(re.findall(r"return \{ '([A-Z_]+)'", body)) | set(re.findall(r"credit_reply\('([A-Z_]+)'", body))
    assert returned <= set(script(name).codes)


def test_every_constant() -> None:
    declared = {(name, value) for name, value in re.findall(r"^local ([A-Z_]+) = (\d+)(?: --.*)?$", ALL, re.MULTILINE)}
    listed = {(row[0].strip("`"), row[1]) for row in rows(section("## Rules"), "constant")}
    assert listed == declared
