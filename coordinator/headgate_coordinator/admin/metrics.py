"""Metrics for Prometheus are listed here: each one's name, type and meaning, and where its value comes from."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final, Literal, TypeVar

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as MetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from headgate import LimitState, PoolPart, PoolState, SitePart, StoreState, __version__
from headgate.explain.limiter_view import BandUse, LimiterView
from headgate_coordinator.admin.destination_state import DestinationState
from headgate_coordinator.admin.namespace_watch import NamespaceSnapshot
from headgate_coordinator.fleet.reports import Address, Series
from headgate_coordinator.fleet.waits import BOUNDS

Kind = Literal["gauge", "counter", "histogram"]
F = TypeVar("F", bound=Callable[..., float | None])


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric has a name, a type and a help text: a counter's name here lacks its ``_total``."""

    name: str
    type: Kind
    help: str
    labels: tuple[str, ...] = ()

    @property
    def exposed(self) -> str:
        """Its name as Prometheus sees it."""
        return f"{self.name}_total" if self.type == "counter" else self.name

    def family(self, samples: Mapping[tuple[str, ...], float]) -> MetricFamily:
        """Return it with its samples, by label values."""
        kind = CounterMetricFamily if self.type == "counter" else GaugeMetricFamily
        family = kind(self.name, self.help, labels=self.labels)
        for values, value in samples.items():
            family.add_metric(values, value)
        return family


Table = tuple[tuple[Metric, F], ...]
"""Metrics of one kind of thing, and what says each one's value."""


def _table(prefix: str, label: tuple[str, ...], *rows: tuple[str, Kind, str, F]) -> Table[F]:
    labels = ("namespace", *label)
    return tuple((Metric(f"headgate_{prefix}{name}", kind, text, labels), value) for name, kind, text, value in rows)


