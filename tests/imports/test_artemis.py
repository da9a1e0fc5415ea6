"""`headgate import artemis`: each setting is kept or reported, none is dropped, hostile files end with one error."""

import json
from pathlib import Path
from xml.sax.saxutils import quoteattr

import pytest
from typer.testing import CliRunner, Result

import headgate
from headgate import policy as documents
from headgate.brokers import DIFFERS, KEPT, NOT_COVERED, words
from headgate.errors import InvalidValue
from headgate_coordinator.cli.commands import command_line
from headgate_coordinator.imports.artemis.broker import read
from headgate_coordinator.imports.report import Imported, SettingReport
from headgate_coordinator.policy.lint import lint
from tests.docs.imports_page import PRODUCTS, page
from tests.support.servers import newest_server
from tests.support.shared import SharedServers

EXAMPLE = """
  <address-settings>
    <address-setting match="jms.queue.exampleQueue">
      <max-size-bytes>100000</max-size-bytes>
      <address-full-policy>BLOCK</address-full-policy>
    </address-setting>
  </address-settings>
"""
SAMPLES = {
    "max-size-bytes": "10M", "max-size-messages": "500", "max-size-bytes-reject-threshold": "12M",
    "address-full-policy": "PAGE",
    "page-size-bytes": "1M", "page-limit-bytes": "1G", "page-full-policy": "FAIL", "dead-letter-address": "DLQ.all",
    "max-delivery-attempts": "3", "expiry-delay": "60000", "max-expiry-delay": "90000", "slow-consumer-threshold": "30",
    "slow-consumer-threshold-measurement-unit": "MESSAGES_PER_MINUTE", "slow-consumer-policy": "KILL",
    "slow-consumer-check-period": "10", "default-consumer-window-size": "64K",
    "default-address-routing-type": "ANYCAST",
    "default-queue-routing-type": "ANYCAST", "redelivery-delay": "1000", "redelivery-delay-multiplier": "2",
    "max-redelivery-delay": "60000", "global-max-size": "100M",
}  # fmt: skip
"""A value of each setting that becomes one of ours."""


def of(tmp_path: Path, core: str, name: str = "broker.xml") -> Imported:
    file = tmp_path / name
    file.write_text(
        f'<configuration xmlns="urn:activemq"><core xmlns="urn:activemq:core">{core}</core></configuration>'
    )
    return read([file])


def of_address(tmp_path: Path, inside: str) -> Imported:
    rule = f'<address-setting match="a.#">{inside}</address-setting>'
    return of(tmp_path, f"<address-settings>{rule}</address-settings>")


def setting(tmp_path: Path, name: str, value: str) -> tuple[Imported, SettingReport]:
    imported = of_address(tmp_path, f"<{name}>{value}</{name}>")
    return imported, imported.rows[-1]


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(command_line(), ["import", "artemis", *map(str, arguments)])


async def test_the_manual_s_example_blocks_where_the_manual_says(
    tmp_path: Path, cleanup_namespace: str, shared_servers: SharedServers
) -> None:
    imported = of(tmp_path, EXAMPLE)
    assert [row.verdict for row in imported.rows] == [KEPT] * 3
    assert [row.line for row in imported.rows] == [3, 4, 5]
    policy = documents.loads(imported.document)
    assert not lint(policy)
    async with headgate.connect(shared_servers.standalone(newest_server()), namespace=cleanup_namespace) as client:
        await client.apply_policy(policy)
        async with client.session("s") as session:
            sender = await session.producer("jms.queue.exampleQueue", kind="queue", timeout=2)
            await sender.send(bytes(60_000), timeout=60)
            with pytest.raises(headgate.CreditTimeout):
                await sender.send(bytes(60_000))


