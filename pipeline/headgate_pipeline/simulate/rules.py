"""A policy as a model sees it: the settings that bear on the flow of a destination, and those it cannot judge."""

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import inf
from typing import Final

from headgate.core.limits.limit import Limit
from headgate.core.names import encode_name
from headgate.core.policy import Policy, Resolved
from headgate.core.when_full import WhenFull
from headgate.settings import FIELD_OF
from headgate_pipeline.formatting import count, size, span
from headgate_pipeline.ledger.limiter_course import read_limits

JUDGED: Final = frozenset({
    "limit_bytes", "limit_messages", "resume_bytes", "resume_messages", "when_full", "pools", "send_rate", "send_burst",
    "send_byte_rate", "send_byte_burst", "delivery_rate", "delivery_burst", "producer_rate", "producer_byte_rate",
    "consumer_rate", "rate", "burst", "limits", "key_limits", "key_weights", "zone",
})  # fmt: skip
"""Fields that a replay goes by."""
_NO_BEARING: Final = frozenset({"ledger", "ledger_keep", "browser_window", "slices"})
_DEFAULT_OF: Final = {"enforce": "always", "oversize": "refuse", "deadlock": "none"}
_SETTING: Final = {field: setting for setting, field in FIELD_OF.items()}
_HIDDEN: Final = (
    "send_rate",
    "send_byte_rate",
    "delivery_rate",
    "producer_rate",
    "producer_byte_rate",
    "consumer_rate",
)


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket lets ``rate`` a second go, and ``burst`` at once."""

    rate: float
    burst: float


@dataclass(frozen=True, slots=True)
class Rules:
    """The limits of a destination. Infinite, or None, is no limit.

    Attributes:
        limit: bytes pending and leased.
        limit_m: the same in messages.
        resume: bytes: once somebody found no room, nobody is let in until so few are pending.
        resume_m: the same in messages.
        patience: ms that a send waits for room before it is refused.
        sends: messages of all senders.
        send_bytes: bytes of all senders.
        each_sends: messages of each sender.
        each_bytes: bytes of each sender.
        deliveries: messages of all consumers.
        each_takes: messages of each consumer.
        idle: credit held unused, as a multiple of what was seen; as wide as the producers' windows.
        pools: names of the pools whose limits it shares.
        tokens: of a bucket.
        limits: of a limiter, of all keys together.
        key_limits: of each key.
        weights: of keys that wait there, as settings spell them.
        zone: the offsets from UTC in which its quotas have their windows; empty for UTC.
    """

    limit: float = inf
    limit_m: float = inf
    resume: float = inf
    resume_m: float = inf
    patience: float = inf
    sends: Bucket | None = None
    send_bytes: Bucket | None = None
    each_sends: Bucket | None = None
    each_bytes: Bucket | None = None
    deliveries: Bucket | None = None
    each_takes: Bucket | None = None
    idle: float = 1.0
    pools: tuple[str, ...] = ()
    tokens: Bucket | None = None
    limits: Mapping[str, Limit] = dataclasses.field(default_factory=dict)
    key_limits: Mapping[str, Limit] = dataclasses.field(default_factory=dict)
    weights: str = ""
    zone: str = ""

    def described(self, pools: Mapping[str, float]) -> str:
        """Return it in words, such as ``32 KiB, 100 messages, 50/s``."""
        parts = [size(self.limit) if self.limit < inf else "", _amount(self.limit_m, "messages")]
        parts += [f"resume at {size(self.resume)}" if self.resume < inf else "", _amount(self.resume_m, "to resume at")]
        parts += [
            f"{count(rate.rate)}{unit}" if unit.startswith("/") else f"{size(rate.rate)}{unit[1:]}"
            for rate, unit in (
                (self.sends, "/s"), (self.send_bytes, "B/s"), (self.each_sends, "/s a sender"),
                (self.each_bytes, "B/s a sender"), (self.deliveries, "/s delivered"),
                (self.each_takes, "/s a consumer"), (self.tokens, "/s"),
            )
            if rate        ]  # fmt: skip
        parts += [str(limit) for limit in self.limits.values()]
        parts += [f"{limit} a key" for limit in self.key_limits.values()]
        parts += [f"{size(pools[name])} in {name}" for name in self.pools if name in pools]
        if self.patience < inf:
            parts.append(f"refuses after {span(self.patience)}" if self.patience else "refuses at once")
        return ", ".join(part for part in parts if part) or "no limit"


def _amount(value: float, unit: str) -> str:
    return f"{count(value)} {unit}" if value < inf else ""


def rules_of(fields: Mapping[str, str], window: float | None = None) -> Rules:
    """Return what a destination's fields mean.

    Args:
        fields: as the state spells them.
        window: bytes that producers kept in hand in the period; None where that is not known.
    """

    def number(name: str) -> float:
        text = fields.get(name, "")
        return float(text) if text and text not in ("unlimited", "inf") else inf

    def level(name: str, limit: str) -> float:
        text, whole = fields.get(name, ""), number(limit)
        if not text.endswith("%"):
            return number(name)
        return float(int(whole * float(text[:-1]) / 100)) if whole < inf else inf

    def each(rate: str) -> Bucket | None:
        return Bucket(number(rate), 1.0) if number(rate) < inf else None

    def shared(rate: str, burst: str) -> Bucket | None:
        a_second, at_once = number(rate), number(burst)
        return Bucket(a_second, at_once if at_once < inf else max(1.0, a_second)) if a_second < inf else None

    when_full = WhenFull.parse(fields.get("when_full", ""))
    bound = fields.get("enforce", "") != "off"
    asked = number("producer_window")
    return Rules(
        limit=number("limit_bytes") if bound else inf,
        limit_m=number("limit_messages") if bound else inf,
        resume=level("resume_bytes", "limit_bytes"),
        resume_m=level("resume_messages", "limit_messages"),
        patience=inf if when_full.patience is None else when_full.patience * 1000,
        sends=shared("send_rate", "send_burst"),
        send_bytes=shared("send_byte_rate", "send_byte_burst"),
        each_sends=each("producer_rate"),
        each_bytes=each("producer_byte_rate"),
        deliveries=shared("delivery_rate", "delivery_burst"),
        each_takes=each("consumer_rate"),
        idle=asked / window if window and asked < inf else 1.0,
        pools=tuple(fields.get("pools", "").split()),
        tokens=shared("rate", "burst"),
        limits=read_limits(fields.get("limits", "")),
        key_limits=read_limits(fields.get("key_limits", "")),
        weights=fields.get("key_weights", ""),
        zone=fields.get("zone", ""),
    )


def pools_of(policy: Policy) -> dict[str, float]:
    """Return the bytes of a policy's pools without their reserve, by the names that destinations know them by.

    Those in percent of Redis' memory are left out: no document has that size.
    """
    limits = {encode_name(pool.name): pool.fields for pool in policy.pools}
    return {
        name: inf
        if fields["limit_bytes"] == "unlimited"
        else float(fields["limit_bytes"]) - float(fields.get("reserve_bytes") or 0)
        for name, fields in limits.items()
        if fields.get("limit_bytes")
    }


def unjudged(resolved: Resolved, pools: Collection[str], now: Mapping[str, str] | None) -> list[str]:
    """Return what rules say about a destination and a replay does not judge, each with its rule and why.

    Args:
        resolved: what the policy says.
        pools: whose limits are known.
        now: the settings that held in the period; None where they are not known.
    """
    notes = []
    for field, origin in resolved.origins.items():
        value = resolved.fields[field]
        if (
            field in _NO_BEARING
            or value == _DEFAULT_OF.get(field, "")
            or (now is not None and now.get(field, "") == value)
        ):
            continue
        place = f"{_SETTING.get(field, field)} = {value} ({origin})"
        if field == "producer_window":
            if now is None:
                notes.append(f"{place}: the window that held in the period is not known; with --redis it is asked")
        elif field == "enforce":
            if value == "with-consumers":
                notes.append(f"{place}: taken as if there was always a consumer")
        elif field == "pools":
            notes += [
                f"pool {name} ({origin}): its limit is not in the document"
                for name in value.split()
                if name not in pools
            ]
        elif field not in JUDGED:
            notes.append(f"{place}: not part of the model")
        elif field in _HIDDEN and now is not None and now.get(field) and float(now[field]) < float(value or inf):
            notes.append(
                f"{place}: {float(now[field]):g} held in the period, so what would have come above is not known"
            )
    return notes
