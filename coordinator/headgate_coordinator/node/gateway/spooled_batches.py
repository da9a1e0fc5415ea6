"""An SDK may mark batches: their payloads go to a spool store, and references to them into the stream.

The node takes room in the store, writes one segment, and calls the script with references in the payloads' place; only
what that answers says whether they are stored. A node that dies before leaves an orphan, which a sweep finds; a call
that comes again finds its batch stored, and its second segment is deleted.
"""

import asyncio
import itertools
import logging
import secrets
import zlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from headgate.context import Context
from headgate.core.names import decode_name
from headgate.core.segment import MARKED, NO_STORE, pack
from headgate.core.when_full import BLOCK, WhenFull
from headgate.credit.spool_quota import SpoolQuota
from headgate.errors import CoordinatorUnavailable, HeadgateError, InvalidValue, MessageTooLarge
from headgate.message import is_durable
from headgate.redis.backend import Backend
from headgate.redis.keys import Address
from headgate.redis.scripts import Script, script
from headgate.spool.stores import Spool, folder

_log = logging.getLogger("headgate.node")
WITHIN: Final = 2.0
"""Seconds after which nothing is published any more: clients wait a little longer for the answer, then ask again."""
KEPT: Final = 10.0
"""Seconds for which room is kept, or waited for in the store's line, until its client asks again."""
SENDERS: Final = 64
"""Sessions at destinations, of one connection, for which room is kept."""
AT_ONCE: Final = 8
"""Batches of one connection that are being written."""


_BEYOND: Final = script("publish").arguments.index("beyond")


def is_marked(what: Any, words: Sequence[Any]) -> bool:
    """Return whether a call is to spool a batch."""
    argv = words[2] if what in ("call", "secure") and len(words) > 2 and words[0] == "publish" else ()
    return isinstance(argv, list) and len(argv) > _BEYOND and argv[_BEYOND] in ("spool", b"spool")


class NoRoomError(Exception):
    """A store has no room; its words say why, and ``when_full`` what a send does then."""

    def __init__(self, why: str, when_full: WhenFull = BLOCK, limit: int | None = None) -> None:
        super().__init__(why)
        self.when_full, self.limit = when_full, limit


@dataclass(slots=True)
class _Written:
    """A written segment is on its way to its store, or there.

    Attributes:
        batch: what it is of: numbers of the account and of the batch, and a checksum.
        spool: its store.
        name: of the segment.
        references: to it, one a payload.
        task: writes it.
        sent: whether references to it may be stored.
    """

    batch: tuple[Any, ...]
    spool: Spool
    name: str
    references: list[bytes]
    task: "asyncio.Task[None]"
    sent: bool = False

    @property
    def segment(self) -> str:
        """As the state of its destination knows it."""
        return f"{self.spool.encoded}/{self.name}"


class _Sender:
    """A sender is one session at one destination: at most one batch of it is under way."""

    def __init__(self, address: Address, session: str) -> None:
        self.address, self.session = address, session
        self.busy = False
        self.written: _Written | None = None
        self.quota: SpoolQuota | None = None
        self.asked: asyncio.Future[None] | None = None
        self.size = 0
        self.stirred = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def idle(self) -> bool:
        """Whether nothing is kept for it."""
        return not self.busy and self.asked is None and self.written is None

    @property
    def works(self) -> bool:
        """Whether a batch of it is in memory."""
        return self.busy or (self.written is not None and not self.written.task.done())

    def keep(self, seconds: float, over: Callable[["_Sender"], None]) -> None:
        """Call ``over`` then, unless it is put off before."""
        self.put_off()
        self._timer = asyncio.get_running_loop().call_later(seconds, over, self)

    def put_off(self) -> None:
        """Keep what it has for now."""
        if self._timer is not None:
            self._timer.cancel()

    def ask(self, quota: SpoolQuota, size: int, tell: Callable[[], None]) -> "asyncio.Future[None]":
        """Ask the store for room, in its line if need be, and return earlier requests that suffice."""
        if self.asked is None or self.size < size or self.quota is not quota:
            self.put_back()
            self.quota, self.size = quota, size
            self.asked = quota.ask(size, self.stirred.set)

            def answered(asked: asyncio.Future[None]) -> None:
                self.stirred.set()
                if not asked.cancelled():
                    tell()

            self.asked.add_done_callback(answered)
        return self.asked

    def take(self, size: int) -> None:
        """Take of the room that was asked for, and give back the rest.

        Raises:
            MessageTooLarge: the store can never hold that.
        """
        asked, self.asked = self.asked, None
        if asked is not None:
            asked.result()
        if self.quota is not None and self.size > size:
            self.quota.put_back(self.size - size)

    def put_back(self) -> None:
        """Give back the room that is kept, or leave the line for it."""
        asked, self.asked = self.asked, None
        if asked is None or asked.cancel() or asked.cancelled() or asked.exception() or self.quota is None:
            return
        self.quota.put_back(self.size)


