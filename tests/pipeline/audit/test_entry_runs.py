"""Runs: however entries are spread over batches and files, each destination's come out whole and in order."""

from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate_pipeline.audit import entry_runs
from headgate_pipeline.audit.entry_runs import ENTRIES, ROWS, EntryStream, cut, read, unpacked
from headgate_pipeline.ledger.entries import parquet_files

Key = tuple[str, int | None, int]


def batch(keys: list[Key]) -> pa.RecordBatch:
    rows = [
        {"namespace": "shop", "destination": name, "epoch": epoch, "seq": seq, "detail": f"{name} {epoch} {seq}"}
        for name, epoch, seq in keys
    ]
    return pa.RecordBatch.from_pylist(rows, schema=ENTRIES)


def through(batches: list[pa.RecordBatch], shuffle: Random) -> dict[str, list[tuple[int | None, int]]]:
    """Return what comes out for each destination when runs are sorted as Spark sorts them."""
    found = [row for one in cut(batches) for row in one.to_pylist()]
    shuffle.shuffle(found)
    out: dict[str, list[tuple[int | None, int]]] = {}
    for name in {row["destination"] for row in found}:
        given_: list[pa.RecordBatch] = []
        stream = EntryStream(given_.append)
        mine = [row for row in found if row["destination"] == name]
        for row in sorted(mine, key=lambda row: (row["epoch"], row["seq"])):
            stream.add(row["epoch"], row["seq"], unpacked(row["entries"]))
        stream.finish()
        out[name] = [(row["epoch"], row["seq"]) for one in given_ for row in one.to_pylist()]
    return out


keys = st.tuples(st.sampled_from("abc"), st.sampled_from((None, 7, 8)), st.integers(1, 9))


@given(st.lists(st.lists(keys, max_size=12), max_size=5), st.randoms(use_true_random=False))
@pytest.mark.parametrize("small", [1, 1 << 30])
def test_entries_come_out_in_order_each_as_often_as_it_is_there(
    small: int, batches: list[list[Key]], shuffle: Random
) -> None:
    """Mutants: `Stream.add` does not merge; `_begin` does not look at epochs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(entry_runs, "AT_ONCE", 10)
        patch.setattr(entry_runs, "MOST", 3)
        patch.setattr(entry_runs, "_SMALL", small)
        out = through([batch(one) for one in batches], shuffle)
    for name in "abc":
        wanted = [(epoch, seq) for one in batches for at, epoch, seq in one if at == name]
        assert out.get(name, []) == sorted(wanted, key=lambda key: (key[0] or -1, key[1]))


def test_a_destination_of_many_entries_is_held_a_run_at_a_time() -> None:
    """Mutant: `Stream.add` keeps all it has."""
    sizes: list[int] = []
    stream = EntryStream(lambda one: sizes.append(one.num_rows))
    for first in range(1, 100, 10):
        rows = [{"epoch": 7, "seq": first + n} for n in range(10)]
        stream.add(7, first, pa.Table.from_pylist(rows, schema=ROWS))
        assert sum(sizes) == first - 1
    stream.finish()
    assert sum(sizes) == 100


def test_files_of_other_makes_are_read_and_other_namespaces_left_out(tmp_path: Path) -> None:
    """Mutant: moments of Spark's own kind are read as they are."""
    when: Any = pa.array([1_763_600_000_123_000] * 3, pa.timestamp("us", "UTC"))
    narrow = pa.table({
        "namespace": ["shop", "other", "shop"], "destination": ["a", "a", "b"], "seq": pa.array([1, 2, 3], pa.int32()),
        "time": when, "op": ["apply"] * 3,
    })  # fmt: skip
    paths = [str(tmp_path / name) for name in ("one.parquet", "two.parquet")]
    pq.write_table(narrow, paths[0], use_deprecated_int96_timestamps=True)
    pq.write_table(narrow, paths[1])
    found = [row for one in read(paths, "shop") for row in one.to_pylist()]
    assert [(row["destination"], row["seq"], row["ms"], row["epoch"]) for row in found] == [
        ("a", 1, 1_763_600_000_123, None),
        ("b", 3, 1_763_600_000_123, None),
    ] * 2


def test_files_that_count_are_found_in_their_order_and_none_where_only_spark_can_tell(tmp_path: Path) -> None:
    """Mutant: hidden files are read."""
    names = ["entries/date=1/b.parquet", "entries/date=1/a.parquet", "problems/date=1/c.parquet"]
    for name in [*names, "entries/_staging/d.parquet", "entries/date=1/.a.crc", "other/e.parquet"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    found = parquet_files(tmp_path)
    assert found == [(str(tmp_path / name), 1) for name in (names[1], names[0], names[2])]
    (tmp_path / "entries" / "_spark_metadata").mkdir()
    assert parquet_files(tmp_path) == parquet_files("s3a://ledgers/shop") == []
