"""`headgate import ems`: each setting is kept or reported, none is dropped, hostile files end with one error."""

import asyncio
from pathlib import Path

import pytest
from typer.testing import CliRunner

import headgate
from headgate import policy as documents
from headgate.brokers import DIFFERS, KEPT, NOT_COVERED, words
from headgate.errors import InvalidValue
from headgate_coordinator.cli.commands import command_line
from headgate_coordinator.imports.ems.files import read
from headgate_coordinator.imports.report import Imported
from headgate_coordinator.policy.lint import lint
from tests.support.servers import newest_server
from tests.support.shared import SharedServers

SAMPLES = {
    "flowControl": "60MB", "maxbytes": "1GB", "maxmsgs": "500", "overflowPolicy": "rejectIncoming", "prefetch": "10",
    "maxRedelivery": "5", "redeliveryDelay": "20sec", "expiration": "10min", "failsafe": "",
}  # fmt: skip
"""A value of each property that becomes a setting of ours, but for channels."""


def of(tmp_path: Path, **texts: str) -> Imported:
    files = [tmp_path / f"{name}.conf" for name in texts]
    for file, text in zip(files, texts.values(), strict=True):
        file.write_text(text)
    return read(files)


def value(imported: Imported, name: str, field: str, kind: str = "queue") -> str:
    return documents.loads(imported.document).resolve(name, kind).fields.get(field, "")


async def test_flow_control_holds_as_the_document_says_while_somebody_consumes(
    tmp_path: Path, cleanup_namespace: str, shared_servers: SharedServers
) -> None:
    imported = of(tmp_path, tibemsd="flow_control = enabled\n", queues="foo flowControl=100KB,prefetch=none\n")
    assert [row.verdict for row in imported.rows] == [KEPT] * 4
    policy = documents.loads(imported.document)
    assert not lint(policy)
    async with headgate.connect(shared_servers.standalone(newest_server()), namespace=cleanup_namespace) as client:
        await client.apply_policy(policy)
        async with client.session("s") as session:
            sender = await session.producer("foo", kind="queue", timeout=2)
            await sender.send(bytes(60_000), timeout=60)
            await sender.send(bytes(60_000))  # nobody consumes
            consumer = await session.consumer("foo")
            with pytest.raises(headgate.CreditTimeout):
                await sender.send(bytes(60_000))
            for _ in range(2):
                message = await asyncio.wait_for(consumer.receive(), 60)
                assert message is not None
                await message.accept()
            await sender.send(bytes(60_000), timeout=60)


def test_every_known_property_is_reported_and_makes_a_policy_that_lints_clean(tmp_path: Path) -> None:
    for name, word in words("ems")["destination"].items():
        if name == "channel":
            continue
        imported = of(tmp_path, tibemsd="flow_control = enabled\n", queues=f"a.> {name}={SAMPLES.get(name, '')}\n")
        row = imported.rows[-1]
        assert not lint(documents.loads(imported.document)), name
        assert row.setting == f"destination.{name}"
        assert bool(row.ours) == bool(word.ours), row
        assert row.verdict == KEPT or row.why, row
    for group in ("tibemsd", "area"):
        for name in words("ems")[group]:
            imported = of(tmp_path, tibemsd=f"{name}x = 1\n" if name.endswith("_") else f"{name} = enabled\n")
            assert len(imported.rows) == 1, name
            documents.loads(imported.document)


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        ("a flowControl", {"limit_bytes": "256000", "when_full": "block", "enforce": "with-consumers"}),
        ("a flowControl=0", {"limit_bytes": "unlimited"}),
        ("a maxbytes=1MB", {"limit_bytes": "1000000", "when_full": "fail", "enforce": "always"}),
        ("a flowControl=1MB maxbytes=2MB", {"limit_bytes": "1000000", "hard_bytes": "2000000", "when_full": "block"}),
        ("a maxbytes=2MB,flowControl=1MB", {"limit_bytes": "1000000", "hard_bytes": "2000000", "when_full": "block"}),
        ("a maxmsgs = 7", {"limit_messages": "7", "when_full": "fail"}),
        ("a prefetch=none", {"consumer_window": "pull"}),
        ("a prefetch=0", {"consumer_window": "5/unlimited"}),
        ("a redeliveryDelay=2min", {"retry_delay_ms": "120000"}),
        ("a failsafe", {"durability": "fsync"}),
    ],
)
def test_a_property_means_what_it_means_there(tmp_path: Path, line: str, fields: dict[str, str]) -> None:
    imported = of(tmp_path, tibemsd="flow_control = enabled\n", queues=f"{line}\n")
    assert {field: value(imported, "a", field) for field in fields} == fields
    assert not lint(documents.loads(imported.document))


@pytest.mark.parametrize(
    "line",
    [
        "a flowControl=lots",
        "a maxmsgs=-1",
        "a prefetch=many",
        "a expiration=soon",
        "a overflowPolicy=discardOld",
        "a made=1",
    ],
)
def test_no_sense_is_reported_and_sets_nothing(tmp_path: Path, line: str) -> None:
    imported = of(tmp_path, queues=f"{line}\n")
    assert imported.rows[-1].verdict == NOT_COVERED
    assert imported.rows[-1].why
    assert imported.document == of(tmp_path, queues="a\n").document


