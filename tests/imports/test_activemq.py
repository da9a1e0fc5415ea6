"""`headgate import activemq`: each setting is kept or reported, none is dropped."""

from pathlib import Path

import pytest

import headgate
from headgate import policy as documents
from headgate.brokers import DIFFERS, KEPT, NOT_COVERED, words
from headgate.errors import InvalidValue
from headgate_coordinator.imports.activemq.broker import read
from headgate_coordinator.imports.report import Imported, SettingReport
from headgate_coordinator.policy.lint import lint
from tests.support.servers import newest_server
from tests.support.shared import SharedServers

SAMPLES = {
    "memoryLimit": "1 mb", "producerFlowControl": "false", "queuePrefetch": "10", "queueBrowserPrefetch": "50",
    "sendFailIfNoSpace": "true", "sendFailIfNoSpaceAfterTimeout": "3000", "prioritizedMessages": "true",
    "advisoryForSlowConsumers": "true",
}  # fmt: skip


def of(tmp_path: Path, inside: str) -> Imported:
    file = tmp_path / "activemq.xml"
    file.write_text(f'<beans><broker xmlns="http://activemq.apache.org/schema/core">{inside}</broker></beans>')
    return read([file])


def entry(tmp_path: Path, text: str, parts: str = "") -> tuple[Imported, list[SettingReport]]:
    policies = f"<policyMap><policyEntries><policyEntry {text}>{parts}</policyEntry></policyEntries></policyMap>"
    imported = of(tmp_path, f"<destinationPolicy>{policies}</destinationPolicy>")
    return imported, list(imported.rows)


def fields(imported: Imported, name: str, kind: str = "queue") -> dict[str, str]:
    return dict(documents.loads(imported.document).resolve(name, kind).fields)


async def test_the_page_s_example_keeps_each_queue_to_its_megabyte(
    tmp_path: Path, cleanup_namespace: str, shared_servers: SharedServers
) -> None:
    imported, rows = entry(
        tmp_path,
        'queue="&gt;" producerFlowControl="true" memoryLimit="1mb"',
        "<pendingQueuePolicy><vmQueueCursor/></pendingQueuePolicy>",
    )
    assert [row.verdict for row in rows] == [KEPT] * 4
    policy = documents.loads(imported.document)
    assert not lint(policy)
    async with headgate.connect(shared_servers.standalone(newest_server()), namespace=cleanup_namespace) as client:
        await client.apply_policy(policy)
        async with client.session("s") as session:
            for name in ("a", "b.c"):
                sender = await session.producer(name, kind="queue", timeout=2)
                await sender.send(bytes(600_000), timeout=60)
                with pytest.raises(headgate.CreditTimeout):
                    await sender.send(bytes(600_000))


def test_every_known_setting_is_reported_and_makes_a_policy_that_lints_clean(tmp_path: Path) -> None:
    for name, word in words("activemq")["policyEntry"].items():
        if name in ("queue", "topic"):
            continue
        kind = "topic" if "opic" in name else "queue"
        imported, rows = entry(tmp_path, f'{kind}="a.&gt;" {name}="{SAMPLES.get(name, "1")}"')
        assert not lint(documents.loads(imported.document)), name
        assert bool(rows[-1].ours) == bool(word.ours), rows[-1]
        assert rows[-1].verdict == KEPT or rows[-1].why, rows[-1]
    for name in words("activemq")["inside"]:
        imported, rows = entry(tmp_path, 'queue="orders"', f"<policy><{name}/></policy>")
        assert rows[-1].setting == f"inside.{name}"
        assert not lint(documents.loads(imported.document)), name
    for name in words("activemq")["area"]:
        assert len(of(tmp_path, f'<{name} a="1" password="secret"/>').rows) == 2, name


def test_a_pattern_takes_the_name_in_front_of_it(tmp_path: Path) -> None:
    imported, _ = entry(tmp_path, 'queue="FOO.&gt;" memoryLimit="1mb"')
    assert fields(imported, "FOO")["limit_bytes"] == fields(imported, "FOO.a.b")["limit_bytes"] == str(1 << 20)
    assert fields(imported, "BAR")["limit_bytes"] == "unlimited"
    _, rows = entry(tmp_path, 'queue="A.&gt;.B" memoryLimit="1mb"')
    assert {row.verdict for row in rows} == {NOT_COVERED}


