"""A worker of Celery or dramatiq on a real Redis: `python -m tests.sdk.jobs.worker celery REDIS_URL`."""

import os
import signal
import sys
import threading
import time
from typing import Any

import dramatiq
import redis
from celery import Celery, signals
from dramatiq.brokers.redis import RedisBroker

import headgate.sync
from headgate.charge import SyncCharge
from headgate.jobs import requeueing
from headgate.jobs.celery import LimitedTask
from headgate.jobs.dramatiq import LimitedActors

TTL = 2
"""Seconds after which a killed worker's slot is free, and its messages are delivered again."""
STUCK, EVENTS = 0, "events"


def limited(url: str) -> SyncCharge:
    requeueing.AGAIN = 0.1  # type: ignore[misc]
    return SyncCharge(headgate.sync.PerProcess(url, "jobs", ttl=TTL).limiter("slots"), slots=1)


def work(url: str, number: int) -> None:
    """Note begin and end; the first try of one of them never ends."""
    events = redis.Redis.from_url(url)
    events.rpush(EVENTS, f"begin {number} {os.getpid()}")
    while number == STUCK and events.lindex("killed", 0) is None:
        time.sleep(0.02)
    time.sleep(0.01)
    events.rpush(EVENTS, f"end {number} {os.getpid()}")
    events.close()


def celery_app(url: str) -> tuple[Celery, Any]:
    app = Celery("jobs", broker=url.replace("unix://", "redis+socket://"))
    app.conf.broker_transport_options = {
        "visibility_timeout": TTL, "unacked_restore_interval": 0.5, "unacked_restore_throttle": 1,
        "polling_interval": 0.05,
    }  # fmt: skip
    app.conf.worker_prefetch_multiplier = 1

    @app.task(base=LimitedTask, limited=limited(url), acks_late=True, name="work")  # type: ignore[untyped-decorator]
    def job(number: int) -> None:
        work(url, number)

    return app, job


def dramatiq_broker(url: str) -> tuple[RedisBroker, Any]:
    broker = RedisBroker(  # type: ignore[no-untyped-call]  # dramatiq leaves it without types
        url=url, heartbeat_timeout=TTL * 1000, maintenance_chance=1_000_000
    )
    broker.add_middleware(LimitedActors())

    @dramatiq.actor(broker=broker, actor_name="work", limited=limited(url))
    def job(number: int) -> None:
        work(url, number)

    return broker, job


def run_celery(url: str) -> None:
    signals.setup_logging.connect(lambda **_: None, weak=False)
    celery_app(url)[0].worker_main([
        "worker", "--concurrency=2", "--without-gossip", "--without-mingle", "--without-heartbeat",
        f"--hostname={os.getpid()}@jobs",
    ])  # fmt: skip


def run_dramatiq(url: str) -> None:
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    worker = dramatiq.Worker(dramatiq_broker(url)[0], worker_threads=2, worker_timeout=50)
    worker.start()
    over.wait()
    worker.stop()


if __name__ == "__main__":
    {"celery": run_celery, "dramatiq": run_dramatiq}[sys.argv[1]](sys.argv[2])
