"""The state is reached through nodes here: the very calls that the SDK makes to Redis, carried over AMQP.

A node holds nothing of a session, so one is as good as another. When a connection is lost, the calls that were under
way are made again over the next: each may be applied more than once with the effect of once.
"""

import asyncio
import logging
import os
import random
import socket
from collections.abc import Sequence
from typing import Any, Final

from headgate._util.forks import FORKED, watch
from headgate._util.tasks import stop
from headgate.amqp.calls import MAX_CALLS, OK, error_of, pack
from headgate.amqp.hints import NodeWakeUps, in_calls
from headgate.amqp.nodelink import Call, NodeLink, about_tls
from headgate.amqp.reported_waits import ReportedWaits
from headgate.amqp.url import AmqpUrl
from headgate.core.account.late_copies import COME_WITHIN
from headgate.core.durability import Durability, WriteProgress
from headgate.core.segment import NO_STORE
from headgate.errors import AccessDenied, Closed, CoordinatorUnavailable, HeadgateError
from headgate.redis.scripts import Script, script_of
from headgate.waits import Listener

_log = logging.getLogger("headgate")
CONNECT_TIMEOUT: Final = 1.0
"""Seconds that a node which does not answer costs."""
ANSWER_WITHIN: Final = 2.5
"""Seconds that a call may take, over all connections: longer than a node waits for Redis, so that it can say so."""
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0
_CLOSE_WITHIN: Final = 0.2


