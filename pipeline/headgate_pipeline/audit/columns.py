"""Entries of one destination as columns of numbers, with what their events say. Pure: no Spark, no I/O."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate.core.ledger import EVENTS
from headgate_pipeline.audit.findings import ROW

Row = tuple[Any, ...]
Numbers = npt.NDArray[np.int64]
Marks = npt.NDArray[np.bool_]

PUBLISH, SETTLE, ACQUIRE, TAKE, DROP, LEAVE, ATTACH, DETACH, REAP = range(9)
_OPS: Final = pa.array(["publish", "settle", "acquire", "take", "drop", "leave", "attach", "detach", "reap"])
_OTHER: Final = 99
GRANT, OPEN, RECLAIM, RETURN, SETTLED, FETCHED, EXPIRED, RELEASED, USE, TOTALS, END = range(11)
_EVENTS: Final = {
    "grant": GRANT, "open": OPEN, "reclaim": RECLAIM, "return": RETURN, "settled": SETTLED, "fetched": FETCHED,
    "expired": EXPIRED, "released": RELEASED,
}  # fmt: skip
_PARTS: Final = np.array([1 + len(EVENTS[name]) for name in _EVENTS])
"""Of an event's text, its name included."""
_NONE: Final = -1
_WITHOUT: Final = frozenset(
    {"", "block", "unblock", "giveup", "late", "detach", "slow", "brisk", "committed", "regressed", "spooled", "off"}
    | {"waits", "quit", "refused", "overdrawn"}
)
"""Events that change nothing that a replay follows."""
_TEXT: Final = frozenset({"op", "session", "detail", "problem"})
_MOST: Final = 1 << 53
MISSING: Final = "malformed: a column is missing"


class Acts(NamedTuple):
    """`Acts` holds acts on credit, in order: of a row first what it uses, then its events, then its totals or its end.

    Attributes:
        row: of which.
        kind: GRANT, OPEN, RECLAIM, RETURN, USE, TOTALS or END.
        who: number of the session among the names.
        bytes: an amount, or of GRANT and TOTALS a total.
        messages: the same.
    """

    row: Numbers
    kind: Numbers
    who: Numbers
    bytes: Numbers
    messages: Numbers


class Events(NamedTuple):
    """`Events` holds events of one meaning, in order; ``kind`` tells them apart."""

    row: Numbers
    kind: Numbers
    bytes: Numbers
    messages: Numbers


