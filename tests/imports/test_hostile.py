"""Files made to do harm: each ends with a policy or one error that names a line, soon, and no terminal obeys it."""

import contextlib
import io
import json
import random
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pytest

from headgate import policy as documents
from headgate.errors import InvalidValue
from headgate_coordinator.cli.imports import _policy, _show
from headgate_coordinator.imports import reading
from headgate_coordinator.imports.activemq import broker as of_activemq
from headgate_coordinator.imports.artemis import broker as of_artemis
from headgate_coordinator.imports.blazingmq import files as of_blazingmq
from headgate_coordinator.imports.ems import files as of_ems
from headgate_coordinator.imports.rabbitmq import definitions as of_rabbitmq
from headgate_coordinator.imports.rabbitmq import rules
from headgate_coordinator.imports.report import Imported

Read = Callable[[Sequence[Path]], Imported]
READERS: Final[dict[str, Read]] = {
    "activemq": of_activemq.read, "artemis": of_artemis.read, "blazingmq": of_blazingmq.read,
    "ems": of_ems.read, "rabbitmq": of_rabbitmq.read,
}  # fmt: skip
CONFIGURATIONS: Final = Path(__file__).parent / "configurations"
RUNS: Final = 100
TOKEN: Final = re.compile(r'(?<=>)[^<>\n]+(?=<)|"[^"\n]*"|[\w.*#>-]+')
NONSENSE: Final = (
    "9223372036854775808", "-9223372036854775808", "-1", "0", "1e400", "-1e5", "NaN", "0x10", "\uff11\uff12", "1_000",
    "9" * 5000, "", " ", '"', "\\", "#", ">", "a..b", ".", "..", "a.>.b", ">.a", "a*b", "\u202e", "\x9b2J", "\u0085",
    "\u2028", "\ufeff", "é" * 600, "x" * 300, "true", "null", "[]", "{}", '{"a":1}', "1.5", "1 MB", "5%", "^.*$",
    "(((", "a{1,99999}", "reply~x", "$cbs", "default", "a = b", "x # y.conf:7", '"""', "{a}", "[queue]", "//u:p@h",
    "tcp://[::1", "tcp://[1,2]:1",
)  # fmt: skip


def told(work: Callable[[], None]) -> str:
    """Return the error that a file ends with; empty where it becomes a policy."""
    try:
        work()
    except InvalidValue as error:
        return str(error)
    return ""


def shown(imported: Imported) -> None:
    """Print what the command prints."""
    _show(imported, _policy(imported, "policy.toml"), None, document=True, as_json=False)


def damaged(text: str, product: str, chance: random.Random) -> str:
    """Return a file with a few words of nonsense, lines twice, or without some."""
    for _ in range(chance.randint(1, 3)):
        words = [found.span() for found in TOKEN.finditer(text)]
        if not words:
            return text
        how, (begin, end), lines = chance.random(), chance.choice(words), text.split("\n")
        value, at = chance.choice(NONSENSE), chance.randrange(len(lines))
        if product in ("activemq", "artemis"):
            value = value.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
        if text[begin] == '"':
            value = json.dumps(value) if product in ("blazingmq", "rabbitmq") else f'"{value}"'
        if how < 0.6:
            text = text[:begin] + value + text[end:]
        elif how < 0.7:
            text = text[:begin] + text[end:]
        else:
            again = lines[at : at + chance.randint(1, 4)]
            text = "\n".join(lines[:at] + (again * 2 if how < 0.85 else []) + lines[at + len(again) :])
    return text


@pytest.mark.parametrize("product", READERS)
def test_what_is_damaged_becomes_a_policy_or_one_error_that_names_a_line(tmp_path: Path, product: str) -> None:
    folders = sorted(folder for folder in (CONFIGURATIONS / product).iterdir() if folder.is_dir())
    made = 0
    for seed in range(RUNS):
        chance, files, said = random.Random(f"{product} {seed}"), [], io.StringIO()
        for source in sorted(chance.choice(folders).iterdir()):
            file = tmp_path / source.name
            file.write_text(damaged(source.read_text("utf-8"), product, chance), "utf-8", newline="")
            files.append(file)
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            error = told(lambda: shown(READERS[product](files)))  # noqa: B023 -- called at once
        made += not error
        assert not error or re.match(r"[\w.-]+:[0-9]+: ", error), f"seed {seed} names no line: {error}"
        assert error.isprintable(), f"seed {seed}: {error!r}"
        assert all(line.isprintable() for line in said.getvalue().split("\n")), f"seed {seed} says it to a terminal"
    assert made


