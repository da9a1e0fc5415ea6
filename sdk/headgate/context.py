"""A client gives a context to all that it opens: the ways to the state, and their owner."""

from dataclasses import dataclass, field
from typing import Any
from weakref import WeakValueDictionary

from headgate.explain.links import Links
from headgate.namespace.losses import LossListeners
from headgate.namespace.pool_slices import Pools
from headgate.namespace.registry import Registry
from headgate.namespace.shared_rates import SharedRates
from headgate.namespace.spreads import Spreads
from headgate.options import SessionOptions
from headgate.redis.backend import WakeUps
from headgate.redis.store import Store
from headgate.redis.stores.rates import RateStore
from headgate.redis.stores.spreads import SpreadStore
from headgate.spans import Tracing
from headgate.spool import Spooling
from headgate.waits import Waits


@dataclass(slots=True)
class Opened:
    """A client counts here what it and its sessions opened."""

    count: int = 0


@dataclass(frozen=True, slots=True)
class Context:
    """A context serves one client, or one of its sessions.

    Attributes:
        store: the scripts.
        wake_ups: hints.
        registry: settings of destinations, and the policy.
        links: those of the namespace, for explanations of waits.
        pools: what moves the slices of pools.
        namespace: the tenant.
        session: id of the session; empty for the client's own.
        options: how that session lives.
        waits: the listeners to waits.
        tracing: where a provider of OpenTelemetry is set; else None.
        opened: counts producers, consumers and what else was opened, of the whole client.
        delivery_lines: in which consumers of the whole client wait for the rate of deliveries, by slice.
    """

    store: Store
    wake_ups: WakeUps
    registry: Registry
    links: Links
    pools: Pools
    namespace: str
    session: str = ""
    options: SessionOptions = field(default_factory=SessionOptions)
    waits: Waits = field(default_factory=Waits)
    tracing: Tracing | None = None
    opened: Opened = field(default_factory=Opened)
    delivery_lines: WeakValueDictionary[bytes, Any] = field(default_factory=WeakValueDictionary)

    @property
    def spooling(self) -> Spooling:
        """Payloads in stores."""
        return self.registry.spooling

    @property
    def spreads(self) -> Spreads:
        """How queues are spread over their slices."""
        return Spreads(self.registry, SpreadStore(self.store.server))

    @property
    def rates(self) -> SharedRates:
        """Rates that slices share."""
        return SharedRates(self.registry, RateStore(self.store.server))

    @property
    def losses(self) -> LossListeners:
        """The listeners to new epochs."""
        return self.registry.losses

    @property
    def ttl_ms(self) -> int:
        """Milliseconds for which the session's lease lasts."""
        return int(self.options.ttl * 1000)
