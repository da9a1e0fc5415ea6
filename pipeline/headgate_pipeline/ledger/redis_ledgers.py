"""Ledgers are read from Redis: which there are, how far they go, what they say. Reading must not hurt those who send.

Replies are of 500 entries at most, one at a time a task: a longer one keeps Redis from its other callers.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import pyarrow as pa
from redis import Redis
from redis.exceptions import AskError, MovedError

from headgate.core.addresses.pattern import Pattern
from headgate.core.names import MOST_SLICES, slice_name, whole_name
from headgate.redis.bulk import BulkConnections
from headgate.redis.keys import Address, check_namespace, parse_key
from headgate_pipeline.ledger import parse as ledger
from headgate_pipeline.ledger.offsets import Bounds, Offset
from headgate_pipeline.ledger.parse import Entry

COUNT: Final = 500
"""Entries a reply."""
BATCH: Final = 32_000
"""Entries a batch of Arrow, about."""
PIPELINE: Final = 100
"""Ledgers that are asked about in one write."""
TRIM: Final = 2_000
"""Entries that one call trims, about."""
KEPT: Final = 100
"""Newest entries that are never trimmed: explanations read the pace of the last seconds off them."""
_SUFFIX: Final = ":ledger"
_opened: dict[tuple[int, str], BulkConnections] = {}


def connected(url: str) -> BulkConnections:
    """Return this process' connections to a Redis, opened once: Spark's workers read many partitions."""
    key = (os.getpid(), url)
    if key not in _opened:
        _opened[key] = BulkConnections(url)
    return _opened[key]


def disconnect() -> None:
    """Close this process' connections."""
    while _opened:
        _opened.popitem()[1].close()


