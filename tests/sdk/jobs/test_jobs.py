"""Jobs that are not admitted go back to their queue: no worker waits, none is lost, no retry is counted."""

import asyncio
import multiprocessing
import os
import pickle
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import dramatiq
import pytest
from celery import Celery, signals
from celery.contrib.testing.worker import start_worker
from celery.exceptions import Ignore
from dramatiq.brokers.stub import StubBroker
from taskiq import InMemoryBroker, TaskiqDepends

import headgate
import headgate.sync
from headgate.charge import Held, SyncCharge
from headgate.jobs import requeueing
from headgate.jobs.celery import LimitedTask
from headgate.jobs.dramatiq import LimitedActors, NotCharged
from headgate.jobs.taskiq import admitted
from tests.support.waiting import wait_for, wait_until

pytestmark = pytest.mark.one_server
JOBS = 6


class Meter:
    """Counts what is under way in this process.

    Attributes:
        most: at a time.
        done: jobs that ended.
    """

    def __init__(self) -> None:
        self._lock, self._now = threading.Lock(), 0
        self.most, self.done = 0, list[Any]()

    def __enter__(self) -> None:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._now -= 1


class Asked:
    """Gives each job one of three keys, and counts how often that is asked: once for each try."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self, number: int, **_: Any) -> str:
        self.times += 1
        return f"k{number % 3}"


@pytest.fixture
def session(redis_url: str, cleanup_namespace: str) -> Iterator[headgate.sync.Session]:
    with headgate.sync.connect(redis_url, namespace=cleanup_namespace) as client, client.session("jobs") as session:
        client.apply("slots", kind="limiter", limits={"slots": {"at_once": 2}}, key_limits={"slots": {"at_once": 1}})
        yield session


@pytest.fixture
def limiter(session: headgate.sync.Session) -> headgate.sync.Limiter:
    return session.limiter("slots", in_hand=False)


@pytest.fixture(autouse=True)
def no_worker_sets_up_logging() -> Iterator[None]:
    """Keep Celery from the level of the root logger: other tests read what is logged."""

    def leave_it(**_: Any) -> None:
        """Do nothing."""

    signals.setup_logging.connect(leave_it)
    yield
    signals.setup_logging.disconnect(leave_it)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requeueing, "AGAIN", 0.02)


def test_tasks_of_celery(limiter: headgate.sync.Limiter) -> None:
    app, meter, asked = Celery("jobs", broker="memory://", backend="cache+memory://"), Meter(), Asked()
    app.conf.broker_transport_options = {"polling_interval": 0.02}

    @app.task(  # type: ignore[untyped-decorator]  # Celery ships no types
        base=LimitedTask,
        limited=SyncCharge(lambda: limiter, slots=1, key=asked),
        bind=True,
    )
    def work(self: Any, number: int, *, more: str) -> str:
        with meter:
            meter.done.append((number, self.request.retries, self.request.id))
        return f"{more}{number}"

    mine = [limiter.attempt(slots=1, key=key) for key in ("x", "y")]
    with start_worker(app, pool="threads", concurrency=4, perform_ping_check=False, shutdown_timeout=60):
        sent = [work.delay(number, more="m") for number in range(JOBS)]
        wait_for(lambda: asked.times > JOBS)
        assert meter.done == []
        for hold in mine:
            assert isinstance(hold, headgate.sync.Hold)
            hold.release()
        assert [result.get(timeout=60) for result in sent] == [f"m{number}" for number in range(JOBS)]
    assert {one[0] for one in meter.done} == {*range(JOBS)}
    assert len(meter.done) == JOBS
    assert {one[1] for one in meter.done} == {0}, "to be put off is no retry"
    assert {one[2] for one in meter.done} == {result.id for result in sent}
    assert meter.most <= 2
    assert work(7, more="directly ") == "directly 7"
    wait_for(lambda: limiter.state()["slots"].taken == 0)


def test_actors_of_dramatiq(limiter: headgate.sync.Limiter) -> None:
    broker, meter, asked = StubBroker(), Meter(), Asked()
    broker.add_middleware(LimitedActors())

    @dramatiq.actor(broker=broker, limited=SyncCharge(lambda: limiter, slots=1, key=asked), max_retries=0)
    def work(number: int) -> None:
        with meter:
            meter.done.append(number)
            if number == 1:
                raise LookupError

    broker.declare_queue("default")
    mine = [limiter.attempt(slots=1, key=key) for key in ("x", "y")]
    worker = dramatiq.Worker(broker, worker_threads=4, worker_timeout=20)
    worker.start()
    try:
        for number in range(JOBS):
            work.send(number)
        wait_for(lambda: asked.times > JOBS)
        assert meter.done == []
        for hold in mine:
            assert isinstance(hold, headgate.sync.Hold)
            hold.release()
        wait_for(lambda: len(meter.done) == JOBS)
    finally:
        worker.stop()
        broker.close()
    assert sorted(meter.done) == [*range(JOBS)]
    assert meter.most <= 2
    wait_for(lambda: limiter.state()["slots"].taken == 0)


def test_an_actor_that_cannot_be_charged_does_not_run(limiter: headgate.sync.Limiter) -> None:
    broker, meter = StubBroker(), Meter()
    broker.add_middleware(LimitedActors())

    @dramatiq.actor(broker=broker, limited=SyncCharge(lambda: limiter, slots=3), max_retries=0)
    def work() -> None:
        meter.done.append(0)

    worker = dramatiq.Worker(broker, worker_threads=1, worker_timeout=20)
    worker.start()
    try:
        work.send()
        with pytest.raises(NotCharged, match="work could not be charged: 3 at once can never fit"):
            broker.join("default", fail_fast=True, timeout=60_000)
    finally:
        worker.stop()
        broker.close()
    assert meter.done == []


def test_a_task_is_put_off_for_less_than_its_broker_keeps_it(limiter: headgate.sync.Limiter) -> None:
    app, sent = Celery("jobs", broker="memory://"), list[float]()
    app.conf.broker_transport_options = {"visibility_timeout": 30}

    class Noted(LimitedTask):
        abstract = True

        def apply_async(self, *_: Any, **options: Any) -> None:
            sent.append(options["countdown"])

    @app.task(  # type: ignore[untyped-decorator]  # Celery ships no types
        base=Noted, limited=SyncCharge(lambda: limiter, slots=1), name="held_off"
    )
    def work() -> None:
        raise AssertionError

    limiter.hold_off(600)
    work.push_request(id="1", called_directly=False, is_eager=False, retries=0)
    try:
        with pytest.raises(Ignore):
            work()
    finally:
        work.pop_request()
    assert sent == [15.0]


async def test_tasks_of_taskiq(client: headgate.Client) -> None:
    await client.apply("slots", kind="limiter", limits={"slots": {"at_once": 2}})
    async with client.session("taskiq") as session:
        limiter = await session.limiter("slots", in_hand=False)
        broker, meter = InMemoryBroker(), Meter()
        on = admitted(lambda: limiter, slots=1, timeout=0.01)

        @broker.task
        async def work(number: int, held: Annotated[Held, TaskiqDepends(on)]) -> str:
            with meter:
                await asyncio.sleep(0.005)
                meter.done.append(number)
            return repr(held)

        await broker.startup()
        mine = [await limiter.admit(slots=1) for _ in range(2)]
        sent = [await work.kiq(number) for number in range(JOBS)]  # type: ignore[call-overload]  # taskiq gives the rest
        assert meter.done == []
        for hold in mine:
            hold.release()
        for one in sent:
            assert (await one.wait_result(timeout=60)).return_value == "Hold('slots', slots=1, held)"
        await broker.shutdown()
        assert (sorted(meter.done), meter.most) == ([*range(JOBS)], 2)

        async def free() -> bool:
            return (await limiter.state())["slots"].taken == 0

        await wait_until(free)


def held_in_a_child(limits: headgate.sync.PerProcess, said: Any) -> None:
    with limits.limiter("slots")().admit(slots=1, key=str(os.getpid()), timeout=60) as hold:
        said.put(hold.key)


def test_each_process_has_a_session_of_its_own(
    redis_url: str, cleanup_namespace: str, limiter: headgate.sync.Limiter
) -> None:
    limits = headgate.sync.PerProcess(redis_url, cleanup_namespace)
    assert "redis" not in repr(limits)
    mine = limits.limiter("slots")
    assert pickle.loads(pickle.dumps(mine)) == mine
    assert mine() is mine()
    with mine().admit(slots=1, key="parent"):
        context = multiprocessing.get_context("fork")
        said = context.Queue()
        child = context.Process(target=held_in_a_child, args=(limits, said))
        child.start()
        assert said.get(timeout=60) == str(child.pid)
        child.join(60)
        assert child.exitcode == 0
    with limiter.admit(slots=2, timeout=60):  # the child may have ended before its server heard that it gave back
        assert limiter.state()["slots"].taken == 2


@pytest.fixture
async def client(redis_url: str, cleanup_namespace: str) -> AsyncIterator[headgate.Client]:
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
        yield client


def test_what_is_no_charge_is_refused_where_it_is_named() -> None:
    """Mutants: a worker begins, and each of its jobs fails in another way, or runs without any limit."""
    app, broker = Celery("wrong", broker="memory://", set_as_current=False), StubBroker(middleware=[LimitedActors()])

    def job() -> None:
        pass

    terms: tuple[dict[str, Any], ...] = ({}, {"limited": print})
    for number, settings in enumerate(terms):
        task = app.task(base=LimitedTask, name=f"wrong {number}", **settings)(job)
        with pytest.raises(headgate.InvalidValue, match=r"^limited: .* use a headgate\.charge\.SyncCharge"):
            task()
    with pytest.raises(NotCharged, match=r"job: limited: 7: use a headgate\.charge\.SyncCharge"):
        dramatiq.actor(broker=broker, limited=7)(job)


@pytest.mark.parametrize(
    ("terms", "said"),
    [({"slots": -1}, "slots"), ({"slots": True}, "slots"), ({"slots": 1, "timeout": "soon"}, "timeout"),
     ({"slots": 1, "key": ""}, "key")],
)  # fmt: skip
def test_terms_that_no_call_could_have_are_refused_at_once(terms: dict[str, Any], said: str) -> None:
    with pytest.raises((headgate.InvalidValue, headgate.InvalidName), match=said):
        SyncCharge(lambda: None, **terms)  # type: ignore[arg-type,return-value]  # nobody asks for it
