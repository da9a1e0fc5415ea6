"""A query takes in a destination's messages: received under a window, given out in batches, settled when done."""

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from headgate.client import Client
from headgate.consuming.consumer import Consumer
from headgate.core.names import shown_id, slice_name
from headgate.core.window import Window
from headgate.errors import AccessDenied, CoordinatorUnavailable, SessionExpired
from headgate.message import Message
from headgate.redis.keys import Address
from headgate.session.session import Session
from headgate_pipeline.exchange.connection import connection
from headgate_pipeline.exchange.messages import Stored
from headgate_pipeline.exchange.numbers import at_slice, number_of, ranges
from headgate_pipeline.exchange.options import Options

LOG: Final = logging.getLogger("headgate.pipeline")
_LAST_OF_NUMBER: Final = (1 << 64) - 1
"""The id of a message is its number and its size: none of that number comes behind this."""
_PAGE: Final = 1000


class Intake:
    """An intake is one consumer of a query.

    A message is known by its number at the destination, whoever it is delivered to, and how often.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._window = options.consumer_window()
        self._connection = connection(options)
        self._held: dict[int, Message] = {}
        self._given: set[int] = set()
        self._done: set[int] = set()
        self._owed: set[int] | None = None
        self._session: Session
        self._consumer: Consumer
        self._connection.run(self._open())

    async def _open(self) -> None:
        o = self._options
        self._session = self._connection.client.session("spark", ttl=o.ttl)
        self._consumer = await self._session.consumer(
            o.destination, window=self._window, subscription=o.subscription or None, durable=bool(o.subscription)
        )

    @property
    def held(self) -> int:
        """Messages received and not settled."""
        return len(self._held)

    def last(self) -> dict[int, int]:
        """Return the number of the newest message that was sent to each slice of the destination."""
        return self._connection.run(newest(self._connection.client, self._options))

    @property
    def owed(self) -> set[int]:
        """Numbers of earlier batches that were not accepted while this or a former process held them.

        They come again when their leases are over, and are accepted then.
        """
        return self._owed or set()

    def settle(self, numbers: set[int], owed: Iterable[int] = ()) -> None:
        """Accept these, now or, where they come again after a crash, when they come; returns when Redis has it.

        A repeated call changes nothing.

        Args:
            numbers: of the batch that is behind.
            owed: of those before it, as an earlier process left them; this one knows its own better.

        Raises:
            CoordinatorUnavailable: no answer; nothing is known.
        """
        self._connection.run(self._settle(numbers, owed))

    def fresh(self, *, most: int, wait: float, until: Mapping[int, int] | None = None) -> list[int]:
        """Give out what arrived and is in no batch yet, in the order in which it came.

        Args:
            most: messages.
            wait: seconds for the first of them.
            until: only numbers up to that of their slice.
        """
        return self._connection.run(self._fresh(most, wait, until))

    def batch(self, numbers: set[int], owed: Iterable[int] = (), *, patience: float) -> list[Stored]:
        """Return the messages of a batch, those that a crash sent back as soon as they come again.

        Args:
            numbers: of the batch.
            owed: of those before it, as an earlier process left them.
            patience: seconds to wait for those. Messages that did not come are others', or gone, and left out.
        """
        return self._connection.run(self._batch(numbers, owed, patience))

    def close(self) -> None:
        """Give back what is held."""
        self._connection.run(self._session.close())

    async def _settle(self, numbers: set[int], owed: Iterable[int]) -> None:
        if self._owed is None:  # nothing was given out here: what is behind was left so by an earlier process
            self._owed = await self._still_there(numbers.union(owed))
        self._done = numbers | self._owed
        self._given -= numbers
        now = sorted(numbers & self._held.keys())
        accepted = (self._held.pop(number).accept(confirm=True) for number in now)
        for number, error in zip(now, await asyncio.gather(*accepted, return_exceptions=True), strict=True):
            if isinstance(error, SessionExpired):  # its lease ended; it comes again, and is accepted then
                self._owed.add(number)
            elif error is not None:
                raise error

    async def _fresh(self, most: int, wait: float, until: Mapping[int, int] | None) -> list[int]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait
        while True:
            await self._receive(0)
            found = [n for n in self._held if n not in self._given and (until is None or _is_within(n, until))][:most]
            left = deadline - loop.time()
            if found or left <= 0:
                self._given.update(found)
                return found
            await self._receive(left)

    async def _still_there(self, numbers: set[int]) -> set[int]:
        """Return those that are stored, else what was settled would be owed for ever; all where nobody may look."""
        try:
            return await self._stored(numbers)
        except AccessDenied:  # a user of nodes may consume, and not browse
            return numbers

    async def _stored(self, numbers: set[int]) -> set[int]:
        by_slice = defaultdict[int, set[int]](set)
        for number in numbers:
            by_slice[at_slice(number)[0]].add(number)
        return set[int]().union(*[await self._stored_at(*one) for one in by_slice.items()])

    async def _stored_at(self, slice_: int, numbers: set[int]) -> set[int]:
        name = slice_name(self._options.destination, slice_)
        store, address = self._connection.client.store, Address.of(self._options.namespace, name)
        found, rest = set[int](), numbers
        while rest:
            count = min(len(rest), _PAGE)  # they may be large: no more than are asked for
            after = f"{at_slice(min(rest))[1] - 1}-{_LAST_OF_NUMBER}"
            page = await store.browse(address, after=after, count=count)
            there = [number_of(shown_id(name, id_.decode())) for id_, *_ in page]
            found |= numbers.intersection(there)
            rest = {number for number in rest if number > there[-1]} if len(page) == count else set()
        return found

    async def _batch(self, numbers: set[int], owed: Iterable[int], patience: float) -> list[Stored]:
        loop = asyncio.get_running_loop()
        if self._owed is None:
            self._owed = await self._still_there(set(owed))
            self._done = set(self._owed)
        deadline = loop.time() + patience
        while missing := numbers - self._held.keys():
            left = deadline - loop.time()
            if left <= 0:
                LOG.warning("%r: messages %s did not come again; they were settled, taken by another consumer, or have "
                            "expired", self._options.destination, ranges(missing))  # fmt: skip
                break
            room = self._window.messages
            if isinstance(room, int) and len(self._held) + len(missing) > room:  # newer ones are in their place
                await self._consumer.configure(window=Window(len(self._held) + len(missing)))
            await self._receive(min(left, 0.5))
        await self._consumer.configure(window=self._window)
        self._given |= numbers & self._held.keys()
        return [
            (message.id, message.delivery_count, message.stored)
            for number in sorted(numbers & self._held.keys())
            for message in (self._held[number],)
        ]

    async def _receive(self, wait: float) -> None:
        """Take in what has arrived, after at most ``wait`` seconds."""
        for number in [n for n, message in self._held.items() if not message.is_current and n not in self._given]:
            del self._held[number]  # its lease ended; it comes again, to somebody
        message = await self._consumer.receive(timeout=wait)
        while message is not None:
            number = number_of(message.id)
            if number in self._done:
                # Expired, it comes once more. Without an answer it goes out by itself, and stays owed all the same.
                with contextlib.suppress(SessionExpired, CoordinatorUnavailable):
                    await message.accept(confirm=True)
                    self.owed.discard(number)
            else:
                self._held[number] = message
            message = await self._consumer.receive(timeout=0)


def _is_within(number: int, until: Mapping[int, int]) -> bool:
    slice_, own = at_slice(number)
    return own <= until.get(slice_, 0)


async def newest(client: Client, options: Options) -> dict[int, int]:
    """Return the number of the newest message that was sent to each slice of a destination; most have one."""
    found, count = dict[int, int](), 1
    while len(found) < count:
        address = Address.of(options.namespace, slice_name(options.destination, number := len(found)))
        snapshot = await client.store.snapshot(address, waiters=0, consumers=1, alone=True)
        fields = snapshot.fields if snapshot else {}
        found[number] = int(fields.get("message_seq", 0))
        count = max(count, int(fields.get("sliced", 1)))
    return found
