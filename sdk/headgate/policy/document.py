"""A policy document as it is written: its tables and keys."""

from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Discriminator, Field, Tag, create_model, model_validator

from headgate.core.limits.descriptor import MOST_DESCRIPTORS
from headgate.core.settings_table import DEFAULT, ROWS
from headgate.core.spellings import ValueForm
from headgate.policy import value_forms
from headgate.policy.channel_table import ChannelTable
from headgate.policy.limiter_table import DescriptorTable, LimiterTable, UserLimitTable
from headgate.policy.link_tables import BridgeTable, RouteTable, SiteTable, ZoneTable
from headgate.policy.tables import Table
from headgate.policy.value_forms import (
    Amount,
    Count,
    Counted,
    Flag,
    KeyLimit,
    LimitCount,
    LimitSize,
    Name,
    Percent,
    Rate,
    Share,
    ShareCount,
    SiteName,
    Size,
    StoreFull,
    StoreUrl,
    TopUp,
    Weight,
    Weights,
    WindowWord,
)

Preset = Literal["artemis", "activemq", "tibco-ems", "blazingmq", "llm", "http-api"]
T = TypeVar("T", bound=Table)


def takes(*place: str) -> Callable[[type[T]], type[T]]:
    """Return a decorator of a table: it takes the settings that a policy says there, besides what the class has."""

    def decorate(table: type[T]) -> type[T]:
        rows = {str(row.path[-1]): row for row in ROWS.values() if row.form and row.path and row.path[:-1] == place}
        keys: dict[str, Any] = {
            key: (_written(row.form), Field(None, description=row.doc.replace("``", "")))
            for key, row in rows.items()
            if row.form and key not in table.model_fields
        }
        return create_model(table.__name__, __base__=table, __doc__=table.__doc__, __module__=table.__module__, **keys)

    return decorate


def _written(form: ValueForm) -> Any:
    return Literal[*form.words, DEFAULT] | None if form.words else getattr(value_forms, form.written)


def _is_table(value: Any) -> str:
    return "table" if isinstance(value, dict | Table) else "value"


class Limit(Table):
    """A limit of what is pending and leased; the first to be reached counts."""

    bytes: LimitSize = None
    messages: LimitCount = None
    scope: Literal["each", "shared"] = Field(
        "each", description="each match has this limit, or all matches together share it (in bytes, as a pool)"
    )

    @model_validator(mode="after")
    def _says_something(self) -> "Limit":
        if self.bytes is None and self.messages is None:
            raise ValueError("a limit of what? give bytes, messages or both")
        return self


class Resume(Table):
    """Once the limit was reached nobody is served until pending is down here."""

    bytes: Share = None
    messages: ShareCount = None


@takes("rate")
class SendRate(Table):
    """A send rate holds for all senders together, on all hosts."""


class WindowTable(Table):
    """A bound of what a consumer holds unsettled; the first to be reached counts."""

    messages: LimitCount = None
    bytes: LimitSize = None

    @model_validator(mode="after")
    def _says_something(self) -> "WindowTable":
        if self.messages is None and self.bytes is None:
            raise ValueError("a window of what? give messages, bytes or both, or 'unlimited', 'pull' or 'paused'")
        return self


class Window(Table):
    """A window bounds what some of the consumers hold unsettled."""

    window: Annotated[
        Annotated[WindowTable, Tag("table")] | Annotated[WindowWord, Tag("value")], Discriminator(_is_table)
    ]
    top_up: TopUp = None


class Browser(Table):
    """A browser reads messages and takes nothing away."""

    window: Count = Field(description="messages that a browser reads at a time")


@takes("consumer", "slow")
class Slow(Table):
    """When a consumer counts as slow, and what then."""


@takes("producer")
class Producer(Table):
    """Each producer, when it does not say otherwise."""


@takes("consumer")
class Consumer(Table):
    """Each consumer, when it does not say otherwise, and all of them together."""

    window: (
        Annotated[Annotated[WindowTable, Tag("table")] | Annotated[WindowWord, Tag("value")], Discriminator(_is_table)]
        | None
    ) = None
    top_up: TopUp = Field(None, description="share of the window that is free again before more is fetched")
    durable: Window | None = Field(None, description="consumers of durable subscriptions of a topic")
    browser: Browser | None = None
    subscriptions: dict[str, Window] | None = Field(None, description="windows of named subscriptions")
    slow: Slow | None = None


class EachKey(Table):
    """Each key of a gate or a bucket has these limits, and waiting keys have these shares."""

    bytes: Size = Field(None, description="of a gate: bytes that one key may hold")
    calls: Counted = Field(None, description="of a gate: calls of one key at once")
    tokens: KeyLimit = Field(None, description="of a bucket: '20/s', or { rate = '20/s', burst = 5 }")
    weight: Weights = Field(None, description="share of a key, or of those that begin so: { 'gold-*' = 4 }; else 1")

    @property
    def limits(self) -> dict[str, dict[str, Any]] | None:
        """The limits of each key, as settings have them; None where there are none."""
        held = {name: {"at_once": value} for name in ("bytes", "calls") if (value := getattr(self, name)) is not None}
        if self.tokens is not None:
            held["tokens"] = self.tokens if isinstance(self.tokens, dict) else {"rate": self.tokens}
        return held or None


