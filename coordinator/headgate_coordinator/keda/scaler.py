"""The scaler: how much there is to do at a destination, by the settings and counters that all nodes share."""

import contextlib
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final

import grpc

from headgate import AccessDenied, Client, CoordinatorUnavailable, HeadgateError, InvalidValue, UnknownDestination
from headgate.core.limits.limit import limits_of
from headgate.redis.keys import PARTS, Address
from headgate.redis.stores.limiters import LimiterStore
from headgate_coordinator.keda import messages
from headgate_coordinator.keda.trigger import SECRETS, Trigger
from headgate_coordinator.keda.watch import Watch
from headgate_coordinator.rpc import is_token, peer_of, refuse
from headgate_coordinator.security import Action, Identity, Users
from headgate_coordinator.security.access import Access
from headgate_coordinator.security.line import Network
from headgate_coordinator.security.permissions import ALL

MOST_STREAMS: Final = 256
"""Streams of all autoscalers at a time: one for each trigger of the type ``external-push``."""
_FIELDS: Final = ("kind", "pending_messages", "pending_bytes", "blocked", "limit_bytes", "rate", "limits", "next_due")
_LATER: Final = 1 + PARTS.index("later")
_COUNTERS: Final = {"messages": "pending_messages", "bytes": "pending_bytes", "waiting": "blocked"}
_LIMITED: Final = {"gate": "limit_bytes", "bucket": "rate"}


class Scaler:
    """Answers KEDA.

    Args:
        client: connected; it stays the caller's.
        users: of the node: they see what they may browse. None where there are none.
        token: of the node: whoever has it sees all. None for none.
    """

    def __init__(self, client: Client, users: Users | None, token: str | None) -> None:
        self._client = client
        self._limiters = LimiterStore(client.store.server)
        self._users, self._token = users, token
        self._operator = Identity("operator", ALL)
        self._watches: set[Watch] = set()
        self._over = False
        if users is not None:
            users.on_change(self._wake)

    @property
    def handler(self) -> Any:
        """The service, for a gRPC server."""
        ref = messages.ScaledObjectRef
        calls = {
            "IsActive": _unary(self._is_active, ref),
            "GetMetricSpec": _unary(self._spec, ref),
            "GetMetrics": _unary(self._metrics, messages.GetMetricsRequest),
            "StreamIsActive": grpc.unary_stream_rpc_method_handler(self._stream, ref.FromString, _bytes),
        }
        return grpc.method_handlers_generic_handler(messages.SERVICE, calls)

    def close(self) -> None:
        """End the streams."""
        self._over = True
        self._wake()

    def _wake(self) -> None:
        for watch in self._watches:
            watch.wake()

    async def _is_active(self, ref: Any, context: Any) -> Any:
        trigger, access = await self._read(ref, context)
        return messages.IsActiveResponse(result=await self._value(trigger, access) > trigger.activation)

    async def _spec(self, ref: Any, context: Any) -> Any:
        trigger, _ = await self._read(ref, context)
        target = trigger.target
        spec = {"metricName": trigger.name, "targetSize": math.ceil(target), "targetSizeFloat": target}
        return messages.GetMetricSpecResponse(metricSpecs=[spec])

    async def _metrics(self, request: Any, context: Any) -> Any:
        trigger, access = await self._read(request.scaledObjectRef, context)
        if request.metricName != trigger.name:
            raise InvalidValue(f"{request.metricName!r:.120}; the trigger has {trigger.name!r}", setting="metricName")
        value = await self._value(trigger, access)
        one = {"metricName": trigger.name, "metricValue": math.ceil(value), "metricValueFloat": value}
        return messages.GetMetricsResponse(metricValues=[one])

    async def _stream(self, ref: Any, context: Any) -> AsyncIterator[Any]:
        """Say whether there is anything to do, at once and at each change."""
        if len(self._watches) >= MOST_STREAMS:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{MOST_STREAMS} streams are open at this node")
        watch = Watch(self._client)
        self._watches.add(watch)
        try:
            trigger, access = await self._read(ref, context)
            before, due = None, None
            async with watch.on(*trigger.names):
                while not self._over:
                    with contextlib.suppress(CoordinatorUnavailable):  # what was true is believed until it is back
                        await watch.begin()
                        value, due = await self._look(trigger, access)
                        active = value > trigger.activation
                        if active != before:
                            before = active
                            yield messages.IsActiveResponse(result=active)
                    await watch.wait(due)
        except HeadgateError as error:
            await refuse(context, error)
        finally:
            self._watches.discard(watch)

    async def _read(self, ref: Any, context: Any) -> tuple[Trigger, Access]:
        """Return what is asked for, and the rights of who asks.

        Raises:
            InvalidValue, InvalidName: the metadata cannot be used.
            AccessDenied: nobody that is known.
            Crowded: too many passwords wait for their check.
        """
        metadata = ref.scalerMetadata
        trigger = Trigger.read(metadata)
        access = Access()
        access.identity = await self._identify(metadata, peer_of(context))
        if access.identity is None:
            raise AccessDenied(
                "the metadata needs the user and password of a node's user, or the node's token: userFromEnv and "
                "passwordFromEnv, or tokenFromEnv"
            )
        return trigger, access

    async def _identify(self, metadata: Mapping[str, str], peer: Network) -> Identity | None:
        user, password, token = (metadata.get(key) or metadata.get(f"{key}FromEnv", "") for key in SECRETS)
        if token:
            return self._operator if self._token is not None and is_token(token, self._token) else None
        if user:
            return await self._users.authenticate(user, password, peer=peer) if self._users is not None else None
        if self._users is None or self._users.is_open:
            return self._operator if self._token is None else None
        return self._users.anonymous()

    async def _value(self, trigger: Trigger, access: Access) -> float:
        value, _ = await self._look(trigger, access)
        return value

    async def _look(self, trigger: Trigger, access: Access) -> tuple[float, float | None]:
        """Return what is to be done, as far as the limit has room for workers, and in how many seconds more is due.

        Raises:
            AccessDenied: whoever asks may not browse it, or not any more.
            UnknownDestination: nobody has used it so far.
            InvalidValue: it has no such metric, or no such limit.
            CoordinatorUnavailable: no answer.
        """
        for name in trigger.names:
            if not access.may(Action.BROWSE, name):
                text = access.refusal(Action.BROWSE, name)
                raise AccessDenied(text, user=access.user, action=Action.BROWSE, destination=name)
        fields, *within = await self._fields(*trigger.names)
        value, due = await self._level(trigger, fields)
        return trigger.capped(value, _most(trigger, within[0]) if within else None), due

    async def _level(self, trigger: Trigger, fields: Mapping[str, str]) -> tuple[float, float | None]:
        kind = fields["kind"]
        if kind not in ("queue", "topic") and trigger.metric != "waiting":
            raise InvalidValue(f"{trigger.destination!r} is a {kind}, which has no {trigger.metric}; use waiting",
                               setting="metric")  # fmt: skip
        if kind == "limiter":
            levels = await self._limiters.levels(Address.of(self._client.namespace, trigger.destination))
            return float(levels.waiting) if levels is not None else 0.0, None
        value = float(fields.get(_COUNTERS[trigger.metric]) or 0)
        later, due = 0, None
        if kind == "queue" and trigger.metric == "messages" and "next_due" in fields:
            later, due = await self._later(trigger.destination)
        return max(0.0, value - later), due

    async def _later(self, name: str) -> tuple[int, float | None]:
        """Return how many messages of a queue wait for a time to come, and the seconds until the first of these."""
        shared = Address.of(self._client.namespace, name).shared
        server, key = self._client.store.server, shared[_LATER]
        seconds, micros = await server.command(shared[0], "TIME")
        now_ms = int(seconds) * 1000 + int(micros) // 1000
        words = (key, f"({now_ms}", "+inf")
        count = int(await server.command(shared[0], "ZCOUNT", *words))
        first = await server.command(shared[0], "ZRANGEBYSCORE", *words, "WITHSCORES", "LIMIT", 0, 1)
        return count, max(0.0, (float(first[1]) - now_ms) / 1000) if first else None

    async def _fields(self, *names: str) -> list[dict[str, str]]:
        keys = [Address.of(self._client.namespace, name).shared[0] for name in names]
        found = await self._client.store.server.burst([(key, (b"HMGET", key, *_FIELDS)) for key in keys])
        read = []
        for name, values in zip(names, found, strict=True):
            if isinstance(values, Exception):
                raise CoordinatorUnavailable(f"{name!r} cannot be read: {values}")
            if values[0] is None:
                raise UnknownDestination(name, self._client.namespace)
            read.append(
                {field: value.decode() for field, value in zip(_FIELDS, values, strict=True) if value is not None}
            )
        return read


