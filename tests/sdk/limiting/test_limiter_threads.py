"""Limiters for threads: the same, from any thread at a time."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

import headgate.sync
from headgate import CreditTimeout, InvalidValue, Refused, Settings
from tests.sdk.observing import GUARD
from tests.support.waiting import wait_for

pytestmark = pytest.mark.one_server
FAST = Settings(kind="limiter", limits={"calls": {"quota": "1000000/month"}, "slots": {"at_once": 40}})


def test_threads_share_what_is_in_hand_and_all_is_counted(redis_url: str, cleanup_namespace: str) -> None:
    with headgate.sync.connect(redis_url, namespace=cleanup_namespace) as client, client.session("s") as session:
        client.apply("fast", FAST)
        limiter = session.limiter("fast")
        inside, most, lock = 0, 0, threading.Lock()

        def use(times: int) -> None:
            nonlocal inside, most
            for number in range(times):
                with limiter.admit(calls=2, slots=1, timeout=GUARD) as hold:
                    with lock:
                        inside += 1
                        most = max(most, inside)
                    if number % 2:
                        hold.settle(calls=1)
                    with lock:
                        inside -= 1

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(use, [300] * 8))
        assert most <= 40

        def settled() -> bool:
            state = limiter.state()
            return (state["slots"].taken, state["calls"].taken) == (0, 8 * 300 * 3 // 2)

        wait_for(settled, timeout=GUARD, description="all came back but what was used")


def test_waits_refusals_and_holds_that_are_carried(redis_url: str, cleanup_namespace: str) -> None:
    with headgate.sync.connect(redis_url, namespace=cleanup_namespace) as client:
        client.apply("fast", FAST)
        one, two = client.session("a").limiter("fast", in_hand=False), client.session("b").limiter("fast")
        hold = one.admit(slots=40).wait()
        with pytest.raises(CreditTimeout) as late, two.admit(slots=1, timeout=0.1):
            pass
        assert late.value.limit == "slots"
        refused = two.attempt(slots=1)
        assert isinstance(refused, Refused)
        assert two.try_admit(slots=1, key="a") is None
        with pytest.raises(InvalidValue, match="slots"):
            hold.settle(slots=-1)
        hold.renew(20)
        carried = two.hold(hold.hand_over(ttl=30))
        carried.release()
        with two.admit(slots=40, timeout=GUARD) as again:
            assert again.expires_in > 0
        assert two.hold_off(0) == 0


def test_a_thread_that_waits_is_woken(redis_url: str, cleanup_namespace: str) -> None:
    with headgate.sync.connect(redis_url, namespace=cleanup_namespace) as client, client.session("s") as session:
        client.apply("fast", FAST)
        limiter = session.limiter("fast")
        hold = limiter.admit(slots=40).wait()
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(lambda: limiter.admit(slots=1, timeout=GUARD).wait())
            wait_for(lambda: limiter.state().waiting == 1, timeout=GUARD, description="it stands in line")
            hold.release()
            waiting.result(GUARD).release()


def test_gates_and_buckets_with_keys_for_threads(redis_url: str, cleanup_namespace: str) -> None:
    """Mutant: a turn is kept by a permit that was released."""
    with headgate.sync.connect(redis_url, namespace=cleanup_namespace) as client, client.session("s") as session:
        client.apply("db", kind="gate", limit=4, key_limits={"bytes": {"at_once": 1}})
        client.apply("mail", kind="bucket", rate="1/min", burst=2)
        gate, bucket = session.gate("db", timeout=GUARD), session.bucket("mail")

        def use(key: str) -> None:
            for _ in range(10):
                with gate.admit(key=key):
                    pass

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(use, "aabc"))
        assert gate.in_use == 0
        with gate.admit(key="t") as permit:
            refused = gate.attempt(key="t")
            assert isinstance(refused, Refused)
            assert (refused.rule, gate.try_admit(key="t")) == ("key", None)
            with pytest.raises(CreditTimeout) as late, gate.admit(key="t", timeout=1):
                pass
            assert (late.value.key, permit.size, gate.in_use) == ("t", 1, 1)
            attempted = gate.attempt(key="u")
            assert not isinstance(attempted, Refused)
            with attempted:
                assert gate.in_use == 2
        assert gate.in_use == 0
        assert gate.hold_off(60, reason="429") == 60
        assert gate.state().reason == "429"
        assert not gate.attempt()
        bucket.take(key="t")
        assert bucket.hold_off(60, key="t") == 60
        late_mail = bucket.try_take(key="t")
        assert isinstance(late_mail, Refused)
        assert late_mail.limit == "hold_off"
        left = bucket.state(key="t")
        assert left is not None
        assert left.remaining == 1
        client.remove("db")
        client.remove("mail")


@pytest.fixture
def slots_in_hand(redis_url: str, cleanup_namespace: str) -> Iterator[tuple[headgate.sync.Limiter, headgate.sync.Gate]]:
    with headgate.sync.connect(redis_url, namespace=cleanup_namespace) as client, client.session("s") as session:
        client.apply("fast", FAST)
        client.apply("db", kind="gate", limit=4)
        limiter, gate = session.limiter("fast"), session.gate("db")
        wait_for(lambda: bool(limiter.try_admit(slots=1)), timeout=GUARD, description="some is in hand")
        wait_for(lambda: bool(gate.try_admit()), timeout=GUARD, description="some is in hand")
        yield limiter, gate


def test_what_interrupts_a_thread_in_its_turn_neither_waits_for_it_nor_takes_its_part(
    slots_in_hand: tuple[headgate.sync.Limiter, headgate.sync.Gate],
) -> None:
    """As a signal handler, or a finalizer. Mutants: it is let in too; what it releases is lost."""
    limiter, gate = slots_in_hand
    hold, permit = limiter.admit(slots=1, calls=5).wait(), gate.try_admit()
    assert permit is not None
    with limiter._lock, gate._lock:  # here it comes
        hold.settle(calls=2)
        hold.release()
        permit.release()
        assert gate.try_admit() is None
        with pytest.raises(RuntimeError, match="in the midst of an admission"):
            limiter.attempt(slots=1)
        with pytest.raises(RuntimeError, match="in the midst of an admission"), gate.admit():
            pass
    wait_for(lambda: permit._gate is None, timeout=GUARD, description="what it released came back")
    wait_for(lambda: hold._inner._over, timeout=GUARD, description="what it released came back")
    with limiter.admit(slots=1, timeout=GUARD), gate.admit(timeout=GUARD):
        assert limiter.state()["slots"].taken >= 1


def test_the_client_s_own_thread_does_not_wait_for_itself(
    slots_in_hand: tuple[headgate.sync.Limiter, headgate.sync.Gate],
) -> None:
    limiter, _ = slots_in_hand
    heard: Future[BaseException | None] = Future()

    def call_back() -> None:
        try:
            limiter.state()
        except RuntimeError as error:
            heard.set_result(error)

    limiter._thread.tell(call_back)
    assert "on the client's own thread" in str(heard.result(GUARD))
