"""A gate's or bucket's keys take turns: in a limiter beside it, which is made with the first of them."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Final

from headgate.context import Context
from headgate.core.limiting.amounts import encode_key
from headgate.core.limits.hold_off import left_of, read_reason
from headgate.credit.calls import Ensure
from headgate.errors import PolicyError
from headgate.explain.levels import LimiterState, LimitState
from headgate.limiting.limiter import Limiter
from headgate.redis.backend import Backend
from headgate.redis.keys import Address
from headgate.redis.stores.limiter_levels import LimiterLevels
from headgate.redis.stores.limiters import LimiterStore
from headgate.redis.stores.sliced_reads import read_whole
from headgate.units import MAX_SIZE, parse_duration

_READ: Final = (
    "kind", "limit_bytes", "limit_messages", "leased_bytes", "leased_messages", "blocked", "rate", "burst", "tat",
    "held_off", "off_reason", "learning_until", "sliced",
)  # fmt: skip


class KeyedLimiter:
    """One session's keys at a gate or a bucket take turns here; a hold-off and the state are of all keys together.

    Args:
        context: the ways to the state.
        address: the gate or bucket.
        session: the session's id.
        ensure: makes it exist.
    """

    def __init__(self, context: Context, address: Address, session: str, ensure: Ensure) -> None:
        self.address = address
        self._context = context
        self._session = session
        self._ensure = ensure
        self._opening = asyncio.Lock()
        self._limiter: Limiter | None = None

    @property
    def limiter(self) -> Limiter | None:
        """The limiter in which keys take turns; None before the first of them."""
        return self._limiter

    async def open(self) -> Limiter:
        """Return the limiter, opened with the first call.

        Raises:
            CoordinatorUnavailable: Redis does not answer.
        """
        async with self._opening:
            if self._limiter is None:
                context, store = self._context, LimiterStore(self._context.store.server)
                limiter = Limiter(
                    store, context.wake_ups, self.address.by_key, self._session, context.options.ttl,
                    lambda _: self._ensure, lambda _at, _epoch: None, waits=context.waits, kind="turn",
                )  # fmt: skip
                await context.registry.follow(self.address, self._adopt)
                await limiter.start()
                self._limiter = limiter
                self._adopt(context.registry.fields(self.address))
        return self._limiter

    def _adopt(self, fields: Mapping[str, str]) -> None:
        if self._limiter is not None:
            self._limiter.adopt(_as_limiter(fields))

    async def state(self, key: str | None) -> LimiterState:
        """Read how much is taken, of all keys together and of one key.

        Raises:
            InvalidName: the key cannot be used.
            PolicyError: it is gone.
            CoordinatorUnavailable: Redis does not answer.
        """
        read = await read_state(self._context.store.server, self.address, key)
        if read is None:
            raise PolicyError(f"{self.address.name!r} is gone")
        return read[0]

    async def hold_off(self, seconds: float | str, reason: str, key: str | None) -> float:
        """Have nothing admitted for a while; as :meth:`Limiter.hold_off`."""
        if key is not None:
            return await (await self.open()).hold_off(seconds, reason=reason, key=key)
        ms, text = round(parse_duration(seconds, "seconds") * 1000), read_reason(reason)
        registry = self._context.registry
        lasts = await self._pause(self.address, self._ensure, ms, text)
        await registry.refresh(self.address)  # here at once, elsewhere with the hint
        parts = registry.slices(self.address)[1:]
        pauses = (self._pause(part, partial(self._ensure_slice, part), ms, text) for part in parts)
        for pause in await asyncio.gather(*pauses, return_exceptions=True):  # each that answers, whichever does not
            if isinstance(pause, BaseException):
                raise pause
        return lasts / 1000

    async def _pause(self, address: Address, ensure: Ensure, ms: int, reason: str) -> int:
        store = LimiterStore(self._context.store.server)
        code, lasts = await store.pause(address, self._session, ms=ms, reason=reason)
        if code == "UNKNOWN":
            await ensure(True)
            code, lasts = await store.pause(address, self._session, ms=ms, reason=reason)
        if code != "OK":
            raise PolicyError(f"{self.address.name!r} is neither a gate nor a bucket")
        return lasts

    async def _ensure_slice(self, address: Address, recover: bool) -> str:  # noqa: FBT001
        registry = self._context.registry  # one that nobody has used yet was not lost
        return await registry.ensure(address, ("gate",), recover=recover and bool(registry.fields(address)))

    async def close(self) -> None:
        """Release all that keys hold."""
        if self._limiter is not None:
            await self._context.registry.unfollow(self.address, self._adopt)
            await self._limiter.close()


async def read_state(
    server: Backend, address: Address, key: str | None, most: int = 1
) -> tuple[LimiterState, LimiterLevels] | None:
    """Return a gate or a bucket as limiters are seen, with up to ``most`` of its keys; None where it is neither.

    Raises:
        InvalidName: the key cannot be used.
        CoordinatorUnavailable: Redis does not answer.
    """
    levels = await LimiterStore(server).levels(address.by_key, key=encode_key(key), most=most)
    own = address.shared[0]
    values = await server.command(own, "HMGET", own, *_READ)
    seconds, micros = await server.command(own, "TIME")
    if levels is None or values[0] is None:
        return None
    own_fields = {name: value.decode() for name, value in zip(_READ, values, strict=True) if value is not None}
    fields = await read_whole(server, address, _READ, own_fields)
    now_ms = int(seconds) * 1000 + int(micros) / 1000  # not cut off: slots of a bucket are us
    off = left_of(fields.get("held_off", ""), now_ms)
    of_keys = LimiterState.of(address.name, key, levels)
    state = replace(
        of_keys,
        limits=_limits(fields, now_ms, off),
        waiting=of_keys.waiting + int(fields["blocked"]),
        held_off=max(off, of_keys.held_off),
        reason=fields.get("off_reason", "") if off else of_keys.reason,
        learning=max(of_keys.learning, int(fields["learning_until"]) / 1000 - now_ms / 1000, 0.0),
    )
    return state, levels


def _limits(fields: Mapping[str, str], now_ms: float, off: float) -> Mapping[str, LimitState]:
    """Return the limits that there are; what is left of a rate is nothing as long as it is held off."""
    found = {}
    if "rate" in fields:
        rate, burst = float(fields["rate"]), int(fields["burst"])
        whole = max(int(fields.get("tat") or 0) / 1e6 - now_ms / 1000, off + burst / rate if off else 0.0, 0.0)
        taken = min(burst, -int(-whole * rate // 1)) if off else -int(-whole * rate // 1)
        found["tokens"] = LimitState("tokens", "rate", burst, burst - taken, taken, whole)
    for name, limit, leased in (
        ("bytes", "limit_bytes", "leased_bytes"),
        ("calls", "limit_messages", "leased_messages"),
    ):
        if fields["kind"] == "gate" and fields[limit] != "unlimited":
            most, taken = int(fields[limit]), int(fields[leased])
            found[name] = LimitState(name, "at_once", most, most - taken, taken, 0.0)
    return MappingProxyType(found)


def _as_limiter(fields: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a gate or a bucket as a limiter has them, as in lua/lib/by_key.lua."""
    if fields.get("kind") == "bucket":
        rate = fields.get("rate")
        limits = f"tokens rate {rate or '1e15'} {fields['burst'] if rate else MAX_SIZE}"
    else:
        off = fields.get("enforce") == "off"
        most = {"limit_bytes": off or fields.get("oversize") == "allow-one", "limit_messages": off}
        size, calls = (
            MAX_SIZE if free or fields.get(name, "unlimited") == "unlimited" else fields[name]
            for name, free in most.items()
        )
        limits = f"bytes at_once {size};calls at_once {calls}"
    durability = fields.get("durability", "memory")
    return {"limits": limits, "key_limits": fields.get("key_limits", ""), "durability": durability}
