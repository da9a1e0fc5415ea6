"""Users have quotas over all nodes, and this node holds a part of each for its clients."""

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, Protocol, cast

from headgate.amqp.link import RESOURCE_LIMIT
from headgate.client import Client
from headgate.context import Context
from headgate.core.addresses.url_options import UrlOptions
from headgate.core.limits.limit import limits_of
from headgate.core.limits.user_limit import (
    BYTES,
    CONNECTIONS,
    IN_FLIGHT,
    IN_FLIGHT_BYTES,
    MESSAGES,
    UserLimit,
    limit_of,
)
from headgate.core.policy import Policy
from headgate.errors import CoordinatorUnavailable, HeadgateError
from headgate.limiting.hold import Hold
from headgate.limiting.limiter import Limiter
from headgate.limiting.refusals import Refused
from headgate.options import SessionOptions
from headgate.redis.backend import Backend
from headgate.redis.store import Store
from headgate.session.session import Session
from headgate_coordinator.node.credit.allowance import Allowance
from headgate_coordinator.node.credit.counting import CountingBackend
from headgate_coordinator.node.credit.in_flight import InFlight
from headgate_coordinator.security import Identity

_log = logging.getLogger("headgate.node")
LOOK_EVERY: Final = 0.5
"""Seconds between looks at whether quotas changed, or a connection is counted no more."""
PATIENCE: Final = 1.0
"""Seconds that a request over HTTP waits for its user's quota."""
REMEMBERED: Final = 10_000
"""Users whose quotas are remembered."""


def _closed_by_its_connection(_: Session) -> None: ...


class Connection(Protocol):
    """A connection shows its user and its links, which is all that quotas need of it."""

    @property
    def identity(self) -> Identity | None:
        """Its user."""

    @property
    def ends(self) -> Mapping[Any, Any]:
        """The node's ends of its links."""


def _as_many(limit: UserLimit, user: str) -> str:
    most = limits_of(limit.limits)[CONNECTIONS].most
    whose = "its users have" if limit.together else f"user {user!r} has"
    return (
        f"{whose} {most} connections over all nodes, the most that quota {limit.name!r} allows; close one, or ask an "
        "operator for more"
    )


def _counted_anew(limit: UserLimit, seconds: float) -> str:
    return (
        f"Redis may have lost its last writes: connections under the quota {limit.name!r} are being recounted for "
        f"{seconds:.1f} s; connect again then"
    )


