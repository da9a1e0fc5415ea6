"""The table of settings lists what can be set for one destination. A setting is a row here; all else follows from it.

A row has its name by hand, its field of the state, its path in a policy, the kinds that have it, its form and what it
means: from these come its spelling, its key in policy documents, in their schema, in hints and in ``docs/settings.md``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from dataclasses import field as field_of
from typing import Any, Final, Literal

from headgate.core.levels import NOT_OF, check_levels
from headgate.core.limits.bands import AGING, FAIL_IF_LATE, KEY_BANDS, ORDER, SHARES
from headgate.core.limits.destination_shadow import SHADOW_LIMITS, check_shadow
from headgate.core.limits.fairness import FAIR_BY, FAIR_WEIGHTS, ORDER_BY, check_turns
from headgate.core.limits.limit import check_key_limits, limits_of
from headgate.core.limits.limiter_forms import (
    HOLD_OFF,
    KEYS,
    LEASE_AHEAD,
    LEDGER_KEYS,
    LIMITS,
    UNKNOWN_KEYS,
    WEIGHTS,
    ZONE,
    zone_of_quotas,
)
from headgate.core.limits.priority import MAX_OVERTAKEN
from headgate.core.limits.shadow import IN_SHADOW, check_shadows, enforce_limits
from headgate.core.limits.slices import SLICED_KINDS, check_slices
from headgate.core.spellings import (
    COUNT,
    CREDIT,
    DURABILITY,
    DURATION,
    ENCODED,
    FLAG,
    GROWTH,
    KEPT,
    LIMIT,
    LIMIT_COUNT,
    NAME,
    NUMBER,
    PATIENCE,
    POOLS,
    RATE,
    REASON,
    SHARE,
    SHARE_COUNT,
    SIZE,
    SLICES,
    SUBSCRIPTIONS,
    TEXT,
    WEIGHT,
    WHEN_FULL,
    WINDOW,
    WINDOWS,
    ValueForm,
    word,
)  # fmt: skip
from headgate.core.window import Window
from headgate.errors import PolicyError
from headgate.units import Unlimited, check_burst, parse_rate

Kind = Literal["queue", "topic", "gate", "bucket", "limiter"]
KINDS = ("queue", "topic", "gate", "bucket", "limiter")
LEDGER_LEVELS = ("all", "off")
ENFORCE: Final = ("always", "with-consumers", "off")
DEADLOCK: Final = ("none", "alert", "fail", "ticket")
OVERSIZE: Final = ("refuse", "allow-one")
SLOW_ACTIONS: Final = ("notify", "detach")
DEFAULT: Final = "default"
"""As a value: the setting goes back to its default."""

EVERY: Final = frozenset(KINDS)
LIMITED: Final = frozenset({"queue", "topic", "gate"})
MESSAGES: Final = frozenset({"queue", "topic"})
BUCKETS: Final = frozenset({"bucket"})
LIMITERS: Final = frozenset({"limiter"})
KEYED: Final = frozenset({"gate", "bucket", "limiter"})
Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class SettingRow:
    """A setting's row holds its name, spelling, place and kinds.

    Attributes:
        form: of its values; None where :meth:`Settings.fields` spells it together with others.
        doc: what it means, for people.
        field: of the state, where it is kept.
        path: where a policy says it; empty where none can.
        kinds: of destinations that have it.
        default: what the field is without it.
        governed: a policy in force sets it back where no rule sets anything about it.
    """

    form: ValueForm | None
    doc: str
    field: str
    path: Path
    kinds: frozenset[str]
    default: str
    governed: bool


def _row(
    form: ValueForm | None, *, doc: str, field: str = "", path: str | None = "", kinds: frozenset[str] = LIMITED,
    default: str = "", governed: bool = True,
) -> Any:  # fmt: skip
    """Return a field of :class:`Settings`; an empty ``field`` or ``path`` is its name, and None is no path."""
    steps = () if path is None else tuple(path.split("."))
    return field_of(default=None, metadata={"row": SettingRow(form, doc, field, steps, kinds, default, governed)})


@dataclass(frozen=True, slots=True)
class Settings:
    """A destination has these settings; None leaves one as it is, ``"default"`` sets it back to its default."""

    # fmt: off
    kind: Kind | None = _row(word(*KINDS), kinds=EVERY, governed=False, doc=
        "``queue``, ``topic``, ``gate``, ``bucket`` or ``limiter``; fixed once the destination exists.")
    limit: int | str | None = _row(LIMIT, field="limit_bytes", path="limit.bytes", default="unlimited", doc=
        'bytes that may be pending and leased, or ``"unlimited"``.')
    limit_messages: int | Unlimited | None = _row(LIMIT_COUNT, path="limit.messages", default="unlimited", doc=
        "messages that may be pending and leased; the first of the two limits to be reached counts.")
    hard_limit: int | str | None = _row(SIZE, field="hard_bytes", kinds=MESSAGES, doc=
        "bytes above which even a client whose credit counts messages is refused; never below ``limit``.")
    resume_at: int | str | None = _row(SHARE, field="resume_bytes", path="resume_at.bytes", kinds=MESSAGES, doc=
        "bytes, or a percentage of the limit in force: once full, nobody is served until pending is that.")
    resume_at_messages: int | str | None = _row(SHARE_COUNT, field="resume_messages", path="resume_at.messages",
        kinds=MESSAGES, doc=
        "messages, or a percentage of the limit in force, to which pending has to fall once it was full.")
    when_full: str | None = _row(WHEN_FULL, doc=
        "``block``, ``fail``, ``fail-after 3s``, ``drop`` or ``spool``: what a send does that finds no room.")
    store: str | None = _row(ENCODED, kinds=MESSAGES, doc=
        "the spool store that takes payloads when memory is full, and ``when_full`` is ``spool``.")
    store_nonpersistent: str | None = _row(ENCODED, kinds=MESSAGES, doc=
        "the spool store of messages that are not durable; unset, they go to ``store`` as all others do.")
    limit_references: int | str | None = _row(LIMIT, field="limit_reference_bytes", kinds=MESSAGES, doc=
        "bytes of references to spooled messages, beside ``limit`` and pools; 64 MiB by default.")
    deadlock: str | None = _row(word(*DEADLOCK), kinds=MESSAGES, doc=(
        "what happens to sends that wait for one another without end: ``none`` (nothing), ``alert`` (it is logged), "
        "``fail`` (the newest of them raises ``DeadlockDetected``) or ``ticket`` (one message goes above the limit). "
        "Unset, nodes do as with ``alert``, and a session that waits for itself is not looked at by itself."))
    oversize: str | None = _row(word(*OVERSIZE), doc=
        "a message above the limit is refused (``refuse``), or goes when nothing else is there (``allow-one``).")
    enforce: str | None = _row(word(*ENFORCE, IN_SHADOW), kinds=LIMITED | LIMITERS, doc=
        "whether limits bind: ``always``, ``with-consumers`` (only while a consumer is active), ``off`` or ``shadow`` "
        "(nobody waits, and it is counted who would have); of a limiter ``always`` or ``shadow``.")
    shadow: dict[str, Any] | str | None = _row(SHADOW_LIMITS, kinds=LIMITED | BUCKETS, doc=
        "limits that bind nothing and count what they would keep waiting: ``bytes``, ``messages``, ``rate``, "
        "``byte_rate``; of a gate the first two, of a bucket ``tokens``.")
    stopped: str | None = _row(REASON, path=None, governed=False, doc=
        "a reason: nobody may send until it is taken away.")
    confirm: str | None = _row(TEXT, path=None, kinds=MESSAGES, doc=
        "a link and its channel: receipts wait until it has sent the message; a policy's channels say so.")
    pools: str | None = _row(POOLS, doc=
        "names of the pools whose limits it shares, separated by blanks.")
    reserved: bool | str | None = _row(FLAG, doc=
        "``yes`` when it may use what its pools keep in reserve; ``no`` when not.")
    pool_weight: int | str | None = _row(WEIGHT, doc=
        "its share of a pool beside others that wait for it, 1 to 1000; 1 by default.")
    slices: int | str | None = _row(SLICES, kinds=SLICED_KINDS, doc="slots of a queue, topic, gate, limiter: 1 to 48.")
    send_rate: float | str | None = _row(RATE, path="rate.messages", kinds=MESSAGES, doc=
        "messages a second that may be sent, shared by all hosts.")
    send_burst: int | str | None = _row(COUNT, path="rate.burst", kinds=MESSAGES, doc=
        "messages that may be sent at once; one second's worth (at least 1) when only the rate is given.")
    send_byte_rate: float | str | None = _row(RATE, path="rate.bytes", kinds=MESSAGES, doc=
        "bytes a second that may be sent, shared by all hosts.")
    send_byte_burst: int | str | None = _row(SIZE, path="rate.byte_burst", kinds=MESSAGES, doc=
        "bytes that may be sent at once; one second's worth (at least 1) when only the rate is given.")
    delivery_rate: float | str | None = _row(RATE, path="consumer.shared_rate", kinds=MESSAGES, doc=
        "messages a second that all consumers together may be given.")
    delivery_burst: int | str | None = _row(COUNT, path="consumer.shared_burst", kinds=MESSAGES, doc=
        "messages that all consumers together may be given at once.")
    message_ttl: float | str | None = _row(DURATION, field="message_ttl_ms", kinds=MESSAGES, doc=
        "seconds after which an unsettled message expires.")
    max_attempts: int | str | None = _row(COUNT, kinds=MESSAGES, doc=
        "failed attempts after which a message goes to ``dead_letter``, or is dropped where there is none.")
    dead_letter: str | None = _row(NAME, kinds=MESSAGES, doc=
        "destination of what failed too often or was rejected.")
    retry_delay: float | str | None = _row(DURATION, field="retry_delay_ms", path="retry.delay", kinds=MESSAGES, doc=
        "seconds that a message waits after a failed attempt before it is delivered again; none by default.")
    retry_factor: float | str | None = _row(GROWTH, path="retry.factor", kinds=MESSAGES, doc=
        "by which that grows with each further failed attempt, 1 to 100; 1 by default.")
    retry_max: float | str | None = _row(DURATION, field="retry_max_ms", path="retry.max", kinds=MESSAGES, doc=
        "seconds that it waits at the most, up to 366 days.")
    slow_multiple: float | str | None = _row(NUMBER, path="consumer.slow.multiple", kinds=MESSAGES, doc=
        "a consumer is slow when more than that many of its windows wait for it.")
    slow_rate: float | str | None = _row(RATE, path="consumer.slow.rate", kinds=MESSAGES, doc=
        "a consumer is slow when it settles fewer messages a second than this although it has some.")
    slow_period: float | str | None = _row(DURATION, field="slow_period_ms", path="consumer.slow.period",
        kinds=MESSAGES, doc="seconds between looks at whether a consumer is slow.")
    slow_action: str | None = _row(word(*SLOW_ACTIONS), path="consumer.slow.action", kinds=MESSAGES, doc=
        "what a slow consumer gets: ``notify`` or ``detach``.")
    max_subscriptions: int | str | None = _row(SUBSCRIPTIONS, kinds=MESSAGES, doc=
        "subscriptions that a topic may have, up to 10000; 1000 by default.")
    order_by: str | None = _row(ORDER_BY, kinds=MESSAGES, doc=
        "of a queue with ``slices``, what keeps order: values of ``header:<name>``, or ``group-id``; else a producer.")
    fair_by: str | None = _row(FAIR_BY, kinds=MESSAGES, doc=
        "of a queue, by whose values messages take turns: ``header:<name>`` of a header, ``group-id`` or ``producer``; "
        "``priority`` delivers the highest first.")
    fair_weights: dict[str, int] | str | None = _row(FAIR_WEIGHTS, kinds=MESSAGES, doc=
        'of a queue with ``fair_by``, shares of keys: ``{"gold-*": 4}``, 1 to 1000; 1 where no pattern matches.')
    max_overtaken: int | str | None = _row(MAX_OVERTAKEN, kinds=MESSAGES, doc=
        "of a queue with ``fair_by`` ``priority``, messages of other bands that go before one that is next in its own, "
        "at the most: 16 to 1000000; 100 by default.")
    durability: str | None = _row(DURABILITY, kinds=LIMITED | LIMITERS, doc=
        "where a write must be before it is confirmed: ``memory``, ``fsync``, ``replicas:1``, ``fsync replicas:1``.")
    producer_window: int | str | None = _row(CREDIT, path="producer.window", doc=
        "bytes of credit that a producer keeps in hand by default.")
    producer_rate: float | str | None = _row(RATE, path="producer.rate", doc="messages a second of each producer.")
    producer_byte_rate: float | str | None = _row(RATE, path="producer.byte_rate", doc="bytes a second of each one.")
    producer_weight: int | str | None = _row(WEIGHT, path="producer.weight", doc="share of one that does not say.")
    producer_timeout: float | str | None = _row(PATIENCE, field="producer_timeout_ms", path="producer.timeout", doc=
        'seconds that a send waits when it does not say, or ``"unlimited"``.')
    consumer_window: Window | int | str | None = _row(WINDOW, path="consumer.window", kinds=MESSAGES, doc=
        "window of a consumer that does not say; see :meth:`Window.of`.")
    consumer_rate: float | str | None = _row(RATE, path="consumer.rate", doc="messages a second of each consumer.")
    durable_window: Window | int | str | None = _row(WINDOW, path="consumer.durable.window", kinds=MESSAGES, doc=
        "window of a consumer of a durable subscription of a topic.")
    browser_window: int | str | None = _row(COUNT, path="consumer.browser.window", doc=
        "messages that a browser reads at a time.")
    subscription_windows: dict[str, Window | int | str] | str | None = _row(WINDOWS, path="consumer.subscriptions", doc=
        'windows of named subscriptions, ``{"audit": 10}``.')
    rate: float | str | None = _row(None, kinds=BUCKETS, doc="of a bucket, tokens a second.")
    burst: int | None = _row(None, kinds=BUCKETS, doc=
        "of a bucket, tokens at once; one second's worth (at least 1) when only the rate is given.")
    limits: dict[str, dict[str, Any]] | str | None = _row(LIMITS, path=None, kinds=LIMITERS, doc=
        "of a limiter, by name: ``rate`` and ``burst``, ``at_once``, or ``quota`` and ``resets``.")
    key_limits: dict[str, dict[str, Any]] | str | None = _row(LIMITS, path="per_key", kinds=KEYED, doc=
        "limits of each key, below those of all keys together: of a limiter by their names, of a gate ``bytes`` and "
        "``calls``, of a bucket ``tokens``.")
    shadow_limits: dict[str, dict[str, Any]] | str | None = _row(LIMITS, path=None, kinds=LIMITERS, doc=
        "of a limiter, beside ``limits`` and like them: it is counted what they would keep waiting, and nobody waits.")
    shadow_key_limits: dict[str, dict[str, Any]] | str | None = _row(LIMITS, path=None, kinds=LIMITERS, doc=
        "of a limiter, the same of each key.")
    key_weights: dict[str, int] | str | None = _row(WEIGHTS, path="per_key.weight", kinds=KEYED, doc=
        'shares of keys that wait: ``{"gold-*": 4}``, 1 to 1000; 1 where no pattern matches.')
    bands: dict[str, int] | str | None = _row(KEY_BANDS, path="band", kinds=KEYED, doc=
        'bands of keys that wait: ``{"batch-*": 6}``, 0 (first) to 7 (last); 3 where no pattern matches.')
    aging: float | str | None = _row(AGING, kinds=KEYED, doc=
        "seconds of a rate, or times a limit, that go before a band that waits, for each before it; else 1.")
    reserve: dict[str, float] | str | None = _row(SHARES, kinds=KEYED, doc=
        'part of each limit of all keys that only bands up to that one may use: ``{"0": 0.1}``.')
    shed: dict[str, float] | str | None = _row(SHARES, kinds=KEYED, doc=
        'bands from that one on are refused at once where a limit is filled so far: ``{"6": 0.8}``.')
    order: str | None = _row(ORDER, kinds=KEYED, doc=
        "``deadline``: within a band the earliest deadline goes first; else ``turn``, by key.")
    fail_if_late: bool | str | None = _row(FAIL_IF_LATE, kinds=KEYED, doc=
        "whether whoever would not be admitted in time is refused at once, as far as is known: ``yes``, or ``no``.")
    zone: str | None = _row(ZONE, path=None, kinds=LIMITERS, doc=
        "of a limiter, the time zone in which its quotas have their windows, such as ``Europe/Berlin``; else UTC.")
    unknown_keys: str | None = _row(UNKNOWN_KEYS, kinds=KEYED, doc=
        "``refuse`` has keys refused that no pattern of ``key_weights`` matches; else ``allow``.")
    max_keys: int | str | None = _row(KEYS, kinds=KEYED, doc=
        "keys that are known at a time, up to 10 million; 1 million by default.")
    hold_off: float | str | None = _row(HOLD_OFF, field="hold_off_ms", kinds=KEYED, doc=
        "seconds for which a client may hold it off at the most, up to a day; else an hour.")
    lease_ahead: float | str | None = _row(LEASE_AHEAD, field="lease_ahead_ms", path=None, kinds=LIMITERS, doc=
        "of a limiter, seconds of a rate that a session may take in hand at the most, up to 60.")
    ledger_keys: str | None = _row(LEDGER_KEYS, path=None, kinds=LIMITERS, doc=
        "of a limiter, ``all`` or ``off``: whether entries of the ledger name keys.")
    ledger: str | None = _row(word(*LEDGER_LEVELS), kinds=EVERY, default="all", doc=
        "``all`` keeps an entry for every change, ``off`` none.")
    ledger_keep: int | None = _row(KEPT, kinds=EVERY, default="10000", doc=
        "entries that are kept at least, about.")
    # fmt: on

    def fields(self) -> dict[str, str]:
        """Return the settings as the state's fields; an empty text sets one back to its default.

        Raises:
            PolicyError: a combination that means nothing.
            InvalidValue: a value that cannot be read.
        """
        out: dict[str, str] = {}
        for name, row in ROWS.items():
            value = getattr(self, name)
            if value is not None and row.form is not None:
                out[row.field] = row.default if value == DEFAULT else row.form.spell(value, name)
        for rate, burst in ((r, r.replace("rate", "burst")) for r in ("send_rate", "send_byte_rate", "delivery_rate")):
            if out.get(rate) and not out.get(burst):
                out[burst] = str(max(1, int(float(out[rate]))))
            elif not out.get(rate) and (out.get(burst) or (burst in out and rate not in out)):
                raise PolicyError(f"{burst} without {rate}; give both", settings=(burst, rate))
            if out.get(rate) and out.get(burst):
                check_burst(float(out[rate]), int(out[burst]), burst)
        if self.rate is not None or self.burst is not None:
            out |= self._bucket()
        self._contradictions(out)
        if (out.get("retry_factor") or out.get("retry_max_ms")) and not out.get("retry_delay_ms"):
            raise PolicyError("retry_factor and retry_max without retry_delay; give that too", setting="retry_delay")
        return out

    def _contradictions(self, out: dict[str, str]) -> None:
        check_levels(out, out)
        if out.get("fair_by"):
            check_turns(out, out)
        check_slices(out, out)
        for name in STORES:
            if out.get(name) and out.get("when_full", "spool") != "spool":
                text = f"nothing goes to {getattr(self, name)!r}, for when_full is not 'spool'; set both, or neither"
                raise PolicyError(text, setting=name)
        self._limiter(out)
        names, why = NOT_OF.get(self.kind or "", ((), ""))
        for name in names:
            if out.get(name):
                raise PolicyError(f"{name} {why}", settings=(name,))
        if self.kind == "bucket" and self.durability not in (None, DEFAULT, "memory"):
            text = "a bucket begins full after a failover, whoever has it; leave it out"
            raise PolicyError(text, setting="durability")
        if self.kind in ("gate", "bucket"):
            for name, row in ROWS.items():
                if row.kinds == MESSAGES and out.get(row.field):
                    raise PolicyError(f"{name} belongs to a queue or a topic, not to a {self.kind}", settings=(name,))
            if self.when_full in ("drop", "spool"):
                raise PolicyError(
                    f"a {self.kind} has no message to {self.when_full}; use block, fail or 'fail-after 3s'",
                    setting="when_full",
                )

    def _limiter(self, out: dict[str, str]) -> None:
        for kinds, those in ((LIMITERS, "a limiter"), (KEYED, "a limiter, a gate or a bucket")):
            own = [name for name, row in ROWS.items() if row.kinds == kinds and out.get(row.field)]
            if own and self.kind is not None and self.kind not in kinds:
                raise PolicyError(f"{own[0]} belongs to {those}, not to a {self.kind}", settings=own)
        others = [name for name, row in ROWS.items() if "limiter" not in row.kinds and getattr(self, name) is not None]
        if others and self.kind == "limiter":
            raise PolicyError(f"{others[0]} means nothing for a limiter; that takes limits", settings=others)
        zone = zone_of_quotas(self.limits, self.key_limits, self.shadow_limits, self.shadow_key_limits)
        if zone is not None and out.setdefault("zone", zone) != zone:
            raise PolicyError("it is not the time zone that resets says; leave one of them out", setting="zone")
        if self.limits not in (None, DEFAULT) and self.key_limits not in (None, DEFAULT):
            check_key_limits(limits_of(out["limits"]), limits_of(out["key_limits"]))
        if self.limits not in (None, DEFAULT) and self.shadow_limits not in (None, DEFAULT):
            check_shadows(limits_of(out["limits"]), limits_of(out["shadow_limits"]))
        if self.enforce is not None and (self.kind == "limiter" or out.get("limits")):
            enforce_limits(self.kind, out)
        check_shadow(self.kind, out, enforce=self.enforce)

    def _bucket(self) -> dict[str, str]:
        if self.kind not in (None, "bucket"):
            raise PolicyError(
                f"rate and burst belong to a bucket, not to a {self.kind}; for a destination use send_rate",
                settings=("rate", "burst", "send_rate"),
            )
        if self.rate is None:
            raise PolicyError("burst without rate; give both", settings=("burst", "rate"))
        rate = parse_rate(self.rate, "rate")
        burst = max(1, int(rate)) if self.burst is None else int(SIZE.spell(self.burst, "burst"))
        check_burst(rate, burst)
        return {"rate": repr(rate), "burst": str(burst)}


def _named(name: str, row: SettingRow) -> SettingRow:
    return replace(row, field=row.field or name, path=(name,) if row.path == ("",) else row.path)


ROWS: Final[dict[str, SettingRow]] = {one.name: _named(one.name, one.metadata["row"]) for one in fields(Settings)}
"""The table, by name of the setting."""
Settings.__doc__ = f"{Settings.__doc__}\n\nAttributes:\n" + "".join(
    f"    {name}: {row.doc}\n" for name, row in ROWS.items()
)
FIELD_OF: Final[dict[str, str]] = {name: row.field for name, row in ROWS.items()}
"""The state's field of each setting."""
PATHS: Final[dict[str, Path]] = {name: row.path for name, row in ROWS.items() if row.path}
"""Where a policy says each setting."""
DEFAULTS: Final[dict[str, str]] = {
    row.field: row.default for row in ROWS.values() if row.governed and row.form and row.kinds not in (LIMITERS, KEYED)
}
"""Every field that a policy governs, at its default: what a destination has that no rule sets anything about."""
BUCKET_FIELDS: Final = frozenset(row.field for row in ROWS.values() if "bucket" in row.kinds and row.governed)
"""All that a policy can say about a bucket. Others have neither rate nor burst of their own."""
LIMITER_FIELDS: Final = tuple(row.field for row in ROWS.values() if row.kinds in (LIMITERS, KEYED))
"""Settings of limiters, which have those of the ledger beside."""
KEYED_FIELDS: Final = frozenset(row.field for row in ROWS.values() if row.kinds == KEYED)
"""Those of them that gates and buckets have too."""
MESSAGE_FIELDS: Final = frozenset(row.field for row in ROWS.values() if row.kinds == MESSAGES)
"""Settings of destinations with messages: queues and topics, not gates."""

STORES: Final = ("store", "store_nonpersistent")
"""Fields that name a spool store."""


def check_spool(fields: Mapping[str, str], given: Mapping[str, str]) -> None:
    """See that a destination that spools has a store, and one with a store spools; only about what is given.

    Raises:
        PolicyError: it would be one without the other.
    """
    store, spools = fields.get("store", ""), fields.get("when_full") == "spool"
    if spools and not store and {"when_full", *STORES} & set(given):
        raise PolicyError("spool without a store; give store='<name>' of a spool store too", setting="when_full")
    for name in STORES:
        if given.get(name) and not spools:
            raise PolicyError(f"nothing goes to {given[name]!r}; give when_full='spool' too", setting=name)
