"""Deployments whose master may be lost: a pair at one address, and a cluster."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from headgate.redis import handover
from tests.faults.deployments import Replicated, is_linked, replicated
from tests.faults.traffic import GUARD
from tests.links.forwarding.test_failovers import AT_ONCE, Pair, replica_of
from tests.support.servers import RedisServer
from tests.support.waiting import wait_for


@pytest.fixture
def pair() -> Iterator[Pair]:
    """A master and its replica, that has all it has."""
    with ExitStack() as stack:
        primary = stack.enter_context(RedisServer.start(port=0, persist=False, config=AT_ONCE))
        pair = Pair(primary, stack.enter_context(replica_of(primary)))
        wait_for(lambda: is_linked(pair.replica), timeout=GUARD)
        yield pair


@pytest.fixture
def cluster() -> Iterator[Replicated]:
    """Three masters, each with a replica."""
    with replicated() as deployment:
        yield deployment


@pytest.fixture
def sure_of_the_former(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is, the master of before is waited for."""
    monkeypatch.setattr(handover, "PATIENCE", GUARD)
