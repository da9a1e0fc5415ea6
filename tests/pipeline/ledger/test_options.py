"""Options of the source, and who may read."""

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.types import StructType

from headgate import AccessDenied, CoordinatorUnavailable, HeadgateError, InvalidValue
from headgate_coordinator.security.acl import acl_line
from headgate_pipeline.ledger import redis_ledgers as ledgers
from headgate_pipeline.ledger.redis_ledgers import Ledgers
from headgate_pipeline.ledger.schema import ENTRY
from headgate_pipeline.ledger.spark_source import LedgerSource, Options
from tests.pipeline.ledgers_of import Writer
from tests.support.servers import RedisServer


@pytest.fixture
def writer(redis_url: str, namespace: str) -> Iterator[Writer]:
    writer = Writer(redis_url, namespace)
    yield writer
    writer.clear()
    ledgers.disconnect()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "which Redis"),
        ({"url": "redis://h", "urlFile": "x"}, "which Redis"),
        ({"url": "redis://h", "path": "x"}, "option 'path' is unknown"),
        ({"url": "redis://h", "maxRows": "0"}, "option maxRows is '0'"),
        ({"url": "redis://h", "maxRows": "-1"}, "option maxRows is '-1'"),
        ({"url": "redis://h", "namespace": "A"}, "namespace 'A'"),
        ({"url": "redis://h", "destination": "a.#.b"}, "can only be the last word"),
    ],
)
def test_options_that_are_wrong(given: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADGATE_URL", raising=False)
    with pytest.raises(HeadgateError, match=message):
        LedgerSource(given)


@pytest.mark.one_server
def test_where_the_url_comes_from(writer: Writer, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    writer.add("orders", 1)
    monkeypatch.setenv("HEADGATE_URL", writer.url)
    assert Options.of({}).ledgers().find("#") == []
    assert Options.of({"NAMESPACE": writer.namespace}).ledgers().find("#") == ["orders"]
    (tmp_path / "url").write_text(f"{writer.url}\n")
    of_file = Options.of({"urlFile": str(tmp_path / "url"), "namespace": writer.namespace})
    assert of_file.url is None
    assert of_file.ledgers().find("#") == ["orders"]
    with pytest.raises(InvalidValue, match="cannot be read: No such file"):
        Options.of({"urlFile": str(tmp_path / "other")}).ledgers()


def test_no_password_is_shown() -> None:
    """Mutant: the URL is part of the text of the options."""
    checked = Options.of({"url": "redis://u:geheim@127.0.0.1:1/0"})
    assert "geheim" not in repr(checked)
    with pytest.raises(CoordinatorUnavailable) as caught:
        checked.ledgers()
    assert "geheim" not in str(caught.value)
    assert "redis://u:***@127.0.0.1:1" in str(caught.value)
    assert caught.value.__cause__ is None


def test_who_may_look_may_read(namespace: str) -> None:
    """With the user of the role `metrics`; a refusal says so. Mutant: bounds by XINFO STREAM."""
    line = acl_line("metrics", namespace, user="ann", password="pw")
    with RedisServer.start(port=0, persist=False) as server:
        owner = Writer(server.url, namespace)
        owner.add("orders", 400)
        owner.direct.primaries()[0].execute_command("ACL", "SETUSER", *line.split()[1:])  # type: ignore[no-untyped-call]
        guest = Writer(server.url.replace("redis://", "redis://ann:pw@"), namespace)
        assert sum(part.num_rows for part in Ledgers(guest.direct, namespace).read("orders", 1, 400)) == 400
        assert Ledgers(guest.direct, namespace).find("#") == ["orders"]
        with pytest.raises(AccessDenied, match=r"redis://ann:\*\*\*@.* refused: .*xtrim"):
            Ledgers(guest.direct, namespace).trim({"orders": {"epoch": 7, "seq": 400}})
        owner.clear()
        guest.direct.close()


def test_columns_are_not_to_be_chosen() -> None:
    source = LedgerSource({"url": "redis://h"})
    assert source.schema() == ENTRY
    with pytest.raises(InvalidValue, match="columns of its own"):
        source.reader(StructType())
