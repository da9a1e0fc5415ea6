"""The linter knows traps: policies that are right by the letter, and stall.

A rule of this linter looks at what holds for names (see :func:`headgate.policy.check.examples`), never at
one rule of the document alone: traps come from what several of them add up to.

A producer and a consumer of one session is a matter of programs: that deadlock is found when it happens. A link's
window cannot stall: it is never more than the room that its target has.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from headgate.core.names import decode_name
from headgate.core.policy import Policy, Pool
from headgate.core.window import Window
from headgate.figures import plain
from headgate.policy.check import Example, examples, place_of
from headgate.policy.compile import key_of
from headgate_coordinator.policy import lint_limiters
from headgate_coordinator.policy.finding import Finding
from headgate_coordinator.policy.lint_descriptors import CODES as OF_DESCRIPTORS
from headgate_coordinator.policy.lint_descriptors import descriptor_traps
from headgate_coordinator.policy.lint_links import link_traps
from headgate_coordinator.policy.lint_pools import CODES as OF_POOLS
from headgate_coordinator.policy.lint_pools import pool_traps
from headgate_coordinator.policy.lint_shadows import shadow_traps
from headgate_coordinator.policy.lint_spool import spool_traps

RESUME_SHARE: Final = 0.1
BURST_SECONDS: Final = 0.01
DEFAULT_WINDOW: Final = (float(Window().messages), float("inf"))
"""Messages and bytes that a consumer takes where nothing says how many."""


@dataclass(frozen=True, slots=True)
class Setup:
    """A setup holds facts that traps depend on and the document does not have.

    Attributes:
        producers: that send to one destination at the same time.
        largest: bytes of the largest message; None when unknown.
        mean: bytes of a message on average; None when unknown.
    """

    producers: int = 1
    largest: int | None = None
    mean: int | None = None


@dataclass(frozen=True, slots=True)
class _Place:
    """A place has the settings in force at one name."""

    example: Example
    policy: Policy
    known: Setup
    code: str

    def number(self, field: str) -> float | None:
        try:
            return float(self.example.resolved.fields.get(field, ""))
        except ValueError:
            return None

    def word(self, field: str) -> str:
        return self.example.resolved.fields.get(field, "")

    @property
    def binds(self) -> bool:
        return self.word("enforce") != "off"

    @property
    def pools(self) -> list[tuple[Pool, int]]:
        """Pools that it is in, with a limit that is known."""
        names = [decode_name(name) for name in self.word("pools").split()]
        found = [pool for pool in self.policy.pools if pool.name in names]
        return [(pool, int(limit)) for pool in found if (limit := pool.fields.get("limit_bytes", "")).isdigit()]

    def window(self, field: str) -> tuple[float, float] | None:
        """Return the messages and bytes of a window that is set and pushes."""
        text = self.word(field)
        window = Window.parse(text) if text else None
        if window is None or window.mode != "push":
            return None
        bounds = [float("inf") if bound == "unlimited" else float(bound) for bound in (window.messages, window.bytes)]
        return bounds[0], bounds[1]

    def finding(self, field: str, stalls: str, remedy: str) -> Finding | None:
        """Return a finding about a field, unless nobody set it."""
        origin = self.example.resolved.origins.get(field)
        return origin and Finding(self.code, place_of(origin), key_of(field), stalls, remedy)  # type: ignore[return-value]


Found = Iterator[Finding | None]


def _count(number: float) -> str:
    return "unlimited" if number == float("inf") else f"{number:.0f}"


def _window_above_limit(at: _Place) -> Found:
    for field in ("consumer_window", "durable_window"):
        window = at.window(field)
        if window and at.binds:
            for holds, limit, unit in (
                (window[0], at.number("limit_messages"), "messages"),
                (window[1], at.number("limit_bytes"), "bytes"),
            ):
                other = window[1] if unit == "messages" else window[0]
                if limit is not None and holds > limit and other == float("inf"):
                    yield at.finding(
                        field,
                        f"a window of {_count(holds)} {unit} holds the whole destination, whose limit is {limit:.0f}: "
                        "one consumer that takes messages and settles none starves the others and blocks the producers",
                        "make the window a fraction of the limit",
                    )


def _resume_too_low(at: _Place) -> Found:
    for resume, limit in (("resume_bytes", "limit_bytes"), ("resume_messages", "limit_messages")):
        low, high = at.number(resume), at.number(limit)
        if high and (share := at.word(resume)).endswith("%"):
            low = high * float(share[:-1]) / 100
        if low is not None and high and low < high * RESUME_SHARE:
            yield at.finding(
                resume,
                f"once full, nobody is served until {1 - low / high:.0%} of the limit has drained: producers and "
                "consumers work in turns, one side always idle",
                "resume at 50% to 90% of the limit",
            )


def _period_too_short(at: _Place) -> Found:
    rate, period = at.number("slow_rate"), at.number("slow_period_ms")
    if rate and period and period / 1000 < 2 / rate:
        yield at.finding(
            "slow_period_ms",
            f"at {plain(rate)} messages a second one takes {plain(1 / rate)} s, so a look each {period / 1000:g} s "
            "takes consumers that keep up for slow",
            "look at most once in the time of two messages",
        )


def _slow_by_order(at: _Place) -> Found:
    rate, allowed = at.number("slow_rate"), at.number("consumer_rate")
    if rate and allowed and allowed <= rate:
        yield at.finding(
            "slow_rate",
            f"consumers may take {plain(allowed)} messages a second, and below {plain(rate)} they count as slow: "
            "all of them are",
            "set the threshold below the rate that is allowed",
        )


def _windows_of_producers(at: _Place) -> Found:
    window, limit = at.number("producer_window"), at.number("limit_bytes")
    together = (window or 0) * at.known.producers
    if window and limit and together > limit and at.binds:
        yield at.finding(
            "producer_window",
            f"{at.known.producers} producer(s) with {window:.0f} bytes in hand lease {together:.0f} bytes, and the "
            f"limit is {limit:.0f}: credit lies idle with some while others wait",
            "make window times producers smaller than the limit",
        )


def _window_above_pool(at: _Place) -> Found:
    window = at.window("consumer_window")
    for pool, limit in at.pools:
        if window and limit < window[1] < float("inf"):
            yield at.finding(
                "consumer_window",
                f"one consumer may hold {window[1]:.0f} bytes, all that pool {pool.name!r} has ({limit}): every "
                "destination of the pool waits for it",
                "make the window a fraction of the pool",
            )


def _turns_in_the_window(at: _Place) -> Found:
    window = at.window("consumer_window") if at.word("consumer_window") else DEFAULT_WINDOW
    if at.word("fair_by") and window:
        size, mean = at.number("limit_bytes"), at.known.mean
        most = min(at.number("limit_messages") or float("inf"), size / mean if size and mean else float("inf"))
        if window[0] >= most and window[1] >= (size or float("inf")):
            backlog = (
                "however many messages wait" if most == float("inf") else f"all that there is room for ({most:.0f})"
            )
            yield at.finding(
                "consumer_window" if at.word("consumer_window") else "fair_by",
                f"one consumer's window of {_count(window[0])} messages takes {backlog}: what it has in hand is "
                "delivered already, so what comes later waits for all of that, whatever its key or priority, and turns "
                "show nowhere",
                "make consumer.window a fraction of the limit",
            )


def _limit_that_never_binds(at: _Place) -> Found:
    limit = "limit_bytes" if at.number("limit_bytes") else "limit_messages"
    if any(at.example.name in channel.topics for channel in at.policy.channels):
        rule = at.example.resolved.origins.get(limit, "").partition("@")[0]
        if rule == at.example.name:  # not one that was meant for others too
            yield at.finding(
                limit,
                "a channel sends the topic's messages, so its own limit plays no part: without flow_control the "
                "backlog of the channel grows until Redis is full, and then everything stalls",
                "leave it out; flow_control = 'on' has senders wait for the channel",
            )
    elif at.word("enforce") == "off" and at.number(limit):
        yield at.finding(
            "enforce",
            "limits are set and bind nowhere: what nobody consumes grows until Redis is full, and then everything "
            "stalls",
            "switch flow_control on, use enforce = 'with-consumers' or 'always', or bound the backlog with message_ttl",
        )


def _full_dead_letters(at: _Place) -> Found:
    name = at.word("dead_letter")
    if not name:
        return
    there = at.policy.resolve(name, at.policy.resolve(name).kind or "queue").fields
    limited = there.get("limit_bytes", "").isdigit() or there.get("limit_messages", "").isdigit()
    blocks = there.get("when_full") in (None, "", "block") and there.get("enforce") != "off"
    if limited and blocks and not there.get("message_ttl_ms"):
        yield at.finding(
            "dead_letter",
            f"{name!r} has a limit and blocks when it is full, and dead letters are seldom consumed: then consumers "
            "that reject a message wait, and hold up the live ones",
            f"give {name!r} limit = 'unlimited', a message_ttl, or when_full = 'drop'",
        )


def _burst_too_small(at: _Place) -> Found:
    for field in ("send_rate", "send_byte_rate", "delivery_rate"):
        burst = field.removesuffix("rate") + "burst"
        rate, most = at.number(field), at.number(burst)
        if rate and most and most < rate * BURST_SECONDS:
            yield at.finding(
                burst,
                f"{plain(most)} at once is less than 10 ms of the rate of {plain(rate)}/s: what is missed between two "
                "calls can never be made up, so the rate is not reached",
                "allow a burst of a tenth of a second or more",
            )


def _expires_before_the_look(at: _Place) -> Found:
    ttl, period = at.number("message_ttl_ms"), at.number("slow_period_ms")
    if ttl and period and ttl < period and (at.word("slow_multiple") or at.word("slow_rate")):
        yield at.finding(
            "message_ttl_ms",
            f"messages expire after {ttl / 1000:g} s, and consumers are looked at each {period / 1000:g} s: what a "
            "slow one does not take is gone before anybody notices",
            "look more often, or keep messages longer",
        )


def _larger_than_pool(at: _Place) -> Found:
    limit = at.number("limit_bytes")
    for pool, most in at.pools:
        if limit and limit > most:
            yield at.finding(
                "limit_bytes",
                f"a message between {most} bytes (pool {pool.name!r}) and {limit:.0f} (its own limit) is accepted as "
                "small enough, and waits for ever",
                "make the limit at most that of the pool",
            )


def _largest_message(at: _Place) -> Found:
    largest = at.known.largest
    for field in ("limit_bytes", "send_byte_burst"):
        most = at.number(field)
        if largest and most and largest > most and (field != "limit_bytes" or at.word("oversize") != "allow-one"):
            yield at.finding(
                field,
                f"a message of {largest} bytes never fits into {most:.0f}",
                "raise it" + (", or let one go alone with oversize = 'allow-one'" if field == "limit_bytes" else ""),
            )


def _unknown_pool(at: _Place) -> Found:
    known = {pool.name for pool in at.policy.pools}
    for name in map(decode_name, at.word("pools").split()):
        if name not in known:
            yield at.finding(
                "pools",
                f"there is no pool {name!r} in this document: unless something else makes it, its destinations get "
                "nothing",
                f"add [[pool]] name = {name!r}, or correct the name",
            )


def _sum_above_pool(policy: Policy) -> Iterator[Finding]:
    """Compare the limits of a pool's destinations with the pool: a pattern counts once, though it may match many."""
    for pool in policy.pools:
        total, places = 0, []
        limit = pool.fields.get("limit_bytes", "")
        for rule in policy.rules:
            name = ".".join("any" if word == "*" else word for word in rule.pattern.words) or "any"
            resolved = policy.resolve(f"{name}.any" if rule.pattern.tail == ">" else name, rule.kind)
            mine = resolved.fields.get("limit_bytes", "")
            names = map(decode_name, resolved.fields.get("pools", "").split())
            if mine.isdigit() and mine == rule.fields.get("limit_bytes") and pool.name in names:
                total += int(mine)
                places.append(rule.origins["limit_bytes"])
        if limit.isdigit() and total > int(limit) and len(places) > 1:
            yield Finding(
                "HG107",
                pool.origins["limit_bytes"],
                "limit_bytes" if pool.name.startswith("~") else "limit",
                f"limits of {total} bytes ({', '.join(places)}) share the {limit} of pool {pool.name!r}: one that "
                "fills up takes the room that the others count on, and they stall with their own limits far away",
                "lower the limits, or raise the pool",
            )


