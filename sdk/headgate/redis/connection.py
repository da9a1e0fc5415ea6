"""A connection to a server knows which run of it answers, and carries one call at a time."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, Protocol

import redis.exceptions as rx
from redis.asyncio.connection import AbstractConnection

from headgate.errors import CoordinatorUnavailable
from headgate.redis.call_line import CALL_TIMEOUT, LINE_TIMEOUT, LineTimeoutError, PlaceInLine
from headgate.redis.connection_options import pack, packed, widen
from headgate.redis.functions import Functions, reply_of
from headgate.redis.scripts import Script, function_of, script
from headgate.redis.text.info import facts_in, run_of

MIN_VERSION: Final = (6, 2)
MAX_CONNECTIONS: Final = 64
SURE_FOR: Final = 0.2
"""Seconds without a call after which a connection is asked whether its server is still the run that it was: a shorter
time than it takes a master to become a replica, take over what its new master has, and be promoted once more. Such a
server closes no connection, and an earlier one would name the run that its state may name too."""
LOADS: Final = 20
"""Times that a script is loaded again during one call.

Redis reads a script of more than 32 KiB (`publish`, `settle` and others, which a test names) by itself, and the call
after it in its next turn, so somebody who flushes scripts all the time comes between them every other time."""


class OtherRunError(rx.ResponseError):
    """Another run of a server was last to serve the state: find out whether all that it had is here, and call again.

    Attributes:
        before: that run, as the state has it.
        run: the one that answers now.
    """

    def __init__(self, text: str, before: bytes, run: bytes) -> None:
        super().__init__(text)
        self.before = before
        self.run = run


class TooFewReplicasError(rx.ResponseError):
    """A master refuses writes because too few replicas hear it: it may be in charge no more."""


SHOW: Final = ("snapshot", "levels")
"""The scripts that monitoring calls."""
_IN_A_SCRIPT: Final = (
    ("-OOM ", rx.OutOfMemoryError),
    ("-READONLY ", rx.ReadOnlyError),
    ("user executing the script can't ", rx.NoPermissionError),  # up to 7.0: run a command, access a key, publish
    ("ACL failure in script: ", rx.NoPermissionError),
    ("NOREPLICAS ", TooFewReplicasError),
)
_OTHER_RUN: Final = re.compile(r"\bRUN ([\w.]+)")
_TRIES_TO_REPORT: Final = 3
"""Times that a call says what became of the run before: another may serve the state meanwhile."""
_log = logging.getLogger("headgate")
_WARNED: Final[set[str]] = set()
MOST_WARNED: Final = 256
"""Servers that are remembered as reported."""
Dial = Callable[[], Awaitable[AbstractConnection]]


class HandoverJudge(Protocol):
    """A judge decides whether a server has all that its predecessor had."""

    def note(self, run: bytes, history: str) -> None:
        """Remember the replication id of a run that a connection was made to."""

    def unanswered(self) -> None:
        """Note that a call timed out."""

    async def judge(self, lane: "ServerConnections", other: OtherRunError) -> bytes:
        """Return what calls add to the name of the run that answers now, as lua/lib/run has it."""


async def greet(connection: Any) -> None:
    """Finish a connection's handshake and note which run of which server answers.

    Raises:
        CoordinatorUnavailable: the server is older than 6.2, or no Redis.
    """
    await connection.on_connect()
    widen(connection)
    for section in ("replication", "server", "memory"):  # without waiting for the first answer
        await connection.send_command("INFO", section)
    replication, facts, memory = [facts_in(await connection.read_response()) for _ in range(3)]
    if connection.headgate_masters_only and replication.get("role") != "master":
        raise rx.ReadOnlyError("the server is a replica now")  # Sentinels that hear late still name it
    if not {"redis_version", "run_id"} <= facts.keys():
        raise CoordinatorUnavailable("the server is not a Redis: its INFO gives no version and no run id")
    version = tuple(int(part) for part in re.findall(r"\d+", facts["redis_version"])[:3])
    if version < MIN_VERSION:
        raise CoordinatorUnavailable(f"Redis {facts['redis_version']} is too old; 6.2 or newer is needed")
    connection.headgate_run_id = run_of(facts["run_id"], replication)
    connection.headgate_history = replication.get("master_replid", "")
    connection.headgate_role = replication.get("role")
    connection.headgate_version = version
    _warn_of_eviction(facts["run_id"], memory.get("maxmemory_policy", "noeviction"))
    connection.headgate_cluster = "cluster" in (facts.get("redis_mode"), facts.get("server_mode"))  # Valkey's since 8.1


def _warn_of_eviction(run_id: str, policy: str) -> None:
    """Tell once of each server: from its point of view all is well when it has deleted a counter."""
    if policy != "noeviction" and run_id not in _WARNED:
        if len(_WARNED) >= MOST_WARNED:
            _WARNED.clear()
        _WARNED.add(run_id)
        _log.warning(
            "the maxmemory-policy of Redis is %s: when memory is full, Redis deletes messages and counters; "
            "set it to noeviction",
            policy[:40],
        )


def unwrapped(error: rx.ResponseError, run: bytes) -> rx.ResponseError:
    """Return the error of the command that failed inside a script: Redis 6.2 hides it in one of its own."""
    text = str(error)
    if found := _OTHER_RUN.search(text):
        return OtherRunError(text, found[1].encode(), run)
    return next((kind(text) for mark, kind in _IN_A_SCRIPT if mark in text), error)


def _loads(missing: Script) -> bytes:
    """Return what loads a script; and with it, for users who may load none, those that show how things stand."""
    return b"".join(pack(("SCRIPT", "LOAD", one.source)) for one in (*map(script, SHOW), missing))


async def _evaluate_at_once(connection: Any, script: Script, command: bytes) -> Any:
    """Load a script and call it with nobody in between, who has all scripts forgotten; an error is returned as one.

    Redis reads what follows a long argument in its next turn, and others have theirs in between.
    """
    words = (pack(("MULTI",)), pack(("SCRIPT", "LOAD", script.source)), command, pack(("EXEC",)))
    await connection.send_packed_command(b"".join(words))
    *queued, done = [await reply_of(connection) for _ in words]
    if isinstance(done, rx.NoPermissionError):  # roles may not; and what is queued must not stay
        await connection.send_command("DISCARD")
        await reply_of(connection)
        return rx.NoScriptError(f"{script.name} is forgotten as soon as it is loaded")
    if isinstance(done, rx.ResponseError):
        return next((one for one in queued if isinstance(one, rx.ResponseError)), done)
    return done[1]


def _of_run(words: Sequence[Any], run_id: bytes) -> tuple[Any, ...]:
    """Return a command with the run id in the place of None."""
    return tuple([run_id if word is None else word for word in words])


class ServerConnections:
    """`ServerConnections` keeps the connections to one server; each carries one call at a time."""

    def __init__(
        self, dial: Dial, judge: HandoverJudge | None = None, *, masters_only: bool = False,
        line_timeout: Callable[[], float] = lambda: LINE_TIMEOUT,
    ) -> None:  # fmt: skip
        self.answered = 0
        """Calls that were answered."""
        self._dial, self._judge, self._masters_only, self._line_timeout = dial, judge, masters_only, line_timeout
        self._under_way: dict[asyncio.Timeout, None] = {}
        self._ended: set[asyncio.Timeout] = set()
        self._idle: list[Any] = []
        self._era = 0
        """Rises as connections are dropped: one that was in use then, or dialled, serves one call at most."""
        self._room = asyncio.Semaphore(MAX_CONNECTIONS)
        self._functions = Functions()

    async def run(
        self, script: Script, keys: Sequence[bytes], argv: Sequence[Any], *, asking: bool = False,
        after: Sequence[Sequence[Any]] = (),
    ) -> Any:  # fmt: skip
        """Call a script; the run id of the very connection it goes over is put before ``argv`` where it is None.

        With commands ``after`` it, which go in the same write, return the list of its reply and theirs.
        """
        verdicts: dict[bytes, bytes] = {}
        for _ in range(_TRIES_TO_REPORT):
            try:
                return await self._run(script, keys, argv, verdicts, asking=asking, after=after)
            except OtherRunError as other:
                verdicts = {other.run: await self._judge.judge(self, other) if self._judge else b"!"}
        return await self._run(script, keys, argv, verdicts, asking=asking, after=after)

    async def _run(
        self, script: Script, keys: Sequence[bytes], argv: Sequence[Any], verdicts: Mapping[bytes, bytes], *,
        asking: bool, after: Sequence[Sequence[Any]],
    ) -> Any:  # fmt: skip
        async with self._connection() as connection:
            if asking:
                await connection.send_command("ASKING")
                await connection.read_response()
            if argv and argv[0] is None:
                run: bytes = connection.headgate_run_id
                argv = (run + verdicts[run] if run in verdicts else run, *argv[1:])
            words = (len(keys), *keys, *argv)
            functions = self._functions
            library = functions.of(script, connection) if script.library else None
            if library is not None:
                call = b"".join(map(pack, ((b"FCALL", library.name, *words), *after)))
                await connection.send_packed_command(call)
                try:
                    replies = [await connection.read_response()]
                except rx.ResponseError as refused:
                    replies = [refused]
                replies += [await reply_of(connection) for _ in after]
                answered = not isinstance(replies[0], rx.ResponseError)
                if answered or await functions.heal(connection, library, call, replies):
                    return replies if after else replies[0]
            reply = await self._evaluate(connection, script, pack((b"EVALSHA", script.sha, *words)), after)
            if library is not None:
                functions.refused(script)
            elif functions.run != connection.headgate_run_id or (script.library and functions.is_due(connection)):
                await functions.ask(connection)
            return reply

    async def _evaluate(self, connection: Any, script: Script, command: bytes, after: Sequence[Sequence[Any]]) -> Any:
        if after:
            return await self._evaluate_and(connection, script, command, after)
        await connection.send_packed_command(command)
        for _ in range(LOADS):
            try:
                return await connection.read_response()
            except rx.NoScriptError:  # a restart or somebody's SCRIPT FLUSH, which may come again
                loads = _loads(script)
                await connection.send_packed_command(loads + command)  # in one write, to leave no gap for another
                await self._loaded(connection, script)
            except rx.ResponseError as error:
                raise unwrapped(error, connection.headgate_run_id) from None
        if isinstance(reply := await reply_of(connection), rx.NoScriptError):
            reply = await _evaluate_at_once(connection, script, command)
        if isinstance(reply, rx.ResponseError):
            raise unwrapped(reply, connection.headgate_run_id)
        return reply

    async def _evaluate_and(
        self, connection: Any, script: Script, command: bytes, after: Sequence[Sequence[Any]]
    ) -> Any:
        for _ in range(LOADS):
            await connection.send_packed_command(b"".join((command, *map(pack, after))))
            replies = [await reply_of(connection) for _ in (command, *after)]
            if not isinstance(error := replies[0], rx.ResponseError):
                return replies
            if not isinstance(error, rx.NoScriptError):
                raise unwrapped(error, connection.headgate_run_id) from None
            await connection.send_packed_command(_loads(script))
            await self._loaded(connection, script)
        raise rx.NoScriptError(f"{script.name} is forgotten as soon as it is loaded")

    @staticmethod
    async def _loaded(connection: Any, script: Script) -> None:
        try:
            for _ in (*SHOW, script.name):
                await connection.read_response()
        except rx.ResponseError as error:
            await connection.disconnect(nowait=True)  # the replies behind it would be taken for another's
            if isinstance(error, rx.NoPermissionError):
                raise rx.NoPermissionError(
                    f"{error}; the script {script.name!r} is loaded by the first node or service that calls"
                ) from None
            raise

    async def command(self, *args: Any) -> Any:
        """Send a plain read-only command."""
        async with self._connection() as connection:
            await connection.send_command(*args)
            return await connection.read_response()

    async def replication(self) -> tuple[bytes, dict[str, str]]:
        """Return which run answers, and what it says of its master and its replicas."""
        async with self._connection() as connection:
            await connection.send_command("INFO", "replication")
            facts = facts_in(await connection.read_response())
            return run_of(connection.headgate_run_id.decode().partition(".")[0], facts), facts

    async def burst(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """Send commands in one write and return their replies; an error is returned as one.

        None stands for the run id, once in a command.
        """
        async with self._connection() as connection:
            run: bytes = connection.headgate_run_id
            calls = [pack(_of_run(self._as_function(words, connection), run)) for words in commands]
            await connection.send_packed_command(b"".join(calls))
            return [await reply_of(connection) for _ in commands]

    def _as_function(self, words: Sequence[Any], connection: Any) -> Sequence[Any]:
        """Return the call of a script as that of a function, where it may be one."""
        op = function_of(words[1]) if words[0] == b"EVALSHA" else None
        library = self._functions.of(op, connection) if op else None
        return (b"FCALL", library.name, *words[2:]) if library else words

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Any]:
        """Yield a connection for one call, in its turn; one whose reply did not come whole is not used again."""
        patience = asyncio.timeout(None if (busy := self._room.locked()) else CALL_TIMEOUT)
        self._under_way[patience] = None
        place = PlaceInLine(patience, lambda: self.answered, self._line_timeout(), CALL_TIMEOUT) if busy else None
        try:
            async with patience, self._room:
                if place:
                    place.go()
                connection = await self.take()
                whole = False
                try:
                    yield connection
                    whole = True
                except (rx.MovedError, rx.ReadOnlyError):  # should it be in charge again, that is another promotion
                    await self.drop()
                    raise
                except rx.ResponseError:
                    whole = True
                    raise
                finally:
                    self.answered += whole
                    if whole and connection.is_connected and connection.headgate_era == self._era:
                        connection.headgate_used = asyncio.get_running_loop().time()
                        self._idle.append(connection)
                    else:
                        await connection.disconnect(nowait=True)
        except (TimeoutError, rx.TimeoutError):
            if patience in self._ended:
                raise rx.ConnectionError("another server is in charge now") from None
            if place and place.too_long:
                raise LineTimeoutError(place.within) from None
            if self._judge:
                self._judge.unanswered()
            raise
        finally:
            if place:
                place.leave()
            del self._under_way[patience]
            self._ended.discard(patience)

    async def take(self) -> Any:
        """Return an idle connection, or a new one."""
        clock = asyncio.get_running_loop().time
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_connected:
                continue
            if clock() - connection.headgate_used < SURE_FOR or await self._is_same_run(connection):
                return connection
            await self.drop()
        era = self._era
        fresh: Any = await self._dial()  # redis-py leaves some of its methods untyped
        fresh.headgate_era = era
        fresh.redis_connect_func, fresh.pack_command = greet, packed
        fresh.headgate_masters_only = self._masters_only
        try:
            await fresh.connect()
        except BaseException:
            await fresh.disconnect(nowait=True)
            raise
        if self._judge:
            self._judge.note(fresh.headgate_run_id, fresh.headgate_history)
        return fresh

    async def _is_same_run(self, connection: Any) -> bool:
        """Return whether its server is still the run that the connection was made to, and not a replica."""
        run: bytes = connection.headgate_run_id
        try:
            await connection.send_command("INFO", "replication")
            facts = facts_in(await connection.read_response())
        except BaseException as error:
            await connection.disconnect(nowait=True)
            if isinstance(error, rx.RedisError | OSError):  # it broke while nobody used it
                return False
            raise
        if facts.get("role") != connection.headgate_role or run_of(run.decode().partition(".")[0], facts) != run:
            await connection.disconnect(nowait=True)
            return False
        if self._judge:
            self._judge.note(run, facts.get("master_replid", ""))  # it begins another with its first replica
        return True

    async def abandon(self) -> None:
        """End what is under way, and close all connections: another server is in charge."""
        now = asyncio.get_running_loop().time()
        for patience in self._under_way:
            if ((when := patience.when()) is None or when > now) and not patience.expired():
                self._ended.add(patience)
                patience.reschedule(now)
        await self.drop()

    async def drop(self) -> None:
        """Close connections once they are idle, so that the next call looks for the server again."""
        self._era += 1
        idle, self._idle = self._idle, []
        for connection in idle:
            await connection.disconnect(nowait=True)
