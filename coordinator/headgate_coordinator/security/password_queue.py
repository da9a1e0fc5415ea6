"""A line of passwords to check is bounded, fair to each peer and name, and rid of those who went."""

import asyncio
import contextlib
import ipaddress
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, NewType

from headgate.errors import HeadgateError

Network = NewType("Network", str)
"""The network of a peer: an address, or a /64 of IPv6. It counts as one, however many connections come from there."""
NOBODY: Final = Network("")
"""Of a socket of this host, which has no address."""

AT_A_TIME: Final = 2
"""Passwords that are checked at once in one line: each takes a core for 50 ms, and 16 MiB."""
MOST: Final = 256
"""Passwords that wait, all different; more than that, and the oldest of whoever has most goes unanswered."""
UNSERVED: Final = 4096
"""Passwords that left the line without an answer, by a part of their marks: who comes again with one is next."""


class PasswordQueueFull(HeadgateError):
    """There are too many passwords in line to be checked; nothing is known of this one."""


def network_of(peer: str) -> Network:
    """Return the network of ``host:port``, by which peers are distinguished: its address, or its /64 of IPv6."""
    host = peer.rpartition(":")[0].strip("[]").partition("%")[0]
    if ":" in host:
        with contextlib.suppress(ValueError):
            return Network(str(ipaddress.ip_network(f"{host}/64", strict=False)))
    return Network(host)


@dataclass(eq=False, slots=True)
class _Check:
    mark: bytes
    password: str
    known: str
    again: bool
    answers: "set[asyncio.Future[bool]]" = field(default_factory=set)


class PasswordQueue:
    """A password queue checks passwords in turn: one of each group after the other, and of a group the newest first.

    The newest is the one whose client most likely still waits: under a flood, first come first served would serve none
    of those in time. Before the newest comes one that was asked before and got no answer: who has a password comes
    again with it, and who guesses tries another. A group has one check at a time, so that it leaves room for others.
    """

    def __init__(self, check: Callable[[str, str], Awaitable[bool]]) -> None:
        self._check = check
        self._groups: OrderedDict[tuple[Network, str], OrderedDict[bytes, _Check]] = OrderedDict()
        self._waiting: dict[bytes, tuple[tuple[Network, str], _Check]] = {}
        self._working: dict[bytes, tuple[tuple[Network, str], _Check]] = {}
        self._unserved: OrderedDict[bytes, None] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._waiting)

    async def ask(self, group: tuple[Network, str], mark: bytes, password: str, known: str) -> bool:
        """Return whether a password is right, when its turn has come.

        Args:
            group: peer and user: who floods the line takes turns from the same group only.
            mark: equal ones at the same time are checked once.
            password: that was given.
            known: the hash.

        Raises:
            Crowded: it was put out of the line.
        """
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        check = self._join(group, mark, password, known)
        check.answers.add(answer)
        self._go()
        try:
            return await answer
        finally:
            check.answers.discard(answer)
            if not check.answers and mark in self._waiting:
                self._leave(mark, check)
                self._remember(mark)

    def close(self) -> None:
        """Answer nobody any more."""
        for mark, (_, check) in tuple(self._waiting.items()):
            self._put_out(mark, check)
        for task in self._tasks:
            task.cancel()

    def _join(self, group: tuple[Network, str], mark: bytes, password: str, known: str) -> _Check:
        if working := self._working.get(mark):
            return working[1]
        if mark in self._waiting:
            return self._waiting[mark][1]
        if len(self._waiting) >= MOST:
            longest = max(self._groups.values(), key=len)
            self._put_out(*next(iter(longest.items())))
        check = _Check(mark, password, known, again=mark[:8] in self._unserved)
        self._waiting[mark] = group, check
        self._groups.setdefault(group, OrderedDict())[mark] = check
        return check

    def _put_out(self, mark: bytes, check: _Check) -> None:
        self._leave(mark, check)
        self._remember(mark)
        for answer in check.answers:
            if not answer.done():
                answer.set_exception(PasswordQueueFull("too many passwords wait to be checked; try again"))

    def _remember(self, mark: bytes) -> None:
        self._unserved[mark[:8]] = None
        if len(self._unserved) > UNSERVED:
            self._unserved.popitem(last=False)

    def _leave(self, mark: bytes, check: _Check) -> None:
        group, waiting = self._waiting.get(mark, ((NOBODY, ""), None))
        if waiting is check:
            del self._waiting[mark]
            del self._groups[group][mark]
            if not self._groups[group]:
                del self._groups[group]

    def _go(self) -> None:
        while len(self._working) < AT_A_TIME:
            busy = {group for group, _ in self._working.values()}
            group = next((group for group in self._groups if group not in busy), None)
            if group is None:
                return
            self._groups.move_to_end(group)
            newest = reversed(self._groups[group].values())
            check = max(newest, key=lambda waiting: waiting.again)  # of equals, the first that comes
            self._leave(check.mark, check)
            self._unserved.pop(check.mark[:8], None)
            self._working[check.mark] = group, check
            task = asyncio.create_task(self._work(check), name="headgate password")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _work(self, check: _Check) -> None:
        right: bool | BaseException
        try:
            right = await self._check(check.password, check.known)
        except Exception as error:  # noqa: BLE001 -- its waiters get the error, and the line goes on
            right = error
        finally:
            del self._working[check.mark]
            self._go()
        for answer in check.answers:
            if answer.done():
                continue
            if isinstance(right, BaseException):
                answer.set_exception(right)
            else:
                answer.set_result(right)