@pytest.mark.parametrize("group", ["address-setting", "core", "area", "url"])
def test_every_setting_that_is_known_is_reported_once_and_makes_a_policy_that_lints_clean(
    tmp_path: Path, group: str
) -> None:
    for name, word in words("artemis")[group].items():
        if name == "match":
            continue
        value = SAMPLES.get(name, "1")
        if group == "address-setting":
            imported, row = setting(tmp_path, name, value)
        elif group in ("core", "area"):
            word_of = name + ("x" if name.endswith("-") else "")
            imported = of(tmp_path, f"<{word_of}>{value}</{word_of}>")
            row = imported.rows[-1]
        else:
            imported = of(tmp_path, f"<acceptors><acceptor>tcp://h:1?{name}={value}</acceptor></acceptors>")
            row = imported.rows[-1]
        assert not lint(documents.loads(imported.document)), name
        assert bool(row.ours) == bool(word.ours) or row.why, name
        assert row.setting.endswith(name.rstrip("-")) or group == "area", row
        if row.verdict != KEPT:
            assert row.why, name


def test_all_settings_of_one_address_together_make_one_rule(tmp_path: Path) -> None:
    inside = "".join(f"<{name}>{value}</{name}>" for name, value in SAMPLES.items())
    imported = of(
        tmp_path, f'<address-settings><address-setting match="a.#">{inside}</address-setting></address-settings>'
    )
    resolved = documents.loads(imported.document).resolve("a.b", "queue").fields
    for field, value in {
        "limit_bytes": str(10 << 20), "limit_messages": "500", "hard_bytes": str(12 << 20), "when_full": "spool",
        "max_attempts": "3", "message_ttl_ms": "60000", "slow_rate": "0.5", "slow_action": "detach",
        "slow_period_ms": "10000",
    }.items():  # fmt: skip
        assert resolved[field] == value, field
    assert len(imported.rows) == 1 + len(SAMPLES)
    assert not lint(documents.loads(imported.document))


@pytest.mark.parametrize(
    ("name", "value", "verdict", "ours"),
    [
        ("max-size-bytes", "-1", KEPT, "limit.bytes = unlimited"),
        ("max-size-bytes", "0", NOT_COVERED, ""),
        ("max-size-bytes", "a lot", NOT_COVERED, ""),
        ("max-size-bytes", "9" * 400, NOT_COVERED, ""),
        ("default-consumer-window-size", "0", KEPT, "consumer.window = pull"),
        ("default-consumer-window-size", "-1", KEPT, "consumer.window = unlimited"),
        ("max-delivery-attempts", "-1", KEPT, 'max_attempts = "default", which is no bound'),
        ("slow-consumer-threshold", "-1", KEPT, "no consumer.slow"),
        ("expiry-delay", "-1", DIFFERS, "no message_ttl"),
        ("max-redelivery-delay", "5000", NOT_COVERED, ""),
        ("redelivery-delay-multiplier", "nan", NOT_COVERED, ""),
        ("address-full-policy", "block", NOT_COVERED, ""),
        ("made-up", "1", NOT_COVERED, ""),
    ],
)
def test_what_a_value_means_there_is_what_is_kept(
    tmp_path: Path, name: str, value: str, verdict: str, ours: str
) -> None:
    imported, row = setting(tmp_path, name, value)
    assert (row.verdict, row.ours) == (verdict, ours)
    assert not lint(documents.loads(imported.document))


