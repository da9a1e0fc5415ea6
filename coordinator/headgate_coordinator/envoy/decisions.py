"""Decisions about requests of proxies: each descriptor asks its limiter, and what is refused takes nothing of any."""

import asyncio
import contextlib
import hashlib
import logging
import math
from collections.abc import Callable
from typing import Final, Literal

from envoy.config.core.v3.base_pb2 import HeaderValue
from envoy.extensions.common.ratelimit.v3.ratelimit_pb2 import RateLimitDescriptor
from envoy.service.ratelimit.v3.rls_pb2 import RateLimitRequest, RateLimitResponse

from headgate import Client, CreditTimeout, HeadgateError, InvalidValue, MessageTooLarge
from headgate.core.limiting.amounts import MAX_KEY_BYTES
from headgate.core.limits import Limit
from headgate.core.limits.descriptor import LONGEST, MOST_ENTRIES, Descriptor
from headgate.core.policy import Policy
from headgate.limiting.hold import Hold
from headgate.limiting.limiter import Limiter
from headgate.limiting.refusals import Refused
from headgate_coordinator.envoy.mapping import Entries, Rules
from headgate_coordinator.holds import Holds, InProgress
from headgate_coordinator.security import Identity
from headgate_coordinator.security.access import Access
from headgate_coordinator.security.permissions import ALL

MOST_DESCRIPTORS: Final = 16
MOST_HITS: Final = 1 << 20
BEGINNING: Final = 100
"""Bytes of a long value that its key begins with."""
EMPTY: Final = "(empty)"
"""The key of an empty value."""
REMEMBERED: Final = 10_000
"""Requests of one descriptor that are known again, so that they need not be read again."""
_log = logging.getLogger("headgate")
_OK: Final = RateLimitResponse.OK
_OVER: Final = RateLimitResponse.OVER_LIMIT
_ADMITTED: Final[bytes] = RateLimitResponse(
    overall_code=_OK, statuses=[RateLimitResponse.DescriptorStatus(code=_OK)]
).SerializeToString()
_UNITS: Final = {1: 1, 60: 2, 3600: 3, 86_400: 4}
"""Seconds -> the proxy's number of that unit."""
_WINDOWS: Final = {"hour": 3, "day": 4, "month": 5, "week": 7}