def _most(trigger: Trigger, fields: Mapping[str, str]) -> float | None:
    """Return how much of the limit all replicas may take, at once or in a second; None where it is not limited."""
    kind = fields["kind"]
    if kind == "limiter":
        limits = limits_of(fields.get("limits", ""))
        name = trigger.limit or (next(iter(limits)) if len(limits) == 1 else "")
        limit = limits.get(name)
        if limit is None or limit.form == "quota":
            known = ", ".join(one.name for one in limits.values() if one.form != "quota")
            text = f"{name!r:.40} is no rate and nothing held at once of {trigger.within!r}; it has {known}"
            raise InvalidValue(text, setting="limit")
        return limit.rate if limit.form == "rate" else float(limit.most)
    if kind not in _LIMITED or trigger.limit:
        wrong = f"{trigger.within!r} is a {kind}; a limiter has limits by name, a gate and a bucket have one"
        raise InvalidValue(wrong, setting="limit" if trigger.limit else "within")
    text = fields.get(_LIMITED[kind], "")
    return float(text) if text not in ("", "unlimited") else None


def _unary(answer: Callable[[Any, Any], Awaitable[Any]], of: Any) -> Any:
    async def handle(request: Any, context: Any) -> Any:
        try:
            return await answer(request, context)
        except HeadgateError as error:
            return await refuse(context, error)

    return grpc.unary_unary_rpc_method_handler(handle, of.FromString, _bytes)


def _bytes(message: Any) -> bytes:
    out: bytes = message.SerializeToString()
    return out
