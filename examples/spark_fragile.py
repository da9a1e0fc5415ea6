"""A Spark job beside services that send to the same fragile destination: the job may have 30 % of what that can take.

The destination takes 200 messages a second from all of them together. Each row of the job takes a token of a bucket of
60 a second first, whichever executor it is on; so the services keep the rest, however many executors there are.

    python examples/spark_fragile.py [URL]       without a URL on a private Redis; needs Java, and headgate[spark]
"""

import sys
import threading
import time

import headgate.sync
from headgate_pipeline.exchange import register
from headgate_pipeline.spark_session import session

TAKES, SHARE, ROWS, BURST = 200, 0.3, 150, 10


def service(client: headgate.sync.Client, stop: threading.Event) -> None:
    with client.session("service") as sending:
        producer = sending.producer("ledger-db", timeout=60)
        while not stop.is_set():
            for receipt in [producer.post("order", headers={"from": "service"}) for _ in range(5)]:
                receipt.result()


def store(client: headgate.sync.Client, got: list[tuple[float, str]], stop: threading.Event) -> None:
    """The fragile thing; it notes when it was given what by whom."""
    with client.session("store") as reading:
        consumer = reading.consumer("ledger-db")
        while not stop.is_set() or consumer.held_messages:
            if message := consumer.receive(timeout=0.2):
                got.append((time.monotonic(), message.headers["from"]))
                message.accept()


def main() -> None:
    got: list[tuple[float, str]] = []
    stop, empty = threading.Event(), threading.Event()
    with headgate.sync.connect(sys.argv[1] if len(sys.argv) > 1 else None) as client:
        client.apply("ledger-db", kind="queue", limit="1MiB", send_rate=TAKES, send_burst=BURST)
        client.apply("ledger-db-spark", kind="bucket", rate=SHARE * TAKES, burst=BURST)
        threads = [threading.Thread(target=service, args=(client, stop)) for _ in range(2)]
        threads.append(threading.Thread(target=store, args=(client, got, empty)))
        spark = session("nightly-export", master="local[2]")
        register(spark)
        for thread in threads:
            thread.start()

        rows = spark.range(ROWS).selectExpr("concat('row ', id) as body", "map('from', 'spark') as headers")
        writing = rows.repartition(2).write.format("headgate").mode("append")
        writing = writing.option("url", client.redis_url).option("destination", "ledger-db")
        writing.option("bucket", "ledger-db-spark").save()
        spark.stop()

        stop.set()
        for thread in threads[:-1]:
            thread.join()
        empty.set()
        threads[-1].join()
        client.remove("ledger-db")
        client.remove("ledger-db-spark")

    times = [at for at, who in got if who == "spark"]
    seconds = times[-1] - times[0]
    beside = sum(times[0] <= at <= times[-1] for at, who in got if who == "service")
    print(f"in {seconds:.1f} s the job sent {len(times)} messages, the services {beside}")
    print(f"every row came once: {len(times) == ROWS}")
    print(f"the job had at most {SHARE:.0%} of {TAKES} a second: {len(times) <= SHARE * TAKES * (seconds + 1) + BURST}")
    print(f"all together at most {TAKES} a second: {len(times) + beside <= TAKES * (seconds + 1) + BURST}")


main()