class Decisions:
    """Answers requests for admissions, as the descriptors of the policy in force have it.

    Rates and quotas are taken out of what the node has in hand; a hold is kept in Redis by the name that its descriptor
    gives it, so that any node can end it.

    Args:
        client: connected; it stays the caller's.
    """

    def __init__(self, client: Client) -> None:
        self._policies = client.parts.registry.policies
        self._policy: Policy | None = None
        self._rules = Rules()
        self._holds = Holds(client, "envoy")
        self._session = client.session()
        self._limiters: dict[str, Limiter] = {}
        self._opening = asyncio.Lock()
        self._ends: set[asyncio.Task[None]] = set()
        self._known: dict[bytes, tuple[Limiter, str | None, dict[str, int]]] = {}
        self._access = Access()
        self._access.identity = Identity("envoy", ALL)

    async def close(self) -> None:
        """Stop; what is held stays held, for as long as its leases last."""
        for task in tuple(self._ends):
            await task
        await self._holds.close()
        await self._session.close()

    def decide_again(self, encoded: bytes) -> bytes | None:
        """Admit a request that came before out of what is in hand, and return the answer, encoded as the request is.

        None says that it did not come before, or that nothing is in hand: :meth:`decide` it.
        """
        known = self._known.get(encoded)
        if known is None or self._policies.policy is not self._policy:
            return None
        limiter, key, amounts = known
        hold = limiter.from_hand(key, amounts)
        if hold is None:
            return None
        hold.release()
        return _ADMITTED

    async def decide(self, request: RateLimitRequest, encoded: bytes = b"") -> RateLimitResponse:
        """Return whether a request is admitted.

        Args:
            request: of a proxy.
            encoded: the same, to be known by when it comes again; empty where it is not to be.

        Raises:
            InvalidValue: it is out of bounds, or its rule names a limit that there is not.
            HeadgateError: as :meth:`Limiter.attempt`; nothing was taken.
        """
        _check(request)
        self._follow(await self._policies.current())
        answer = RateLimitResponse(overall_code=_OK)
        taken: list[Callable[[], None]] = []
        spent: list[Hold] = []
        try:
            for descriptor in request.descriptors:
                status = answer.statuses.add(code=_OK)
                entries = [(entry.key, entry.value) for entry in descriptor.entries]
                rule = self._rules.of(request.domain, entries)
                hits = _hits(request, descriptor)
                if rule is None or hits == 0 or answer.overall_code == _OVER:
                    continue
                refused = await self._take(rule, entries, hits, taken, spent)
                if refused is not None:
                    answer.overall_code = status.code = _OVER
                    self._describe(answer, status, refused)
                elif encoded and spent and len(request.descriptors) == 1:
                    self._remember(encoded, rule.limiter, spent[0])
        except BaseException:
            _undo(taken)
            raise
        if answer.overall_code == _OVER:
            _undo(taken)
        else:
            for hold in spent:  # of rates and quotas it stays spent
                hold.release()
        return answer

    def _follow(self, policy: Policy) -> None:
        if policy is not self._policy:
            if not policy.descriptors:
                _log.warning("the policy has no [[descriptor]]: whatever proxies ask is admitted")
            self._policy, self._rules = policy, Rules(policy.descriptors)
            self._known.clear()

    def _remember(self, encoded: bytes, limiter: str, hold: Hold) -> None:
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        if len(encoded) <= LONGEST:
            self._known[encoded] = self._limiters[limiter], hold.key, dict(hold.amounts)

    async def _take(
        self, rule: Descriptor, entries: Entries, hits: int, taken: list[Callable[[], None]], spent: list[Hold]
    ) -> Refused | None:
        """Take what one descriptor asks for; returns why that is refused."""
        values = dict(entries)
        named = rule.hold or rule.release
        if named is not None and not values[named]:
            raise InvalidValue("it is empty, and names no hold; have the proxy send %UNIQUE_ID%", setting=named)
        key = key_of(values[rule.key]) if rule.key is not None else None
        amounts = {name: number * hits for name, number in rule.amounts.items()}
        if rule.release is not None:
            await self._holds.end(self._access, rule.limiter, values[rule.release])
            return None
        if rule.hold is not None:
            return await self._hold(rule, key, amounts, values[rule.hold], taken)
        limiter = self._limiters.get(rule.limiter) or await self._open(rule.limiter)
        if not limiter.at_once.isdisjoint(amounts):
            raise InvalidValue(
                f"{', '.join(limiter.at_once & amounts.keys())} of {rule.limiter!r} is held at once: its descriptor "
                "needs a hold", setting="amounts",
            )  # fmt: skip
        try:
            decision = await limiter.attempt(key=key, **amounts)
        except MessageTooLarge as error:
            return Refused(rule.limiter, error.name, amounts=amounts, key=key)
        if isinstance(decision, Refused):
            return decision
        hold = decision
        spent.append(hold)
        taken.append(lambda: _return(hold))
        return None

    async def _hold(
        self, rule: Descriptor, key: str | None, amounts: dict[str, int], name: str, taken: list[Callable[[], None]]
    ) -> Refused | None:
        try:
            await self._holds.admit(
                self._access, rule.limiter, amounts, key=key, wait=0, ttl=rule.ttl_ms / 1000, idempotency=name
            )
        except CreditTimeout as error:
            rule_of: Literal["all", "key"] = "key" if error.rule == "key" else "all"
            return Refused(rule.limiter, error.limit, rule_of, error.retry_after, amounts, key)
        except (MessageTooLarge, InProgress):
            return Refused(rule.limiter, next(iter(amounts)), amounts=amounts, key=key)
        taken.append(lambda: self._end(rule.limiter, name))
        return None

    def _end(self, limiter: str, name: str) -> None:
        """End a hold, in a task of its own: whoever asked for it may have gone."""

        async def end() -> None:
            with contextlib.suppress(HeadgateError):  # its lease ends it
                await self._holds.end(self._access, limiter, name)

        task = asyncio.create_task(end(), name="headgate end of a hold")
        self._ends.add(task)
        task.add_done_callback(self._ends.discard)

    async def _open(self, name: str) -> Limiter:
        async with self._opening:
            if name not in self._limiters:
                self._limiters[name] = await self._session.limiter(name)
            return self._limiters[name]

    def _describe(
        self, answer: RateLimitResponse, status: RateLimitResponse.DescriptorStatus, refused: Refused
    ) -> None:
        """Say which limit it is, and when to come again."""
        status.current_limit.name = refused.limit
        limiter = self._limiters.get(refused.destination)
        if limiter is not None and refused.rule == "all" and (limit := limiter.limits.get(refused.limit)) is not None:
            requests, unit = _per_unit(limit)
            status.current_limit.requests_per_unit, status.current_limit.unit = requests, unit
        if refused.retry_after is not None:
            status.duration_until_reset.FromMilliseconds(math.ceil(refused.retry_after * 1000))
            seconds = str(max(1, math.ceil(refused.retry_after)))
            answer.response_headers_to_add.append(HeaderValue(key="retry-after", value=seconds))


