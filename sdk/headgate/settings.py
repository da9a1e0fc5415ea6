"""What can be set for one destination, checked and spelled as the state keeps it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, Literal

from headgate._util.keywords import explains
from headgate.core.durability import Durability
from headgate.core.full import WhenFull
from headgate.core.window import Window
from headgate.core.words import KEYS, hint
from headgate.errors import InvalidValue, PolicyError
from headgate.options import MAX_WEIGHT
from headgate.redis.keys import encode_name
from headgate.units import (
    MAX_RATE,
    MAX_WINDOW,
    MIN_RATE,
    Unlimited,
    check_burst,
    parse_duration,
    parse_limit,
    parse_rate,
    parse_size,
)

Kind = Literal["queue", "topic", "gate", "bucket"]
KINDS = ("queue", "topic", "gate", "bucket")
LEDGER_LEVELS = ("all", "off")
ENFORCE: Final = ("always", "with-consumers", "off")
DEADLOCK: Final = ("none", "alert", "fail", "ticket")
OVERSIZE: Final = ("refuse", "allow-one")
SLOW_ACTIONS: Final = ("notify", "detach")
MOST_POOLS: Final = 4
"""Pools that one destination may be in."""
DEFAULT: Final = "default"
"""As a value: the setting goes back to its default."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a destination; None leaves a setting as it is, ``"default"`` sets it back to its default.

    Attributes:
        kind: ``queue``, ``topic``, ``gate`` or ``bucket``; fixed once the destination exists.
        limit: bytes that may be pending and leased, or ``"unlimited"``.
        limit_messages: the same in messages; the first of the two to be reached counts.
        hard_limit: bytes above which even a client whose credit counts messages is refused; never below ``limit``.
        resume_at: bytes, or a percentage of the limit in force: once full, nobody is served until pending is that.
        resume_at_messages: the same in messages.
        when_full: ``block``, ``fail``, ``fail-after 3s``, ``drop`` or ``spool``: what a send does that finds no room.
        store: the spool store that takes payloads when memory is full, and ``when_full`` is ``spool``.
        deadlock: what happens to sends that wait for one another without end: ``none`` (nothing), ``alert`` (the log is
            told), ``fail`` (the newest of them raises ``DeadlockDetected``) or ``ticket`` (one message goes above the
            limit). Unset, nodes do as with ``alert``, and a session that waits for itself is not looked at by itself.
        oversize: a message above the limit is refused (``refuse``), or goes when nothing is pending (``allow-one``).
        enforce: whether limits bind: ``always``, ``with-consumers`` (only while a consumer is active) or ``off``.
        stopped: a reason: nobody may send until it is taken away.
        confirm: a link and its channel: receipts wait until it has sent the message; a policy's channels say so.
        pools: names of the pools whose limits it shares, separated by blanks.
        reserved: ``yes`` when it may use what its pools keep in reserve; ``no`` when not.
        pool_weight: its share of a pool beside others that wait for it, 1 to 1000; 1 when it does not say.
        send_rate: messages a second that may be sent, shared by all hosts.
        send_burst: messages at once; one second's worth (at least 1) when only the rate is given.
        send_byte_rate: the same in bytes a second.
        send_byte_burst: the same in bytes.
        delivery_rate: messages a second that all consumers together may be given.
        delivery_burst: messages at once.
        message_ttl: seconds after which an unsettled message expires.
        max_attempts: failed attempts after which a message goes to ``dead_letter``, or is dropped where there is none.
        dead_letter: destination of what failed too often or was rejected.
        slow_multiple: a consumer is slow when more than so many of its windows wait for it.
        slow_rate: or when it settles fewer messages a second than this although it has some.
        slow_period: seconds between looks.
        slow_action: ``notify`` or ``detach``.
        durability: what has a write before it is told: ``memory``, ``fsync``, ``replicas:1``, ``fsync replicas:1``.
        producer_window: bytes of credit that a producer keeps in hand when it does not say.
        producer_rate: messages a second of each producer.
        producer_byte_rate: bytes a second of each producer.
        producer_weight: share of a producer that does not say.
        producer_timeout: seconds that a send waits when it does not say, or ``"unlimited"``.
        consumer_window: window of a consumer that does not say; see :meth:`Window.of`.
        consumer_rate: messages a second of each consumer.
        durable_window: window of a consumer of a durable subscription of a topic.
        browser_window: messages that a browser reads at a time.
        subscription_windows: windows of named subscriptions, ``{"audit": 10}``.
        rate: of a bucket, tokens a second.
        burst: of a bucket, tokens at once; one second's worth (at least 1) when only the rate is given.
        ledger: ``all`` keeps an entry for every change, ``off`` none.
        ledger_keep: entries that are kept at least, about.
    """

    kind: Kind | None = None
    limit: int | str | None = None
    limit_messages: int | Unlimited | None = None
    hard_limit: int | str | None = None
    resume_at: int | str | None = None
    resume_at_messages: int | str | None = None
    when_full: str | None = None
    store: str | None = None
    deadlock: str | None = None
    oversize: str | None = None
    enforce: str | None = None
    stopped: str | None = None
    confirm: str | None = None
    pools: str | None = None
    reserved: str | None = None
    pool_weight: int | str | None = None
    send_rate: float | str | None = None
    send_burst: int | str | None = None
    send_byte_rate: float | str | None = None
    send_byte_burst: int | str | None = None
    delivery_rate: float | str | None = None
    delivery_burst: int | str | None = None
    message_ttl: float | str | None = None
    max_attempts: int | str | None = None
    dead_letter: str | None = None
    slow_multiple: float | str | None = None
    slow_rate: float | str | None = None
    slow_period: float | str | None = None
    slow_action: str | None = None
    durability: str | None = None
    producer_window: int | str | None = None
    producer_rate: float | str | None = None
    producer_byte_rate: float | str | None = None
    producer_weight: int | str | None = None
    producer_timeout: float | str | None = None
    consumer_window: Window | int | str | None = None
    consumer_rate: float | str | None = None
    durable_window: Window | int | str | None = None
    browser_window: int | str | None = None
    subscription_windows: dict[str, Window | int | str] | str | None = None
    rate: float | str | None = None
    burst: int | None = None
    ledger: str | None = None
    ledger_keep: int | None = None

    def fields(self) -> dict[str, str]:
        """Return the settings as the state's fields; an empty text sets one back to its default.

        Raises:
            PolicyError: a combination that means nothing.
            InvalidValue: a value that cannot be read.
        """
        out: dict[str, str] = {}
        for name, (field, spell) in _SPELLING.items():
            value = getattr(self, name)
            if value is not None:
                out[field] = _RESET.get(field, "") if value == DEFAULT else spell(value, name)
        for rate, burst in (("send_rate", "send_burst"), ("send_byte_rate", "send_byte_burst"),
                            ("delivery_rate", "delivery_burst")):  # fmt: skip
            if out.get(rate) and burst not in out:
                out[burst] = str(max(1, int(float(out[rate]))))
            elif out.get(burst) and not out.get(rate):
                raise PolicyError(f"{burst} without {rate}; give both")
            if out.get(rate) and out.get(burst):
                check_burst(float(out[rate]), int(out[burst]), burst)
        if self.rate is not None or self.burst is not None:
            out |= self._bucket()
        self._contradictions(out)
        return out

    def _contradictions(self, out: dict[str, str]) -> None:
        check_levels(out, out)
        if out.get("store") and out.get("when_full", "spool") != "spool":
            raise PolicyError(
                f"store: nothing goes to {self.store!r}, for when_full is not 'spool'; set both, or neither"
            )
        if self.kind == "queue":
            for name in ("durable_window", "subscription_windows"):
                if out.get(name):
                    raise PolicyError(f"{name} belongs to a topic: a queue has no subscriptions; leave it out")
        if self.kind == "bucket" and self.durability not in (None, DEFAULT, "memory"):
            raise PolicyError("durability: a bucket begins full after a failover, whoever has it; leave it out")
        if self.kind in ("gate", "bucket"):
            for name in _MESSAGES_ONLY:
                if out.get(_SPELLING[name][0]):
                    raise PolicyError(f"{name} belongs to a queue or a topic, not to a {self.kind}")
            if self.when_full in ("drop", "spool"):
                raise PolicyError(
                    f"when_full: a {self.kind} has no message to {self.when_full}; use block, fail or 'fail-after 3s'"
                )

    def _bucket(self) -> dict[str, str]:
        if self.kind not in (None, "bucket"):
            raise PolicyError(
                f"rate and burst belong to a bucket, not to a {self.kind}; for a destination use send_rate"
            )
        if self.rate is None:
            raise PolicyError("burst without rate; give both")
        rate = parse_rate(self.rate, "rate")
        burst = parse_size(self.burst, "burst") if self.burst is not None else max(1, int(rate))
        if burst < 1:
            raise PolicyError("burst: 0 admits nothing; use at least 1")
        check_burst(rate, burst)
        return {"rate": repr(rate), "burst": str(burst)}


setattr(Settings, "__init__", explains("settings")(Settings.__init__))  # noqa: B010 - a method that was generated


def settings_of(values: Mapping[str, Any]) -> Settings:
    """Return settings from values by name.

    Raises:
        PolicyError: a name is unknown, or a value is a table of a policy; the error says which name is meant.
    """
    known = [field.name for field in fields(Settings)]
    for name, value in values.items():
        if name not in known:
            raise PolicyError(f"setting {name!r} is unknown; {hint(name, 'settings', known)}")
        if isinstance(value, Mapping) and name != "subscription_windows":
            meant = ", ".join(setting for setting, path in KEYS.items() if path[0] == name)
            raise PolicyError(f"{name}: a table is how a policy says it; by hand there are {meant}")
    return Settings(**values)


def _word(*known: str) -> Callable[[Any, str], str]:
    def spell(value: Any, what: str) -> str:
        if value not in known:
            raise PolicyError(f"{what}: {value!r}; use {', '.join(known[:-1])} or {known[-1]}")
        return str(value)

    return spell


def _size(value: Any, what: str) -> str:
    size = parse_size(value, what)
    if size == 0:
        raise InvalidValue(f"{what}: 0 has no meaning of its own here; use at least 1")
    return str(size)


def _at_most(most: int, size: str, what: str) -> int:
    if int(size) > most:
        raise InvalidValue(f"{what}: {size}; use 1 to {most}")
    return int(size)


def _number(value: Any, what: str) -> str:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = 0.0
    if isinstance(value, bool) or not MIN_RATE <= number <= MAX_RATE:
        raise InvalidValue(f"{what}: {value!r}; use a number from {MIN_RATE:g} to {MAX_RATE:g}")
    return repr(number)


def _milliseconds(value: Any, what: str) -> str:
    duration = parse_duration(value, what)
    if duration < 0.001:
        raise InvalidValue(f"{what}: {value!r}; use at least 1 ms")
    return str(int(duration * 1000))


def _resume_at(value: Any, what: str) -> str:
    if isinstance(value, str) and value.strip().endswith("%"):
        try:
            percent = float(value.strip()[:-1])
        except ValueError:
            percent = -1.0
        if not 0 <= percent <= 100:
            raise InvalidValue(f"{what}: {value!r} is not a percentage; write '80%', or a size")
        return f"{percent}%"
    return str(parse_size(value, what))


def _when_full(value: str, what: str) -> str:
    del what  # it names itself
    return WhenFull.parse(value or "nothing").text


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > 200 or not value.isprintable():
        raise InvalidValue(f"{what}: {value!r}; use 1 to 200 printable characters")
    return value.strip()


def _pools(value: Any, what: str) -> str:
    names = [encode_name(name, what) for name in str(value).split()]
    if not names or len(names) > MOST_POOLS or len(set(names)) != len(names):
        raise InvalidValue(f"{what}: {value!r}; use 1 to {MOST_POOLS} different names, separated by blanks")
    return " ".join(names)


def _window(value: Any, what: str) -> str:
    if isinstance(value, str) and "/" in value:
        return Window.parse(value).text
    del what  # the window names itself
    return Window.of(value).text


def _windows(value: Any, what: str) -> str:
    if not isinstance(value, dict):
        raise InvalidValue(f"{what}: {value!r}; use a table of subscription = window")
    return " ".join(f"{encode_name(name, what)}={_window(window, what)}" for name, window in sorted(value.items()))


def _rate(value: Any, what: str) -> str:
    return repr(parse_rate(value, what))


_SPELLING: Final[dict[str, tuple[str, Callable[[Any, str], str]]]] = {
    "kind": ("kind", _word(*KINDS)),
    "limit": ("limit_bytes", lambda value, what: str(parse_limit(value, what))),
    "limit_messages": ("limit_messages", lambda value, what: str(parse_limit(value, what))),
    "hard_limit": ("hard_bytes", _size),
    "resume_at": ("resume_bytes", _resume_at),
    "resume_at_messages": ("resume_messages", _resume_at),
    "when_full": ("when_full", _when_full),
    "store": ("store", encode_name),
    "deadlock": ("deadlock", _word(*DEADLOCK)),
    "oversize": ("oversize", _word(*OVERSIZE)),
    "enforce": ("enforce", _word(*ENFORCE)),
    "stopped": ("stopped", _text),
    "confirm": ("confirm", _text),
    "pools": ("pools", _pools),
    "reserved": ("reserved", lambda value, what: "yes" if _word("yes", "no")(value, what) == "yes" else ""),
    "pool_weight": ("pool_weight", lambda value, what: str(_at_most(MAX_WEIGHT, _size(value, what), what))),
    "send_rate": ("send_rate", _rate),
    "send_burst": ("send_burst", _size),
    "send_byte_rate": ("send_byte_rate", _rate),
    "send_byte_burst": ("send_byte_burst", _size),
    "delivery_rate": ("delivery_rate", _rate),
    "delivery_burst": ("delivery_burst", _size),
    "message_ttl": ("message_ttl_ms", _milliseconds),
    "max_attempts": ("max_attempts", _size),
    "dead_letter": ("dead_letter", lambda value, what: encode_name(value, what) and value),
    "slow_multiple": ("slow_multiple", _number),
    "slow_rate": ("slow_rate", _rate),
    "slow_period": ("slow_period_ms", _milliseconds),
    "slow_action": ("slow_action", _word(*SLOW_ACTIONS)),
    "durability": ("durability", lambda value, what: Durability.parse(value, what).text),
    "producer_window": ("producer_window", lambda value, what: str(_at_most(MAX_WINDOW, _size(value, what), what))),
    "producer_rate": ("producer_rate", _rate),
    "producer_byte_rate": ("producer_byte_rate", _rate),
    "producer_weight": ("producer_weight", lambda value, what: str(_at_most(MAX_WEIGHT, _size(value, what), what))),
    "producer_timeout": ("producer_timeout_ms", lambda v, what: v if v == "unlimited" else _milliseconds(v, what)),
    "consumer_window": ("consumer_window", _window),
    "consumer_rate": ("consumer_rate", _rate),
    "durable_window": ("durable_window", _window),
    "browser_window": ("browser_window", _size),
    "subscription_windows": ("subscription_windows", _windows),
    "ledger": ("ledger", _word(*LEDGER_LEVELS)),
    "ledger_keep": ("ledger_keep", lambda value, what: str(parse_size(value, what))),
}
_MESSAGES_ONLY: Final = (
    "hard_limit", "resume_at", "resume_at_messages", "send_rate", "send_byte_rate", "delivery_rate", "message_ttl",
    "max_attempts", "dead_letter", "slow_multiple", "slow_rate", "consumer_window", "durable_window", "deadlock",
    "confirm", "store",
)  # fmt: skip
_RESET: Final = {"limit_bytes": "unlimited", "limit_messages": "unlimited", "ledger": "all", "ledger_keep": "10000"}
DEFAULTS: Final[dict[str, str]] = {
    field: _RESET.get(field, "") for name, (field, _) in _SPELLING.items() if name not in ("kind", "stopped")
}
"""Every field that a policy governs, at its default: what a destination has that no rule says anything about."""
FIELD_OF: Final[dict[str, str]] = {name: field for name, (field, _) in _SPELLING.items()} | {
    "rate": "rate", "burst": "burst"
}  # fmt: skip
"""The state's field of each setting."""
assert set(FIELD_OF) == {field.name for field in fields(Settings)}  # noqa: S101 - a setting without a spelling


