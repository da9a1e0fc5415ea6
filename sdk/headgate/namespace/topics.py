"""An index lists a namespace's topics, and the wildcard subscriptions that wait for new ones.

A wildcard subscription is one ordinary subscription on every topic that its pattern matches. A client that makes a
topic enters it here and then makes the subscriptions that it finds; one that subscribes makes an entry and then
attaches to the topics that it finds. In either order one of the two sees the other, and no message passes either.
"""

import asyncio
import hashlib
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from headgate.core.addresses.pattern import WILDCARDS, Pattern
from headgate.core.names import MAX_NAME_BYTES, decode_name, encode_name, is_slice, read_name
from headgate.core.selector.wanted import AS_IT_IS
from headgate.errors import AccessDenied, InvalidName, PolicyError, TooManySubscriptions
from headgate.options import MAX_TTL
from headgate.redis.backend import call
from headgate.redis.keys import Address, index_keys, parse_key
from headgate.redis.replies import Account, record
from headgate.redis.store import Store
from headgate.redis.stores.sliced_reads import slices_of

UNLISTED: Final = "reply~"
"""How the names begin of what nodes make for one link each: such a topic is in no index, so no pattern matches it."""
PLACEHOLDER: Final = "wildcard~"
"""The prefix of the session that holds a new subscription until its consumer is there."""
STANDS_IN: Final = 6
"""Leases for which it does: a consumer comes to many slices, and topics, one after another."""
_log = logging.getLogger("headgate")
_ALIVE: Final = "0"  # in a subscription's record, as `until`


def is_pattern(name: object) -> bool:
    """Return whether a name has a wildcard, and so stands for many destinations."""
    return isinstance(name, str) and any(wildcard in name for wildcard in WILDCARDS)


def read_pattern(text: str) -> Pattern:
    """Return a pattern to subscribe with.

    Raises:
        InvalidName: it is none, or matches no name that a destination can have.
    """
    try:
        pattern = Pattern.parse(text)
    except PolicyError as error:
        raise InvalidName(f"destination {text!r}: {error}; '*' is one word, a last '#' or '>' the rest") from None
    for word in pattern.words:
        if word != "*":
            encode_name(word, f"destination {text!r}: the word")
    if len(text.encode()) > MAX_NAME_BYTES:
        raise InvalidName(f"destination {text[:40]!r}...: at most {MAX_NAME_BYTES} bytes are allowed")
    return pattern


@dataclass(frozen=True, slots=True)
class WildcardSubscription:
    """A wildcard subscription is to be on every topic that its pattern matches.

    Attributes:
        pattern: of the topics' names.
        subscription: its name on each of them.
        durable: stays when its last consumer goes.
        ttl_ms: length of its consumers' leases.
    """

    pattern: Pattern
    subscription: str
    durable: bool
    ttl_ms: int

    @classmethod
    def read(cls, name: str, *, durable: bool, ttl_ms: int) -> "WildcardSubscription | None":
        """Return the entry of that name in the index; None where no client would call one so."""
        pattern, _, subscription = name.partition(" ")
        try:
            entry = cls(read_pattern(decode_name(pattern)), decode_name(subscription), durable, ttl_ms)
            spelled = entry.name
        except InvalidName:
            return None
        return entry if spelled == name else None

    @property
    def name(self) -> str:
        """Its name in the index."""
        return f"{quote(self.pattern.text, safe=WILDCARDS)} {encode_name(self.subscription, 'subscription')}"


def _check(code: bytes, name: str) -> None:
    if code == b"INVALID":
        raise InvalidName(
            f"{name[:80]!r} is not a name as this Redis' index stores them; its client may be newer or older"
        )


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")


def _entry(name: bytes, values: bytes) -> WildcardSubscription | None:
    """Return an entry as the index has it; None where it cannot be read."""
    found = record(values)
    return WildcardSubscription.read(_text(name), durable=found.get("durable") == "1", ttl_ms=int(found.get("ttl", 0)))