def test_flow_control_that_is_off_there_limits_nobody_here(tmp_path: Path) -> None:
    imported = of(tmp_path, queues="a flowControl=1MB\nb maxbytes=1MB\n", tibemsd="server = a\n")
    assert (value(imported, "a", "limit_bytes"), value(imported, "b", "limit_bytes")) == ("unlimited", "1000000")
    (row,) = [row for row in imported.rows if row.setting == "destination.flowControl"]
    assert row.verdict == NOT_COVERED


def test_bridges_and_channels(tmp_path: Path) -> None:
    imported = of(
        tmp_path,
        channels="[quotes]\n address = 239.1.2.3:7000\n maxrate=10MB\n ttl=4\n priority=1\n[unused]\n ttl=2\n",
        topics="prices channel=quotes\nnews.* channel=quotes,expiration=1hour\n",
        bridges="[queue:orders]\n topic=audit selector=\"region = 'EU, it''s'\"\n queue=copy\n[topic:a.>]\n queue=x\n",
        users='admin:secret:"an admin"\n',
        routes="[other]\n url = tcp://other:7222\n ssl_password = secret\n",
        durables="prices sub route\n",
    )
    policy = documents.loads(imported.document)
    (channel,) = policy.channels
    assert (channel.name, channel.group, channel.port, channel.ttl) == ("quotes", "239.1.2.3", 7000, 4)
    links = {link.name: link.as_dict() for link in policy.links}
    assert set(links) == {"orders to audit", "orders to copy"}
    assert links["orders to audit"]["selector"].replace(" ", "") == "region='EU,it''s'"
    assert all(link["copies"] for link in links.values())
    assert "secret" not in str(imported)
    verdicts = {(row.file, row.setting, row.value): row.verdict for row in imported.rows}
    assert verdicts["topics.conf", "destination.expiration", "1hour"] == DIFFERS
    assert verdicts["bridges.conf", "bridge.target", "queue=x"] == NOT_COVERED
    assert verdicts["channels.conf", "channel.name", "unused"] == NOT_COVERED
    assert {row.file for row in imported.rows} >= {"users.conf", "routes.conf", "durables.conf"}


def test_files_are_what_their_server_calls_them_or_begin_with_a_name_of_ems(tmp_path: Path) -> None:
    """Mutants: only usual names are taken; what tibemsd.conf calls a file is not looked up."""
    texts = {
        "tibemsdft-1.conf": 'queues = "/etc/ems/prod.conf"\nacl_list = who.conf\n',
        "prod.conf": "a prefetch=7\n", "queuesroute1.conf": "b prefetch=8\n", "topics_eu.conf": "c prefetch=9\n",
        "who.conf": "QUEUE=a USER=u PERM=send\n",
    }  # fmt: skip
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    imported = read([tmp_path / name for name in texts])
    policy = documents.loads(imported.document)
    for name, kind, window in (("a", "queue", "7"), ("b", "queue", "8"), ("c", "topic", "9")):
        assert policy.resolve(name, kind).fields["consumer_window"].startswith(f"{window}/")
    assert {row.file for row in imported.rows} == set(texts)
    with pytest.raises(InvalidValue, match=r"prod\.conf:1: no file of EMS is called so"):
        read([tmp_path / "prod.conf"])


def test_a_queue_and_a_topic_of_one_name_are_said_to_be_two(tmp_path: Path) -> None:
    """Mutants: the topic's rule stays, which no policy takes; a bridge from the topic takes from the queue."""
    texts = {
        "queues.conf": "sample prefetch=7\nother\n", "topics.conf": "sample expiration=5sec\nnews\n",
        "bridges.conf": "[topic:sample]\n  queue=other\n[topic:news]\n  queue=other\n",
    }  # fmt: skip
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    imported = read([tmp_path / name for name in texts])
    policy = documents.loads(imported.document)
    assert not lint(policy)
    assert policy.resolve("sample").kind == "queue"
    assert [link.as_dict()["from"] for link in policy.links] == ["news"]
    lost = {(row.file, row.line) for row in imported.rows if "is a queue and a topic there" in row.why}
    assert lost == {("topics.conf", 1), ("bridges.conf", 2)}
    assert all(row.verdict == NOT_COVERED and not row.ours for row in imported.rows if (row.file, row.line) in lost)


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("made-up.conf", b"a\n", "made-up.conf:1: no file of EMS is called so"),
        ("queues.conf", b"\xff\xfe", "queues.conf:1: not UTF-8 at byte 0"),
        ("queues.conf", b"#\n" * 100_001, "queues.conf:100000: more than 100,000 lines"),
        ("queues.conf", b"a" * 20_000, "queues.conf:1: more than 16,384 characters"),
        ("queues.conf", b" " * (4 << 20) + b"\n", "queues.conf:1: more than 4 MiB"),
    ],
    ids=["name", "encoding", "lines", "line", "size"],
)
def test_a_file_of_no_good_ends_with_one_error_that_names_its_line(
    tmp_path: Path, name: str, text: bytes, error: str
) -> None:
    (tmp_path / name).write_bytes(text)
    with pytest.raises(InvalidValue) as raised:
        read([tmp_path / name])
    assert str(raised.value).startswith(error)


def test_a_value_beyond_what_there_is_names_the_line_that_it_comes_from(tmp_path: Path) -> None:
    (tmp_path / "queues.conf").write_text("a\nb expiration=999999999day\n")
    done = CliRunner().invoke(command_line(), ["import", "ems", str(tmp_path / "queues.conf")])
    assert isinstance(done.exception, InvalidValue)
    assert str(done.exception).startswith("queues.conf:2: ")
