"""A rate limiter holds LangChain's models to limits that all processes share."""

import asyncio

from headgate._util.extras import extra
from headgate.charge import SyncCharge
from headgate.errors import InvalidValue
from headgate.limiting.refusals import Refused
from headgate.sync.gate import Gate
from headgate.sync.limiter import Limiter

with extra("langchain", "langchain_core"):
    from langchain_core.rate_limiters import BaseRateLimiter


class LimitedCalls(BaseRateLimiter):
    """`LimitedCalls` limits a model.

    ``init_chat_model(..., rate_limiter=LimitedCalls(SyncCharge(limiter, requests=1)))`` has it wait.

    LangChain asks before each call of a model and says nothing after it: so what is held at once cannot be limited so,
    and tokens only by a fixed amount. Inside a ``limiter.admit`` block both can.

    Args:
        charge: amounts of a limiter's rates and quotas, or of a bucket, of :mod:`headgate.sync`.

    Raises:
        InvalidValue: it is no such charge; when it is asked: it is of a gate, or of what is held at once.
    """

    def __init__(self, charge: SyncCharge) -> None:
        self._charge = SyncCharge.expected(charge, "charge")

    def acquire(self, *, blocking: bool = True) -> bool:
        """Return whether a call may begin; waits for that, as long as the charge says, unless it must not wait.

        Raises:
            CreditTimeout: it waited, and was not admitted in time.
        """
        self._check()
        decision = self._charge.admit() if blocking else self._charge.attempt()
        if isinstance(decision, Refused):
            return False
        decision.release()
        return True

    async def aacquire(self, *, blocking: bool = True) -> bool:
        """Return whether a call may begin, as :meth:`acquire`; other tasks go on meanwhile.

        A task that is cancelled leaves the line.
        """
        if not blocking:
            return await asyncio.to_thread(self.acquire, blocking=False)
        await asyncio.to_thread(self._check)  # the limiter may be opened now
        await self._charge.spend()
        return True

    def _check(self) -> None:
        on, at_once = self._charge.on, set[str]()
        if isinstance(on, Limiter):
            at_once = {*on.at_once} & {*self._charge.cost}
        elif isinstance(on, Gate):
            at_once = {"size"}
        if at_once:
            raise InvalidValue(
                "LangChain does not say when a call has ended, so nothing can be held at once; use rates and quotas",
                setting=", ".join(sorted(at_once)),
            )