OF_DESTINATIONS: Final[Table[Callable[[DestinationState], float | None]]] = _table(
    "", ("destination",),
    ("pending_bytes", "gauge", "Bytes stored and not settled.", lambda one: one.pending_bytes),
    ("pending_messages", "gauge", "Messages stored and not settled.", lambda one: one.pending_messages),
    ("leased_bytes", "gauge", "Credit granted to senders and not used.", lambda one: one.leased_bytes),
    ("leased_messages", "gauge", "The same in messages.", lambda one: one.leased_messages),
    ("limit_bytes", "gauge", "Most that may be pending and leased; absent when unlimited.",
     lambda one: one.limit_bytes),
    ("limit_messages", "gauge", "The same in messages.", lambda one: one.limit_messages),
    ("peak_bytes", "gauge", "The most that was ever pending and leased together.", lambda one: one.peak_bytes),
    ("blocked_sessions", "gauge", "Sessions that wait for credit.", lambda one: one.blocked),
    ("consumers", "gauge", "Consumers that are attached.", lambda one: one.consumers),
    ("stopped", "gauge", "1 while it was stopped by hand, else 0.", lambda one: float(bool(one.stopped))),
    ("published_messages", "counter", "Messages stored.", lambda one: one.published),
    ("settled_messages", "counter", ("Messages that were stored and are not pending any more: settled, expired "
     "or purged."), lambda one: one.settled),
    ("dropped_messages", "counter", "Messages that producers dropped for want of room.", lambda one: one.dropped),
    ("dropped_bytes", "counter", "Bytes of these.", lambda one: one.dropped_bytes),
    ("spooled_bytes", "gauge", "Bytes of segments in spool stores that messages here refer to; not pending.",
     lambda one: one.spooled_bytes),
    ("reference_bytes", "gauge", "Bytes of references to spooled messages, which Redis has beside pending ones.",
     lambda one: one.reference_bytes),
    ("later_messages", "gauge", "Pending messages that wait for their time, and deliveries that failed and wait.",
     lambda one: one.later_messages if one.kind in ("queue", "topic") else None),
    ("limit_reference_bytes", "gauge", "Most of these, of queues and topics; absent when unlimited.",
     lambda one: one.limit_reference_bytes if one.kind in ("queue", "topic") else None),
    ("epochs", "counter", ("Times that Redis may have lost its last writes: it restarted, failed over or was "
     "emptied."), lambda one: one.epochs),
    ("lost_messages", "counter", ("Messages that senders have receipts for, and Redis lost; consumers may have had "
     "some."), lambda one: one.lost),
    ("taken_tokens", "counter", "Tokens taken; of buckets only.",
     lambda one: one.taken if one.kind == "bucket" else None),
)  # fmt: skip
"""Of each destination, up to the setting ``destinations``."""
OF_STORES: Final[Table[Callable[[StoreState], float | None]]] = _table(
    "store_", ("store",),
    ("held_bytes", "gauge", "Bytes of the segments of a spool store.", lambda one: one.held),
    ("leased_bytes", "gauge", "Room for segments that sessions have and do not use yet.", lambda one: one.leased),
    ("limit_bytes", "gauge", "Most that may be held and leased; absent when unlimited.", lambda one: one.limit),
    ("segments", "gauge", "Segments of a spool store.", lambda one: one.segments),
    ("waiting_sessions", "gauge", "Sessions that wait for room in it.", lambda one: one.waiting),
)  # fmt: skip
"""Of each spool store."""
OF_POOLS: Final[Table[Callable[[PoolState], float | None]]] = _table(
    "pool_", ("pool",),
    ("used_bytes", "gauge", "Bytes pending and leased at the destinations of a pool.", lambda one: one.used),
    ("granted_bytes", "gauge", "Bytes that destinations hold as slices of a pool, used or not.",
     lambda one: one.granted),
    ("limit_bytes", "gauge", "Most that may be granted; absent when unlimited.", lambda one: one.limit),
    ("members", "gauge", "Destinations and sites that hold a slice of a pool.", lambda one: one.members),
    ("waiting_destinations", "gauge", "Destinations and sites in line for more of it.", lambda one: one.waiting),
)  # fmt: skip
"""Of each pool."""
OF_SITES: Final[Table[Callable[[SitePart], float | None]]] = _table(
    "pool_site_", ("pool", "site"),
    ("held_bytes", "gauge", "Bytes of a pool that a site was granted and has not given back.", lambda one: one.held),
    ("kept_bytes", "gauge", "Bytes beyond these that nobody else gets: its least, or till it is heard of.",
     lambda one: one.kept),
    ("least_bytes", "gauge", "Bytes that nobody else gets, whether it uses them or not.", lambda one: one.least),
    ("limit_bytes", "gauge", "Most of it that the site may have.", lambda one: one.most),
    ("heard_seconds", "gauge", "Seconds since its last report; absent where there was none.", lambda one: one.heard),
    ("stranded_bytes", "gauge", "Bytes that cannot be taken back, for the site is cut off.",
     lambda one: one.held + one.kept if one.stranded else 0),
)  # fmt: skip
"""Of each part that another site has of a pool."""
OF_PARTS: Final[Table[Callable[[PoolPart], float | None]]] = _table(
    "pool_part_", ("pool", "site"),
    ("held_bytes", "gauge", "Bytes that a pool holds of one at another site.", lambda one: one.held),
    ("limit_bytes", "gauge", "Most that it can have there; absent while that is not known.", lambda one: one.most),
    ("heard_seconds", "gauge", "Seconds since the other site was heard of; absent where it never was.",
     lambda one: one.heard),
)  # fmt: skip
"""Of each pool that is a part of one at another site."""
OF_LIMITERS: Final[Table[Callable[[LimiterView], float | None]]] = _table(
    "limiter_", ("destination",),
    ("held_off_seconds", "gauge", "Seconds for which a limiter admits nothing more; 0 without a hold-off.",
     lambda one: one.held_off),
    ("keys", "gauge", "Keys of a limiter that are in use: something of them is held, owed or waits.",
     lambda one: one.keys),
    ("admitted", "counter", ("Holds of a limiter that were admitted; what a session takes in hand counts "
     "once."), lambda one: one.admitted),
    ("refused", "counter", "Admissions that a limiter refused, or that gave up waiting.",
     lambda one: one.refused),
    ("would_wait", "counter", ("Admissions of a limiter that a shadow limit would have kept waiting, or "
     "refused."), lambda one: one.would_wait),
)  # fmt: skip
"""Of each limiter, never of a key."""
OF_LIMITS: Final[Table[Callable[[LimitState, LimiterView], float | None]]] = _table(
    "limit_", ("destination", "limit"),
    ("taken", "gauge", "Taken of a limit: held at once, used of a quota, or not refilled of a rate's burst.",
     lambda limit, _: limit.taken),
    ("most", "gauge", "Most of it: what may be held at once, the quota, or the burst of a rate.",
     lambda limit, _: limit.limit),
    ("withheld", "gauge", "Neither taken nor available: after a hold-off a limit comes back slowly.",
     lambda limit, _: limit.withheld),
    ("waiting", "gauge", "Admissions that wait for it.",
     lambda limit, view: view.waiting_for.get(limit.name, 0)),
)  # fmt: skip
"""Of each limit of each limiter."""
FINISHED: Final = Metric(
    "headgate_limit_finished", "counter", "Holds of a limit that adapts, by how they ended: ok, overload or ignore.",
    ("namespace", "destination", "limit", "outcome"),
)  # fmt: skip
OF_BANDS: Final[Table[Callable[[BandUse], float | None]]] = _table(
    "limiter_band_", ("destination", "band"),
    ("waiting", "gauge", "Admissions of a band that wait; 0 goes first, 7 last.", lambda one: one.waiting),
    ("admitted", "counter", "Holds of a band that were admitted; what a session takes in hand counts once.",
     lambda one: one.admitted),
    ("shed", "counter", "Admissions of a band that were refused because the limiter was too full for it.",
     lambda one: one.shed),
)  # fmt: skip
"""Of each band of a limiter, where callers or keys have any but the usual one."""
SHADOWED: Final = Metric(
    "headgate_shadow_limit_would_wait", "counter", "Admissions of a limiter, messages of a queue or topic, "
    "credit of a gate or calls of a bucket that a shadow limit would have kept waiting, or refused; it is of all keys "
    "together, or of each.", ("namespace", "destination", "limit", "of"),
)  # fmt: skip
BUILD: Final = Metric("headgate_build_info", "gauge", "1; the version is its label.", ("version",))
UP: Final = Metric("headgate_redis_up", "gauge", "1 when Redis answered this scrape in time, else 0.")
EVICTS: Final = Metric(
    "headgate_redis_evicts", "gauge", "1 when Redis deletes keys once memory is full: messages and counters are lost."
)
READ: Final = Metric("headgate_redis_read_seconds", "gauge", "How long reading all destinations took.")
COUNT: Final = Metric("headgate_destinations", "gauge", "Destinations of the namespace.", ("namespace",))
OMITTED: Final = Metric(
    "headgate_destinations_omitted", "gauge", "Destinations without metrics of their own: beyond the bound.",
    ("namespace",),
)  # fmt: skip
NODE: Final = Metric("headgate_node_info", "gauge", "1; who the node is.", ("node", "address"))
STARTED: Final = Metric("headgate_node_start_time_seconds", "gauge", "When the node started, since 1970.")
READY: Final = Metric("headgate_node_ready", "gauge", "1 when the node lets clients in, 0 when it drains.")
WORKERS: Final = Metric("headgate_node_workers", "gauge", "Workers that the node's address should have.")
ANSWERING: Final = Metric("headgate_node_answering_workers", "gauge", "Those of them that answer.")
REPLACED: Final = Metric(
    "headgate_node_replaced_workers", "counter", "Workers that ended on their own and were replaced."
)
WAITS: Final = Metric(
    "headgate_wait_seconds", "histogram", "How long clients of the node waited for credit or to be admitted, as a wait "
    "ends; what is in hand takes no wait.", ("namespace", "destination", "kind", "outcome"),
)  # fmt: skip
_WAY, _LINK = ("direction",), ("source", "target")
OF_NODES: Final = {
    "connections": Metric("headgate_node_connections", "gauge", "Connections of clients that are open."),
    "links": Metric("headgate_node_links", "gauge", "Links that are attached.", _WAY),
    "waiting_links": Metric("headgate_node_waiting_links", "gauge", "Links that wait for credit.", _WAY),
    "unsettled": Metric("headgate_node_unsettled_messages", "gauge", "Deliveries not settled.", _WAY),
    "messages": Metric("headgate_node_messages", "counter", "Messages carried.", _WAY),
    "bytes": Metric("headgate_node_bytes", "counter", "Bytes of these.", _WAY),
    "rejected": Metric(
        "headgate_node_rejected", "counter", "Messages, transfers and calls that the node refused.", ("reason",)
    ),
    "bridges": Metric("headgate_node_bridges", "gauge", "Links of the policy that the node works on."),
    "stalled_bridges": Metric("headgate_node_stalled_bridges", "gauge", "Links of these that do not move."),
    "forwarded": Metric(
        "headgate_node_forwarded_messages", "counter", "Messages forwarded over a link of the policy.", _LINK
    ),
    "forwarded_bytes": Metric("headgate_node_forwarded_bytes", "counter", "Bytes of these.", _LINK),
    "channel_packets": Metric(
        "headgate_node_channel_packets", "counter", "Packets sent by a channel, heartbeats among them.", _LINK
    ),
    "channel_backlog": Metric("headgate_node_channel_backlog", "gauge", "Messages that a channel has to send.", _LINK),
    "deadlocks": Metric("headgate_node_deadlocks", "gauge", "Present deadlocks; 0 at nodes that do not look for them."),
    "found_deadlocks": Metric(
        "headgate_node_found_deadlocks", "counter", "Deadlocks that the node found, by the action set.", ("action",)
    ),
}
"""Of each node, by the words of reports."""
METRICS: Final = (
    BUILD, UP, EVICTS, READ, COUNT, OMITTED,
    *(one for table in (OF_DESTINATIONS, OF_STORES, OF_POOLS, OF_SITES, OF_PARTS) for one, _ in table),
    *(one for one, _ in (*OF_LIMITERS, *OF_LIMITS)), FINISHED, *(one for one, _ in OF_BANDS), SHADOWED,
    NODE, STARTED, READY, *OF_NODES.values(), WORKERS, ANSWERING, REPLACED, WAITS,
)  # fmt: skip
"""All there are."""


