"""Consumers: messages out of a queue or a topic, under a window."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from headgate._util.keywords import explains
from headgate._util.reconnect import AWAY, until_answered
from headgate._util.tasks import in_background, stop
from headgate.consuming.dead_letters import DeadLetters
from headgate.consuming.inbox import Receivers
from headgate.consuming.strays import Strays
from headgate.core.lease import Lease
from headgate.core.names import encode_name
from headgate.core.segment import MARK, payload_size
from headgate.core.window import MAX_FETCH, Window
from headgate.credit.account import CLOSE_WITHIN
from headgate.credit.calls import Ensure
from headgate.errors import AccessDenied, Closed, DestinationDamaged, HeadgateError, PolicyError, SlowConsumer
from headgate.message import Message
from headgate.namespace.losses import Losses
from headgate.options import SessionOptions
from headgate.redis.backend import WakeUps
from headgate.redis.keys import Address
from headgate.redis.replies import Deliveries
from headgate.redis.store import Store
from headgate.spool import Spooling
from headgate.spool.recall import GONE, Recall

_log = logging.getLogger("headgate")
MAX_SETTLED: Final = 256
LINGER: Final = 0.002
"""Seconds that settlements wait for company, unless half the window is settled already."""
POLL: Final = 1.0
SEEK_AFTER: Final = 0.25
"""Seconds after a look that found messages in the hands of others alone, until the next for who began to wait."""


class Consumer(Receivers):
    """Receives from one subscription. Get one from :meth:`Session.consumer`; iterate it, and settle what it yields.

    It holds at most its window unsettled; what it holds goes back, untried, when it is closed.
    """

    def __init__(
        self,
        store: Store,
        wake_ups: WakeUps,
        address: Address,
        session: str,
        options: SessionOptions,
        ensure: Ensure,
        ensure_at: Callable[[Address], Ensure],
        *,
        number: Callable[[], int],
        subscription: str,
        durable: bool,
        window: Window,
        rate: float | None,
        on_close: Callable[["Consumer"], Awaitable[None]],
        on_slow: Callable[["Consumer"], None],
        losses: Losses,
        spooling: Spooling | None = None,
    ) -> None:
        self.subscription = subscription
        self.durable = durable
        self.encoded_subscription = encode_name(subscription, "subscription")
        ttl_ms = int(options.ttl * 1000)
        dead_letters = DeadLetters(store, address, self.encoded_subscription, ttl_ms, ensure_at, self._buried)
        super().__init__(address, session, window, rate, dead_letters)
        self._recall = Recall(spooling, address, self._arrive)
        self._strays = Strays(store, losses, address, self.encoded_subscription)
        self._store = store
        self._wake_ups = wake_ups
        self._ensure = ensure
        self._lease = Lease(options.ttl)
        self._next_number = number
        self._on_close = on_close
        self._on_slow = on_slow
        self._settings_changed = True
        self.is_slow = False
        """Whether it settles too little of what there is for it, by the destination's rules."""
        self._after = b"0"
        self._fetches = 0
        self._lost_reply = False
        self._unanswered = self._hints = 0
        self._look_at = self._looked_at = 0.0
        self._beside = False
        self._flushed_at = 0.0
        self._reattach = False
        self._removed = False
        self._task: asyncio.Task[None] | None = None
        self._configuring: set[asyncio.Task[None]] = set()
        self.lost_since: float | None = None

    async def start(self) -> None:
        """Attach, and begin to fetch.

        Raises:
            PolicyError: the destination holds no messages.
            CoordinatorUnavailable: Redis does not answer.
        """
        await self._wake_ups.subscribe(self.address.channels(self.session), self._hear)
        await self._heed_settings()
        await self._attach()
        self._task = asyncio.create_task(self._keep(), name=f"headgate {self.id}")
        self._task.add_done_callback(self._ended)

    @explains("consumer")
    def configure(self, *, window: Window | int | str) -> Awaitable[None]:
        """Change the window, effective at once; below what is held, nothing more comes until enough is settled.

        Returns:
            What is done when Redis has it too, for operators to see; it need not be awaited. It fails with
            CoordinatorUnavailable where Redis does not answer; the window is in force here all the same.

        Raises:
            InvalidValue: not a window; nothing was changed.
            Closed: the consumer is closed.
        """
        self._check_open()
        self._holding.configure(Window.of(window))
        self._look_at = 0.0
        self._wake.set()
        return in_background(self._tell_window(), self._configuring, f"headgate {self.id}")

    @property
    def _attached_window(self) -> str:
        """The window as it is told."""
        return self.window.text

    async def _tell_window(self) -> tuple[str, str]:
        return await self._store.attach(
            self.address, self.session, number=self._number, subscription=self.encoded_subscription,
            durable=self.durable, window=self._attached_window, ttl_ms=self._lease.ttl_ms,
        )  # fmt: skip

    async def close(self) -> None:
        """Settle what was settled, give the rest back; never longer than 1 s."""
        if self._closed:
            return
        self._closed = True
        self.pacing.wake()
        self._arrived.set()
        with contextlib.suppress(HeadgateError, TimeoutError):
            async with asyncio.timeout(CLOSE_WITHIN):
                while self._outcomes and self.lost_since is None and self._task:
                    if self._task.done():
                        break
                    self._wake.set()
                    await asyncio.sleep(0.001)
        await asyncio.gather(*map(stop, (self._task, *self._configuring)))
        await asyncio.gather(self._recall.close(), self._dead_letters.close(), self._secured())
        self._lose(lambda _: Closed(f"the consumer of {self.address.name!r} was closed"))
        with contextlib.suppress(HeadgateError, TimeoutError):
            async with asyncio.timeout(CLOSE_WITHIN):
                while self._number:
                    if await self._store.detach(self.address, self.session, self.id, failed=False) != "MORE":
                        break
        await self._wake_ups.unsubscribe(self.address.channels(self.session), self._hear)
        self._buffer.clear()
        self._held.clear()
        await self._on_close(self)

    def _hear(self, words: list[str]) -> None:
        if words[0] == "removed":
            self._removed = True
            self._strays.forget()
        if words[0] == "settings":
            self._settings_changed = True
        if words[0] in ("slow", "brisk") and words[1] == self.id:
            self._judged(slow=words[0] == "slow")
        if words[0] == "wanted" and words[1] == self.id and not self._closed:
            self._hand_back(int(words[2]))
        mine = words[0] == "ready" and (len(words) == 1 or words[1] == self.id)
        if mine or words[0] in ("settings", "removed"):
            self._look_at = 0.0
            self._hints += 1
            self._wake.set()

    def _judged(self, *, slow: bool) -> None:
        if slow != self.is_slow:
            self.is_slow = slow
            _log.warning("consumer %s of %r is %s", self.id, self.address.name, "slow" if slow else "not slow any more")
            if slow:
                self._on_slow(self)

    async def _heed_settings(self) -> None:
        if self._settings_changed:
            self._settings_changed = False
            snapshot = await self._store.snapshot(self.address, waiters=0, consumers=1)
            if snapshot:
                self.adopt(snapshot.fields, self._store)

    async def _attach(self) -> None:
        self._number = self._next_number()
        self._generation += 1
        self._fetches, self._lost_reply = 0, False
        self._holding.clear()
        self._recall.clear()
        self._buffer.clear()
        self._held.clear()
        self._outcomes.clear()
        while True:
            asked_at = self._loop.time()
            code, kind = await self._tell_window()
            if code == "OK":
                self._lease.renewed(asked_at)
                self._strays.attached(int(kind))
                self._look_at = 0.0
                return
            if code == "KIND":
                raise PolicyError(f"{self.address.name!r} is a {kind} and holds no messages to consume")
            if code == "UNKNOWN":
                await self._ensure(self._generation > 1 and not self._removed)
                self._removed = False
            else:  # GONE: that number is being cleared away, or the subscription is
                self._number = self._next_number()
                await asyncio.sleep(0.01)

    async def _keep(self) -> None:
        while True:
            try:
                worked = await self._step()
            except AWAY as error:
                self._missing(error)
                worked = await until_answered(self._missing)(self._step)
            self.lost_since = self.trouble = self._denied = None
            if not worked:
                await self._rest()

    def _missing(self, error: BaseException) -> None:
        if isinstance(error, DestinationDamaged):  # waiting does not mend it
            _log.error("consumer %s of %r ends: %s", self.id, self.address.name, error)
            raise error
        self.lost_since, self.trouble = self.lost_since or self._loop.time(), error
        if isinstance(error, AccessDenied):
            self._deny(error)

    def _flush_due(self, now: float) -> bool:
        window = self.window
        enough = 64 if window.messages == "unlimited" else max(1, min(64, int(int(window.messages) * window.top_up)))
        return bool(self._outcomes) and (
            len(self._outcomes) >= enough or self._closed or now - self._flushed_at >= LINGER
        )

    async def _step(self) -> bool:
        if self._reattach:
            await self._attach()
            self._reattach = False
            self._settings_changed = True
        await self._heed_settings()
        self._wake.clear()
        if self._strays.suspected and not self._lost_reply:  # what it holds is known once that answer is there
            if await self._strays.give_back(self.session, self.id, self._held, self._lease.ttl_ms):
                self._look_at = 0.0
            return True
        now = self._loop.time()
        if self._beside and self._waits:  # somebody began to wait since the last look: others may have something
            self._look_at = min(self._look_at, self._looked_at + SEEK_AFTER)
        room = (0, 0) if self._closed or self._resting() else self._room()
        if self._flush_due(now) or (room[0] and now >= self._look_at) or self._lost_reply:
            await self._exchange(room)
            return True
        if now >= self._lease.renew_at:
            await self._exchange((0, 0))
            return True
        return False

    def _resting(self) -> bool:
        """Return whether to fetch nothing: it gave back what others wait for, and nobody asked here since then."""
        if self._rests and self._receivers:
            self._rests = False
            self._look_at = 0.0
        return self._rests

    @property
    def _waits(self) -> int:
        """How many wait for a message while none is here or on its way from a store."""
        return 0 if self._buffer or self._recall.line else self._receivers

    def _room(self) -> tuple[int, int]:
        """Return the room there will be once the settlements that wait have gone out."""
        holding = self._holding
        going = sum(1 for _ in zip(self._outcomes, range(MAX_SETTLED), strict=False))
        if going:
            size = sum(self._outcomes[i][1].size for i in range(going))
            holding.messages -= going
            holding.bytes -= size
            try:
                return self._free()
            finally:
                holding.messages += going
                holding.bytes += size
        return self._free()

    def _free(self) -> tuple[int, int]:
        """Return how many messages and bytes may be fetched, by what is held."""
        return self._holding.room(self._receivers)

    async def _rest(self) -> None:
        now = self._loop.time()
        until = self._lease.renew_at
        if self._outcomes:
            until = min(until, self._flushed_at + LINGER)
        if not self._closed and not self._resting() and self._free()[0]:
            until = min(until, self._look_at)
        if until > now and not self._wake.is_set():
            timer = self._loop.call_at(until, self._wake.set)
            await self._wake.wait()
            timer.cancel()

    async def _exchange(self, room: tuple[int, int]) -> None:
        """Settle what waits and fetch what fits, in one call; a call whose reply was lost is repeated as it was."""
        most = self._unanswered if self._lost_reply else MAX_SETTLED  # a repeated call carries what it carried before
        if self._after != b"0":
            most = 0  # the next page of a repeated fetch: what goes out with it would count as repeated too
        going = [self._outcomes[i] for i in range(min(len(self._outcomes), most))]
        self._unanswered = len(going)
        ids: dict[str, list[bytes]] = {"accepted": [], "released": [], "rejected": [], "failed": []}
        for outcome, message, _ in going:
            ids[outcome].append(message.raw_id)
        if room[0] and not self._lost_reply:
            self._fetches += 1
        fetch = self._fetches if room[0] or self._lost_reply else 0
        asked_at, hints, waits = self._loop.time(), self._hints, self._waits
        self._lost_reply = fetch > 0
        answer = await self._store.settle(
            self.address,
            self.session,
            self.id,
            ttl_ms=self._lease.ttl_ms,
            fetch=fetch,
            max_messages=room[0],
            max_bytes=room[1],
            after=self._after,
            waits=waits,
            **ids,
        )
        self._lost_reply = False
        self._flushed_at = self._loop.time()
        if answer.code in ("OK", "AGAIN"):
            self._lease.renewed(asked_at)
            self._strays.answered(answer.epoch)
            self._settled(going, answer.epoch)
            self._deliver(answer, asked=room[0])
            if room[0]:
                self._looked_at, self._beside = self._flushed_at, answer.beside and not waits
            if hints != self._hints:
                self._look_at = 0.0  # something came after the answer was given, and was heard of before it arrived
        else:  # UNKNOWN, EXPIRED, SLOW: what it held is others' now
            self._expire()
            self._recall.clear()
            if answer.code == "SLOW":
                self._judged(slow=True)
                raise SlowConsumer(self.address.name, self.id)
            self._reattach = True

    def _deliver(self, answer: Deliveries, *, asked: int) -> None:
        held, holding, buffer, selects = self._held, self._holding, self._buffer, self.selects
        for id_, stored, attempts in answer.messages:
            if id_ in held:
                continue  # known: only its reply was repeated
            held[id_] = message = Message(self, self._generation, id_, stored, attempts)
            if attempts or stored[:1] == MARK or self._recall.line:
                message.size = payload_size(stored)
                holding.deliver(message.size)
                self._recall.put(message, attempts)
                continue
            holding.deliver(message.size)  # as nearly all are: it is here, whole
            if selects is None or self._is_for(message, selects):
                buffer.append(message)
        if buffer:
            self._arrived.set()
        if self.window.bytes != "unlimited":
            holding.fill(max((payload_size(stored) for _, stored, _ in answer.messages), default=0))
        if asked and len(answer.messages) < asked:
            self._look_at = self._loop.time() + (answer.again_ms / 1000 if answer.again_ms else POLL)
        self._after = b"0"
        if answer.code == "AGAIN":
            self._look_at = 0.0
            if len(answer.messages) == MAX_FETCH:  # it holds more than one reply carries: the rest, after these
                self._after, self._lost_reply = answer.messages[-1][0], True

    def _arrive(self, message: Message, attempts: int, trouble: str) -> None:
        """Take a delivery that is here with its payload, or that is known to be unreadable."""
        if attempts and self._dead_letters.is_dead(attempts):
            trouble = f"{attempts} attempts failed"
        if trouble == GONE:
            message.settled = True
            self._queue("accepted", message, None)
        elif trouble:
            message.settled = True
            self._die(message, trouble, attempts, None)
        elif self.selects is None or self._is_for(message, self.selects):
            self._buffer.append(message)
            self._arrived.set()
