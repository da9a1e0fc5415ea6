"""How many entries a second the audit replays, and windows sum, from Parquet: best of three after one to warm up.

Run: python -m bench.pipeline_audit [--entries 2000000] [--destinations 64]
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from headgate_pipeline.audit import audit, verdicts
from headgate_pipeline.entries import entries
from headgate_pipeline.measure import blocked, flow, parties
from headgate_pipeline.schema import ENTRY
from headgate_pipeline.session import session
from headgate_pipeline.stalls import with_limits

BEGIN_MS = 1_763_600_000_000
SIZE = 1024
BATCH = 16


def ledger(name: str, count: int) -> Iterator[tuple[object, ...]]:
    """A queue that four producers send batches to, and a consumer settles: two entries a batch, each with events."""
    granted, pending, sent = [0] * 4, 0, 1
    held = BATCH * SIZE

    def entry(
        seq: int, op: str, who: str, size: int, messages: int, first: int, detail: str, leased: int
    ) -> tuple[object, ...]:
        at = (BEGIN_MS + seq * 2) * 1000
        return (
            "bench", name, seq, 1, at, op, who, size, messages, first, detail, pending, pending // SIZE, leased,
            leased // SIZE, BEGIN_MS, None, None,
        )  # fmt: skip

    yield (
        "bench",
        name,
        1,
        1,
        BEGIN_MS * 1000,
        "apply",
        "-",
        0,
        0,
        0,
        "limits:1048576:inf",
        0,
        0,
        0,
        0,
        BEGIN_MS,
        None,
        None,
    )
    for who in range(4):
        granted[who] = held
        detail = f"open:p{who}~0001;grant:p{who}~0001:{held}:{BATCH}"
        yield entry(who + 2, "acquire", f"p{who}~0001", held, BATCH, 0, detail, held * (who + 1))
    yield entry(6, "attach", "c~0001.1", 0, 0, 0, "attach:c~0001.1:queue", held * 4)
    delivered = (0, 0)
    for seq in range(7, count, 2):
        who = seq // 2 % 4
        granted[who] += held
        pending += held
        detail = f"grant:p{who}~0001:{granted[who]}:{granted[who] // SIZE}"
        yield entry(seq, "publish", f"p{who}~0001", held, BATCH, sent, detail, held * 4)
        sent += BATCH
        pending -= delivered[0]
        detail = f"settled:{delivered[0]}:{delivered[1]};fetched:{held}:{BATCH}"
        yield entry(seq + 1, "settle", "c~0001.1", *delivered, 0, detail, held * 4)
        delivered = (held, BATCH)


def write(folder: Path, count: int, destinations: int) -> int:
    kinds = {"string": pa.string(), "bigint": pa.int64(), "timestamp": pa.timestamp("us", "UTC")}
    schema = pa.schema([(field.name, kinds[field.dataType.simpleString()]) for field in ENTRY])
    written = 0
    for number in range(destinations):
        columns = list(zip(*ledger(f"queue-{number}", count // destinations), strict=True))
        table = pa.table([pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema)
        pq.write_table(table, folder / f"{number}.parquet")
        written += table.num_rows
    return written


def best(work: Callable[[], object]) -> float:
    took = []
    for _ in range(4):
        began = time.perf_counter()
        work()
        took.append(time.perf_counter() - began)
    return min(took[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=2_000_000)
    parser.add_argument("--destinations", type=int, default=64)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        count = write(Path(folder), chosen.entries, chosen.destinations)
        spark = session("bench", settings={"spark.driver.memory": "2g"})
        rows = entries(spark, folder, None, "bench")

        def audited() -> None:
            said = {row["verdict"] for row in verdicts(audit(rows)).collect()}
            assert said == {"proven"}, said

        print(f"{count:,} entries of {chosen.destinations} destinations, {spark.sparkContext.defaultParallelism} cores")
        print(f"audit        {count / best(audited):>12,.0f} entries/s")
        for name, table in (
            ("windows", flow(rows)), ("with limits", flow(with_limits(rows))), ("sessions", parties(rows)),
            ("waits", blocked(rows)),
        ):  # fmt: skip
            took = best(lambda table=table: table.write.format("noop").mode("overwrite").save())  # type: ignore[misc]
            print(f"{name:<12} {count / took:>12,.0f} entries/s")
        spark.stop()


if __name__ == "__main__":
    main()
