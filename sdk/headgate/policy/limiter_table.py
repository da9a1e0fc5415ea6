"""A policy document has tables about limiters: their limits, of all keys and of each, and what proxies ask."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, StringConstraints, model_validator

from headgate.policy.tables import Table
from headgate.policy.value_forms import (
    Aging,
    Amount,
    AtOnce,
    Bands,
    BandShares,
    Count,
    Counted,
    DurabilityText,
    Duration,
    Entries,
    Flag,
    HitAmounts,
    Kept,
    KeyLimit,
    LimitName,
    LimitRate,
    Name,
    ProxyText,
    Quota,
    Rate,
    Resets,
    Weights,
)

Enforce = Literal["always", "shadow"] | None


class LimitTable(Table):
    """A limit of a limiter is a rate, what may be held at once, or a quota of calendar windows."""

    name: LimitName = Field(description="what calls say an amount of: admit(requests=1)")
    rate: LimitRate = Field(None, description="such as '500/min', '200k/min', '1000/day' or '1/2s'; or 'unlimited'")
    burst: Amount = Field(None, description="of a rate: at once; else the amount that the rate is written with")
    at_once: AtOnce = Field(
        None, description="that may be held together: a count, bytes such as '64MiB', or how it adapts to what is borne"
    )
    quota: Quota = Field(None, description="of an hour, day, week or month, such as '1_000_000/day'")
    resets: Resets = Field(None, description="of a quota: when and where, such as '00:00 Europe/Berlin'; else in UTC")
    enforce: Enforce = Field(None, description="shadow: it is counted who would have waited, and nobody waits")

    @model_validator(mode="after")
    def _is_one(self) -> "LimitTable":
        forms = [key for key in ("rate", "at_once", "quota") if getattr(self, key) is not None]
        if len(forms) != 1:
            raise ValueError("a limit is one of rate = '500/min', at_once = 50 and quota = '1000/day'; give one")
        if self.burst is not None and self.rate is None:
            raise ValueError("burst belongs to a rate; leave it out")
        if self.resets is not None and self.quota is None:
            raise ValueError("resets belongs to a quota; leave it out")
        return self


class PerKey(Table):
    """Limits of each key, by the names of the limits of all keys together, and shares of keys that wait."""

    model_config = ConfigDict(extra="allow", frozen=True)
    __pydantic_extra__: dict[str, KeyLimit]

    weight: Weights = Field(None, description="share of a key, or of those that begin so: { 'gold-*' = 4 }; else 1")


class ShadowPerKey(Table):
    """Shadow limits of each key, by the names of limits, beside those of ``per_key``."""

    model_config = ConfigDict(extra="allow", frozen=True)
    __pydantic_extra__: dict[str, KeyLimit]


class LimiterTable(Table):
    """A rule gives limits to the limiters that a pattern matches."""

    match: str = Field(description="words between dots; * is one word, a final # the rest, a final > at least one more")
    limit: list[LimitTable] | None = Field(None, max_length=16)
    per_key: PerKey | None = None
    shadow_per_key: ShadowPerKey | None = None
    enforce: Enforce = Field(None, description="shadow: all of its limits are shadow limits")
    band: Bands = Field(None, description="of keys that wait, 0 (first) to 7 (last): { 'batch-*' = 6 }; else 3")
    aging: Aging = Field(None, description="seconds of a rate, or times a limit, that go before each band at the most")
    reserve: BandShares = Field(None, description="part of each limit for bands up to that one: { 0 = 0.1 }")
    shed: BandShares = Field(None, description="bands from that on are refused above that fill: { 6 = 0.8 }")
    order: Literal["turn", "deadline", "default"] | None = Field(
        None, description="deadline: within a band the earliest deadline goes first"
    )
    fail_if_late: Flag = Field(None, description="true: whoever would not be admitted in time is refused at once")
    unknown_keys: Literal["allow", "refuse"] | None = Field(
        None, description="refuse: only keys that a pattern of weight matches are admitted"
    )
    slices: Count = Field(None, description="slots over which its keys are spread, 1 to 48")
    max_keys: Counted = Field(None, description="keys that are known at a time; else 1 million")
    hold_off: Duration = Field(None, description="the longest hold-off that a client may ask for; else 1h")
    lease_ahead: Duration = Field(None, description="of a rate that a session may take in hand at the most")
    durability: DurabilityText = Field(
        None, description="what knows of an admission before it is given: memory, fsync, replicas:1, fsync replicas:1"
    )
    ledger_keys: Literal["all", "off"] | None = Field(None, description="off: entries of the ledger do not name keys")
    ledger: Literal["all", "off"] | None = Field(None, description="all keeps an entry for every change, off none")
    ledger_keep: Kept = None


class DescriptorTable(Table):
    """A descriptor says what proxies ask a limiter, by Envoy's rate limit service at nodes; the most specific wins."""

    domain: ProxyText = Field(description="of the proxy's filter")
    entries: Entries = Field(description="keys of the proxy's descriptor in their order; 'key=value' for that value")
    limiter: Name = Field(description="that is asked")
    amounts: HitAmounts = Field(None, description="that one hit takes, by the names of its limits: { requests = 1 }")
    key: ProxyText = Field(None, description="the entry whose value is the limiter's key")
    hold: ProxyText = Field(None, description="the entry whose value names what is held, until it is released")
    release: ProxyText = Field(None, description="the entry whose value names the hold that ends")
    ttl: Duration = Field(None, description="the longest that it is held, which nobody renews: 1s to 1h, else 60s")


class UserLimitTable(Table):
    """A user limit is a quota of users of nodes, over all nodes: of each of them, or of all together."""

    name: Annotated[str, StringConstraints(max_length=63)] = Field(description="its limiter is user-limits.<name>")
    users: list[str] = Field(
        min_length=1, max_length=1000, description="names, or beginnings with *; the first quota that covers one counts"
    )
    together: bool = Field(default=False, description="true: all of its users share it")
    connections: Counted = Field(None, description="at a time, over all nodes")
    in_flight: Amount = Field(
        None,
        description="messages that it was sent and has not settled, and holds over HTTP, over all nodes; "
        "with a unit, as '64MiB', their bytes",
    )
    in_flight_bytes: Amount = Field(None, description="bytes of these messages, such as '64MiB'")
    rate: Rate = Field(None, description="messages that are sent, such as '500/s'")
    byte_rate: Rate = Field(None, description="bytes of these, such as '10MB/s'")
    destinations: Counted = Field(None, description="that each may have made; else the user's max_destinations")
    enforce: Enforce = Field(None, description="shadow: it is counted who would have waited, and nobody waits")