class Ledgers:
    """`Ledgers` reads the ledgers of a namespace.

    Raises:
        InvalidName: it is no namespace.
    """

    def __init__(self, direct: BulkConnections, namespace: str) -> None:
        self.namespace = check_namespace(namespace)
        self._direct = direct

    def find(self, pattern: str) -> list[str]:
        """Return the destinations with a ledger that a pattern, as in a policy, matches, on all primaries.

        A slice has a ledger of its own, and is found by the name of its destination.

        Raises:
            PolicyError: it is no pattern.
            CoordinatorUnavailable: a server does not answer.
        """
        wanted = Pattern.parse(pattern)
        if wanted.exact:
            names = [slice_name(pattern, number) for number in range(MOST_SLICES)]
            return [name for name, bounds in self.look(dict.fromkeys(names)).items() if bounds]
        found = set()
        for client in self._direct.primaries():
            for key in self._direct.at(_key(self.namespace, "any"), partial(self._keys, client)):
                parsed = parse_key(key.decode().removesuffix(_SUFFIX))
                if parsed and wanted.matches(whole_name(parsed[1])):
                    found.add(parsed[1])
        return sorted(found)

    def look(self, reached: Mapping[str, int | None]) -> dict[str, Bounds | None]:
        """Return what there is of ledgers, None for one that is not there; a hundred a round trip.

        Args:
            reached: destination -> number of the entry that was read last, None for one that was not read.

        Raises:
            CoordinatorUnavailable: a server does not answer.
        """
        found: dict[str, Bounds | None] = {}
        for keys in self._by_server(reached):
            asked = {key: reached[name] for key, name in keys.items()}
            replies = self._direct.at(next(iter(keys)), partial(_ask, reached=asked))
            for name, reply in zip(keys.values(), replies, strict=True):
                moved = isinstance(reply[0], MovedError | AskError)
                found[name] = self._bounds(name, reached[name]) if moved else _bounds_of(reply)
        return found

    def first_after(self, destination: str, epoch: int, last: int) -> int:
        """Return the number of the oldest entry of a later epoch; one above ``last`` if there is none up to there."""
        found = self._bounds(destination, None)
        low, high = (found.first if found else last + 1), last + 1
        while low < high:  # epochs only grow
            middle = (low + high) // 2
            entry = self._entry(destination, middle, last)
            if entry is None or (ledger.epoch_of(entry) or 0) > epoch:
                high = middle
            else:
                low = ledger.seq_of(entry) + 1
        return low

    def read(self, destination: str, first: int, last: int) -> Iterator[pa.RecordBatch]:
        """Return the rows of these numbers; what is not there, or no longer, is a row that says so.

        Raises:
            CoordinatorUnavailable: the server does not answer.
        """
        key = _key(self.namespace, destination)
        while first <= last:
            with ledger.no_garbage_collection():
                entries: list[Entry] = []
                upto = last
                reply = self._range(key, first, last, COUNT)
                entries += reply
                while len(reply) == COUNT:
                    upto = ledger.seq_of(reply[-1])
                    if len(entries) >= BATCH or upto >= last:
                        break
                    reply = self._range(key, upto + 1, last, COUNT)
                    entries += reply
                else:
                    upto = last
                batch = ledger.decode(self.namespace, destination, entries, first, upto)
                del entries, reply
            yield batch
            first = upto + 1

    def trim(self, read: Offset) -> int:
        """Delete entries that were read, but the newest ones; returns how many. A little at a time, by whole nodes."""
        trimmed = 0
        for name, bounds in self.look({name: there["seq"] for name, there in read.items()}).items():
            if bounds is None or bounds.at is None or bounds.at != read[name]["epoch"]:  # not what was read
                continue
            least = min(read[name]["seq"], bounds.last - KEPT + 1)
            while least > bounds.first and (done := self._trim(_key(self.namespace, name), least)):
                trimmed += done
        return trimmed

    def _by_server(self, names: Iterable[str]) -> Iterator[dict[bytes, str]]:
        """Yield key -> name, those of one server together, a few at a time."""
        servers: dict[int, dict[bytes, str]] = {}
        for name in names:
            key = _key(self.namespace, name)
            keys = servers.setdefault(id(self._direct.home(key)), {})
            keys[key] = name
            if len(keys) == PIPELINE:
                yield servers.pop(id(self._direct.home(key)))
        yield from servers.values()

    def _keys(self, client: Redis, _: Redis) -> list[bytes]:
        """Return the keys of ledgers of one server; whatever server is meant, for what is made of errors."""
        return list(client.scan_iter(f"hg:{{{self.namespace}/*}}{_SUFFIX}", COUNT, "stream"))

    def _trim(self, key: bytes, least: int) -> int:
        def work(client: Redis) -> int:
            done: Any = client.xtrim(key, minid=f"{least}-0", approximate=True, limit=TRIM)
            return int(done)

        return self._direct.at(key, work)

    def _range(self, key: bytes, first: int, last: int, count: int) -> list[Entry]:
        reply: Any = self._direct.at(key, lambda client: client.xrange(key, str(first), str(last), count))
        return list(reply)

    def _entry(self, destination: str, first: int, last: int) -> Entry | None:
        found = self._range(_key(self.namespace, destination), first, last, 1)
        return found[0] if found else None

    def _bounds(self, destination: str, reached: int | None) -> Bounds | None:
        key = _key(self.namespace, destination)
        return _bounds_of(self._direct.at(key, lambda client: _ask(client, {key: reached}))[0])


def _ask(client: Redis, reached: Mapping[bytes, int | None]) -> list[list[Any]]:
    """Return the oldest, the newest and the last read entry of each key, each as a list.

    These are commands that the role `metrics` has; XINFO STREAM would tell it in one.
    """
    pipeline: Any = client.pipeline(transaction=False)
    for key, seq in reached.items():
        pipeline.xrange(key, count=1)
        pipeline.xrevrange(key, count=1)
        pipeline.xrange(key, seq or 0, seq or 0, 1)
    replies = pipeline.execute(raise_on_error=False)
    for reply in replies:
        if isinstance(reply, Exception) and not isinstance(reply, MovedError | AskError):
            raise reply
    return [replies[index : index + 3] for index in range(0, len(replies), 3)]


def _bounds_of(replies: list[Any]) -> Bounds | None:
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply
    oldest, newest, at = (reply[0] if reply else None for reply in replies)
    if not oldest or not newest:  # Redis does not tell a ledger without entries from none, and scripts never leave one
        return None
    return Bounds(ledger.seq_of(oldest), ledger.seq_of(newest), ledger.epoch_of(newest) or 0, ledger.epoch_of(at))


def _key(namespace: str, destination: str) -> bytes:
    return Address.of(namespace, destination).shared[-1]
