"""The state machine as typed calls: one method a script, arguments by name, replies as values with names."""

import asyncio
import heapq
import itertools
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal
from weakref import WeakValueDictionary

from headgate._util.shared_answer import SharedAnswer
from headgate.core.limits.turns_over_slices import Turn
from headgate.core.names import decode_name, slice_name
from headgate.core.selector.wanted import AS_IT_IS
from headgate.core.settings_table import STORES
from headgate.errors import TooManySubscriptions
from headgate.message import had_before
from headgate.redis.backend import Backend
from headgate.redis.keys import Address
from headgate.redis.replies import (
    STORE_FIELDS,
    TURNS,
    Account,
    Credit,
    Deliveries,
    Recount,
    Snapshot,
    held,
    no_credit,
    records,
)
from headgate.redis.scripts import script
from headgate.redis.shared_sweeps import SweepRounds
from headgate.redis.stores.pools_read import PoolsRead
from headgate.redis.stores.slice_looks import SliceLooks
from headgate.redis.stores.sliced_reads import added_records, read_slices

Beyond = Literal["refuse", "hard", "spool"]
LESSEES: Final = 10
"""How many sessions that hold credit are named at the most."""
_LEAVE: Final = {(False, False): "stay", (True, False): "leave", (False, True): "resume", (True, True): "keep"}
Id = bytes | str
"""A message's id, as Redis sends it or as text."""