class NodeBackend:
    """A node backend knows the nodes of one deployment, and is connected to one of them at a time.

    Attributes:
        version: of the Redis behind them.
        calls: script calls made so far.
        session_prefix: what ids of sessions are to begin with, as the node says.
        reaches_stores: False; the nodes read payloads of spool stores.
        spools: whether they write them too, for batches that are marked.
        line_timeout: seconds for which a call may wait for all nodes.
        waited: hears of the client's waits, which the nodes count.
        node: the one that is connected: ``host:port``; empty when none is.
    """

    def __init__(self, url: AmqpUrl) -> None:
        self.version: tuple[int, ...] = ()
        self.calls = 0
        self.session_prefix = ""
        self.reaches_stores = self.spools = False
        self.line_timeout = ANSWER_WITHIN
        self.node = ""
        self._url = url
        self._hosts = random.sample(url.hosts, len(url.hosts))  # so that clients spread over the nodes
        self._context = url.context()
        self._container = f"{socket.gethostname()}.{os.getpid()}"
        self._calls: dict[int, Call] = {}
        self._number = 0
        self._link: NodeLink | None = None
        self._task: asyncio.Task[None] | None = None
        self._trouble: HeadgateError | None = None
        self._hints = NodeWakeUps(self._ask)
        self._reported = ReportedWaits(self._ask)
        self.waited: Listener | None = self._reported.hear
        self._unsure_until = 0.0
        self._closed = ""
        """Why no call can be made any more; empty while calls can."""
        watch(self)

    def forked(self) -> None:
        """Refuse from now on: the connection is that of the parent process, and is left as it is."""
        self._closed, self._task, self._link = f"{self._url}: {FORKED}", None, None
        self._calls.clear()

    async def open(self) -> None:
        """Connect to one of the nodes.

        Raises:
            CoordinatorUnavailable: none of them answers, or Redis does not answer them.
            AccessDenied: they refuse the name or the password.
        """
        link = await self._connect(opening=True)
        self._adopt(link)
        self._task = asyncio.create_task(self._keep(link), name="headgate node link")

    async def call(self, script: Script, keys: Sequence[bytes], argv: Sequence[Any]) -> Any:
        """Call a script and return its reply; ``argv[0]`` None stands for the server's run id.

        Raises:
            CoordinatorUnavailable: no answer; the call may have been applied, and may be repeated.
            AccessDenied: the user may not do that.
        """
        self.calls += 1
        return self._sure(await self._ask("call", script.name, keys[0], argv))

    def promise(self, durability: Durability) -> None:
        """See that the Redis behind the nodes can say when a write is so safe; errors as :meth:`Backend.promise`."""
        durability.check(self.version)

    async def secure(
        self, script: Script, keys: Sequence[bytes], argv: Sequence[Any], durability: Durability, within_ms: int
    ) -> tuple[Any, WriteProgress]:
        """Call a script, and have the node wait until what it wrote is as safe as that; returns how far that came.

        Errors as :meth:`call`.
        """
        self.calls += 1
        answer = await self._ask("secure", script.name, keys[0], argv, durability.text, within_ms)
        reply, replicas, fsynced, trouble, problem = answer
        return self._sure(reply), WriteProgress(int(replicas), bool(fsynced), trouble, str(problem))

    async def command(self, key: bytes, *args: Any) -> Any:
        """Send one read-only command.

        Raises:
            CoordinatorUnavailable: no answer.
            AccessDenied: the user may not read that.
        """
        return await self._ask("command", key, args)

    async def burst(self, commands: Sequence[tuple[bytes, Sequence[Any]]]) -> list[Any]:
        """Send (key, command) pairs in one message; returns the replies, an error as one of them.

        Raises:
            CoordinatorUnavailable: no answer; some may have been applied.
        """
        replies: list[Any] = []
        for at in range(0, len(commands), MAX_CALLS):
            asked = (self._one_of(key, words) for key, words in commands[at : at + MAX_CALLS])
            replies += await asyncio.gather(*asked, return_exceptions=True)
        for reply in replies:
            if isinstance(reply, CoordinatorUnavailable) or (
                isinstance(reply, BaseException) and not isinstance(reply, HeadgateError)
            ):
                raise reply
        return replies

    def place(self, key: bytes) -> str:
        """Take each destination for a place of its own: only nodes know the servers, and a message has many calls."""
        return key.decode()

    async def _one_of(self, key: bytes, words: Sequence[Any]) -> Any:
        called = script_of(words[1]) if words[0] == b"EVALSHA" else None
        if called is None:
            return await self._ask("command", key, words)
        keys = 3 + int(words[2])
        return await self.call(called, words[3:keys], words[keys:])

    async def scan(self, pattern: str) -> list[str]:
        """Return the keys that match, of destinations that the user has to do with."""
        return list(await self._ask("scan", pattern))

    async def everywhere(self, *args: Any) -> list[Any]:
        """Send one read-only command to each master; returns their answers.

        Raises:
            CoordinatorUnavailable: one does not answer.
            AccessDenied: the user may not do that.
        """
        return list(await self._ask("everywhere", args))

    def wake_ups(self) -> NodeWakeUps:
        """Return the way to hear hints; the caller closes it."""
        return self._hints

    async def close(self) -> None:
        """Close the connection without waiting for anybody."""
        await self._reported.close()
        self._closed = self._closed or "the client is closed"
        await stop(self._task)
        link, self._link = self._link, None
        if link is not None:
            link.part()
            await asyncio.wait([link.over], timeout=_CLOSE_WITHIN)
            link.abort()
        for call in tuple(self._calls.values()):
            if not call.answer.done():
                call.answer.set_exception(Closed("the client was closed meanwhile"))

    async def _ask(self, *words: Any, within: float = ANSWER_WITHIN) -> Any:
        if self._closed:
            raise Closed(self._closed)
        self._number += 1
        number = self._number
        call = Call(number, pack((number, *words)), asyncio.get_running_loop().create_future())
        self._calls[number] = call
        if self._link is not None:
            self._link.offer(call)
        try:
            async with asyncio.timeout(within):
                return await call.answer
        except TimeoutError:
            raise self._unanswered(within) from None
        finally:
            del self._calls[number]

    def _hear(self, answer: list[Any]) -> None:
        number, what, *rest = answer
        if number == 0:
            self._hints.tell(what, rest[0])
        elif (call := self._calls.get(number)) and not call.answer.done():
            if what == OK:
                call.answer.set_result(rest[0])
            else:
                call.answer.set_exception(error_of(what, *rest))

    def _sure(self, reply: Any) -> Any:
        """Return a reply, unless it says that nothing is stored while another node may be storing it yet.

        A node writes a segment before it publishes. Where its client asked another one meanwhile, or again, the word
        of that one that there is no room is not the last one.
        """
        if reply and reply[0] == NO_STORE and asyncio.get_running_loop().time() < self._unsure_until:
            raise CoordinatorUnavailable("a node may still be writing what it was sent to a spool store")
        return reply

    def _unanswered(self, within: float) -> HeadgateError:
        self._unsure_until = asyncio.get_running_loop().time() + COME_WITHIN
        if self._link is not None:
            return CoordinatorUnavailable(f"the node at {self.node} did not answer within {within:g} s")
        return self._trouble or CoordinatorUnavailable(f"no node of {self._url} answers")

    async def _keep(self, link: NodeLink) -> None:
        """Have a connection, until closed."""
        while True:
            await link.over
            _log.info("the node at %s is gone: %s", self.node, link.reason)
            self._link, self.node = None, ""
            self._unsure_until = asyncio.get_running_loop().time() + COME_WITHIN
            link = await self._reconnect()
            self._adopt(link)

    async def _reconnect(self) -> NodeLink:
        pause = _FIRST_PAUSE
        while True:
            try:
                return await self._connect()
            except HeadgateError as error:
                self._trouble = error
                if isinstance(error, AccessDenied):  # waiting does not help those who wait
                    for call in tuple(self._calls.values()):
                        if not call.answer.done():
                            call.answer.set_exception(error)
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 -- spreads clients, hides nothing
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _adopt(self, link: NodeLink) -> None:
        self._link, self._trouble = link, None
        self.version = tuple(int(part) for part in link.facts.get("redis", "").split(".") if part.isdecimal())
        self.session_prefix = link.facts.get("sessions", "")
        self.spools = "spools" in link.facts
        self._reported.wanted = "waits" in link.facts
        for some in in_calls(self._hints.channels):
            self._number += 1
            packed = pack((self._number, "hear", some))
            link.offer(Call(self._number, packed, asyncio.get_running_loop().create_future()))
        for call in tuple(self._calls.values()):
            link.offer(call)

    async def _connect(self, *, opening: bool = False) -> NodeLink:
        """Return a connection to the first node that takes us, each asked once; ``opening`` if there was none before.

        Raises:
            CoordinatorUnavailable: none does.
            AccessDenied: none does, and one does not like who we are.
        """
        denied: AccessDenied | None = None
        reasons = []
        for _ in self._url.hosts:
            host, port = self._hosts[0]
            self._hosts.append(self._hosts.pop(0))  # whoever fails is the last to be asked again
            try:
                link = await self._dial(host, port)
            except AccessDenied as error:
                denied = AccessDenied(f"{self._url}: {error}", user=error.user or self._url.username or "")
            except (OSError, HeadgateError) as error:  # a TimeoutError is an OSError
                reasons.append(f"{host}:{port}: {_reason(error)}{about_tls(self._url, error) if opening else ''}")
            else:
                self.node = f"{host}:{port}"
                return link
        if denied:
            raise denied
        raise CoordinatorUnavailable(f"no node of {self._url} can be used: {'; '.join(reasons)}")

    async def _dial(self, host: str, port: int) -> NodeLink:
        loop = asyncio.get_running_loop()
        link = NodeLink(self._url, host, self._container, self._hear)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                await loop.create_connection(
                    lambda: link, host, port, ssl=self._context, server_hostname=host if self._context else None
                )
            await link.let_in()
        except BaseException:
            link.abort()
            raise
        return link


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return str(error) or f"no answer within {CONNECT_TIMEOUT:g} s"
    return (isinstance(error, OSError) and error.strerror) or str(error)
