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
