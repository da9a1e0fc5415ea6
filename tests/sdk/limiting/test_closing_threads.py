"""Clients, sessions and gates for threads are closed in any order, any number of times, with or without Redis."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import headgate.sync
from headgate import Closed

pytestmark = pytest.mark.one_server
REDIS_STOPS = """
import headgate.sync
from headgate.redis.embedded import EmbeddedRedis

server = EmbeddedRedis.start()
with headgate.sync.connect(server.url) as client, client.session("s") as session:
    client.apply("l", kind="limiter", limits={"slots": {"at_once": 2}})
    limiter, gate = session.limiter("l"), session.gate("g")
    with limiter.admit(slots=1), gate.admit(1):
        server.stop()
    session.close()
    client.close()
print("closed")
"""


@pytest.mark.parametrize("first", ["session", "client", "gate", "producer", "consumer"])
def test_inside_of_what_is_closed_with_it(redis_url: str, cleanup_namespace: str, first: str) -> None:
    """Mutant: what was closed with its client is closed once more at the end of its block."""
    with headgate.sync.connect(redis_url, namespace=cleanup_namespace) as client, client.session("s") as session:
        client.apply("l", kind="limiter", limits={"slots": {"at_once": 2}})
        gate, producer, consumer = session.gate("g"), session.producer("q"), session.consumer("q")
        limiter = session.limiter("l", in_hand=False)
        closing: dict[str, Callable[[], Any]] = {
            "session": session.close, "client": client.close, "gate": gate.close, "producer": producer.close,
            "consumer": consumer.close,
        }  # fmt: skip
        with gate.admit(1), limiter.admit(slots=1) as hold:
            closing[first]()
            for close in (*closing.values(), *closing.values()):
                close()
        with pytest.raises(Closed):
            hold.renew()
        with pytest.raises(Closed):
            client.explain("g")


def test_a_process_whose_redis_went_away_ends_well() -> None:
    done = subprocess.run(
        [sys.executable, "-c", REDIS_STOPS], capture_output=True, text=True, timeout=60, check=False
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "closed\n", "")


def test_what_is_closed_on_its_own_thread_says_so_and_can_be_closed_elsewhere(
    redis_url: str, cleanup_namespace: str
) -> None:
    """Mutant: the client counts as closed, and is never."""
    client = headgate.sync.connect(redis_url, namespace=cleanup_namespace)
    session = client.session("s")

    async def on_its_own() -> None:
        for close in (client.close, session.close):
            with pytest.raises(RuntimeError, match="on the client's own thread"):
                close()

    client._thread.run(on_its_own())
    client.close()
    with pytest.raises(Closed):
        session.producer("q")
    assert not client._thread._thread.is_alive()
