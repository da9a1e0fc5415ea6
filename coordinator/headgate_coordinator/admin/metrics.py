"""Metrics for Prometheus are listed here: each one's name, type and meaning, and where its value comes from."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, Literal

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


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric has a name, a type and a help text: a counter's name here lacks its ``_total``."""

    name: str
    type: Literal["gauge", "counter", "histogram"]
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


def _each(
    name: str, kind: Literal["gauge", "counter"], meaning: str, value: Callable[[DestinationState], float | None]
) -> tuple[Metric, Callable[[DestinationState], float | None]]:
    return Metric(f"headgate_{name}", kind, meaning, ("namespace", "destination")), value


OF_DESTINATIONS: Final = (
    _each("pending_bytes", "gauge", "Bytes stored and not settled.", lambda one: one.pending_bytes),
    _each("pending_messages", "gauge", "Messages stored and not settled.", lambda one: one.pending_messages),
    _each("leased_bytes", "gauge", "Credit granted to senders and not used.", lambda one: one.leased_bytes),
    _each("leased_messages", "gauge", "The same in messages.", lambda one: one.leased_messages),
    _each("limit_bytes", "gauge", "Most that may be pending and leased; absent when unlimited.",
          lambda one: one.limit_bytes),
    _each("limit_messages", "gauge", "The same in messages.", lambda one: one.limit_messages),
    _each("peak_bytes", "gauge", "The most that was ever pending and leased together.", lambda one: one.peak_bytes),
    _each("blocked_sessions", "gauge", "Sessions that wait for credit.", lambda one: one.blocked),
    _each("consumers", "gauge", "Consumers that are attached.", lambda one: one.consumers),
    _each("stopped", "gauge", "1 while it was stopped by hand, else 0.", lambda one: float(bool(one.stopped))),
    _each("published_messages", "counter", "Messages stored.", lambda one: one.published),
    _each("settled_messages", "counter", "Messages that were stored and are not pending any more: settled, expired "
          "or purged.", lambda one: one.settled),
    _each("dropped_messages", "counter", "Messages that producers dropped for want of room.", lambda one: one.dropped),
    _each("dropped_bytes", "counter", "Bytes of these.", lambda one: one.dropped_bytes),
    _each("spooled_bytes", "gauge", "Bytes of segments in spool stores that messages here refer to; not pending.",
          lambda one: one.spooled_bytes),
    _each("reference_bytes", "gauge", "Bytes of references to spooled messages, which Redis has beside pending ones.",
          lambda one: one.reference_bytes),
    _each("later_messages", "gauge", "Pending messages that wait for their time, and deliveries that failed and wait.",
          lambda one: one.later_messages if one.kind in ("queue", "topic") else None),
    _each("limit_reference_bytes", "gauge", "Most of these, of queues and topics; absent when unlimited.",
          lambda one: one.limit_reference_bytes if one.kind in ("queue", "topic") else None),
    _each("epochs", "counter", "Times that Redis may have lost its last writes: it restarted, failed over or was "
          "emptied.", lambda one: one.epochs),
    _each("lost_messages", "counter", "Messages that senders have receipts for, and Redis lost; consumers may have had "
          "some.", lambda one: one.lost),
    _each("taken_tokens", "counter", "Tokens taken; of buckets only.",
          lambda one: one.taken if one.kind == "bucket" else None),
)  # fmt: skip
"""Of each destination, up to the setting ``destinations``."""


def _of_store(
    name: str, meaning: str, value: Callable[[StoreState], float | None]
) -> tuple[Metric, Callable[[StoreState], float | None]]:
    return Metric(f"headgate_store_{name}", "gauge", meaning, ("namespace", "store")), value


OF_STORES: Final = (
    _of_store("held_bytes", "Bytes of the segments of a spool store.", lambda one: one.held),
    _of_store("leased_bytes", "Room for segments that sessions have and do not use yet.", lambda one: one.leased),
    _of_store("limit_bytes", "Most that may be held and leased; absent when unlimited.", lambda one: one.limit),
    _of_store("segments", "Segments of a spool store.", lambda one: one.segments),
    _of_store("waiting_sessions", "Sessions that wait for room in it.", lambda one: one.waiting),
)
"""Of each spool store."""


