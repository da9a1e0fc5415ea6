"""Reading from a destination that spools: rows have payloads, whichever way they are read."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import headgate.sync
from headgate_pipeline.exchange.browse import BrowseReader
from headgate_pipeline.exchange.intake import Intake
from headgate_pipeline.exchange.messages import batches_of
from headgate_pipeline.exchange.options import Options
from headgate_pipeline.exchange.stream import StreamReader
from tests.support.servers import newest_server
from tests.support.shared import SharedServers
from tests.support.spooled import body, fill, spooling

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(300)]
COUNT = 60


@pytest.fixture
def said(shared_servers: SharedServers, cleanup_namespace: str, tmp_path: Path) -> dict[str, str]:
    """Options of a destination with 60 messages, most of them spooled."""
    url = shared_servers.standalone(newest_server())
    with headgate.sync.connect(url, namespace=cleanup_namespace) as client:
        client._thread.run(spooling(client._inner, tmp_path))
        assert client._thread.run(fill(client._inner, COUNT)) > COUNT // 2
    return {"url": url, "namespace": cleanup_namespace, "destination": "orders", "ttl": "1", "idle": "0.3"}


def bodies(batches: Iterator[Any]) -> list[bytes]:
    return [found for batch in batches for found in batch.column("body").to_pylist()]


def test_a_look_shows_payloads(said: dict[str, str]) -> None:
    """Breaks when a row has what stands for a payload."""
    look = BrowseReader(Options.of(said))
    found = [row for part in look.partitions() for row in bodies(look.read(part))]
    assert found == [body(n) for n in range(COUNT)]


def test_a_stream_reads_payloads(said: dict[str, str]) -> None:
    reader = StreamReader(Options.of(said | {"window": "100"}))
    start = reader.initialOffset()
    end = {"batch": 1, "numbers": f"1-{COUNT}"}
    found = [row for part in reader.partitions(start, end) for row in bodies(reader.read(part))]
    reader.stop()
    assert sorted(found) == [body(n) for n in range(COUNT)]


def test_what_is_drained_are_payloads(said: dict[str, str]) -> None:
    intake = Intake(Options.of(said | {"window": "100"}))
    taken = set(intake.fresh(most=COUNT, wait=5))
    while more := intake.fresh(most=COUNT, wait=0.5):
        taken.update(more)
    assert bodies(batches_of(intake.batch(taken, patience=0))) == [body(n) for n in range(COUNT)]
    intake.settle(taken)
    intake.close()