def render(
    picture: NamespaceSnapshot, namespace: str, node: Address, *, most: int, accept: str = "", evicts: bool = False
) -> tuple[bytes, str]:
    """Return the text of a scrape, and its media type.

    Args:
        picture: of the destinations; while Redis does not answer nothing is reported about them.
        namespace: theirs.
        node: the processes at the address that is scraped.
        most: destinations that have metrics of their own, the first by name.
        accept: which formats the scraper takes.
        evicts: whether Redis deletes keys when its memory is full.
    """
    encode, media_type = choose_encoder(accept)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Scrape(picture, namespace, node, most, evicts=evicts))
    return encode(registry), media_type


class _Scrape(Collector):
    def __init__(self, picture: NamespaceSnapshot, namespace: str, node: Address, most: int, *, evicts: bool) -> None:
        self._evicts = evicts
        self._picture = picture
        self._namespace = namespace
        self._node = node
        self._most = most

    def collect(self) -> Iterator[MetricFamily]:
        yield BUILD.family({(__version__,): 1})
        yield UP.family({(): 0 if self._picture.trouble else 1})
        if not self._picture.trouble:
            yield EVICTS.family({(): int(self._evicts)})
            yield from self._destinations()
        yield self._waited()
        if self._node.reports:
            yield from _node(self._node)

    def _waited(self) -> MetricFamily:
        family = HistogramMetricFamily(WAITS.name, WAITS.help, labels=WAITS.labels)
        edges = [*map(str, BOUNDS), "+Inf"]
        for (word, *labels), numbers in self._node.counts.items():
            if word == "waits":
                buckets = list(zip(edges, accumulate(numbers[:-1]), strict=True))
                family.add_metric((self._namespace, *labels), buckets, numbers[-1])
        return family

    def _destinations(self) -> Iterator[MetricFamily]:
        namespace, picture = self._namespace, self._picture
        shown = list(picture.destinations.values())[: self._most]
        yield READ.family({(): picture.seconds})
        yield COUNT.family({(namespace,): picture.total})
        yield OMITTED.family({(namespace,): max(0, picture.total - len(shown))})
        views = {one.name: picture.limiters[one.name] for one in shown if one.name in picture.limiters}
        yield from _each(OF_DESTINATIONS, {(namespace, one.name): (one,) for one in shown})
        yield from _each(OF_STORES, {(namespace, one.name): (one,) for one in picture.stores})
        yield from _each(OF_POOLS, {(namespace, one.name): (one,) for one in picture.pools})
        yield from _each(OF_SITES, {
            (namespace, pool.name, one.site): (one,) for pool in picture.pools for one in pool.sites
        })  # fmt: skip
        parts = ((pool.name, pool.part_of) for pool in picture.pools)
        yield from _each(OF_PARTS, {(namespace, name, one.site): (one,) for name, one in parts if one})
        yield from _each(OF_LIMITERS, {(namespace, name): (view,) for name, view in views.items()})
        yield from _each(OF_LIMITS, {
            (namespace, name, limit.name): (limit, view) for name, view in views.items() for limit in view.limits
        })  # fmt: skip
        yield FINISHED.family({
            (namespace, name, limit.name, outcome): times
            for name, view in views.items() for limit in view.limits if limit.adapting
            for outcome, times in limit.adapting.outcomes.items()
        })  # fmt: skip
        yield from _each(OF_BANDS, {
            (namespace, name, str(use.band)): (use,) for name, view in views.items() for use in view.bands
        })  # fmt: skip
        of_limiters = {(name, *of.split(" of ")): n for name, view in views.items() for of, n in view.shadowed.items()}
        of_others = {(one.name, limit, "all"): times for one in shown for limit, times in one.shadowed.items()}
        yield SHADOWED.family({(namespace, *of): times for of, times in (of_limiters | of_others).items()})


def _each(table: Table[F], things: Mapping[tuple[str, ...], tuple[Any, ...]]) -> Iterator[MetricFamily]:
    """Yield the metrics of a table, of things by the values of their labels; a thing without a value has none."""
    for declared, value_of in table:
        values = ((labels, value_of(*thing)) for labels, thing in things.items())
        yield declared.family({labels: value for labels, value in values if value is not None})


def _node(node: Address) -> Iterator[MetricFamily]:
    yield NODE.family({(one.id, one.address): 1 for one in node.reports})
    yield STARTED.family({(): node.started})
    yield READY.family({(): float(any(one.state == "ready" for one in node.reports))})
    yield WORKERS.family({(): node.workers})
    yield ANSWERING.family({(): len(node.reports)})
    yield REPLACED.family({(): node.replaced})
    for series in (node.levels, node.counts):
        yield from _families(series)


def _families(series: Series) -> Iterator[MetricFamily]:
    samples: dict[str, dict[tuple[str, ...], float]] = {}
    for (word, *labels), numbers in series.items():
        samples.setdefault(word, {})[tuple(labels)] = numbers[0]
    for word, values in samples.items():
        if word in OF_NODES:
            yield OF_NODES[word].family(values)