def many(product: str, count: int) -> dict[str, str]:
    """Return a file with so many settings, each beside all others."""
    each = range(count)
    if product == "activemq":
        entries = "".join(f'<policyEntry queue="q{n}" memoryLimit="99mb"/>' for n in each)
        return {"activemq.xml": f"<broker><destinationPolicy>{entries}</destinationPolicy></broker>"}
    if product == "artemis":
        page = "<address-full-policy>PAGE</address-full-policy>"
        entries = "".join(f'<address-setting match="q{n}">{page}</address-setting>' for n in each)
        return {"broker.xml": f"<core><address-settings>{entries}</address-settings></core>"}
    if product == "ems":
        return {"queues.conf": "".join(f"q{n} maxbytes=10MB,flowControl=1MB\n" for n in each)}
    if product == "blazingmq":
        limits = {"storage": {"domainLimits": {"bytes": 100}}}
        return {f"d{n}.json": json.dumps({"definition": {"parameters": {"name": f"d{n}"} | limits}}) for n in each}
    policy = {"apply-to": "queues", "definition": {"max-length": 3}}
    policies = [policy | {"name": f"p{n}", "pattern": f"^(q{n}|a.*b.*{n})$", "priority": n} for n in each]
    return {"definitions.json": json.dumps({"policies": policies, "queues": [{"name": f"q{n}"} for n in each]})}


@pytest.mark.parametrize("product", ["activemq", "artemis", "ems"])
def test_four_times_the_settings_take_about_four_times_the_steps(tmp_path: Path, product: str) -> None:
    def steps(count: int) -> int:
        """Return the lines of the importers that run for so many settings."""
        ((name, text),) = many(product, count).items()
        (tmp_path / name).write_text(text)
        ran = 0

        def trace(frame: FrameType, event: str, _: object) -> Any:
            nonlocal ran
            ran += event == "line"
            return trace if "headgate_coordinator/imports" in frame.f_code.co_filename else None

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            READERS[product]([tmp_path / name])
        finally:
            sys.settrace(before)
        return ran

    steps(1)
    assert steps(200) < 5 * steps(50)


@pytest.mark.parametrize("product", ["activemq", "artemis", "ems"])
def test_more_rules_than_a_policy_is_made_for_are_refused_by_line(
    tmp_path: Path, product: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MOST_TABLES", 100)
    ((name, text),) = many(product, 200).items()
    (tmp_path / name).write_text(text)
    with pytest.raises(InvalidValue, match=rf"^{name}:[0-9]+: more than 100 rules; import a part, or write patterns"):
        READERS[product]([tmp_path / name])


def test_more_policies_than_queues_can_be_looked_up_in_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "_MOST_LOOKS", 10)
    (tmp_path / "definitions.json").write_text(many("rabbitmq", 50)["definitions.json"])
    with pytest.raises(InvalidValue, match=r"^definitions\.json:1: too many policies for so many queues"):
        of_rabbitmq.read([tmp_path / "definitions.json"])


def test_a_thousand_policies_and_a_thousand_queues_are_looked_through(tmp_path: Path) -> None:
    """As sites export them, a policy a team. Mutants: each name is compared with each whole pattern."""
    policies = [
        {
            "vhost": "/", "name": f"p{n}", "pattern": f"^team-{n}\\.", "apply-to": "queues",
            "definition": {"max-length": n + 1}, "priority": n % 10,
        } for n in range(1000)
    ]  # fmt: skip
    queues = [{"name": f"team-{n}.orders", "vhost": "/", "durable": True, "arguments": {}} for n in range(1000)]
    (tmp_path / "definitions.json").write_text(json.dumps({"policies": policies, "queues": queues}))
    rules = of_rabbitmq.read([tmp_path / "definitions.json"]).document.split("[[destination]]")
    for n in (0, 17, 999):
        (rule,) = (one for one in rules if f'match = "team-{n}.>"' in one)
        assert f"limit.messages = {n + 1} " in rule


def test_a_document_has_no_character_that_turns_its_lines_round_or_clears_a_screen(tmp_path: Path) -> None:
    name = "a\u202eb\u0085c\u2028d\U000e0001"
    (tmp_path / "queues.conf").write_text(f'"{name}" maxmsgs=3\n', "utf-8")
    (tmp_path / "definitions.json").write_text(json.dumps({"queues": [{"name": name}]}))
    imported = of_rabbitmq.read([tmp_path / "definitions.json"])
    assert all(line.isprintable() for line in imported.document.split("\n"))
    assert [rule.match for rule in documents.loads(imported.document).rules] == [name]