def _retried_for_ever(at: _Place) -> Found:
    delay, ttl = at.word("retry_delay_ms"), at.word("message_ttl_ms")
    if delay and "max_attempts" not in at.example.resolved.origins:  # "default" says that it is meant
        yield at.finding(
            "retry_delay_ms", "a message that always fails comes again for ever, and its bytes stay pending",
            "set max_attempts, and dead_letter to keep what failed so often; 'default' where it is meant",
        )  # fmt: skip
    elif delay and ttl and int(ttl) <= int(delay):
        yield at.finding(
            "retry_delay_ms", "a message that failed once expires before it is tried again",
            "set message_ttl well above retry.delay",
        )  # fmt: skip


RULES: Final[dict[str, Callable[[_Place], Found]]] = {
    "HG101": _window_above_limit,
    "HG102": _resume_too_low,
    "HG103": _period_too_short,
    "HG104": _slow_by_order,
    "HG105": _windows_of_producers,
    "HG106": _window_above_pool,
    "HG108": _limit_that_never_binds,
    "HG109": _full_dead_letters,
    "HG110": _burst_too_small,
    "HG111": _expires_before_the_look,
    "HG112": _larger_than_pool,
    "HG113": _largest_message,
    "HG114": _unknown_pool,
    "HG125": _turns_in_the_window,
    "HG135": _retried_for_ever,
}
CODES: Final = tuple(
    sorted([
        *RULES, "HG107", "HG115", "HG116", "HG117", "HG118", "HG138", *lint_limiters.CODES, *OF_DESCRIPTORS, *OF_POOLS
    ])
)  # fmt: skip


def lint(policy: Policy, known: Setup | None = None) -> list[Finding]:
    """Return the traps in a policy, each once, in the order of the document's lines."""
    found: dict[tuple[str, str, str], Finding] = {}
    known = known or Setup()
    findings: list[Any] = [*_sum_above_pool(policy), *link_traps(policy), *spool_traps(policy, known.mean)]
    findings += [*descriptor_traps(policy), *pool_traps(policy), *lint_limiters.quota_traps(policy.user_limits)]
    for example in examples(policy):
        findings += lint_limiters.limiter_traps(example.resolved)
        findings += shadow_traps(example.resolved)
        for code, rule in RULES.items():
            findings += rule(_Place(example, policy, known, code))
    for finding in findings:
        if finding:
            found.setdefault((finding.code, finding.place, finding.key), finding)
    return sorted(found.values(), key=_order)


def _order(finding: Finding) -> tuple[int, str]:
    line = finding.place.rpartition(":")[2]
    return int(line) if line.isdigit() else 0, finding.code
