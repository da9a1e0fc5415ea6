"""Servers for the tests, and the rule that no test leaves a key behind.

A test that takes `redis_url` runs on the oldest Redis of this machine or on the newest, as `tests.support.extent`
says; marked `each_server`, on both; and marked `one_server`, on the newest only: stories in which servers make no
difference. `cluster_url` is a cluster of three masters of the newest, or, marked `every_cluster`, of the oldest too.
If `HEADGATE_REDIS_SERVER` names a server, there is no other: so `make test-servers` runs on each what depends on it
(`tests.support.servers`).
All are shared by the tests of one process, so a test that changes settings or kills its server starts its own
`tests.support.servers.RedisServer`.
"""

import gc
import os
import resource
import uuid
from collections.abc import AsyncIterator, Iterator
from itertools import islice

import hypothesis
import pytest

from headgate.amqp import remote
from headgate.redis import call_line, connection, connection_options, server
from headgate.session import destinations
from headgate_coordinator.service.garbage import YOUNG
from tests.links.sites import SiteOf, three_sites_of
from tests.support import forked
from tests.support.extent import WHOLE, at_another_server, examples
from tests.support.leaks import delete_namespace, describe
from tests.support.servers import available_servers, makes_no_difference, newest_server, oldest_and_newest
from tests.support.shared import SharedServers
from tests.support.signals import hear_what_was_ignored
from tests.support.workers.collected import COLLECTED, Adopting
from tests.support.workers.forking import fork_workers

hypothesis.settings.register_profile("here", deadline=None, max_examples=examples(100))  # busy is no failure
hypothesis.settings.load_profile("here")

_FILES = 10_000  # a shell gives 1024, and some tests connect a thousand times


def pytest_configure(config: pytest.Config) -> None:
    files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= files < _FILES:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(_FILES, most) if most >= 0 else _FILES, most))
    a_worker = hasattr(config, "workerinput")
    if a_worker or not config.getoption("numprocesses", None):  # else this process runs no tests
        hear_what_was_ignored(leave_the_group=a_worker)
        if a_worker:
            config.pluginmanager.register(Adopting(COLLECTED))
    else:
        os.environ[forked.DOOR] = forked.begin()  # which its processes share
        fork_workers(config)
    config.addinivalue_line("markers", "longest: takes ten seconds or more, and so begins among the first")
    config.addinivalue_line("markers", "whole: run where HEADGATE_TEST_WHOLE is set; cheaper ones of its class always")
    config.addinivalue_line("markers", "one_server: run with the newest Redis only, not with every version")
    config.addinivalue_line("markers", "each_server: run with the oldest Redis and the newest, not by turns")
    config.addinivalue_line("markers", "every_cluster: run with a cluster of the oldest version too")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "redis_url" in metafunc.fixturenames:
        one = metafunc.definition.get_closest_marker("one_server")
        servers = (newest_server(),) if one else oldest_and_newest()
        metafunc.parametrize("redis_url", servers, indirect=True, ids=lambda server: server.name)
    if "cluster_url" in metafunc.fixturenames and metafunc.definition.get_closest_marker("every_cluster"):
        metafunc.parametrize("cluster_url", oldest_and_newest(), indirect=True, ids=lambda server: server.name)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Look for no garbage among the tests: they stay for as long as the process.

    A test that collects it leaves out what is there, by `gc.freeze`, and never takes it in again: it would be half a
    second for each full collection of the rest of the run. Young objects are looked through as seldom as in a node.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        gc.set_threshold(YOUNG)