def test_addresses_bridges_and_diverts(tmp_path: Path) -> None:
    imported = of(
        tmp_path,
        """<global-max-size>100M</global-max-size>
        <connectors><connector name="c">tcp://other:61616?sslPassword=secret</connector></connectors>
        <addresses>
          <address name="orders"><anycast><queue name="orders"/></anycast></address>
          <address name="news"><multicast>
            <queue name="audit" max-consumers="1"><filter string="a = 1"/></queue>
          </multicast></address>
          <address name="both"><multicast/><anycast/></address>
          <address name="a.*"/>
        </addresses>
        <bridges><bridge name="b"><queue-name>orders</queue-name><forwarding-address>billing</forwarding-address>
          <filter string="region = 'EU'"/><password>secret</password>
          <static-connectors><connector-ref>c</connector-ref></static-connectors></bridge></bridges>
        <diverts>
          <divert name="d"><address>news</address><forwarding-address>spy</forwarding-address></divert>
        </diverts>""",
    )
    policy = documents.loads(imported.document)
    assert {(rule.match, rule.kind) for rule in policy.rules} == {("#", None), ("orders", "queue"), ("news", "topic")}
    links = {link.name: link.as_dict() for link in policy.links}
    assert (links["b"]["from"], links["b"]["selector"]) == ("orders", "region = 'EU'")
    assert set(links) == {"b", "d"}
    assert [pool.fields["limit_bytes"] for pool in policy.pools] == [str(100 << 20)]
    assert "secret" not in str(imported)
    verdicts = {(row.setting, row.value): row.verdict for row in imported.rows}
    assert verdicts["address.name", "both"] == verdicts["address.name", "a.*"] == NOT_COVERED
    assert verdicts["address.queue", "audit"] == DIFFERS
    assert verdicts["queue.max-consumers", "1"] == NOT_COVERED


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "broker.xml:1: is not XML: no element found"),
        ("<a>\n<b></a>", "broker.xml:2: is not XML: mismatched tag"),
        ("<!DOCTYPE a [<!ENTITY b 'c'>]>\n<a>&b;</a>", "broker.xml:1: a document type"),
        ("<a>&b;</a>", "broker.xml:1: is not XML: undefined entity"),
        ("<beans/>", "broker.xml:1: <beans> holds no settings of Artemis"),
        ("<?xml version='1.0' encoding='made-up'?><core/>", "broker.xml:1: is not XML"),
        (f"<core>{'<a>' * 100}", "broker.xml:1: more than 100,000 elements, or 64"),
        (f"<core>{'<a/>' * 100_001}</core>", "broker.xml:1: more than 100,000 elements"),
        (f"<core>{' ' * (4 << 20)}</core>", "broker.xml:1: more than 4 MiB"),
    ],
)  # fmt: skip
def test_a_file_of_no_good_ends_with_one_error_that_names_its_line(tmp_path: Path, text: str, error: str) -> None:
    file = tmp_path / "broker.xml"
    file.write_text(text)
    with pytest.raises(InvalidValue) as raised:
        read([file])
    assert str(raised.value).startswith(error)


def test_names_of_others_make_no_other_document(tmp_path: Path) -> None:
    for match in ('a"b', "a\nlimit = 1\n", "a'''", "ü.#", "a\\"):
        rule = f"<address-setting match={quoteattr(match)}><max-size-bytes>7M</max-size-bytes></address-setting>"
        core = f"<address-settings>{rule}</address-settings>"
        imported = of(tmp_path, core, name="x\n[[destination]].xml")
        assert len(documents.loads(imported.document).rules) <= 2, match
        assert len(imported.rows) == 2


def test_the_command_writes_a_policy_and_says_what_became_of_each_setting(tmp_path: Path) -> None:
    of(tmp_path, EXAMPLE)
    source, target = tmp_path / "broker.xml", tmp_path / "shop.toml"
    done = invoke(source, "--output", target)
    assert done.exit_code == 0
    assert "broker.xml:4: kept: address-setting.max-size-bytes = '100000' -> limit.bytes = 100000" in done.output
    assert done.output.splitlines()[-1] == "3 settings: 3 kept exactly, 0 kept with a difference, 0 not covered"
    documents.load(target)
    assert isinstance(invoke(source, "--output", target).exception, InvalidValue)
    assert documents.loads(invoke(source).stdout) is not None
    assert [row["verdict"] for row in json.loads(invoke(source, "--json").stdout)["rows"]] == [KEPT] * 3
    assert isinstance(invoke(tmp_path / "none.xml").exception, InvalidValue)


def test_check_compares_with_what_is_in_force(
    tmp_path: Path, cleanup_namespace: str, shared_servers: SharedServers
) -> None:
    of(tmp_path, EXAMPLE)
    target, url = tmp_path / "shop.toml", shared_servers.standalone(newest_server())
    where = ("--redis", url, "--namespace", cleanup_namespace)
    assert invoke(tmp_path / "broker.xml", "--check", *where, "--output", target).exit_code == 1
    assert CliRunner().invoke(command_line(), ["policy", "apply", str(target), *where]).exit_code == 0
    assert invoke(tmp_path / "broker.xml", "--check", *where).exit_code == 0


@pytest.mark.parametrize("product", PRODUCTS)
def test_the_page_has_the_table_of_the_settings(product: str) -> None:
    written = (Path(__file__).parents[2] / "docs" / f"from-{product}.md").read_text(encoding="utf-8")
    assert written == page(product), "run python -m tests.docs.imports_page"