def _of_pool(
    name: str, meaning: str, value: Callable[[PoolState], float | None]
) -> tuple[Metric, Callable[[PoolState], float | None]]:
    return Metric(f"headgate_pool_{name}", "gauge", meaning, ("namespace", "pool")), value


OF_POOLS: Final = (
    _of_pool("used_bytes", "Bytes pending and leased at the destinations of a pool.", lambda one: one.used),
    _of_pool("granted_bytes", "Bytes that destinations hold as slices of a pool, used or not.",
             lambda one: one.granted),
    _of_pool("limit_bytes", "Most that may be granted; absent when unlimited.", lambda one: one.limit),
    _of_pool("members", "Destinations that hold a slice of a pool.", lambda one: one.members),
    _of_pool("waiting_destinations", "Destinations in line for more of it.", lambda one: one.waiting),
)  # fmt: skip
"""Of each pool."""


def _of_site(
    name: str, meaning: str, value: Callable[[SitePart], float | None]
) -> tuple[Metric, Callable[[SitePart], float | None]]:
    return Metric(f"headgate_pool_site_{name}", "gauge", meaning, ("namespace", "pool", "site")), value


OF_SITES: Final = (
    _of_site("held_bytes", "Bytes of a pool that a site was granted and has not given back.", lambda one: one.held),
    _of_site("kept_bytes", "Bytes beyond these that nobody else gets till it is heard of.", lambda one: one.kept),
    _of_site("limit_bytes", "Most of it that the site may have.", lambda one: one.most),
    _of_site("heard_seconds", "Seconds since its last report; absent where there was none.", lambda one: one.heard),
    _of_site("stranded_bytes", "Bytes that cannot be taken back, for the site is cut off.",
             lambda one: one.held + one.kept if one.stranded else 0),
)  # fmt: skip
"""Of each part that another site has of a pool."""


def _of_part(
    name: str, meaning: str, value: Callable[[PoolPart], float | None]
) -> tuple[Metric, Callable[[PoolPart], float | None]]:
    return Metric(f"headgate_pool_part_{name}", "gauge", meaning, ("namespace", "pool", "site")), value


OF_PARTS: Final = (
    _of_part("held_bytes", "Bytes that a pool holds of one at another site.", lambda one: one.held),
    _of_part("limit_bytes", "Most that it can have there; absent while that is not known.", lambda one: one.most),
    _of_part("heard_seconds", "Seconds since the other site was heard of; absent where it never was.",
             lambda one: one.heard),
)  # fmt: skip
"""Of each pool that is a part of one at another site."""


def _of_limiter(
    name: str, kind: Literal["gauge", "counter"], meaning: str, value: Callable[[LimiterView], float]
) -> tuple[Metric, Callable[[LimiterView], float]]:
    return Metric(f"headgate_limiter_{name}", kind, meaning, ("namespace", "destination")), value


OF_LIMITERS: Final = (
    _of_limiter("held_off_seconds", "gauge", "Seconds for which a limiter admits nothing more; 0 without a hold-off.",
                lambda one: one.held_off),
    _of_limiter("keys", "gauge", "Keys of a limiter that are in use: something of them is held, owed or waits.",
                lambda one: one.keys),
    _of_limiter("admitted", "counter", "Holds of a limiter that were admitted; what a session takes in hand counts "
                "once.", lambda one: one.admitted),
    _of_limiter("refused", "counter", "Admissions that a limiter refused, or that gave up waiting.",
                lambda one: one.refused),
    _of_limiter("would_wait", "counter", "Admissions of a limiter that a shadow limit would have kept waiting, or "
                "refused.", lambda one: one.would_wait),
)  # fmt: skip
"""Of each limiter, never of a key."""


def _of_limit(
    name: str, meaning: str, value: Callable[[LimitState, LimiterView], float]
) -> tuple[Metric, Callable[[LimitState, LimiterView], float]]:
    return Metric(f"headgate_limit_{name}", "gauge", meaning, ("namespace", "destination", "limit")), value


