"""A policy document as it is written: its tables and keys."""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from headgate.policy.channel_table import ChannelTable
from headgate.policy.forms import (
    Count,
    DurabilityText,
    Duration,
    Kept,
    LimitCount,
    LimitSize,
    Name,
    Number,
    Patience,
    Percent,
    Rate,
    Share,
    SiteName,
    Size,
    TopUp,
    WhenFull,
    WindowWord,
)
from headgate.policy.link_tables import BridgeTable, RouteTable, SiteTable, ZoneTable
from headgate.policy.store_table import StoreTable
from headgate.policy.tables import Table

Preset = Literal["artemis", "activemq", "tibco-ems", "blazingmq"]


def _is_table(value: Any) -> str:
    return "table" if isinstance(value, dict | Table) else "value"


class Limit(Table):
    """What may be pending and leased; the first to be reached counts."""

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
    messages: Share = None


class SendRate(Table):
    """What all senders together may send, on all hosts."""

    messages: Rate = None
    bytes: Rate = None
    burst: Count = None
    byte_burst: Size = None


class WindowTable(Table):
    """What a consumer may hold unsettled; the first to be reached counts."""

    messages: LimitCount = None
    bytes: LimitSize = None

    @model_validator(mode="after")
    def _says_something(self) -> "WindowTable":
        if self.messages is None and self.bytes is None:
            raise ValueError("a window of what? give messages, bytes or both, or 'unlimited', 'pull' or 'paused'")
        return self


class Window(Table):
    """Window of some of the consumers."""

    window: Annotated[
        Annotated[WindowTable, Tag("table")] | Annotated[WindowWord, Tag("value")], Discriminator(_is_table)
    ]
    top_up: TopUp = None


class Browser(Table):
    """Readers that take nothing away."""

    window: Count = Field(description="messages that a browser reads at a time")


class Slow(Table):
    """When a consumer counts as slow, and what then."""

    multiple: Number = Field(None, description="more than so many of its windows wait for it")
    rate: Rate = Field(None, description="it settles fewer messages a second although it has some")
    period: Duration = Field(None, description="between looks")
    action: Literal["notify", "detach", "default"] | None = None


class Producer(Table):
    """Each producer, when it does not say otherwise."""

    window: Size = Field(None, description="bytes of credit that it keeps in hand")
    rate: Rate = Field(None, description="messages a second")
    byte_rate: Rate = Field(None, description="bytes a second")
    weight: Count = Field(None, description="its share among producers")
    timeout: Patience = Field(None, description="that a send waits")


class Consumer(Table):
    """Each consumer, when it does not say otherwise, and all of them together."""

    window: (
        Annotated[Annotated[WindowTable, Tag("table")] | Annotated[WindowWord, Tag("value")], Discriminator(_is_table)]
        | None
    ) = None
    top_up: TopUp = Field(None, description="share of the window that is free again before more is fetched")
    rate: Rate = Field(None, description="messages a second of each consumer")
    shared_rate: Rate = Field(None, description="messages a second of all consumers together")
    shared_burst: Count = Field(None, description="messages at once of all consumers together")
    durable: Window | None = Field(None, description="consumers of durable subscriptions of a topic")
    browser: Browser | None = None
    subscriptions: dict[str, Window] | None = Field(None, description="windows of named subscriptions")
    slow: Slow | None = None


class Destination(Table):
    """A rule: settings of the destinations that a pattern matches."""

    match: str = Field(description="words between dots; * is one word, a last # the rest, a last > at least one more")
    kind: Literal["queue", "topic", "gate", "bucket"] | None = Field(
        None, description="the rule is for destinations of this kind, and new ones get it"
    )
    limit: (
        Annotated[Annotated[Limit, Tag("table")] | Annotated[LimitSize, Tag("value")], Discriminator(_is_table)] | None
    ) = None
    hard_limit: Size = Field(None, description="bytes above which nothing is accepted, whatever the credit")
    resume_at: (
        Annotated[Annotated[Resume, Tag("table")] | Annotated[Share, Tag("value")], Discriminator(_is_table)] | None
    ) = None
    when_full: WhenFull = None
    store: Name = Field(None, description="the [[store]] of payloads for which memory has no room: when_full = 'spool'")
    deadlock: Literal["none", "alert", "fail", "ticket", "default"] | None = Field(
        None, description="what is done about sends that wait for one another without end"
    )
    oversize: Literal["refuse", "allow-one", "default"] | None = None
    enforce: Literal["always", "with-consumers", "off", "default"] | None = None
    durability: DurabilityText = Field(
        None, description="what has a write before it is confirmed: memory, fsync, replicas:1, or fsync replicas:1"
    )
    rate: (
        Annotated[Annotated[SendRate, Tag("table")] | Annotated[Rate, Tag("value")], Discriminator(_is_table)] | None
    ) = Field(None, description="of all senders together, as a table; or tokens a second of a bucket")
    burst: Count = Field(None, description="of a bucket: tokens at once")
    pools: list[Name] | None = Field(None, max_length=4, description="pools whose limits it shares")
    reserved: bool | None = Field(None, description="it may use what its pools keep in reserve", strict=True)
    pool_weight: Count = Field(None, description="its share of its pools beside other destinations")
    message_ttl: Duration = None
    max_attempts: Count = None
    dead_letter: Name = None
    ledger: Literal["all", "off", "default"] | None = None
    ledger_keep: Kept = None
    producer: Producer | None = None
    consumer: Consumer | None = None


class PoolTable(Table):
    """A limit that destinations share by naming it in their ``pools``."""

    name: Name
    limit: LimitSize = None
    percent: Percent = Field(None, description="of total, or of the maxmemory of Redis")
    total: Size = None
    reserve: Size = Field(None, description="bytes kept for reserved destinations")

    @model_validator(mode="after")
    def _one_limit(self) -> "PoolTable":
        if (self.limit is None) == (self.percent is None):
            raise ValueError("give either limit = '64MB' or percent = 70, with total = '100GB' or of Redis' maxmemory")
        if self.total is not None and self.percent is None:
            raise ValueError("total without percent; write percent = 70, or a limit")
        return self


class Document(Table):
    """A policy document of Headgate."""

    flow_control: Literal["on", "off"] | None = Field(
        None, description="off: limits bind nowhere; on where nothing is said, but off with the preset tibco-ems"
    )
    preset: Preset | None = Field(None, description="base rules: what destinations of that system have by default")
    destination: list[Destination] = Field([])
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