class Quotas:
    """`Quotas` asks the limiters of quotas: for this node's connections, and for what their users send and receive.

    Each connection that is counted is a hold of the node's session: those of a node that dies come back with the end of
    its lease. Of users without a quota nothing is asked.

    Args:
        client: of Redis; it stays the caller's.
        ttl: seconds of the leases.
    """

    def __init__(self, client: Client, ttl: float) -> None:
        self._client, self._ttl = client, ttl
        self._options = SessionOptions.of(ttl, "last-lease", UrlOptions())
        self._counted: dict[str, Context] = {}
        """The context that all sessions of a user's consumers share."""
        self._policies = client.parts.registry.policies
        self._policy: Policy | None = None
        self._known: dict[str, UserLimit | None] = {}
        self._session: Session | None = None
        self._opening = asyncio.Lock()
        self._held: dict[Connection, tuple[UserLimit, Hold]] = {}
        self._joining: dict[Connection, asyncio.Task[None]] = {}
        self._entering: set[Connection] = set()
        self._refused: dict[Connection, str] = {}
        self._allowances: dict[str, tuple[UserLimit, Allowance]] = {}
        self._in_flight: dict[str, tuple[UserLimit, InFlight]] = {}

    def of(self, user: str) -> UserLimit | None:
        """Return the quota of a user, by the policy in force; None without one."""
        policy = self._policies.policy
        if policy is not self._policy or len(self._known) >= REMEMBERED:
            self._policy, self._known = policy, {}
        if not policy.user_limits:
            return None
        if user not in self._known:
            self._known[user] = limit_of(user, policy.user_limits)
        return self._known[user]

    async def enter(self, connection: Connection, user: str) -> None:
        """Count a connection; one above the quota is closed with an error as it opens.

        Raises:
            HeadgateError: it is not known whether it may come.
        """
        self._entering.add(connection)  # else the watch counts it too when it sees the quota for the first time
        try:
            await self._enter(connection, user)
        finally:
            self._entering.discard(connection)

    async def _enter(self, connection: Connection, user: str) -> None:
        with contextlib.suppress(HeadgateError):  # without Redis, what is known of the policy holds
            await self._policies.current()
        limit = self.of(user)
        if limit is None or not limit.has(CONNECTIONS):
            return
        limiter = await self._limiter(limit)
        decision = await limiter.attempt(key=user, connections=1)
        if isinstance(decision, Refused):
            learning = (await limiter.state(key=user)).learning
            self._refused[connection] = _counted_anew(limit, learning) if learning else _as_many(limit, user)
        else:
            self._held[connection] = limit, decision

    def refusal(self, connection: Connection) -> tuple[str, str] | None:
        """Return why a connection cannot be served, as an AMQP error; None where it can."""
        text = self._refused.get(connection)
        return None if text is None else (RESOURCE_LIMIT, text)

    def leave(self, connection: Connection) -> None:
        """Count a connection no more."""
        self._refused.pop(connection, None)
        if (task := self._joining.pop(connection, None)) is not None:
            task.cancel()
        if (held := self._held.pop(connection, None)) is not None:
            held[1].release()

    async def allowance(self, user: str) -> Allowance | None:
        """Return what a user may send through this node; None where no quota bounds it.

        Raises:
            HeadgateError: the limiter cannot be opened.
        """
        limit = self.of(user)
        if limit is None or not limit.has(MESSAGES, BYTES):
            return None
        known = self._allowances.get(user)
        if known is None or known[0] != limit:
            limiter = await self._limiter(limit)
            rates = {name: one for name, one in limits_of(limit.limits).items() if one.rate}
            why = f"the rate of the quota {limit.name!r} of user {user!r} is used up, over all nodes"
            known = self._allowances.get(user)
            if known is None or known[0] != limit:
                self._forget(user)
                known = self._allowances[user] = limit, Allowance(limiter, user, rates, why)
        return known[1]

    async def charge(self, user: str) -> str:
        """Count a request of a user over HTTP as a message; returns why it is refused, empty where it is not.

        Raises:
            HeadgateError: the limiter cannot be opened.
        """
        allowance = await self.allowance(user)
        if allowance is None:
            return ""
        if not await allowance.opened(PATIENCE):
            return allowance.why
        allowance.spend(1, 0)
        return ""

    def session(self, name: str, user: str | None) -> Session:
        """Open the session of a connection's consumers, whose messages count as those in flight to its user."""
        if user is None:
            return self._client.session(name, ttl=self._ttl)
        if user not in self._counted:
            if len(self._counted) >= REMEMBERED:
                self._counted.clear()
            parts = self._client.parts
            counting = CountingBackend(parts.store.server, lambda: self.in_flight(user))
            self._counted[user] = replace(parts, store=Store(cast("Backend", counting)))
        return Session(self._counted[user], name, self._options, _closed_by_its_connection, "")

    async def in_flight(self, user: str) -> InFlight | None:
        """Return what is in flight to a user through this node; None where no quota bounds it.

        Raises:
            CoordinatorUnavailable: the quota cannot be asked; nothing is fetched meanwhile.
        """
        limit = self.of(user)
        known = self._in_flight.get(user)
        if known is not None and known[0] == limit:
            return known[1]
        if limit is None or not limit.has(IN_FLIGHT, IN_FLIGHT_BYTES):
            return None
        try:
            limiter = await self._limiter(limit)
        except HeadgateError as error:
            raise CoordinatorUnavailable(
                f"the quota {limit.name!r} of user {user!r} cannot be asked: {error}"
            ) from error
        known = self._in_flight.get(user)
        if known is None or known[0] != limit:  # else another call was faster, and may have taken of it already
            await self._end(user)
        if user not in self._in_flight:
            parts, limits = self._client.parts, limits_of(limit.limits)
            counts = InFlight(limiter, user, limit.name, limits, parts.store.server, parts.wake_ups.tell)
            self._in_flight[user] = limit, counts
        return self._in_flight[user][1]

    def quota_of_holds(self, user: str) -> str:
        """Return the limiter under which the holds of a user over HTTP are in flight; empty for none."""
        limit = self.of(user)
        return limit.limiter if limit is not None and limit.has(IN_FLIGHT) else ""

    def held_up(self, user: str) -> tuple[float, str] | None:
        """Return how long a user's consumer has waited for the in-flight quota, and why."""
        known = self._in_flight.get(user)
        seconds = None if known is None else known[1].withheld
        return None if known is None or seconds is None else (seconds, known[1].why)

    async def _end(self, user: str) -> None:
        """Give back all of a quota that a user had; its consumers are counted anew."""
        if (known := self._in_flight.pop(user, None)) is not None:
            await known[1].close()

    def _forget(self, user: str) -> None:
        """Ask for nothing more under a quota that a user had."""
        if (known := self._allowances.pop(user, None)) is not None:
            known[1].stop()

    async def _limiter(self, limit: UserLimit) -> Limiter:
        async with self._opening:
            if self._session is None:
                self._session = self._client.session("quotas", ttl=self._ttl)
            return await self._session.limiter(limit.limiter, in_hand=False)

    async def watch(self, connections: set[Any]) -> None:
        """Follow changes of quotas, until cancelled; who is here stays, and is counted as soon as there is room."""
        seen: Policy | None = None
        while True:
            await asyncio.sleep(LOOK_EVERY)
            for user, (limit, in_flight) in tuple(self._in_flight.items()):
                await in_flight.look()
                if self.of(user) != limit or in_flight.is_idle:
                    await self._end(user)
            policy = self._policies.policy
            changed = policy is not seen and (policy.user_limits or self._held or self._allowances)
            seen = policy
            rated = set(self._allowances) if changed else None
            for user in rated or ():
                if self.of(user) != self._allowances[user][0]:
                    self._forget(user)
            for connection in tuple(connections) if changed else tuple(self._held):
                self._look_at(connection, rated)

    def _look_at(self, connection: Connection, rated: set[str] | None) -> None:
        if connection in self._entering or connection in self._refused:
            return
        user = connection.identity.name if connection.identity else None
        limit = self.of(user) if user is not None else None
        wanted = limit if limit is not None and limit.has(CONNECTIONS) else None
        before = self._held.get(connection)
        if before is not None and (wanted is None or before[0].limiter != wanted.limiter or before[1].lost):
            del self._held[connection]
            before[1].release()
            before = None
        if wanted is not None and user is not None and before is None and connection not in self._joining:
            self._joining[connection] = asyncio.create_task(self._join(connection, wanted, user))
        has_rates = limit is not None and limit.has(MESSAGES, BYTES)
        if rated is not None and (user in rated or has_rates):
            for end in tuple(connection.ends.values()):
                end.rated()

    async def _join(self, connection: Connection, limit: UserLimit, user: str) -> None:
        try:
            hold = await (await self._limiter(limit)).admit(key=user, timeout="unlimited", connections=1)
            self._held[connection] = limit, hold
        except HeadgateError as error:
            _log.warning("a connection of user %r is not counted: %s", user, error)
        finally:
            self._joining.pop(connection, None)

    async def close(self) -> None:
        """Let go of all that is held."""
        for _, allowance in self._allowances.values():
            allowance.stop()
        for user in tuple(self._in_flight):
            await self._end(user)
        if self._session is not None:
            await self._session.close()