OF_LIMITS: Final = (
    _of_limit("taken", "Taken of a limit: held at once, used of a quota, or not refilled of a rate's burst.",
              lambda limit, _: limit.taken),
    _of_limit("most", "Most of it: what may be held at once, the quota, or the burst of a rate.",
              lambda limit, _: limit.limit),
    _of_limit("withheld", "Neither taken nor available: after a hold-off a limit comes back slowly.",
              lambda limit, _: limit.withheld),
    _of_limit("waiting", "Admissions that wait for it.",
              lambda limit, view: view.waiting_for.get(limit.name, 0)),
)  # fmt: skip
"""Of each limit of each limiter."""
FINISHED: Final = Metric(
    "headgate_limit_finished", "counter", "Holds of a limit that adapts, by how they ended: ok, overload or ignore.",
    ("namespace", "destination", "limit", "outcome"),
)  # fmt: skip


def _of_band(
    name: str, kind: Literal["gauge", "counter"], meaning: str, value: Callable[[BandUse], float]
) -> tuple[Metric, Callable[[BandUse], float]]:
    return Metric(f"headgate_limiter_band_{name}", kind, meaning, ("namespace", "destination", "band")), value


OF_BANDS: Final = (
    _of_band("waiting", "gauge", "Admissions of a band that wait; 0 goes first, 7 last.", lambda one: one.waiting),
    _of_band("admitted", "counter", "Holds of a band that were admitted; what a session takes in hand counts once.",
             lambda one: one.admitted),
    _of_band("shed", "counter", "Admissions of a band that were refused because the limiter was too full for it.",
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
CONNECTIONS: Final = Metric("headgate_node_connections", "gauge", "Connections of clients that are open.")
LINKS: Final = Metric("headgate_node_links", "gauge", "Links that are attached.", ("direction",))
WAITING: Final = Metric("headgate_node_waiting_links", "gauge", "Links that wait for credit.", ("direction",))
UNSETTLED: Final = Metric("headgate_node_unsettled_messages", "gauge", "Deliveries not settled.", ("direction",))
MESSAGES: Final = Metric("headgate_node_messages", "counter", "Messages carried.", ("direction",))
BYTES: Final = Metric("headgate_node_bytes", "counter", "Bytes of these.", ("direction",))
REJECTED: Final = Metric(
    "headgate_node_rejected", "counter", "Messages, transfers and calls that the node refused.", ("reason",)
)
BRIDGES: Final = Metric("headgate_node_bridges", "gauge", "Links of the policy that the node works on.")
STALLED: Final = Metric("headgate_node_stalled_bridges", "gauge", "Links of these that do not move.")
FORWARDED: Final = Metric(
    "headgate_node_forwarded_messages", "counter", "Messages forwarded over a link of the policy.", ("source", "target")
)
FORWARDED_BYTES: Final = Metric("headgate_node_forwarded_bytes", "counter", "Bytes of these.", ("source", "target"))
PACKETS: Final = Metric(
    "headgate_node_channel_packets",
    "counter",
    "Packets sent by a channel, heartbeats among them.",
    ("source", "target"),
)
BACKLOG: Final = Metric(
    "headgate_node_channel_backlog", "gauge", "Messages that a channel has to send.", ("source", "target")
)
DEADLOCKS: Final = Metric(
    "headgate_node_deadlocks", "gauge", "Present deadlocks; 0 at nodes that do not look for them."
)
FOUND: Final = Metric(
    "headgate_node_found_deadlocks", "counter", "Deadlocks that the node found, by the action set.", ("action",)
)
WORKERS: Final = Metric("headgate_node_workers", "gauge", "Workers that the node's address should have.")
ANSWERING: Final = Metric("headgate_node_answering_workers", "gauge", "Those of them that answer.")
REPLACED: Final = Metric(
    "headgate_node_replaced_workers", "counter", "Workers that ended on their own and were replaced."
)
WAITS: Final = Metric(
    "headgate_wait_seconds", "histogram", "How long clients of the node waited for credit or to be admitted, as a wait "
    "ends; what is in hand takes no wait.", ("namespace", "destination", "kind", "outcome"),
)  # fmt: skip
METRICS: Final = (
    BUILD, UP, EVICTS, READ, COUNT, OMITTED, *(declared for declared, _ in OF_DESTINATIONS),
    *(declared for declared, _ in OF_STORES), *(declared for declared, _ in OF_POOLS),
    *(declared for declared, _ in OF_SITES), *(declared for declared, _ in OF_PARTS),
    *(declared for declared, _ in OF_LIMITERS), *(declared for declared, _ in OF_LIMITS), FINISHED,
    *(declared for declared, _ in OF_BANDS), SHADOWED, NODE, STARTED,
    READY, CONNECTIONS, LINKS, WAITING, UNSETTLED, MESSAGES, BYTES, REJECTED, BRIDGES, STALLED, FORWARDED,
    FORWARDED_BYTES, PACKETS, BACKLOG,
    DEADLOCKS, FOUND, WORKERS, ANSWERING, REPLACED, WAITS,
)  # fmt: skip
"""All there are."""
OF_NODES: Final = {
    "connections": CONNECTIONS, "links": LINKS, "waiting_links": WAITING, "unsettled": UNSETTLED,
    "messages": MESSAGES, "bytes": BYTES, "rejected": REJECTED, "bridges": BRIDGES, "stalled_bridges": STALLED,
    "forwarded": FORWARDED, "forwarded_bytes": FORWARDED_BYTES, "channel_packets": PACKETS,
    "channel_backlog": BACKLOG, "deadlocks": DEADLOCKS, "found_deadlocks": FOUND,
}  # fmt: skip
"""By the words of reports."""


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

    def _over_sites(self) -> Iterator[MetricFamily]:
        pools = self._picture.pools
        for declared, at_site in OF_SITES:
            sites = ((pool.name, one.site, at_site(one)) for pool in pools for one in pool.sites)
            yield declared.family({(self._namespace, *name): value for *name, value in sites if value is not None})
        for declared, of_part in OF_PARTS:
            parts = ((pool.name, pool.part_of.site, of_part(pool.part_of)) for pool in pools if pool.part_of)
            yield declared.family({(self._namespace, *name): value for *name, value in parts if value is not None})

    def _destinations(self) -> Iterator[MetricFamily]:
        shown = list(self._picture.destinations.values())[: self._most]
        yield READ.family({(): self._picture.seconds})
        yield COUNT.family({(self._namespace,): self._picture.total})
        yield OMITTED.family({(self._namespace,): max(0, self._picture.total - len(shown))})
        for declared, value_of in OF_DESTINATIONS:
            values = ((one.name, value_of(one)) for one in shown)
            yield declared.family({(self._namespace, name): value for name, value in values if value is not None})
        for declared, held_of in OF_STORES:
            held = ((one.name, held_of(one)) for one in self._picture.stores)
            yield declared.family({(self._namespace, name): value for name, value in held if value is not None})
        for declared, lent_of in OF_POOLS:
            lent = ((one.name, lent_of(one)) for one in self._picture.pools)
            yield declared.family({(self._namespace, name): value for name, value in lent if value is not None})
        yield from self._over_sites()
        views = {one.name: self._picture.limiters[one.name] for one in shown if one.name in self._picture.limiters}
        for declared, level_of in OF_LIMITERS:
            yield declared.family({(self._namespace, name): level_of(view) for name, view in views.items()})
        for declared, amount_of in OF_LIMITS:
            limits = ((name, limit, view) for name, view in views.items() for limit in view.limits)
            amounts: dict[tuple[str, ...], float] = {
                (self._namespace, name, one.name): amount_of(one, view) for name, one, view in limits
            }
            yield declared.family(amounts)
        yield FINISHED.family({
            (self._namespace, name, limit.name, outcome): times
            for name, view in views.items() for limit in view.limits if limit.adapting
            for outcome, times in limit.adapting.outcomes.items()
        })  # fmt: skip
        for declared, count_of in OF_BANDS:
            yield declared.family({
                (self._namespace, name, str(use.band)): count_of(use)
                for name, view in views.items() for use in view.bands
            })  # fmt: skip
        of_limiters = {(name, *of.split(" of ")): n for name, view in views.items() for of, n in view.shadowed.items()}
        of_others = {(one.name, limit, "all"): times for one in shown for limit, times in one.shadowed.items()}
        yield SHADOWED.family({(self._namespace, *of): times for of, times in (of_limiters | of_others).items()})


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
