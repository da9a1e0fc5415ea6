"""Descriptors are admitted here: rates out of what the node has in hand, and holds that any node can end."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Literal

from headgate import Client, CreditTimeout, HeadgateError, InvalidValue, MessageTooLarge
from headgate.core.limits.descriptor import Descriptor
from headgate.limiting.hold import Hold
from headgate.limiting.limiter import Limiter
from headgate.limiting.refusals import Refused
from headgate_coordinator.envoy.bounds import key_of
from headgate_coordinator.envoy.mapping import Entries
from headgate_coordinator.holds import Holds, InProgress
from headgate_coordinator.security import Identity
from headgate_coordinator.security.access import Access
from headgate_coordinator.security.grants import ALL


class RequestAdmissions:
    """`RequestAdmissions` keeps what the descriptors of one request took so far.

    Attributes:
        spent: what was taken of rates and quotas.
    """

    def __init__(self) -> None:
        self.spent: list[Hold] = []
        self._undo: list[Callable[[], None]] = []

    def spend(self, hold: Hold) -> None:
        """Note what was taken of rates and quotas."""
        self.spent.append(hold)
        self._undo.append(lambda: _return(hold))

    def held(self, end: Callable[[], None]) -> None:
        """Note what is held, and how that ends."""
        self._undo.append(end)

    def keep(self) -> None:
        """Have it stay taken: of rates and quotas it is spent."""
        for hold in self.spent:
            hold.release()

    def give_back(self) -> None:
        """Give all of it back."""
        for undo in reversed(self._undo):
            undo()


class DescriptorAdmitter:
    """A descriptor admitter takes what descriptors ask for.

    Args:
        client: connected; it stays the caller's.

    Attributes:
        limiters: by name, those of rates and quotas.
    """

    def __init__(self, client: Client) -> None:
        self.limiters: dict[str, Limiter] = {}
        self._holds = Holds(client, "envoy")
        self._session = client.session()
        self._opening = asyncio.Lock()
        self._ends: set[asyncio.Task[None]] = set()
        self._access = Access()
        self._access.identity = Identity("envoy", ALL)

    async def close(self) -> None:
        """Stop; what is held stays held, for as long as its leases last."""
        for task in tuple(self._ends):
            await task
        await self._holds.close()
        await self._session.close()

    async def take(self, rule: Descriptor, entries: Entries, hits: int, taken: RequestAdmissions) -> Refused | None:
        """Take what one descriptor asks for; returns why that is refused."""
        values = dict(entries)
        named = rule.hold or rule.release
        if named is not None and not values[named]:
            raise InvalidValue("it is empty and names no hold; have the proxy send %UNIQUE_ID%", setting=named)
        key = key_of(values[rule.key]) if rule.key is not None else None
        amounts = {name: number * hits for name, number in rule.amounts.items()}
        if rule.release is not None:
            await self._holds.end(self._access, rule.limiter, values[rule.release])
            return None
        if rule.hold is not None:
            return await self._hold(rule, key, amounts, values[rule.hold], taken)
        limiter = self.limiters.get(rule.limiter) or await self._open(rule.limiter)
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
        taken.spend(decision)
        return None

    async def _hold(
        self, rule: Descriptor, key: str | None, amounts: dict[str, int], name: str, taken: RequestAdmissions
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
        taken.held(lambda: self._end(rule.limiter, name))
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
            if name not in self.limiters:
                self.limiters[name] = await self._session.limiter(name)
            return self.limiters[name]


def _return(hold: Hold) -> None:
    """Give back what a hold took of rates and quotas too."""
    hold.settle(**dict.fromkeys(hold.amounts, 0))
    hold.release()