def _session(what: str) -> str:
    return PLACEHOLDER + hashlib.sha256(what.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class _StandIn:
    """A stand-in is a consumer of a new subscription, for the one that is to come; names are encoded."""

    session: str
    subscription: str
    durable: bool
    ttl_ms: int
    selector: str = AS_IT_IS

    @classmethod
    def of(cls, entry: WildcardSubscription) -> "_StandIn":
        """Return who stands in for those of a wildcard subscription."""
        subscription = encode_name(entry.subscription, "subscription")
        return cls(_session(entry.name), subscription, entry.durable, entry.ttl_ms)


class TopicIndex:
    """The index of a namespace serves those who make topics and those who subscribe by pattern."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._server = store.server

    async def enter(self, address: Address) -> None:
        """Enter a topic, and give it the wildcard subscriptions that it has not yet: before its first message.

        A slice of a topic is given the topic's subscriptions.

        Raises:
            CoordinatorUnavailable: Redis does not answer.
        """
        if address.name.startswith(UNLISTED):
            return
        if is_slice(address.name):
            await self._spread(address)
            return
        await self.announce(address)
        entries = await self.entries(address.namespace)
        wanted = [entry for entry in entries if entry.pattern.matches(address.name)]
        if not wanted:
            return
        there = await self._subscriptions(address)
        for entry in wanted:
            if encode_name(entry.subscription, "subscription") not in there:
                stand_in = _StandIn.of(entry)
                await self._subscribe(address, stand_in, f"wildcard subscription {entry.name!r}")

    async def _spread(self, part: Address) -> None:
        """Give a slice of a topic the topic's subscriptions that it has not yet: before its first message.

        A subscriber attaches to the topic itself, then sees how many slices it has, and attaches to each. So either
        the subscription is found here, or whoever makes it finds the slice.

        Raises:
            CoordinatorUnavailable: Redis does not answer.
        """
        there = await self._subscriptions(part)
        wanted = {
            name: durable for name, durable in (await self._subscriptions(part.whole)).items() if name not in there
        }
        if not wanted:
            return
        try:
            leases, listed = await self._leases(part.whole), await self._selectors(part.whole)
        except AccessDenied:  # over a node, which does all of this itself instead of what follows
            leases, listed = dict.fromkeys(wanted, 1000), {}
        for name, durable in wanted.items():
            if durable or name in leases:  # else its last consumer has gone since
                ttl_ms, selector = leases.get(name, 1000), listed.get(name, AS_IT_IS)
                stand_in = _StandIn(_session(f"{part.name} {name}"), name, durable, ttl_ms, selector)
                await self._subscribe(part, stand_in, f"subscription {decode_name(name)!r}")
        ended = wanted.keys() - (await self._subscriptions(part.whole)).keys()  # meanwhile, and here before it came
        await asyncio.gather(*(self._unsubscribe(part, name) for name in ended if wanted[name]))

    async def relieve_copy(self, part: Address, subscription: str) -> None:
        """Send home whoever held a topic's subscription at a slice until its consumer came."""
        await self._relieve(part, _session(f"{part.name} {encode_name(subscription, 'subscription')}"))

    async def _subscriptions(self, address: Address) -> dict[str, bool]:
        """Return the subscriptions of a topic, encoded, and whether each is durable."""
        return {name: found["durable"] == "1" for name, found in (await self._records(address)).items()}

    async def _records(self, address: Address) -> dict[str, dict[str, str]]:
        key = f"{address.key}:subscriptions".encode()
        flat = await self._server.command(key, "HGETALL", key)
        read = ((flat[at].decode(), record(flat[at + 1])) for at in range(0, len(flat), 2))
        return {name: found for name, found in read if found["until"] == _ALIVE}

    async def _leases(self, address: Address) -> dict[str, int]:
        """Return the subscriptions that have consumers, each with the longest lease of these, in ms."""
        consumers, sessions = f"{address.key}:consumers".encode(), f"{address.key}:sessions".encode()
        flat = await self._server.command(consumers, "HGETALL", consumers)
        owners = {flat[at].decode().rpartition(".")[0]: "" for at in range(0, len(flat), 2)}
        records = await self._server.command(sessions, "HMGET", sessions, *owners) if owners else []
        ttls = {name: int(record(text)["ttl"]) for name, text in zip(owners, records, strict=True) if text is not None}
        found: dict[str, int] = {}
        for at in range(0, len(flat), 2):
            subscription, owner = record(flat[at + 1])["sub"], flat[at].decode().rpartition(".")[0]
            if owner in ttls:
                found[subscription] = max(found.get(subscription, 0), ttls[owner])
        return found

    async def _selectors(self, address: Address) -> dict[str, str]:
        """Return what subscriptions want that say so to those who publish."""
        text = await self._server.command(address.shared[0], "HGET", address.shared[0], "selectors")
        listed = (entry.split("=", 2) for entry in (text or b"").decode().split())
        return {name: selector for name, _, selector in listed}

    async def announce(self, address: Address) -> None:
        """Enter a topic."""
        await self._topic(address.namespace, encode_name(address.name), present=1)

    async def withdraw(self, address: Address) -> None:
        """Take a topic out, or what is none."""
        await self._withdraw(address.namespace, encode_name(address.name))

    async def keep(self, namespace: str, entry: WildcardSubscription, holder: str) -> bool:
        """Make an entry, or renew a consumer's lease on it; returns whether it had to be made."""
        return await self._entry("keep", namespace, entry, holder) == "CREATED"

    async def leave(self, namespace: str, entry: WildcardSubscription, holder: str) -> None:
        """End a consumer's lease; the entry goes with the last one unless it is durable."""
        await self._entry("leave", namespace, entry, holder)

    async def end(self, namespace: str, entry: WildcardSubscription) -> bool:
        """Remove an entry; returns False when it has consumers and was left."""
        return await self._entry("end", namespace, entry, "-") != "BUSY"

    async def entries(self, namespace: str) -> list[WildcardSubscription]:
        """Return all wildcard subscriptions but those that cannot be read, which are of no use to anybody."""
        key = index_keys(namespace)[0]
        flat = await self._server.command(key, "HGETALL", key)
        read = (_entry(flat[at], flat[at + 1]) for at in range(0, len(flat), 2))
        return [entry for entry in read if entry is not None]

    async def unreadable(self, namespace: str) -> list[str]:
        """Return what the index has that no client reads: names of topics, and of wildcard subscriptions."""
        key = index_keys(namespace)[0]
        flat = await self._server.command(key, "HGETALL", key)
        entries = [_text(flat[at]) for at in range(0, len(flat), 2) if _entry(flat[at], flat[at + 1]) is None]
        return sorted([*entries, *(name for name in await self._all_topics(namespace) if read_name(name) is None)])

    async def clear(self, namespace: str, names: Iterable[str]) -> None:
        """Take out what :meth:`unreadable` found."""
        for name in names:
            await self._withdraw(namespace, name)
            end = {"mode": "end", "name": name, "holder": "-", "durable": 0, "ttl_ms": 0}
            await call(self._server, "wildcard", index_keys(namespace), **end)

    async def topics(self, namespace: str, pattern: Pattern) -> set[str]:
        """Return the names of the topics that a pattern matches."""
        names = map(read_name, await self._all_topics(namespace))
        return {name for name in names if name is not None and pattern.matches(name)}

    async def _all_topics(self, namespace: str) -> set[str]:
        key = index_keys(namespace)[2]
        found: set[str] = set()
        cursor: Any = b"0"
        while True:
            cursor, names = await self._server.command(key, "SSCAN", key, cursor, "COUNT", 1000)
            found.update(map(_text, names))
            if cursor == b"0":
                return found

    async def has(self, address: Address) -> bool:
        """Return whether a topic is here."""
        key = index_keys(address.namespace)[2]
        return bool(await self._server.command(key, "SISMEMBER", key, encode_name(address.name)))

    async def queue(
        self, namespace: str, pattern: Pattern, *, hidden: Callable[[str], bool] = lambda _: False
    ) -> str | None:
        """Return a queue that the pattern matches and that is not hidden, or None; looks at every key there is."""
        for key in await self._server.scan(f"hg:{{{namespace}/*}}"):
            parsed = parse_key(key)
            if parsed is None or not pattern.matches(parsed[1]) or hidden(parsed[1]):
                continue
            if await self._server.command(key.encode(), "HGET", key, "kind") == b"queue":
                return parsed[1]
        return None

    async def unsubscribe(self, address: Address, subscription: str) -> bool:
        """Remove a topic's subscription with all it has not settled; returns False when it has consumers."""
        encoded = encode_name(subscription, "subscription")
        for part in await slices_of(self._server, address):  # the topic itself first: from it new slices have theirs
            if not await self._unsubscribe(part, encoded):
                return False
        return True

    async def _unsubscribe(self, part: Address, encoded: str) -> bool:
        while (code := await self._store.detach(part, "-", f"!{encoded}", failed=False)) == "MORE":
            pass
        return code != "BUSY"

    async def unsubscribe_pattern(self, namespace: str, text: str, subscription: str) -> bool:
        """Remove a wildcard subscription from every topic; returns False when it has consumers."""
        entry = WildcardSubscription(read_pattern(text), subscription, durable=True, ttl_ms=0)
        if not await self.end(namespace, entry):
            return False
        others = [other.pattern for other in await self.entries(namespace) if other.subscription == subscription]
        for name in await self.topics(namespace, entry.pattern):
            if not any(other.matches(name) for other in others):
                await self.unsubscribe(Address.of(namespace, name), subscription)
        return True

    async def relieve(self, address: Address, entry: WildcardSubscription) -> None:
        """Send home whoever stood in for the consumer that has come now; else it leaves when its lease ends."""
        await self._relieve(address, _session(entry.name))

    async def _relieve(self, address: Address, session: str) -> None:
        key = f"{address.key}:consumers".encode()
        if await self._server.command(key, "HEXISTS", key, f"{session}.1"):
            await self._store.detach(address, session, f"{session}.1", failed=False)
            await self._store.acquire(address, Account(session, inc=1 << 30, epoch=0), ttl_ms=1000, leave=True)

    async def _subscribe(self, address: Address, one: "_StandIn", what: str) -> None:
        """Make a subscription without a consumer of its own.

        A paused consumer stands in. A durable subscription outlives it; another one lives until its lease ends, by
        when the consumer that it stands in for has attached, or is dead.
        """
        try:
            code = await self._stand_in(address, one)
        except TooManySubscriptions as error:  # the topic goes on for those who are on it
            _log.warning("%s: %s", what, error)
            return
        if code == "OK" and (one.durable or await self._has_come(address, one.subscription)):
            await self._relieve(address, one.session)

    async def _has_come(self, address: Address, subscription: str) -> bool:
        """Return whether a subscription has a consumer beside the one that stands in."""
        found = (await self._records(address)).get(subscription)
        return found is not None and int(found["consumers"]) > 1

    async def _stand_in(self, address: Address, one: "_StandIn") -> str:
        while True:
            code, _ = await self._store.attach(
                address,
                one.session,
                number=1,
                subscription=one.subscription,
                durable=one.durable,
                window="paused",
                ttl_ms=min(STANDS_IN * one.ttl_ms, round(MAX_TTL * 1000)),
                selector=one.selector,
            )
            if code != "GONE":
                return code
            await asyncio.sleep(0.01)  # one of that name is being removed, a piece a call

    async def _withdraw(self, namespace: str, name: str) -> None:
        await self._topic(namespace, name, present=0)

    async def _topic(self, namespace: str, name: str, *, present: int) -> None:
        reply = await call(self._server, "topic", index_keys(namespace), name=name, present=present)
        _check(reply[0], name)

    async def _entry(self, mode: str, namespace: str, entry: WildcardSubscription, holder: str) -> str:
        values = {"mode": mode, "name": entry.name, "holder": holder, "durable": int(entry.durable)}
        reply = await call(self._server, "wildcard", index_keys(namespace), ttl_ms=entry.ttl_ms, **values)
        _check(reply[0], entry.name)
        return str(reply[0].decode())