class ShadowLimits(Table):
    """Shadow limits stand beside those that bind: it is counted what they would keep waiting, and nobody waits."""

    bytes: Amount = Field(None, description="that may be pending; of a gate, held")
    messages: Counted = Field(None, description="that may be pending; of a gate, calls at once")
    rate: KeyLimit = Field(None, description="of messages of all senders: '500/s', or { rate = '500/s', burst = 50 }")
    byte_rate: KeyLimit = Field(None, description="of bytes of all senders: '10MB/s', or with a burst")
    tokens: KeyLimit = Field(None, description="of a bucket: '20/s', or { rate = '20/s', burst = 5 }")

    @property
    def limits(self) -> dict[str, Any]:
        """The limits as settings have them."""
        return self.model_dump(exclude_none=True)

    @model_validator(mode="after")
    def _says_something(self) -> "ShadowLimits":
        if not self.limits:
            raise ValueError("a shadow of what? give bytes, messages, rate, byte_rate, or tokens of a bucket")
        return self


@takes("retry")
class Retry(Table):
    """A wait of a message after a failed attempt before it is delivered again."""


@takes()
class Destination(Table):
    """A rule gives settings to the destinations that a pattern matches."""

    match: str = Field(description="words between dots; * is one word, a final # the rest, a final > at least one more")
    kind: Literal["queue", "topic", "gate", "bucket"] | None = Field(
        None, description="the rule is for destinations of this kind, and new ones get it"
    )
    limit: (
        Annotated[Annotated[Limit, Tag("table")] | Annotated[LimitSize, Tag("value")], Discriminator(_is_table)] | None
    ) = None
    resume_at: (
        Annotated[Annotated[Resume, Tag("table")] | Annotated[Share, Tag("value")], Discriminator(_is_table)] | None
    ) = None
    rate: (
        Annotated[Annotated[SendRate, Tag("table")] | Annotated[Rate, Tag("value")], Discriminator(_is_table)] | None
    ) = Field(None, description="of all senders together, as a table; or tokens a second of a bucket")
    burst: Count = Field(None, description="of a bucket: tokens at once")
    per_key: EachKey | None = None
    shadow: ShadowLimits | None = None
    retry: Retry | None = None
    producer: Producer | None = None
    consumer: Consumer | None = None


class SitePart(Table):
    """A site has a part of a pool here."""

    most: Size = Field(description="bytes that it may have")
    weight: Weight = Field(None, description="share beside other sites and destinations that wait; else 1")
    least: Size = Field(None, description="bytes of that which nobody else gets, and which it has while it is cut off")


class PoolTable(Table):
    """A pool is a limit that destinations share by naming it in their ``pools``."""

    name: Name
    limit: LimitSize = None
    percent: Percent = Field(None, description="of total, or of the maxmemory of Redis")
    total: Size = None
    reserve: Size = Field(None, description="bytes kept for reserved destinations")
    site: SiteName = Field(None, description="a [[site]]: the limit is what that site lends of its pool; limit caps it")
    pool: Name | None = Field(None, description="of the pool at that site; else of the same name")
    sites: dict[
        SiteName,
        Annotated[Annotated[SitePart, Tag("table")] | Annotated[Size, Tag("value")], Discriminator(_is_table)],
    ] = Field(
        {},
        max_length=32,
        description="sites that take part, each with the most that it may have, e.g. { paris = '1GB' }, or a table",
    )

    @model_validator(mode="after")
    def _over_sites(self) -> "PoolTable":
        if self.site is not None and self.sites:
            raise ValueError(
                "a pool is part of one at another site, or other sites have parts of it: name site or sites"
            )
        if self.site is None and self.pool is not None:
            raise ValueError("pool names one at another site; write site = 'paris' too")
        if self.site is not None and self.percent is not None:
            raise ValueError("a percent of what? the limit is what the site lends; give a limit to cap that, or none")
        return self

    @model_validator(mode="after")
    def _one_limit(self) -> "PoolTable":
        if self.site is not None:
            return self
        if (self.limit is None) == (self.percent is None):
            raise ValueError("give either limit = '64MB' or percent = 70, with total = '100GB' or of Redis' maxmemory")
        if self.total is not None and self.percent is None:
            raise ValueError("total without percent; write percent = 70, or a limit")
        return self


class StoreTable(Table):
    """A store takes payloads for which memory has no room; destinations name it with ``when_full = "spool"``."""

    name: Name
    url: StoreUrl = Field(description="where segments are, as fsspec reads it; without user, password and options")
    limit: LimitSize = Field(None, description="bytes of segments at the most; or percent of total")
    percent: Percent = Field(None, description="of total")
    total: Size = Field(None, description="bytes; stated, not compared with any disk")
    segment: Size = Field(None, description="bytes of payload in one segment, about; 4 KiB to 64 MiB, else 1 MiB")
    when_full: StoreFull = Field(None, description="what sends do that find neither memory nor room here")


class Document(Table):
    """A policy document says how Headgate limits the destinations of a namespace."""

    flow_control: Literal["on", "off"] | None = Field(
        None, description="off: limits bind nowhere; on by default, but off with the preset tibco-ems"
    )
    preset: Preset | None = Field(
        None, description="base rules: of destinations of that system, or limiters of such a service"
    )
    strict: Flag = Field(
        None, description="true: gates and buckets that nothing limits are not made; limiters never are"
    )
    include_parent: Flag = Field(
        None, description="true: a last > of patterns takes the name before it too, as ActiveMQ has it: it becomes #"
    )
    destination: list[Destination] = Field([])
    limiter: list[LimiterTable] = Field([])
    descriptor: list[DescriptorTable] = Field([], max_length=MOST_DESCRIPTORS)
    user_limit: list[UserLimitTable] = Field([], max_length=100)
    pool: list[PoolTable] = Field([])
    store: list[StoreTable] = Field([])
    site_name: SiteName = Field(None, description="what other sites call this one")
    site: list[SiteTable] = Field([])
    zone: list[ZoneTable] = Field([])
    bridge: list[BridgeTable] = Field([])
    route: list[RouteTable] = Field([])
    channel: list[ChannelTable] = Field([])


def schema() -> dict[str, Any]:
    """Return the JSON schema of a policy document."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Document.model_json_schema()}
