"""The same for threads: everything without await, from many threads at once, with the loop's thread in between."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

import headgate
import headgate.sync
from headgate import (
    Closed,
    CreditTimeout,
    InvalidName,
    InvalidValue,
    MessageTooLarge,
    PolicyError,
    SessionExpired,
    Window,
)
from headgate.sync.thread import LoopThread
from tests.sdk.observing import GUARD
from tests.support.servers import RedisServer
from tests.support.signals import ctrl_c_interrupts
from tests.support.waiting import wait_for

pytestmark = pytest.mark.one_server


@pytest.fixture
def threads(redis_url: str, cleanup_namespace: str) -> Iterator[headgate.sync.Client]:
    with headgate.sync.connect(redis_url, namespace=cleanup_namespace) as client:
        yield client


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as pool:
        yield pool


def field(client: headgate.sync.Client, destination: str, name: str) -> int:
    return int(client.explain(destination).fields[name])


def test_messages_go_through_without_await(threads: headgate.sync.Client) -> None:
    with threads.session("s") as session:
        producer, consumer = session.producer("orders", window="64KiB"), session.consumer("orders")
        assert producer.destination == "orders"
        receipt = producer.send("text", headers={"tenant": "a"}, timeout=5)
        later = producer.post(b"\x00", timeout=5)
        assert (receipt.seq, later.result(5).seq, later.done()) == (1, 2, True)
        first = consumer.receive(timeout=GUARD)
        assert first is not None
        assert (first.body, first.headers, first.id, first.delivery_count) == ("text", {"tenant": "a"}, receipt.id, 0)
        first.accept(confirm=True)
        for second in consumer:
            assert second.body == b"\x00"
            second.modify()
            break
        again = consumer.receive(timeout=GUARD)
        assert again is not None
        assert again.delivery_count == 1
        again.reject("bad")
        with pytest.raises(InvalidValue, match="twice"):
            again.accept()
        consumer.flush()
        assert consumer.receive(timeout=0.05) is None
        assert (consumer.held_messages, consumer.held_bytes) == (0, 0)
        consumer.configure(window=Window.paused)
        producer.configure(window=1000, weight=2)
        assert producer.in_hand == 1000
        assert consumer.window == Window.paused
    assert threads.recount("orders").equal
    assert threads.explain("orders").state == "open"
    assert threads.destinations() == ["orders"]
    with pytest.raises(Closed, match="closed"):
        producer.send(b"x")


def test_no_calls_of_a_gate_go_by_what_one_above_its_limit_had(threads: headgate.sync.Client) -> None:
    """Mutant: what it had stays in hand as it ends, for several."""
    threads.apply("calls", kind="gate", limit=1000, oversize="allow-one")
    with threads.session("s") as session:
        gate = session.gate("calls")
        for _ in range(2):
            with gate.admit(3000, timeout=GUARD):
                assert gate.try_admit(900) is None
            with gate.admit(900, timeout=GUARD), pytest.raises(CreditTimeout), gate.admit(900, timeout=0.1):
                pass


def test_what_a_gate_was_lent_for_one_call_is_for_no_thread_that_does_not_wait(threads: headgate.sync.Client) -> None:
    threads.apply("calls", kind="gate", limit=1000, oversize="allow-one")
    with threads.session("s") as session:
        gate = session.gate("calls", window=1000)
        with gate.admit(1, timeout=GUARD):
            pass
        gate._line.lent = True
        assert gate.try_admit(1) is None
        with gate.admit(1, timeout=GUARD):
            pass


def test_errors_are_those_of_the_async_side(threads: headgate.sync.Client, redis_url: str) -> None:
    threads.apply("full", limit=1000)
    threads.apply("gate", kind="gate", limit=100)
    threads.apply("mails", rate=1, burst=1)
    with threads.session("s") as session:
        producer, gate, bucket = session.producer("full"), session.gate("gate"), session.bucket("mails")
        producer.send(b"x" * 990)
        with pytest.raises(CreditTimeout):
            producer.send(b"y" * 50, timeout=0.05)
        with pytest.raises(CreditTimeout):
            producer.post(b"y" * 50, timeout=0.05)
        with pytest.raises(MessageTooLarge):
            producer.send(b"y" * 5000)
        with gate.admit(100), pytest.raises(CreditTimeout), gate.admit(1, timeout=0.05):
            pass
        with pytest.raises(InvalidValue):
            gate.try_admit(-1)
        with pytest.raises(InvalidValue):
            gate.admit("10 XB")
        bucket.take()
        with pytest.raises(CreditTimeout):
            bucket.take(timeout=0.05)
        with pytest.raises(PolicyError):
            session.gate("full")
        with pytest.raises(InvalidName):
            session.producer("{}")
    with pytest.raises(InvalidValue):
        headgate.sync.connect("nonsense")
    with pytest.raises(headgate.CoordinatorUnavailable):
        headgate.sync.connect("redis://127.0.0.1:1")
    assert threads.purge("full") == 1
    threads.remove("full")
    assert "full" not in threads.destinations()


def test_everything_is_closed_after_close(redis_url: str, cleanup_namespace: str) -> None:
    client = headgate.sync.connect(redis_url, namespace=cleanup_namespace)
    session = client.session("s")
    producer, consumer, gate = session.producer("q"), session.consumer("q"), session.gate("g", window=100)
    permit = gate.try_admit(10)
    client.close()
    client.close()
    for call in (
        lambda: producer.send(b"x"),
        lambda: producer.post(b"x"),
        lambda: consumer.receive(timeout=GUARD),
        lambda: gate.admit(1000).__enter__(),
        lambda: client.explain("q"),
        lambda: client.session("t"),
        lambda: session.producer("q"),
        consumer.flush,
    ):
        with pytest.raises(Closed):
            call()
    assert gate.try_admit(1) is None
    assert list(consumer) == []
    assert permit is not None
    permit.release()
    assert not client._thread._thread.is_alive()


def test_closing_ends_the_waits_of_other_threads(
    redis_url: str, cleanup_namespace: str, pool: ThreadPoolExecutor
) -> None:
    client = headgate.sync.connect(redis_url, namespace=cleanup_namespace)
    client.apply("full", limit=100)
    client.apply("gate", kind="gate", limit=100)
    session = client.session("s")
    producer, consumer, gate = session.producer("full"), session.consumer("other"), session.gate("gate")
    producer.send(b"x" * 90)
    permit = gate.try_admit(100)
    assert permit is not None
    waits: list[Future[object]] = [
        pool.submit(producer.send, b"y" * 90, timeout=60),
        pool.submit(consumer.receive),
        pool.submit(gate.admit(50, timeout=60).__enter__),
    ]
    wait_for(lambda: field(client, "full", "blocked") and field(client, "gate", "blocked") and consumer._receivers)
    client.close()
    for wait in waits:
        assert isinstance(wait.exception(timeout=GUARD), Closed)


def test_many_threads_and_two_clients_share_a_gate_exactly(
    threads: headgate.sync.Client, redis_url: str, cleanup_namespace: str, pool: ThreadPoolExecutor
) -> None:
    limit = 1000
    threads.apply("gate", kind="gate", limit=limit)
    lock = threading.Lock()
    inside = most = entered = 0

    def work(gate: headgate.sync.Gate, size: int) -> None:
        nonlocal inside, most, entered
        for _ in range(60):
            with gate.admit(size, timeout=60):
                with lock:
                    inside, entered = inside + size, entered + 1
                    most = max(most, inside)
                time.sleep(0)
                with lock:
                    inside -= size

    with (
        headgate.sync.connect(redis_url, namespace=cleanup_namespace) as other,
        threads.session("one") as one,
        other.session("two") as two,
    ):
        gates = [one.gate("gate", window=limit), two.gate("gate", window=limit)]
        for done in [pool.submit(work, gates[n % 2], (10, 300, 700, 990)[n % 4]) for n in range(16)]:
            done.result(60)
        assert [gate.in_use for gate in gates] == [0, 0]
    assert (entered, inside) == (16 * 60, 0)
    assert 0 < most <= limit
    assert threads.recount("gate").stored[2] == 0
    assert field(threads, "gate", "peak_bytes") <= limit


def test_no_update_is_lost_while_the_loop_changes_the_same_line(
    threads: headgate.sync.Client, pool: ThreadPoolExecutor
) -> None:
    threads.apply("gate", kind="gate", limit="1MB")
    with threads.session("s") as session:
        gate = session.gate("gate", window=10_000)
        line, account, loop = gate._line, gate._account, gate._thread
        stop = threading.Event()

        def admit() -> int:
            admitted = 0
            while not stop.is_set():
                permit = gate.try_admit(7)
                if permit is not None:
                    admitted += 1
                    permit.release()
                    permit.release()
            return admitted

        async def stir() -> None:
            for number in range(3000):
                line.give_back(100, 1)
                if line.take(13):
                    line.put_back(13)
                line.retire()
                if number % 10 == 0:
                    account.wanted(20_000)
                    await asyncio.sleep(0)

        admitting = [pool.submit(admit) for _ in range(8)]
        loop.run(stir())
        stop.set()
        assert sum(done.result(GUARD) for done in admitting) > 0
        assert gate.in_use == 0
        assert (line.spent, line.spent_m) == (line.returned, line.returned_m), "all that was taken is back or returned"
        loop.run(account._calls.make(account.state._acquire(0.0)))
    assert threads.recount("gate").equal
    assert threads.recount("gate").stored[2] == 0


def test_try_admit_takes_what_is_in_hand_and_makes_no_call(threads: headgate.sync.Client) -> None:
    threads.apply("gate", kind="gate", limit=100)
    with threads.session("s") as session:
        gate = session.gate("gate", window=100)
        server = threads._inner.store.server
        before = server.calls
        permits = [gate.try_admit(10) for _ in range(10)]
        assert all(permits)
        assert gate.in_use == 100
        assert server.calls == before
        assert gate.try_admit(1) is None
        for permit in permits:
            assert permit is not None
            permit.release()
            permit.release()
        assert gate.in_use == 0
        with gate.admit("60B") as admitted:
            assert (admitted.size, gate.in_use) == (60, 60)
        assert gate.in_use == 0


def test_idle_credit_is_given_back_and_fetched_again(threads: headgate.sync.Client) -> None:
    threads.apply("gate", kind="gate", limit=100)
    with threads.session("s") as session, threads.session("t") as other:
        gate, late = session.gate("gate", window=100), other.gate("gate", window=100)
        with late.admit(100, timeout=GUARD):
            assert gate.try_admit(1) is None, "recalled"
        wait_for(lambda: field(threads, "gate", "leased_bytes") == 0, description="idle for two seconds")
        assert gate.try_admit(1) is None
        wait_for(lambda: gate.try_admit(1), description="the window is fetched again")


def test_a_permit_put_back_in_one_thread_admits_another(
    threads: headgate.sync.Client, pool: ThreadPoolExecutor
) -> None:
    threads.apply("gate", kind="gate", limit=100)
    with threads.session("s") as session:
        gate = session.gate("gate", window=100)
        for _ in range(50):
            permit = gate.try_admit(100) or gate.admit(100, timeout=GUARD).__enter__()
            entering = pool.submit(gate.admit(60, timeout=GUARD).__enter__)
            wait_for(lambda: gate._outbox.waiting)
            permit.release()
            entering.result(GUARD).release()


def test_threads_share_a_consumer_and_get_each_message_once(
    threads: headgate.sync.Client, pool: ThreadPoolExecutor
) -> None:
    total = 600
    with threads.session("s") as session:
        producer, consumer = session.producer("orders"), session.consumer("orders", window=50)

        def consume() -> list[int]:
            got = []
            for message in consumer:
                got.append(int(message.body))
                message.accept()
            return got

        consuming = [pool.submit(consume) for _ in range(4)]
        sending = [producer.post(f"{number}") for number in range(total)]
        assert [receipt.result(GUARD).seq for receipt in sending] == list(range(1, total + 1))
        wait_for(lambda: field(threads, "orders", "pending_messages") == 0, timeout=GUARD)
        consumer.close()
        got = [done.result(GUARD) for done in consuming]
        assert sorted(number for some in got for number in some) == list(range(total))
        assert all(some == sorted(some) for some in got)


def test_receive_timeouts_leave_no_message_behind(threads: headgate.sync.Client) -> None:
    with threads.session("s") as session:
        producer, consumer = session.producer("orders"), session.consumer("orders", window=Window.pull)
        got = []
        for number in range(30):
            assert consumer.receive(timeout=0) is None
            producer.send(f"{number}")
            message = consumer.receive(timeout=GUARD)
            assert message is not None
            got.append(message.body)
            message.accept(confirm=True)
        assert got == [str(number) for number in range(30)]


@pytest.mark.whole
def test_sends_of_many_threads_keep_the_order_of_each(threads: headgate.sync.Client, pool: ThreadPoolExecutor) -> None:
    threads.apply("orders", limit=5000)
    with threads.session("s") as session:
        producer, consumer = session.producer("orders", window=1000), session.consumer("orders")

        def send(thread: int) -> None:
            for number in range(50):
                producer.send(f"{thread}/{number}", timeout=60)

        sending = [pool.submit(send, thread) for thread in range(8)]
        got: list[list[int]] = [[] for _ in range(8)]
        for _ in range(400):
            message = consumer.receive(timeout=GUARD)
            assert message is not None
            thread, number = str(message.body).split("/")
            got[int(thread)].append(int(number))
            message.accept()
        for done in sending:
            done.result(GUARD)
        assert got == [list(range(50))] * 8


def test_settling_what_went_to_others_is_refused(threads: headgate.sync.Client) -> None:
    with threads.session("s") as session:
        producer, consumer = session.producer("orders"), session.consumer("orders")
        producer.send("x")
        message = consumer.receive(timeout=GUARD)
        assert message is not None
        holder = consumer._inner._supply.first.settlements  # type: ignore[attr-defined]
        holder.generation += 1  # as after its lease was lost
        with pytest.raises(SessionExpired):
            message.accept()
        holder.generation -= 1
        message.accept(confirm=True)


def test_an_interrupted_wait_leaves_nothing_behind(threads: headgate.sync.Client, pool: ThreadPoolExecutor) -> None:
    threads.apply("gate", kind="gate", limit=100)
    assert threading.current_thread() is threading.main_thread(), "only there a Ctrl-C arrives"
    with threads.session("s") as session:
        gate = session.gate("gate", window=100)
        for round_ in range(20):
            permit = gate.admit(100, timeout=GUARD).__enter__()

            def interrupt(release: Callable[[], None] | None, press: Callable[[], None]) -> None:
                wait_for(lambda: gate._outbox.waiting)
                if release is not None:
                    release()
                press()

            with ctrl_c_interrupts() as press:
                interrupting = pool.submit(interrupt, permit.release if round_ % 2 else None, press)
                with pytest.raises(KeyboardInterrupt), gate.admit(60, timeout=GUARD):
                    time.sleep(GUARD)
                interrupting.result(GUARD)
            permit.release()
        wait_for(lambda: gate.try_admit(100), description="all of it is free")


def test_what_an_interrupted_thread_will_never_have_is_undone(pool: ThreadPoolExecutor) -> None:
    thread, started = LoopThread(), threading.Event()
    undone: list[int] = []

    async def stubborn() -> int:
        started.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(GUARD)
        return 7

    def interrupt(press: Callable[[], None]) -> None:
        started.wait(GUARD)
        press()

    try:
        with ctrl_c_interrupts() as press:
            interrupting = pool.submit(interrupt, press)
            with pytest.raises(KeyboardInterrupt):
                thread.run(stubborn(), undo=undone.append)
            interrupting.result(GUARD)
        wait_for(lambda: undone == [7])
    finally:
        thread.stop()
    with pytest.raises(Closed):
        thread.run(stubborn())


def test_calls_end_and_close_returns_while_redis_hangs(pool: ThreadPoolExecutor) -> None:
    with RedisServer.start() as server:
        client = headgate.sync.connect(server.url)
        client.apply("full", limit=100)
        session = client.session("s")
        producer = session.producer("full")
        producer.send(b"x" * 90)
        blocked = [pool.submit(producer.send, b"y" * 90, timeout=60) for _ in range(10)]
        wait_for(lambda: field(client, "full", "blocked"))
        server.sigstop()
        with pytest.raises(headgate.HeadgateError):
            producer.send(b"z", timeout=0.2)
        closing = pool.submit(client.close)
        closing.result(timeout=GUARD)
        assert all(isinstance(wait.exception(timeout=GUARD), Closed) for wait in blocked)
        server.sigcont()