class Store:
    """A store is a namespace-free view of a server's destinations; each method is a script call, atomic in one slot."""

    def __init__(self, server: Backend) -> None:
        self.server = server
        self.rounds = SweepRounds(server)
        self.looks = SliceLooks(lambda address, session, entries: self._snapshot(address, 10, session, 100, entries))
        self._pools = PoolsRead(server)
        self._seen = WeakValueDictionary[str, SharedAnswer[Snapshot | None]]()

    async def _call(
        self, name: str, address: Address, session: str, values: dict[str, Any], rest: Iterable[Any] = (), *,
        again: bool = False,
    ) -> Any:  # fmt: skip
        op = script(name)
        values["run_id"] = None
        argv = [*op.pick(values), *rest] if len(values) + op.variadic == len(op.arguments) else op.argv(values)
        return await (self.rounds if again else self.server).call(op, address.keys(session), argv)

    async def _credit(
        self, name: str, address: Address, session: str, values: dict[str, Any], rest: Iterable[Any] = (), *,
        again: bool = False,
    ) -> Credit:  # fmt: skip
        """Call acquire or publish."""
        code, *numbers = await self._call(name, address, session, values, rest, again=again)
        return Credit(code.decode(), *map(int, numbers)) if len(numbers) > 4 else no_credit(code, numbers)

    async def apply(
        self,
        address: Address,
        settings: Mapping[str, str],
        *,
        mode: Literal["ensure", "change", "recover"],
        ttl_ms: int,
    ) -> tuple[str, str]:
        """Create a destination or change it; returns the code and the kind it has."""
        rest = [text for pair in settings.items() for text in pair]
        reply = await self._call("apply", address, "-", {"mode": mode, "ttl_ms": ttl_ms}, rest)
        return reply[0].decode(), reply[2].decode()

    async def apply_each(
        self, changes: Sequence[tuple[Address, Mapping[str, str]]], *, ttl_ms: int
    ) -> list[tuple[str, str] | None]:
        """Change several destinations, as :meth:`apply` does; None for a code: call that for it."""
        op = script("apply")
        commands = []
        for address, settings in changes:
            keys = address.keys("-")
            argv = op.argv({"run_id": None, "mode": "change", "ttl_ms": ttl_ms}, itertools.chain(*settings.items()))
            commands.append((keys[0], (b"EVALSHA", op.sha, len(keys), *keys, *argv)))
        replies = await self.server.burst(commands)
        return [None if isinstance(r, Exception) else (r[0].decode(), r[2].decode()) for r in replies]

    async def acquire(
        self, address: Address, account: Account, *, ttl_ms: int, leave: bool = False, resume: bool = False,
        sent: int = 0, again: bool = False,
    ) -> Credit:  # fmt: skip
        """Open, renew, ask, give back, leave; ``resume``: tell, or keep, the last that it published.

        ``sent`` is the number of its last message that it has a receipt for; 0 where it got none within the hour.
        ``again``: it asked that before, and may go with others that do.
        """
        a = account
        return await self._credit(
            "acquire",
            address,
            a.session,
            {
                "session": a.session,
                "inc": a.inc,
                "epoch": a.epoch,
                "ttl_ms": ttl_ms,
                "weight": a.weight,
                "granted": a.granted,
                "granted_m": a.granted_m,
                "used": a.used,
                "used_m": a.used_m,
                "returned": a.returned,
                "returned_m": a.returned_m,
                "need": a.need,
                "need_m": a.need_m,
                "want": a.want,
                "want_m": a.want_m,
                "size": a.size,
                "leave": _LEAVE[leave, resume],
                "sent": sent,
            },
            again=again,
        )

    async def publish(
        self,
        address: Address,
        account: Account,
        *,
        seq: int,
        bodies: Sequence[bytes],
        ttl_ms: int,
        beyond: Beyond = "refuse",
        expires_ms: int = 0,
        segment: str = "-",
        copies: Sequence[bytes] = (),
        keys: str = "",
        later: str = "",
        unwanted: str = "",
    ) -> Credit:
        """Append a batch, numbered by the session, and ask for more. ``keys`` are of each, where keys take turns.

        ``later`` says when each is due, where some are not at once: ``<ms>`` from now, ``@<ms>`` of Redis', ``-``;
        ``unwanted`` which subscriptions do not want which of them, see :mod:`headgate.core.selector.wanted`.
        ``beyond`` ``hard`` pays up to the hard limit; ``expires_ms`` 0 is never. With ``spool`` they are references,
        ``segment`` is ``<name> <bytes> <messages>`` of what they refer to, and where values say the slice
        what was seen of it, and ``copies`` are their payloads.
        """
        a = account
        values = {
            "session": a.session, "inc": a.inc, "epoch": a.epoch, "ttl_ms": ttl_ms, "seq": seq,
            "expires_ms": expires_ms, "need": a.need, "need_m": a.need_m, "want": a.want, "want_m": a.want_m,
            "beyond": beyond, "segment": segment, "keys": keys, "later": later, "unwanted": unwanted,
        }  # fmt: skip
        rest = [*bodies, *copies] if copies else bodies
        return await self._credit("publish", address, a.session, values, rest)

    async def attach(
        self, address: Address, session: str, *, number: int, subscription: str, durable: bool, window: str,
        ttl_ms: int, selector: str = AS_IT_IS,
    ) -> tuple[str, str]:  # fmt: skip
        """Open a consumer; returns the code, and the destination's kind with KIND.

        ``selector`` is what its subscription wants, see :func:`headgate.core.selector.wanted.word_of`.

        Raises:
            TooManySubscriptions: it would make one more than a topic may have.
        """
        words = {"session": session, "number": number, "ttl_ms": ttl_ms, "subscription": subscription, "window": window}
        words |= {"durable": int(durable), "selector": selector}
        reply = await self._call("attach", address, session, words, again=True)
        if reply[0] == b"FULL":
            raise TooManySubscriptions(address.name, int(reply[-1]))
        return reply[0].decode(), reply[-1].decode()

    async def detach(self, address: Address, session: str, member: str, *, failed: bool) -> str:
        """Close a consumer, or remove the subscription ``!name``; MORE asks to be called again."""
        reply = await self._call(
            "detach", address, session, {"session": session, "consumer": member, "failed": int(failed)}, again=True
        )
        return str(reply[0].decode())

    async def settle(
        self, address: Address, session: str, consumer: str, *, ttl_ms: int, fetch: int = 0, max_messages: int = 0,
        max_bytes: int = 0, after: Id = b"0", waits: int = 0, accepted: Sequence[Id] = (),
        released: Sequence[Id] = (), rejected: Sequence[Id] = (), failed: Sequence[Id] = (), again: bool = False,
    ) -> Deliveries:  # fmt: skip
        """Settle deliveries and fetch more; ``again``: it looked before, and may go with others that look."""
        words = {
            "session": session, "consumer": consumer, "ttl_ms": ttl_ms, "fetch": fetch, "max_messages": max_messages,
            "max_bytes": max_bytes, "after": after, "waits": waits, "accepted": len(accepted),
            "released": len(released), "rejected": len(rejected), "failed": len(failed),
        }  # fmt: skip
        ids = (*accepted, *released, *rejected, *failed)
        reply = await self._call("settle", address, session, words, ids, again=again)
        code = reply[0].decode()
        if len(reply) < 5:
            return Deliveries(code, int(reply[1]) if len(reply) > 1 else 0)
        flat, attempts = reply[3], list(map(int, reply[4]))
        if attempts:  # these came back
            came_back = slice(1, 2 * len(attempts), 2)
            flat[came_back] = map(had_before, flat[came_back])
        attempts += [0] * (len(flat) // 2 - len(attempts))
        messages = tuple(zip(flat[::2], flat[1::2], attempts, strict=True))
        beside, _, turn = reply[6].replace(b"*", b"+").partition(b"+")
        return Deliveries(
            code, int(reply[1]), int(reply[2]), messages, int(reply[5]), beside == b"1",
            lacks=tuple(map(int, reply[7:])),
            turn=Turn(int(turn) / TURNS, of_keys=b"+" in reply[6]) if turn else None,
        )  # fmt: skip

    async def pass_on(self, address: Address, session: str, consumer: str, *, ttl_ms: int) -> None:
        """Have another consumer be woken for the message for which this one was woken, and has no room."""
        await self.settle(address, session, consumer, ttl_ms=ttl_ms, max_messages=1)

    async def take(
        self, address: Address, session: str, *, seq: int, line: Sequence[tuple[int, int]]
    ) -> tuple[str, list[str]]:
        """Reserve bucket slots for (tokens, max wait in ms) pairs; returns the code and one answer a pair."""
        rest = [number for pair in line for number in pair]
        reply = await self._call("take", address, session, {"session": session, "seq": seq}, rest)
        return reply[0].decode(), [text.decode() for text in reply[1:]]

    async def drop(self, address: Address, session: str, *, messages: int, size: int) -> str:
        """Count what a session dropped, by its totals; returns the code."""
        reply = await self._call("drop", address, session, {"session": session, "messages": messages, "bytes": size})
        return str(reply[0].decode())

    async def place(self, address: Address) -> int:
        """Return the slice that the next session is to send to; see ``lua/place.lua``."""
        reply = await self._call("place", address, "-", {})
        return int(reply[1])

    async def reap(self, address: Address) -> tuple[str, int]:
        """Sweep once; returns the code and in how many ms the next lease ends."""
        reply = await self._call("reap", address, "-", {})
        return reply[0].decode(), int(reply[1]) if len(reply) > 1 else 0

    async def resolve(
        self,
        address: Address,
        session: str,
        *,
        since: int,
        mode: Literal["tell", "ticket"],
        wait: str = "",
        text: str = "",
    ) -> str:
        """End a wait of a deadlock, if it began at ``since`` ms: tell its session, or let it go above the limit."""
        values = {"session": session, "since": since, "mode": mode, "wait": wait, "text": text}
        reply = await self._call("resolve", address, session, values)
        return str(reply[0].decode())

    async def snapshot(
        self, address: Address, *, waiters: int = 10, session: str = "", consumers: int = 100, entries: int = 0,
        alone: bool = False,
    ) -> Snapshot | None:  # fmt: skip
        """Read the destination at one instant; None when there is no such destination.

        One that is spread over slices is read as one: each slice at an instant of its own, and all of them again where
        they seem to be above the limit. With ``alone`` it is not.
        """

        def read(part: Address) -> Awaitable[Snapshot | None]:
            return self._snapshot(part, waiters, session, consumers, entries)

        whole = await read(address)
        if whole is None or alone or "sliced" not in whole.fields:
            return whole
        return await read_slices(address, whole, read)

    async def glance(self, address: Address) -> Snapshot | None:
        """Read one slice with nobody who is there; of all who ask at a time, one does it for all."""
        shared = self._seen.setdefault(address.key, SharedAnswer())
        return await shared.ask(lambda: self._snapshot(address, 0, "", 1, 0))

    async def _snapshot(
        self, address: Address, waiters: int, session: str, consumers: int, entries: int
    ) -> Snapshot | None:
        op = script("snapshot")
        values = {"waiters": waiters, "session": session, "consumers": consumers, "entries": entries}
        reply = await self.server.call(op, address.keys("-"), op.pick(values))
        if reply[0] != b"OK":
            return None
        seen = Snapshot.of(reply)
        fields = seen.fields
        if fields.get("when_full") == "spool":
            seen = replace(seen, stores={of: await self._spool(address, fields[of]) for of in STORES if fields.get(of)})
        if fields.get("pools") and fields.get("blocked") != "0":
            seen = replace(seen, pools=await self._pools.of(address.namespace, fields["pools"]))
        return seen

    async def _spool(self, address: Address, store: str) -> dict[str, str]:
        key = Address.of_store(address.namespace, decode_name(store)).shared[0]
        reply = await self.server.command(key, "HMGET", key, *STORE_FIELDS)
        return {name: value.decode() for name, value in zip(STORE_FIELDS, reply, strict=True) if value is not None}

    async def lessees(self, address: Address, leased: int, leased_m: int, slices: int = 1) -> dict[str, dict[str, str]]:
        """Return the records of the sessions that hold most credit; reads a piece at a time, changes nothing.

        Args:
            address: the destination.
            leased: bytes that all of them hold together; once as much was found, the rest is not read.
            leased_m: the same in messages.
            slices: that it is spread over.
        """
        names = (slice_name(address.name, number) for number in range(1, slices))
        parts = [address, *(Address.of(address.namespace, name) for name in names)]
        found = await asyncio.gather(*(self._lessees(part, leased, leased_m) for part in parts))
        return added_records(found)

    async def _lessees(self, address: Address, leased: int, leased_m: int) -> dict[str, dict[str, str]]:
        key = address.shared[1]
        found: list[tuple[int, int, bytes, bytes]] = []
        cursor = b"0"
        while leased > 0 or leased_m > 0:
            cursor, flat = await self.server.command(key, "HSCAN", key, cursor, "COUNT", 1000)
            for at in range(1, len(flat), 2):
                text = flat[at]
                if b" granted=0 " in text:
                    continue  # most of those who wait
                size, count = held(text)
                if size > 0 or count > 0:
                    leased, leased_m = leased - size, leased_m - count
                    found.append((size, count, flat[at - 1], text))
            found = heapq.nlargest(LESSEES, found)
            if cursor == b"0":
                break
        return records([text for _, _, *pair in found for text in pair])

    async def sessions(self, address: Address, *, most: int = 1000) -> dict[str, dict[str, str]]:
        """Return about ``most`` records of sessions, in no order; reads a piece at a time, changes nothing."""
        key = address.shared[1]
        found: dict[str, dict[str, str]] = {}
        cursor = b"0"
        while True:
            cursor, flat = await self.server.command(key, "HSCAN", key, cursor, "COUNT", 500)
            found |= records(flat)
            if cursor == b"0" or len(found) >= most:
                return found

    async def browse(
        self, address: Address, *, after: str | None, count: int
    ) -> list[tuple[bytes, bytes, int | None, int | None]]:
        """Return up to ``count`` stored messages after an id: id, message, ms at which it expires, and is due.

        Changes nothing.
        """
        key = address.shared[4]
        entries = await self.server.command(key, "XRANGE", key, f"({after}" if after else "-", "+", "COUNT", count)
        return [(id_, parts[1], _moment(parts, b"x"), _moment(parts, b"d")) for id_, parts in entries]

    async def stored(self, address: Address, id_: str) -> bytes | None:
        """Return what is stored as one message; None where it is gone. Changes nothing."""
        key = address.shared[4]
        entries = await self.server.command(key, "XRANGE", key, id_, id_, "COUNT", 1)
        return bytes(entries[0][1][1]) if entries else None

    async def recount(self, address: Address, *, repair: bool = False, most: int = 200_000) -> Recount:
        """Count from the ground truth, and repair the counters on request."""
        values = {"repair": "repair" if repair else "look", "most": most}
        reply = await self._call("recount", address, "-", values)
        numbers = tuple(int(n) for n in reply[1:])
        half = len(numbers) // 2
        return Recount(reply[0].decode(), *((numbers[:half], numbers[half:]) if half > 1 else ()))

    async def remove(self, address: Address, *, everything: bool) -> tuple[int, int]:
        """Purge the messages, or delete the destination; returns messages and bytes freed."""
        messages, freed, argv = 0, 0, [None, "all" if everything else "messages"]
        while True:
            reply = await self.server.call(script("remove"), address.every_key, argv)
            if len(reply) == 3:
                messages, freed = messages + int(reply[1]), freed + int(reply[2])
            if reply[0] != b"MORE":
                return messages, freed


def _moment(parts: list[bytes], name: bytes) -> int | None:
    names = parts[2::2]
    return int(parts[3 + 2 * names.index(name)]) if name in names else None
