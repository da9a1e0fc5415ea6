"""A level is how much there is to do at a destination, by settings and counters that all nodes share."""

from collections.abc import Mapping
from typing import Final

from headgate import AccessDenied, Client, CoordinatorUnavailable, InvalidValue, UnknownDestination
from headgate.core.limits.limit import limits_of
from headgate.core.names import slice_name
from headgate.redis.keys import PARTS, Address
from headgate.redis.stores.limiters import LimiterStore
from headgate.redis.stores.sliced_reads import read_whole
from headgate_coordinator.keda.trigger import Trigger
from headgate_coordinator.security import Action
from headgate_coordinator.security.access import Access

_FIELDS: Final = (
    "kind", "pending_messages", "pending_bytes", "blocked", "limit_bytes", "rate", "limits", "next_due", "sliced",
)  # fmt: skip
_LATER: Final = 1 + PARTS.index("later")
_COUNTERS: Final = {"messages": "pending_messages", "bytes": "pending_bytes", "waiting": "blocked"}
_LIMITED: Final = {"gate": "limit_bytes", "bucket": "rate"}


class Levels:
    """`Levels` reads what triggers ask for.

    Args:
        client: connected; it stays the caller's.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._limiters = LimiterStore(client.store.server)

    async def look(self, trigger: Trigger, access: Access) -> tuple[float, float | None]:
        """Return the work that workers have room for, and in how many seconds more is due.

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
            address = Address.of(self._client.namespace, trigger.destination)
            levels = await self._limiters.levels(address, slices=int(fields.get("sliced", 1)))
            return float(levels.waiting) if levels is not None else 0.0, None
        value = float(fields.get(_COUNTERS[trigger.metric]) or 0)
        later, due = 0, None
        if kind == "queue" and trigger.metric == "messages" and "next_due" in fields:
            slices = range(int(fields.get("sliced", 1)))
            found = [await self._later(slice_name(trigger.destination, number)) for number in slices]
            later = sum(count for count, _ in found)
            due = min((seconds for _, seconds in found if seconds is not None), default=None)
        return max(0.0, value - later), due

    async def _later(self, name: str) -> tuple[int, float | None]:
        """Return how many messages of a queue are delayed, and the seconds until the first is due."""
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
            own = {field: value.decode() for field, value in zip(_FIELDS, values, strict=True) if value is not None}
            read.append(
                await read_whole(self._client.store.server, Address.of(self._client.namespace, name), _FIELDS, own)
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