DIVERT: Final = "<core><diverts>\n<divert name='a>b'><address>a</address><forwarding-address>b</forwarding-address>"
DEAD: Final = "<core><address-settings>\n<address-setting match='a'>\n<dead-letter-address>b..c</dead-letter-address>"


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("activemq.xml", '<broker>\n<systemUsage><systemUsage sendFailIfNoSpace="0x10"/></systemUsage></broker>', 2),
        ("activemq.xml", '<broker>\n<systemUsage sendFailIfNoSpaceAfterTimeout="1MB"/></broker>', 2),
        ("broker.xml", "<core><acceptors>\n<acceptor>tcp://u:p@[::1</acceptor></acceptors></core>", 2),
        ("broker.xml", "<core><connectors>\n<connector>tcp://[1,2]:1</connector></connectors></core>", 2),
        ("broker.xml", f"{DIVERT}</divert></diverts></core>", 2),
        ("broker.xml", '<core><addresses>\n<address name="a..b"/></addresses></core>', 2),
        ("bridges.conf", "[queue:a]\n,\n", 2),
        ("definitions.json", '{"queues": [\n{"name": "a..b", "arguments": {"x-max-length": 1}}]}', 2),
    ],
)  # fmt: skip
def test_what_means_nothing_is_reported_at_its_line(tmp_path: Path, name: str, text: str, line: int) -> None:
    (tmp_path / name).write_text(text)
    product = {"activemq.xml": "activemq", "broker.xml": "artemis", "bridges.conf": "ems"}.get(name, "rabbitmq")
    imported = READERS[product]([tmp_path / name])
    documents.loads(imported.document)
    assert [row.verdict for row in imported.rows if row.line == line and not row.ours]
    assert not any("u:p" in str(row) for row in imported.rows)


LAUGHS: Final = b"".join(b'<!ENTITY l%d "%s">' % (at, b"&l%d;" % (at - 1) * 10) for at in range(1, 20))
BYTES: Final = {
    "nothing": b"",
    "zeros": b"\0" * 1000,
    "packed": b"\x1f\x8b\x08\0\0\0\0\0",
    "UTF-16": "<broker/>".encode("utf-16"),
    "half a character": b"\xed\xa0\x80",
    "Latin-1": b"caf\xe9 maxmsgs=3\n",
    "many laughs": b"<!DOCTYPE a [" + LAUGHS + b"]><broker>&l19;</broker>",
    "a file of the system": b'<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><broker brokerName="&b;"/>',
    "deep elements": b"<a>" * 100_000,
    "deep lists": b'{"queues": ' + b"[" * 1_000_000,
    "a long number": b'{"queues": [{"name": "a", "arguments": {"x-max-length": ' + b"9" * 5000 + b"}}]}",
    "no number": b'{"queues": [{"name": "a", "arguments": {"x-max-length": NaN}}]}',
    "large": b" " * (reading.MOST_BYTES + 1),
    "an encoding that nobody has": b'<?xml version="1.0" encoding="no-such"?><broker/>',
}


@pytest.mark.parametrize("product", READERS)
@pytest.mark.parametrize("what", BYTES)
def test_bytes_that_are_no_configuration_end_with_one_error_at_a_line(tmp_path: Path, product: str, what: str) -> None:
    name = {"ems": "queues.conf", "activemq": "activemq.xml", "artemis": "broker.xml"}.get(product, "x.json")
    (tmp_path / name).write_bytes(BYTES[what])
    error = told(lambda: shown(READERS[product]([tmp_path / name])))
    assert error == "" or re.match(rf"{name}:[0-9]+: ", error)
    assert error.isprintable()
    assert len(error) < 500
    assert "root:" not in error
    is_read = (product, what) in {("ems", "nothing"), ("activemq", "UTF-16")}
    assert (error == "") == is_read or product == "ems", error


@pytest.mark.parametrize(
    ("product", "name", "text", "place"),
    [
        ("artemis", "broker.xml", f"{DEAD}</address-setting></address-settings></core>", "broker.xml:3"),
        ("ems", "bridges.conf", '\n[queue:a]\nqueue=b selector="a ="\n', "bridges.conf:3"),
        ("ems", "queues.conf", "a maxmsgs=1\nb failsafe,maxbytes=99999999999999GB", "queues.conf:2"),
    ],
)  # fmt: skip
def test_what_no_policy_can_say_is_refused_by_its_line(
    tmp_path: Path, product: str, name: str, text: str, place: str
) -> None:
    (tmp_path / name).write_text(text)
    assert told(lambda: shown(READERS[product]([tmp_path / name]))).startswith(f"{place}: ")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("activemq.xml", '<broker><policyEntry queue="a" memoryLimit="${lim:1mb}"/></broker>'),
        ("activemq.xml", '<broker><policyEntry queue="${site}.>" memoryLimit="1mb"/></broker>'),
        ("broker.xml", ("<core><address-settings><address-setting match='a'><max-size-bytes>${m}</max-size-bytes>"
         "</address-setting></address-settings></core>")),
    ],
)  # fmt: skip
def test_a_property_of_the_broker_is_no_value_that_is_wrong(tmp_path: Path, name: str, text: str) -> None:
    """Its value is put in as the broker starts, and nobody here knows it. Mutant: it is called nonsense."""
    (tmp_path / name).write_text(
        text.replace("<policyEntry", "<destinationPolicy><policyMap><policyEntries><policyEntry").replace(
            "/></broker>", "/></policyEntries></policyMap></destinationPolicy></broker>"
        )
    )
    imported = READERS["activemq" if name == "activemq.xml" else "artemis"]([tmp_path / name])
    (why, *_) = [row.why for row in imported.rows if not row.ours]
    assert "a property" in why
    assert "write its value there" in why