@pytest.hookimpl(trylast=True)  # when their order is drawn
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the tests that share a Spark session first, where one process takes them all: each would start its own.

    Of the other processes, which get as many tests as the first, each begins with some of the longest; one goes on with
    those that share a browser.
    """
    _leave_out(config, items)
    items.sort(key=lambda item: "spark" not in getattr(item, "fixturenames", ()))
    processes = getattr(config, "workerinput", {}).get("workercount", 1)
    longest = [item for item in items if item.get_closest_marker("longest") and processes > 1]
    browsing = [item for item in items if "chromium" in getattr(item, "fixturenames", ()) and processes > 1]
    early = {*longest, *browsing}
    others, order = (item for item in items if item not in early), list[pytest.Item]()
    for process in range(processes):
        begins_with = longest[process - 1 :: processes - 1] if process else []
        begins_with += browsing if process == 1 else []
        share = (len(items) - len(order)) // (processes - process)
        order += [*begins_with, *islice(others, share - len(begins_with))]
    items[:] = order


def _leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests marked `whole`, and others on all servers but one, save where all is tried.

    `make test-servers` has to know those that are marked.
    """
    whole = {item for item in items if item.get_closest_marker("whole")}
    for item in whole:
        if makes_no_difference(item.path.parent):
            raise pytest.UsageError(f"{item.nodeid}: `make test-servers` leaves its folder out; mark it soak")
    out = set() if WHOLE else whole | at_another_server(items)
    if out:
        config.hook.pytest_deselected(items=[item for item in items if item in out])
        items[:] = [item for item in items if item not in out]


@pytest.fixture(scope="session")
def shared_servers() -> Iterator[SharedServers]:
    servers = SharedServers()
    yield servers
    servers.stop()


@pytest.fixture(autouse=True)
def no_key_left(shared_servers: SharedServers) -> Iterator[None]:
    """Fail the test that leaves a key. Set up first, so it looks when all other fixtures have cleaned up."""
    yield
    leftovers = shared_servers.take_leftovers()
    if leftovers:
        pytest.fail(describe(leftovers), pytrace=False)


@pytest.fixture
def redis_url(request: pytest.FixtureRequest, no_key_left: None, shared_servers: SharedServers) -> str:
    return shared_servers.standalone(getattr(request, "param", None) or newest_server())


@pytest.fixture
def cluster_url(request: pytest.FixtureRequest, no_key_left: None, shared_servers: SharedServers) -> str:
    """The first of three masters; `shared_servers.cluster().urls` has them all."""
    return shared_servers.cluster(getattr(request, "param", None)).url


@pytest.fixture
def namespace() -> str:
    """A namespace of the test's own. Nothing is removed for it: a test cleans up through the API."""
    return f"t-{uuid.uuid4().hex[:16]}"


@pytest.fixture
def cleanup_namespace(namespace: str, no_key_left: None, shared_servers: SharedServers) -> Iterator[str]:
    """As `namespace`, for tests about what stays on purpose or breaks half way: all its keys are deleted."""
    yield namespace
    for url in shared_servers.used:
        delete_namespace(url, namespace)


_SHARED = {"redis_url", "cluster_url", "three_sites", "sites", "ends", "url", "one_url", "site"}
_WHAT_FAILS = {"FaultProxy", "RedisServer", "RedisCluster3", "NodeProcess", "socket"}


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have clients wait half a minute for each answer and greeting, two for an opening: others may keep Redis."""
    for module in (connection_options, server, remote):
        monkeypatch.setattr(module, "CONNECT_TIMEOUT", 30.0)
    for module in (call_line, connection, server):
        monkeypatch.setattr(module, "CALL_TIMEOUT", 30.0)
    monkeypatch.setattr(destinations, "OPEN_WITHIN", 120.0)
    monkeypatch.setattr(remote.NodeBackend._ask, "__kwdefaults__", {"within": 30.0})


@pytest.fixture(autouse=True)
def patient_where_nothing_fails(request: pytest.FixtureRequest) -> None:
    """Be `patient` with shared servers, but in modules that cut lines or stop nodes: it matters when those give up."""
    if _SHARED & set(request.fixturenames) and not _WHAT_FAILS & vars(request.module).keys():
        request.getfixturevalue("patient")


@pytest.fixture
async def three_sites(namespace: str, no_key_left: None, shared_servers: SharedServers) -> AsyncIterator[list[SiteOf]]:
    """Three sites on two servers, each with a namespace of its own, that may lead to one another."""
    urls = [shared_servers.standalone(binary) for binary in available_servers()]
    async with three_sites_of(urls, namespace) as sites:
        yield sites