def test_a_name_that_is_two_takes_no_other_setting_of_its_line_with_it(tmp_path: Path) -> None:
    """All may be on one line. Mutant: what is not covered is found by its line alone."""
    policies = "".join(
        f'<policyEntry {kind}="{name}" memoryLimit="{mb}mb"/>'
        for kind, name, mb in (("queue", "a", 1), ("topic", "a", 2), ("queue", "b", 3), ("topic", "c", 4))
    )
    text = f"<policyMap><policyEntries>{policies}</policyEntries></policyMap>"
    imported = of(tmp_path, f"<destinationPolicy>{text}</destinationPolicy>")
    assert not lint(documents.loads(imported.document))
    lost = [(row.setting, row.value) for row in imported.rows if "is a queue and a topic there" in row.why]
    assert lost == [("policyEntry.topic", "a"), ("policyEntry.memoryLimit", "2mb")]
    assert [fields(imported, name)["limit_bytes"] for name in ("a", "b")] == ["1048576", "3145728"]
    assert fields(imported, "c", "topic")["limit_bytes"] == "4194304"


def test_system_usage_redelivery_and_what_is_there_at_the_start(tmp_path: Path) -> None:
    imported = of(
        tmp_path,
        """<systemUsage><systemUsage sendFailIfNoSpaceAfterTimeout="3000">
          <memoryUsage><memoryUsage limit="20 mb"/></memoryUsage>
          <storeUsage><storeUsage percentLimit="70" total="100 gb"/></storeUsage>
          <tempUsage><tempUsage percentLimit="50"/></tempUsage>
        </systemUsage></systemUsage>
        <plugins><redeliveryPlugin><redeliveryPolicyMap><redeliveryPolicyEntries>
          <redeliveryPolicy queue="FOO.&gt;" maximumRedeliveries="4" initialRedeliveryDelay="5000"
            useExponentialBackOff="true" backOffMultiplier="2" maximumRedeliveryDelay="60000"/>
        </redeliveryPolicyEntries></redeliveryPolicyMap></redeliveryPlugin></plugins>
        <networkConnectors><networkConnector uri="static:(tcp://u:secret@b:1)" password="secret"/></networkConnectors>
        <destinations><queue physicalName="orders"/><topic physicalName="a.*"/></destinations>""",
    )
    policy = documents.loads(imported.document)
    assert {pool.name: pool.fields.get("limit_bytes") for pool in policy.pools}["memory"] == str(20 << 20)
    there = fields(imported, "FOO.a")
    assert (there["max_attempts"], there["retry_delay_ms"], there["when_full"]) == ("5", "5000", "fail-after 3s")
    assert "secret" not in str(imported)
    verdicts = {(row.setting, row.value): row.verdict for row in imported.rows}
    assert verdicts["systemUsage.storeUsage", "percentLimit=70 total=100 gb"] == DIFFERS
    assert verdicts["systemUsage.tempUsage", "percentLimit=50"] == NOT_COVERED
    assert verdicts["destinations.queue", "orders"] == KEPT
    assert verdicts["destinations.topic", "a.*"] == NOT_COVERED


@pytest.mark.parametrize(
    "text", ['memoryLimit="lots"', 'queuePrefetch="-1"', 'producerFlowControl="maybe"', 'made="1"']
)
def test_no_sense_is_reported_and_sets_nothing(tmp_path: Path, text: str) -> None:
    imported, rows = entry(tmp_path, f'queue="a" {text}')
    assert rows[-1].verdict == NOT_COVERED
    assert rows[-1].why
    assert imported.document == entry(tmp_path, 'queue="a"')[0].document


def test_a_pattern_of_redelivery_that_no_rule_can_have_is_reported(tmp_path: Path) -> None:
    policy = '<redeliveryPolicy queue="A.&gt;.B" maximumRedeliveries="4"/>'
    imported = of(tmp_path, f"<plugins><redeliveryPlugin>{policy}</redeliveryPlugin></plugins>")
    assert [row.verdict for row in imported.rows] == [NOT_COVERED] * 2
    assert not lint(documents.loads(imported.document))


def test_a_file_without_a_broker_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "activemq.xml"
    file.write_text("<configuration/>")
    with pytest.raises(InvalidValue, match=r"activemq\.xml:1: <configuration> has no <broker>"):
        read([file])
