"""Jobs of a real broker over two worker processes, one of which is killed while a job of its runs."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
import redis

import headgate.sync
from tests.sdk.jobs import worker
from tests.support.forked import Forked
from tests.support.servers import RedisServer
from tests.support.waiting import wait_for

pytestmark = pytest.mark.one_server
JOBS = 8


@pytest.fixture
def url() -> Iterator[str]:
    with RedisServer.start(persist=False) as server:
        yield server.url


def kill(process: Forked) -> None:
    """End a worker at once, with the processes of its pool."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    pids = [process.pid, *map(int, children.read_text().split())] if children.exists() else []
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("library", ["celery", "dramatiq"])
def test_a_job_of_a_killed_worker_runs_again_and_never_more_than_may(library: str, url: str) -> None:
    with ExitStack() as after:
        client = after.enter_context(headgate.sync.connect(url, namespace="jobs"))
        events = after.enter_context(redis.Redis.from_url(url, decode_responses=True))
        client.apply("slots", kind="limiter", limits={"slots": {"at_once": 2}})
        limiter = after.enter_context(client.session("test")).limiter("slots", in_hand=False)
        send: Callable[[int], object]
        if library == "celery":
            app, task = worker.celery_app(url)
            send = task.delay
            after.callback(app.close)
        else:
            broker, actor = worker.dramatiq_broker(url)
            send = actor.send
            after.callback(broker.close)
        first, other = (
            after.enter_context(Forked("tests.sdk.jobs.worker", library, url, environment=os.environ))
            for _ in range(2)
        )  # fmt: skip
        for process in (first, other):
            after.callback(kill, process)

        def noted(what: str) -> list[str]:
            return [event for event in events.lrange(worker.EVENTS, 0, -1) if event.startswith(what)]

        send(worker.STUCK)
        begun = wait_for(lambda: noted(f"begin {worker.STUCK} "), timeout=60)
        for number in range(1, JOBS):
            send(number)
        # All of them have the other slot meanwhile. None is on its way when the worker is killed: Celery's transport
        # for Redis loses what has been popped, and has not been read.
        wait_for(lambda: len({event.split()[1] for event in noted("end")}) == JOBS - 1, timeout=60)
        pid = int(begun[0].split()[2])
        parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        kill(first if first.pid in (pid, parent) else other)
        events.rpush("killed", pid)
        events.rpush(worker.EVENTS, f"killed {pid}")
        wait_for(lambda: noted(f"end {worker.STUCK} "), timeout=60)
        assert len(noted(f"begin {worker.STUCK} ")) >= 2, "it runs again"
        under_way: set[str] = set()
        for event in events.lrange(worker.EVENTS, 0, -1):
            what, *rest = event.split()
            if what == "begin":
                under_way.add(" ".join(rest))
            elif what == "end":
                under_way.discard(" ".join(rest))
            else:
                under_way -= {one for one in under_way if one.endswith(f" {rest[0]}")}
            assert len(under_way) <= 2, events.lrange(worker.EVENTS, 0, -1)
        limiter.admit(slots=2, timeout=60).wait().release()