class Columns:
    """`Columns` holds a batch of one destination, in order, read once.

    Its columns are those of :data:`~headgate_pipeline.audit.findings.ROW`.

    Attributes:
        odd: rows that must be replayed one by one: of a rare operation, with a rare event, or no entry.
        number: columns of numbers by name.
        op: PUBLISH to REAP, or more.
        names: of sessions and consumers.
        who: of each row, as a place in ``names``.
        acts: what happens to credit.
        deliveries: SETTLED and FETCHED.
        freed: EXPIRED.
        released: rows after which message numbers may jump.
    """

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch
        self.count = count = batch.num_rows
        self.odd: Marks = np.zeros(count, bool)
        self._whole = all(batch.column(name).null_count == 0 for name in ROW if name != "problem")
        self.number = {name: self._numbers(name) for name in ROW if name not in _TEXT}
        self.odd |= self.number["version"] != 1
        if batch.column("problem").null_count != count:
            self.odd |= _marks(pc.is_valid(batch.column("problem")))
        self.op = pc.index_in(self._text("op"), _OPS).fill_null(_OTHER).to_numpy(zero_copy_only=False)
        self.odd |= self.op == _OTHER
        self._events()

    def _numbers(self, name: str) -> Numbers:
        column = self._batch.column(name)
        if column.null_count:
            self.odd |= _marks(pc.is_null(column))
            column = pc.fill_null(column, 0)
        numbers = np.asarray(column.to_numpy(zero_copy_only=False), np.int64)
        if self.count and (numbers.max() > _MOST or numbers.min() < -_MOST):  # no sum of them may overflow
            self.odd |= (numbers > _MOST) | (numbers < -_MOST)
        return numbers

    def _text(self, name: str) -> pa.Array:
        column = self._batch.column(name)
        if column.null_count:
            self.odd |= _marks(pc.is_null(column))
            column = pc.fill_null(column, "")
        return column

    def _events(self) -> None:
        parts = pc.split_pattern(self._text("detail"), ";")
        row = np.repeat(np.arange(self.count), np.diff(parts.offsets.to_numpy()))
        split = pc.split_pattern(parts.flatten(), ":")
        words, begin = split.flatten(), split.offsets.to_numpy().astype(np.int64)
        count, begin = np.diff(begin), begin[:-1]
        name = words.take(pa.array(begin)).dictionary_encode()
        kinds = [_EVENTS.get(text, _NONE if text in _WITHOUT else _OTHER) for text in name.dictionary.to_pylist()]
        kind = np.array(kinds, np.int64)[name.indices.to_numpy()]
        known = np.flatnonzero((kind >= 0) & (kind < _OTHER))
        kind[known[count[known] != _PARTS[kind[known]]]] = _OTHER
        read = known[(kind[known] < RELEASED)]
        size, messages = np.zeros((2, len(read)), np.int64)
        amounts = np.flatnonzero(kind[read] != OPEN)
        at = begin[read[amounts]] + np.where(kind[read[amounts]] <= RECLAIM, 2, 1)
        size[amounts], fine = _whole_numbers(words, at)
        messages[amounts], fine_m = _whole_numbers(words, at + 1)
        kind[read[amounts[~(fine & fine_m)]]] = _OTHER
        self.odd[row[kind == _OTHER]] = True
        self.released: Numbers = row[kind == RELEASED]
        self._name(words.take(pa.array(begin[(kind >= 0) & (kind <= RECLAIM)] + 1)))
        read_row, read_kind = row[read], kind[read]
        is_ = ((read_kind == SETTLED) | (read_kind == FETCHED)) & (size != 0)
        self.deliveries = Events(read_row[is_], read_kind[is_], size[is_], messages[is_])
        is_ = read_kind == EXPIRED
        self.freed = Events(read_row[is_], read_kind[is_], size[is_], messages[is_])
        self._credit(read_row, read_kind, size, messages)

    def _name(self, sessions: pa.Array) -> None:
        """Number the sessions of rows and of events."""
        both = pa.concat_arrays([self._text("session"), sessions]).dictionary_encode()
        self.names: list[str] = both.dictionary.to_pylist()
        number = both.indices.to_numpy().astype(np.int64)
        self.who: Numbers
        self.who, self._session = number[: self.count], number[self.count :]

    def _credit(self, row: Numbers, kind: Numbers, size: Numbers, messages: Numbers) -> None:
        is_ = kind <= RETURN
        row, kind, size, messages = row[is_], kind[is_], size[is_], messages[is_]
        who = self.who[row]
        who[kind <= RECLAIM] = self._session
        all_bytes, all_messages = self.number["bytes"], self.number["messages"]
        use = np.flatnonzero((self.op == PUBLISH) & ((all_bytes != 0) | (all_messages != 0)))
        total = np.flatnonzero((self.op == ACQUIRE) | (self.op == LEAVE))
        ends = np.where(self.op[total] == LEAVE, END, TOTALS)
        order = np.argsort(np.concatenate([use * 3, row * 3 + 1, total * 3 + 2]), kind="stable")
        self.acts = Acts(
            np.concatenate([use, row, total])[order],
            np.concatenate([np.full(len(use), USE), kind, ends])[order],
            np.concatenate([self.who[use], who, self.who[total]])[order],
            np.concatenate([all_bytes[use], size, all_bytes[total]])[order],
            np.concatenate([all_messages[use], messages, all_messages[total]])[order],
        )

    def rows(self, first: int, last: int) -> Iterator[Row]:
        """Return rows as a replay takes them one by one."""
        part = self._batch.slice(first, last - first)
        columns = [
            part.column(name).to_pylist()
            if name in _TEXT or not self._whole
            else self.number[name][first:last].tolist()
            for name in ROW
        ]
        for row in zip(*columns, strict=True):
            lacks = row[-1] is None and not self._whole and None in row[:-1]
            yield (*row[:-1], MISSING) if lacks else row


def _marks(column: pa.Array) -> Marks:
    return np.asarray(column.to_numpy(zero_copy_only=False), bool)


def _whole_numbers(words: pa.Array, at: Numbers) -> tuple[Numbers, Marks]:
    """Return the numbers there, and where there is one as scripts write it."""
    found = words.take(pa.array(at))
    fine = pc.and_(pc.ascii_is_decimal(found), pc.less_equal(pc.binary_length(found), 16))
    fine = pc.and_(fine, pc.or_(pc.invert(pc.starts_with(found, "0")), pc.equal(found, "0")))
    return pc.if_else(fine, found, "0").cast(pa.int64()).to_numpy(), _marks(fine)


def shifted(column: Numbers, first: int) -> Numbers:
    """Return what was there before each row."""
    found = np.empty_like(column)
    found[:1] = first
    found[1:] = column[:-1]
    return found