class SpooledBatches:
    """`SpooledBatches` stores the marked batches of one connection.

    Args:
        parts: of the node's client.
        room_at: returns the connection's room at a store.
        tell: says to a session at a destination that there may be room now.
    """

    def __init__(
        self, parts: Context, room_at: Callable[[Spool], Awaitable[SpoolQuota]], tell: Callable[[Address, str], None]
    ) -> None:
        self._parts = parts
        self._spooling = parts.registry.spooling
        self._room_at, self._tell = room_at, tell
        self._senders: dict[tuple[str, str], _Sender] = {}
        self._names = (f"{secrets.token_hex(5)}-{n:x}" for n in itertools.count(1))
        self._gone = False

    async def publish(
        self, op: Script, address: Address, values: dict[str, Any], argv: Sequence[Any], server: Backend
    ) -> list[Any]:
        """Return what the script answers, or ``NOSTORE`` where nothing is stored, nor will be.

        Raises:
            CoordinatorUnavailable: the call is to be made again as it was.
            InvalidValue: it is no batch of payloads for one store.
        """
        sender, payloads = self._sender(address, values["session"]), argv[len(values) :]
        sender.busy = True
        sender.put_off()
        try:
            async with asyncio.timeout(WITHIN):
                written, fields = await self._write(sender, values, payloads)
            if self._gone:
                raise CoordinatorUnavailable("the connection is gone")
            # Of a topic, subscriptions that are not behind get the payloads at once.
            copied = fields.get("kind") == "topic" and "of_slices" not in fields
            bodies = [*written.references, *(payloads if copied else ())]
            size, again, written.sent = sum(map(len, payloads)), written.sent, True
            seen = values["segment"].removeprefix(MARKED)  # of the slice, by its client, where values say which
            segment = f"{written.segment} {size} {len(payloads)} {seen}".rstrip()
            fixed = [segment if name == "segment" else values[name] for name in values]
            reply: list[Any] = await server.call(op, address.keys(sender.session), [None, *fixed[1:], *bodies])
            sender.written = None
        except NoRoomError as error:
            return [NO_STORE, values["epoch"], str(error).encode(), error.when_full.text.encode(), error.limit]
        except TimeoutError:
            raise CoordinatorUnavailable(f"messages for {address.name!r} wait for a spool store") from None
        finally:
            sender.busy = False
            sender.keep(KEPT, self._part)
            if sender.idle or self._gone:
                self._part(sender)
        if reply[0] == b"OK" and int(reply[8]) > 0:
            self._spooling.sweeper.watch(address)
        elif not again or not await self._spooling.spools.calls.is_known(address, written.segment):
            self._spooling.sweeper.discard(written.spool, address, written.name)
        return reply

    def _sender(self, address: Address, session: str) -> _Sender:
        sender = self._senders.get((address.key, session))
        if (sender is not None and sender.busy) or sum(one.works for one in self._senders.values()) >= AT_ONCE:
            raise CoordinatorUnavailable("the node is still writing what this connection sent before")
        if sender is None:
            if self._gone or len(self._senders) >= SENDERS:
                raise CoordinatorUnavailable(f"{SENDERS} sessions of this connection wait for spool stores")
            sender = self._senders[address.key, session] = _Sender(address, session)
        return sender

    async def _write(
        self, sender: _Sender, values: dict[str, Any], payloads: Sequence[bytes]
    ) -> tuple[_Written, Mapping[str, str]]:
        """Write a segment, or wait for the one that an earlier call began to write of the same batch."""
        fields = await self._settings(sender.address)
        lasting = [is_durable(payload) for payload in payloads] if fields.get("store_nonpersistent") else [True]
        if len(set(lasting)) > 1:
            raise InvalidValue("publish: a batch for a spool store has one delivery mode")
        store = decode_name(fields["store" if lasting[0] else "store_nonpersistent"])
        data = b"".join(payloads)
        # The account's numbers too: where it began anew, a sweep may have found what was written before.
        batch = *(values[name] for name in ("inc", "epoch", "seq")), store, *map(len, payloads), zlib.crc32(data)
        if sender.written is None or sender.written.batch != batch:
            self._give_up(sender)
            spool, quota = await self._store(sender, store)
            await self._room(sender, quota, len(data), patient=len(payloads) == 1)
            name = next(self._names)
            references = pack(payloads, spool.encoded, name)[1]
            task = asyncio.create_task(self._keep(sender, spool, quota, name, data), name=f"headgate segment {name}")
            sender.written = _Written(batch, spool, name, references, task)
        try:
            await asyncio.shield(sender.written.task)
        except (HeadgateError, OSError) as error:
            sender.written = None
            _log.warning("spool store %r accepts no segment of %r: %s", store, sender.address.name, error)
            raise NoRoomError(f"spool store {store!r} accepts no segments; the log of its node says why") from None
        return sender.written, fields

    async def _settings(self, address: Address) -> Mapping[str, str]:
        await self._parts.registry.refresh(address)
        fields = self._parts.registry.fields(address)
        when_full = WhenFull.parse(fields.get("when_full", ""))
        if not fields.get("store") or not when_full.spools:
            raise NoRoomError(f"{address.name!r} does not spool", when_full)
        return fields

    async def _store(self, sender: _Sender, store: str) -> tuple[Spool, SpoolQuota]:
        try:
            spool = await self._spooling.spools.get(store)
            return spool, await self._room_at(spool)
        except CoordinatorUnavailable:
            raise
        except HeadgateError as error:
            _log.warning("spool store %r of %r cannot be used: %s", store, sender.address.name, error)
            raise NoRoomError(f"spool store {store!r} cannot be used; the log of its node says why") from None

    async def _keep(self, sender: _Sender, spool: Spool, quota: SpoolQuota, name: str, data: bytes) -> None:
        """Enter a segment at its store, and write it; whatever goes wrong, nobody refers to it."""
        try:
            await quota.hold(f"{folder(sender.address)}/{name}", len(data), sender.session)
            await spool.storage.write(spool.path(sender.address, name), data)
        except BaseException:
            self._spooling.sweeper.discard(spool, sender.address, name)
            raise

    async def _room(self, sender: _Sender, quota: SpoolQuota, size: int, *, patient: bool) -> None:
        """Take room at a store; where there is none, stay in its line for a while if ``patient``."""
        asked = sender.ask(quota, size, lambda: self._tell(sender.address, sender.session))
        try:
            while not asked.done() and not quota.refused(asked):
                sender.stirred.clear()
                await sender.stirred.wait()
        except asyncio.CancelledError:
            sender.put_back()
            raise
        when_full = quota.spool.settings.when_full
        if not asked.done():
            why = f"spool store {quota.spool.name!r} has no room either: {quota.reason}"
            if not patient or when_full.patience == 0:
                sender.put_back()
            raise NoRoomError(why, when_full)
        try:
            sender.take(size)
        except MessageTooLarge as error:
            raise NoRoomError(str(error), when_full, error.limit) from None

    def _part(self, sender: _Sender) -> None:
        """Keep nothing for a sender any more."""
        if not sender.busy:
            sender.put_off()
            sender.put_back()
            self._give_up(sender)
            self._senders.pop((sender.address.key, sender.session), None)

    def _give_up(self, sender: _Sender) -> None:
        """Delete what was written of an earlier batch and is wanted no more; what may be stored is left alone."""
        written, sender.written = sender.written, None
        if written is None or written.sent or written.task.cancel() or written.task.cancelled():
            return
        if written.task.exception() is None:
            self._spooling.sweeper.discard(written.spool, sender.address, written.name)

    def gone(self) -> None:
        """Publish nothing more: the client makes its calls elsewhere."""
        self._gone = True
        for sender in tuple(self._senders.values()):
            self._part(sender)
