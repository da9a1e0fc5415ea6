"""Decisions about requests of proxies: each descriptor asks its limiter, and what is refused takes nothing of any."""

import logging
from typing import Final

from envoy.service.ratelimit.v3.rls_pb2 import RateLimitRequest, RateLimitResponse

from headgate import Client
from headgate.core.limits.descriptor import LONGEST
from headgate.core.policy import Policy
from headgate.limiting.hold import Hold
from headgate.limiting.limiter import Limiter
from headgate_coordinator.envoy.admissions import DescriptorAdmitter, RequestAdmissions
from headgate_coordinator.envoy.answers import describe
from headgate_coordinator.envoy.bounds import check, hits_of
from headgate_coordinator.envoy.mapping import DescriptorRules

REMEMBERED: Final = 10_000
"""Requests of one descriptor that are known again, so that they need not be read again."""
_log = logging.getLogger("headgate")
_OK: Final = RateLimitResponse.OK
_OVER: Final = RateLimitResponse.OVER_LIMIT
_ADMITTED: Final[bytes] = RateLimitResponse(
    overall_code=_OK, statuses=[RateLimitResponse.DescriptorStatus(code=_OK)]
).SerializeToString()


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
        self._rules = DescriptorRules()
        self._taking = DescriptorAdmitter(client)
        self._known: dict[bytes, tuple[Limiter, str | None, dict[str, int]]] = {}

    async def close(self) -> None:
        """Stop; what is held stays held, for as long as its leases last."""
        await self._taking.close()

    def decide_again(self, encoded: bytes) -> bytes | None:
        """Admit a repeated request out of what is in hand, and return the encoded answer.

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
        check(request)
        self._follow(await self._policies.current())
        answer, taken = RateLimitResponse(overall_code=_OK), RequestAdmissions()
        try:
            for descriptor in request.descriptors:
                status = answer.statuses.add(code=_OK)
                entries = [(entry.key, entry.value) for entry in descriptor.entries]
                rule = self._rules.of(request.domain, entries)
                hits = hits_of(request, descriptor)
                if rule is None or hits == 0 or answer.overall_code == _OVER:
                    continue
                refused = await self._taking.take(rule, entries, hits, taken)
                if refused is not None:
                    answer.overall_code = status.code = _OVER
                    describe(answer, status, refused, self._taking.limiters.get(refused.destination))
                elif encoded and taken.spent and len(request.descriptors) == 1:
                    self._remember(encoded, rule.limiter, taken.spent[0])
        except BaseException:
            taken.give_back()
            raise
        if answer.overall_code == _OVER:
            taken.give_back()
        else:
            taken.keep()
        return answer

    def _follow(self, policy: Policy) -> None:
        if policy is not self._policy:
            if not policy.descriptors:
                _log.warning("the policy has no [[descriptor]]: every request of a proxy is admitted")
            self._policy, self._rules = policy, DescriptorRules(policy.descriptors)
            self._known.clear()

    def _remember(self, encoded: bytes, limiter: str, hold: Hold) -> None:
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        if len(encoded) <= LONGEST:
            self._known[encoded] = self._taking.limiters[limiter], hold.key, dict(hold.amounts)
