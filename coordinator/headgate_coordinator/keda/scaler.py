"""The scaler finds out who asks, and answers KEDA."""

import contextlib
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import grpc

from headgate import Client, CoordinatorUnavailable, HeadgateError, InvalidValue
from headgate_coordinator.keda import messages
from headgate_coordinator.keda.authentication import Authenticator
from headgate_coordinator.keda.destination_watch import DestinationWatch
from headgate_coordinator.keda.levels import Levels
from headgate_coordinator.keda.trigger import Trigger
from headgate_coordinator.keda.unauthenticated import UnreadRequests, parsed
from headgate_coordinator.rpc import refuse
from headgate_coordinator.security import Users
from headgate_coordinator.security.access import Access

MOST_STREAMS: Final = 256
"""Streams of all autoscalers at a time: one for each trigger of the type ``external-push``."""
MOST_OF_ONE: Final = 192
"""Of these, of one user; whoever manages the namespace has no such bound."""


class Scaler:
    """A scaler answers KEDA.

    Args:
        client: connected; it stays the caller's.
        users: of the node: they see what they may browse. None where there are none.
        token: of the node: whoever has it sees all. None for none.
        know: hears the peer of each request of who sees all.
    """

    def __init__(
        self, client: Client, users: Users | None, token: str | None, know: Callable[[str], object] = lambda _: None
    ) -> None:
        self._client = client
        self._levels = Levels(client)
        self._callers = Authenticator(users, token, know)
        self._watches: dict[DestinationWatch, str] = {}
        """Of each open stream, whose it is."""
        self._unread = UnreadRequests()
        self._over = False
        if users is not None:
            users.on_change(self._wake)

    @property
    def handler(self) -> Any:
        """The service, for a gRPC server."""
        ref = messages.ScaledObjectRef
        calls = {
            "IsActive": self._unary(self._is_active, ref),
            "GetMetricSpec": self._unary(self._spec, ref),
            "GetMetrics": self._unary(self._metrics, messages.GetMetricsRequest),
            "StreamIsActive": grpc.stream_stream_rpc_method_handler(self._stream, None, _bytes),
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
        return messages.IsActiveResponse(result=(await self._levels.look(trigger, access))[0] > trigger.activation)

    async def _spec(self, ref: Any, context: Any) -> Any:
        trigger, _ = await self._read(ref, context)
        target = trigger.target
        spec = {"metricName": trigger.name, "targetSize": math.ceil(target), "targetSizeFloat": target}
        return messages.GetMetricSpecResponse(metricSpecs=[spec])

    async def _metrics(self, request: Any, context: Any) -> Any:
        trigger, access = await self._read(request.scaledObjectRef, context)
        if request.metricName != trigger.name:
            raise InvalidValue(f"{request.metricName!r:.120}; the trigger has {trigger.name!r}", setting="metricName")
        value, _ = await self._levels.look(trigger, access)
        one = {"metricName": trigger.name, "metricValue": math.ceil(value), "metricValueFloat": value}
        return messages.GetMetricsResponse(metricValues=[one])

    def _unary(self, answer: Callable[[Any, Any], Awaitable[Any]], of: Any) -> Any:
        async def handle(requests: AsyncIterator[bytes], context: Any) -> Any:
            try:
                return await answer(parsed(of, await self._unread.message(requests, context)), context)
            except HeadgateError as error:
                return await refuse(context, error)

        return grpc.stream_unary_rpc_method_handler(handle, None, _bytes)

    async def _stream(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[Any]:
        """Say whether there is anything to do, at once and at each change."""
        request = await self._unread.message(requests, context)
        watch = DestinationWatch(self._client)
        try:
            trigger, access = await self._read(parsed(messages.ScaledObjectRef, request), context)
            crowded = [*self._watches.values()].count(access.user) >= MOST_OF_ONE and not access.manages_all
            if crowded or len(self._watches) >= MOST_STREAMS:
                why = f"{MOST_STREAMS} streams are open at this node, or {MOST_OF_ONE} of yours"
                await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, why)
            self._watches[watch] = access.user
            before, due = None, None
            async with watch.on(*trigger.names):
                while not self._over:
                    with contextlib.suppress(CoordinatorUnavailable):  # what was true is believed until it is back
                        await watch.begin()
                        value, due = await self._levels.look(trigger, access)
                        active = value > trigger.activation
                        if active != before:
                            before = active
                            yield messages.IsActiveResponse(result=active)
                    await watch.wait(due)
        except HeadgateError as error:
            await refuse(context, error)
        finally:
            self._watches.pop(watch, None)

    async def _read(self, ref: Any, context: Any) -> tuple[Trigger, Access]:
        """Return what is asked for, and the rights of who asks.

        Raises:
            InvalidValue, InvalidName: the metadata cannot be used.
            HeadgateError: as :meth:`Authenticator.access`.
        """
        return Trigger.read(ref.scalerMetadata), await self._callers.access(ref.scalerMetadata, context)


def _bytes(message: Any) -> bytes:
    out: bytes = message.SerializeToString()
    return out