def _check(request: RateLimitRequest) -> None:
    """See that a request has a bound in all that it says."""
    if not 0 < len(request.domain) <= LONGEST:
        raise InvalidValue(f"use 1 to {LONGEST} characters", setting="domain")
    if not 0 < len(request.descriptors) <= MOST_DESCRIPTORS:
        raise InvalidValue(f"use 1 to {MOST_DESCRIPTORS}", setting="descriptors")
    for descriptor in request.descriptors:
        if len(descriptor.entries) > MOST_ENTRIES:
            raise InvalidValue(f"use up to {MOST_ENTRIES} in one descriptor", setting="entries")
        if any(len(entry.key) > LONGEST for entry in descriptor.entries):  # values are what clients of a proxy send
            raise InvalidValue(f"use keys of up to {LONGEST} characters", setting="entries")


def key_of(value: str) -> str:
    """Return the key of a value. Clients choose that, and an error would let them through where a proxy fails open."""
    raw = value.encode()
    if len(raw) > MAX_KEY_BYTES:
        return f"{raw[:BEGINNING].decode(errors='ignore')}~{hashlib.sha256(raw).hexdigest()}"
    return value or EMPTY


def _hits(request: RateLimitRequest, descriptor: RateLimitDescriptor) -> int:
    """Return how many hits it is; a descriptor may say 0, a request that says nothing says 1."""
    hits = descriptor.hits_addend.value if descriptor.HasField("hits_addend") else request.hits_addend or 1
    if hits > MOST_HITS:
        raise InvalidValue(f"{hits}; use up to {MOST_HITS}", setting="hits_addend")
    return int(hits)


def _undo(taken: list[Callable[[], None]]) -> None:
    for undo in reversed(taken):
        undo()


def _return(hold: Hold) -> None:
    """Give back what a hold took of rates and quotas too."""
    hold.settle(**dict.fromkeys(hold.amounts, 0))
    hold.release()


def _per_unit(limit: Limit) -> tuple[int, int]:
    """Return a limit in whole requests for a unit of time, as proxies show it; of no unit what is not of time."""
    if limit.window:
        return min(limit.most, (1 << 32) - 1), _WINDOWS[limit.window]
    for seconds, unit in _UNITS.items():
        requests = (limit.rate or 0.0) * seconds
        if 1 <= requests < 1 << 32 and math.isclose(requests, round(requests), rel_tol=1e-9):
            return round(requests), unit
    return min(limit.most, (1 << 32) - 1), 0
