"""A refusal is a value for callers who do not wait, and an error for those who do."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal

from headgate.core.limiting.calls import NOT_SAFE, Refusal
from headgate.errors import (
    AccessDenied,
    CoordinatorUnavailable,
    CreditTimeout,
    DestinationFull,
    HeadgateError,
    InvalidValue,
    MessageTooLarge,
    PolicyError,
    Shed,
)
from headgate.figures import rounded

_UNSAFE: Final = "it was admitted, but not known in time to replicas, or to the disk, as its durability asks"


@dataclass(frozen=True, slots=True)
class Refused:
    """An admission was refused without a wait; nothing was taken. It is false.

    Attributes:
        destination: name of the limiter.
        limit: name of the limit that binds; ``hold_off`` during one, ``line`` where others are first, ``durability``
            where replicas, or the disk, do not have it yet.
        rule: ``all`` where the limit is that of all callers together, ``key`` where it is that of the key.
        retry_after: seconds until it could be admitted, if nobody else comes; None where nobody knows.
        amounts: that were asked for.
        key: for which.
    """

    destination: str
    limit: str
    rule: Literal["all", "key"] = "all"
    retry_after: float | None = None
    amounts: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    key: str | None = None

    def __bool__(self) -> bool:
        return False


def refused_by(name: str, refusal: Refusal, now: float, amounts: Mapping[str, int], key: str | None) -> Refused:
    """Return a refusal as callers see it."""
    after = None if refusal.retry_at is None else max(0.0, refusal.retry_at - now)
    rule: Literal["all", "key"] = "key" if refusal.rule == "key" else "all"
    return Refused(name, refusal.limit, rule, after, MappingProxyType(dict(amounts)), key)


def error_of(
    name: str, refusal: Refusal, now: float, waited: float, amounts: Mapping[str, int], key: str | None,
    trouble: BaseException | None,
) -> HeadgateError:  # fmt: skip
    """Return the error for whoever waited for an admission that was refused."""
    size = amounts.get(refusal.limit) or max(amounts.values(), default=0)
    match refusal.why:
        case "late" | "timeout":
            after = None if refusal.retry_at is None else max(0.0, refusal.retry_at - now)
            return CreditTimeout(
                name, waited, size, limit=refusal.limit, rule=refusal.rule or "all", retry_after=after,
                amounts=amounts, key=key, reason=_UNSAFE if refusal.limit == NOT_SAFE else "",
            )  # fmt: skip
        case "moved" | "parts":
            return CreditTimeout(
                name, waited, size, limit="slices", rule="key", amounts=amounts, key=key,
                reason="its key is on its way to another slice of the limiter; ask again",
            )  # fmt: skip
        case "hopeless":
            late = max(0.0, (refusal.retry_at or now) - now)
            return CreditTimeout(
                name, waited, size, limit=refusal.limit, rule=refusal.rule or "all", retry_after=late,
                amounts=amounts, key=key, reason=f"it would wait for {rounded(late)} s, judging by the line",
            )  # fmt: skip
        case "shed":
            return Shed(name, size, refusal.band, refusal.fill, refusal.limit, refusal.rule or "all", key=key)
        case "never":
            return MessageTooLarge(name, size, refusal.most, name=refusal.limit, rule=refusal.rule, gate=True)
        case "unanswered":
            return unanswered(f"the limiter {name!r}", trouble)
        case "limit":
            return InvalidValue(f"the limiter {name!r} has no such limit", setting=refusal.limit)
        case "key":
            return PolicyError(f"the limiter {name!r} takes no key {key!r}: no pattern of its key_weights matches it")
        case "keys" | "holds":
            what = "keys" if refusal.why == "keys" else "holds"
            return DestinationFull(name, size, f"it has the most {what} allowed", waited=waited, gate=True)
        case "kind":
            return PolicyError(f"{name!r} is not a limiter")
    if isinstance(refusal.error, HeadgateError):
        return refusal.error.with_traceback(None)  # many raise it: each raise would lengthen what the others show
    return HeadgateError(f"the limiter {name!r} failed: {refusal.error!r}")


def unanswered(who: str, trouble: BaseException | None) -> HeadgateError:
    """Return the error where Redis did not do in time what was asked; ``trouble`` is that of the last call, if any."""
    if isinstance(trouble, AccessDenied):
        return trouble
    if isinstance(trouble, CoordinatorUnavailable) and trouble.answered:
        return CoordinatorUnavailable(f"Redis refuses what {who} asks: {trouble}", answered=True)
    why = "" if trouble is None else f": {trouble}"
    return CoordinatorUnavailable(f"{who} had no answer from Redis in time{why}")
