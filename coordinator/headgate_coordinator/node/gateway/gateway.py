"""An SDK makes its calls over one link: each is checked, done, and answered over the link for answers.

It is presettled both ways, for an answer says more than a settlement. The calls under way of a connection are bounded
by the credit of this link: it is renewed when calls are answered.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from headgate.amqp.calls import GATEWAY, LARGE, MAX_CALLS, OK, failure, read_calls
from headgate.amqp.handler import Incoming
from headgate.amqp.link import CONNECTION_FORCED, DECODE_ERROR, RESOURCE_LIMIT, Link, Terminus
from headgate.errors import AccessDenied, HeadgateError, InvalidValue, MessageFormatError
from headgate.redis.keys import Address
from headgate_coordinator.node.ends.end import LinkEnd
from headgate_coordinator.node.gateway.authorizer import Authorizer
from headgate_coordinator.node.gateway.executor import Executor
from headgate_coordinator.node.gateway.payloads import PayloadReader, PayloadReferences
from headgate_coordinator.node.gateway.replies import Replies
from headgate_coordinator.node.gateway.spooled_batches import SpooledBatches, is_marked
from headgate_coordinator.node.host import Connection

_log = logging.getLogger("headgate.node")
CHANNELS: Final = 20_000
"""Channels that one connection may listen to."""


class Gateway(LinkEnd):
    """A gateway does the calls of one connection."""

    def __init__(self, connection: Connection, link: Link) -> None:
        super().__init__(connection, link, GATEWAY)
        client = connection.node.client
        self._authorizer = Authorizer(connection.access, client.namespace)
        self._parts = client.parts
        self._spooled_batches = SpooledBatches(
            client.parts, lambda spool: connection.session().room_at(spool), self._has_room
        )
        node = connection.node
        self._executor = Executor(
            client.parts, self._authorizer, node.creations, self._spooled_batches, node.quotas, node.policies
        )
        self._payloads = PayloadReader(client.parts.registry.spooling)
        self._replies: Replies
        self._room = asyncio.Semaphore(connection.standing.at_once)
        self._standing = connection.standing
        self._batches = 0
        self._large = False
        self._heard: dict[str, Callable[[list[str]], None]] = {}

    async def open(self) -> None:
        """Answer the client's attach, and give it credit.

        Raises:
            InvalidValue: it has no link for answers, or another link for calls.
            AccessDenied: it was not let in.
        """
        ends = self.connection.ends.values()
        replies = next((end for end in ends if isinstance(end, Replies)), None)
        if replies is None or any(isinstance(end, Gateway) and end is not self for end in ends):
            raise InvalidValue(f"one link from {GATEWAY!r} for answers comes first, then one link to it for calls")
        self._replies = replies
        await self._parts.registry.policies.current()  # from now on the node follows it, for who may not put it back
        if not self.link.alive:
            return
        properties = {
            "redis": ".".join(map(str, self._parts.store.server.version)),
            "namespace": self._authorizer.namespace,
            "sessions": "" if self.connection.node.users.is_open else self._authorizer.prefix,
            "spools": "yes",
            "waits": "yes",
        }
        self.link.accept(self.link.source, Terminus(GATEWAY), max_message=self._standing.calls, properties=properties)
        self.link.set_credit(self._standing.credit + 1)
        self.connection.flush_soon()

    def received(self, messages: list[Incoming]) -> None:
        """Do what was asked for."""
        for raw, _ in messages:
            self.messages += 1
            self.bytes += len(raw)
            try:
                calls = read_calls(raw)
            except MessageFormatError as error:
                self.connection.node.counters.refused("gateway")
                self.fail(DECODE_ERROR, f"calls cannot be read: {error.problem}")
                return
            if len(calls) > MAX_CALLS:
                self.connection.node.counters.refused("gateway")
                self.fail(RESOURCE_LIMIT, f"{len(calls)} calls in one message; at most {MAX_CALLS}")
                return
            large = len(raw) > LARGE + 1024
            if large and self._large:
                self.fail(RESOURCE_LIMIT, f"two messages of more than {LARGE} bytes at a time")
                return
            self._large = self._large or large
            self._batches += 1
            self.connection.node.spawn(self._serve(calls, large=large))

    async def _serve(self, calls: Sequence[list[Any]], *, large: bool) -> None:
        try:
            if len(calls) == 1:
                await self._answer(calls[0])
            else:
                await asyncio.gather(*map(self._answer, calls))
        finally:
            self._batches -= 1
            if large:
                self._large = False
            link = self.link
            most = self._standing.credit
            free = most + 1 - self._batches
            if link.alive and link.credit <= most // 2 < free:
                link.set_credit(free)
                self.connection.flush_soon()

    async def _answer(self, call: list[Any]) -> None:
        number, what, *words = call
        answer, wanted = None, None
        try:
            async with contextlib.nullcontext() if is_marked(what, words) else self._room:  # others wait for no store
                await self._replies.room()
                if not self._replies.link.alive:
                    return
                act = self._listen if what in ("hear", "unhear") else self._executor.perform
                answer = await act(what, words)
                wanted = self._payloads.wanted(what, words, answer)
            if wanted is None:
                self._replies.say(number, OK, answer)
        except Exception as error:  # noqa: BLE001 -- any error goes to the client, and the node goes on
            self._fail(number, what, error)
        if wanted is not None:  # others do not wait for a store
            self.connection.node.spawn(self._fill(number, what, wanted, answer))

    async def _fill(self, number: int, what: Any, wanted: PayloadReferences, answer: Any) -> None:
        try:
            await self._payloads.fill(wanted)
            self._replies.say(number, OK, answer)
        except Exception as error:  # noqa: BLE001 -- as above
            self._fail(number, what, error)

    def _fail(self, number: int, what: Any, error: Exception) -> None:
        if isinstance(error, AccessDenied | InvalidValue):
            self.connection.node.counters.refused("gateway")
        if not isinstance(error, HeadgateError):
            _log.error("%s: a call failed: %.80r", self.connection.client, what, exc_info=error)
            error = HeadgateError(f"the node failed: {type(error).__name__}")
        self._replies.say(number, *failure(error))

    async def _listen(self, what: Any, words: list[Any]) -> None:
        """Begin or end to pass on the hints of channels; those that are not the user's are left out."""
        channels = words[0] if words and isinstance(words[0], list) else []
        wake_ups = self._parts.wake_ups
        if what == "unhear":
            for channel in channels:
                if isinstance(channel, str) and (listener := self._heard.pop(channel, None)):
                    await wake_ups.unsubscribe((channel,), listener)
            return
        fresh = []
        for channel in channels:
            if len(self._heard) >= CHANNELS:
                raise InvalidValue(f"a connection hears at most {CHANNELS} channels")
            if isinstance(channel, str) and channel not in self._heard and self._authorizer.channel(channel):
                self._heard[channel] = partial(self._hint, channel)
                fresh.append(channel)
        await asyncio.gather(*(wake_ups.subscribe((channel,), self._heard[channel]) for channel in fresh))
        if not self.link.alive:
            await self._deafen()

    def _hint(self, channel: str, words: list[str]) -> None:
        if "/" in channel or self._executor.shown.hint(words):  # else it is one of the namespace
            self._replies.hint(channel, words)

    def _has_room(self, address: Address, session: str) -> None:
        """Tell a client that there may be room at a store."""
        channel = next((channel for channel in address.channels(session) if channel in self._heard), None)
        if channel is not None:
            self._replies.hint(channel, ["references"])

    def look_again(self) -> None:
        """Pass on no more hints of channels that are not the user's any more."""
        gone = [channel for channel in self._heard if not self._authorizer.channel(channel)]
        if gone:
            self.connection.node.spawn(self._listen("unhear", [gone]))

    async def _deafen(self) -> None:
        heard, self._heard = self._heard, {}
        for channel, listener in heard.items():
            with contextlib.suppress(HeadgateError):
                await self._parts.wake_ups.unsubscribe((channel,), listener)

    def changed(self) -> None:
        """Have the client come again: what it may take of the node is settled as it comes."""
        self.fail(CONNECTION_FORCED, "the user's grants have changed; connect again")

    def rest(self) -> None:
        """Send the client to another node at once: its calls are as good there, and may be made twice."""
        self.fail(CONNECTION_FORCED, f" node {self.connection.node.name} is stopping; connect to another one")

    def gone(self, *, lost: bool) -> None:
        """Pass on no more hints."""
        del lost
        self._spooled_batches.gone()
        self.connection.node.spawn(self._deafen())