_LEVELS: Final = (
    ("limit_bytes", "hard_bytes", "hard_limit {1} is below limit {0}"),
    ("resume_bytes", "limit_bytes", "resume_at {0} is above limit {1}"),
    ("resume_messages", "limit_messages", "resume_at_messages {0} is above limit_messages {1}"),
)
"""Fields of which the second may not be less than the first."""


def check_spool(fields: Mapping[str, str], said: Mapping[str, str]) -> None:
    """See that a destination that spools has a store, and one that is given a store spools.

    Args:
        fields: of the destination, with what is said.
        said: only about this.

    Raises:
        PolicyError: it would be one without the other.
    """
    store, spools = fields.get("store", ""), fields.get("when_full") == "spool"
    if spools and not store and {"store", "when_full"} & set(said):
        raise PolicyError("when_full: spool without a store; give store='<name>' of a spool store too")
    if said.get("store") and not spools:
        raise PolicyError(f"store: nothing goes to {store!r}; give when_full='spool' too")


def check_levels(fields: Mapping[str, str], said: Mapping[str, str]) -> None:
    """See that a destination's levels are in order, as far as ``said`` is about them.

    Raises:
        PolicyError: the hard limit is below the limit, or a destination that was full would resume above it.
    """
    for low, high, text in _LEVELS:
        a, b = fields.get(low, ""), fields.get(high, "")
        if {low, high} & set(said) and b.isdigit() and (int(a) > int(b) if a.isdigit() else a == "unlimited"):
            raise PolicyError(text.format(a, b))
