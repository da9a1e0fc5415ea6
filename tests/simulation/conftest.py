"""One real server behind all worlds of a process, and a shortest history for what fails."""

from collections.abc import Iterator

import pytest

from tests.simulation.server import CONFIG, Backing
from tests.support.servers import newest_server


@pytest.fixture(scope="session")
def backing() -> Iterator[Backing]:
    with newest_server().start(config=CONFIG) as server:
        backing = Backing(str(server.directory / "redis.sock"))
        yield backing
        backing.close()
