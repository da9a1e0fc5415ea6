"""Limiters for threads: the same, from any thread at a time."""

import threading
from concurrent.futures import ThreadPoolExecutor

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
            with pytest.raises(CreditTimeout) as late, gate.admit(key="t", timeout=0.05):
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
