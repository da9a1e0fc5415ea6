"""Which scripts are called as functions of a server, and what becomes of a call that it refuses as one.

``FCALL`` costs less than ``EVALSHA`` of the same, see :mod:`headgate.redis.text.library`. A function is loaded where it
is missing, just as a script is. Whatever else a server says against it, ``EVALSHA`` has the last word: functions came
with Redis 7.0, a user may not be allowed to load or to call them, and a server that is out of memory, or lacks
replicas, refuses them as they begin, where it lets a script answer that writes nothing.
"""

import time
from collections.abc import Sequence
from typing import Any, Final

import hiredis
import redis.exceptions as rx

from headgate.redis.scripts import FUNCTIONS, Script, script
from headgate.redis.text.library import PREFIX, Library

_pack: Final[Any] = hiredis.pack_command
SINCE: Final = (7, 0)
LOADS: Final = 20
"""Times that a function is loaded again during one call: somebody may flush them all the time."""
AGAIN_AFTER: Final = 60.0
"""Seconds for which a script is called by EVALSHA once that did what was refused as a function; and between two calls by
EVALSHA of a server that refuses nothing. A user who may load none finds the scripts that come with each one loaded."""
MOST_LIBRARIES: Final = 64
"""Libraries of ours on a server, of several versions. When there are more as one is loaded, those of other versions are
deleted: whoever calls one of them loads it again."""
_MISSING: Final = "Function not found"
_ELSEWHERE: Final = (rx.MovedError, rx.AskError, rx.TryAgainError, rx.ClusterDownError, rx.ReadOnlyError)
"""What EVALSHA would say too."""


class Functions:
    """The functions of one server, as far as its user may call them."""

    def __init__(self) -> None:
        self._run = b""
        self._evaluated = 0.0
        """When a call last went by EVALSHA for the sake of others, by the clock that never goes back."""
        self._refused: dict[str, float] = {}
        """Name of a script -> when its function was."""

    def of(self, op: Script, connection: Any) -> Library | None:
        """Return the library by which a script is to be called now over a connection; None for EVALSHA."""
        if op.library is None or connection.headgate_version < SINCE:
            return None
        now = time.monotonic()
        if connection.headgate_run_id != self._run or now - self._evaluated > AGAIN_AFTER:
            self._run, self._evaluated = connection.headgate_run_id, now
            return None
        return op.library if now - self._refused.get(op.name, -AGAIN_AFTER) >= AGAIN_AFTER else None

    def refused(self, op: Script) -> None:
        """Note that EVALSHA did what had been refused as a function."""
        self._refused[op.name] = time.monotonic()

    @staticmethod
    async def call(
        connection: Any, library: Library, words: Sequence[Any], after: Sequence[Sequence[Any]]
    ) -> list[Any] | None:
        """Call a function, and load it where it is missing; returns its reply and those of the commands after it.

        None: EVALSHA is to be called, and its answer counts.
        """
        command, loads = b"".join(map(_pack, ((b"FCALL", library.name, *words), *after))), b""
        for _ in range(LOADS):
            await connection.send_packed_command(loads + command)  # in one write, to leave no gap for another
            loaded = await reply_of(connection) if loads else None
            replies = [await reply_of(connection) for _ in range(1 + len(after))]
            error = replies[0]
            if not isinstance(error, rx.ResponseError):
                if loads:
                    await _tidy(connection)
                return replies
            if isinstance(error, _ELSEWHERE):
                raise error
            if not str(error).startswith(_MISSING) or isinstance(loaded, rx.ResponseError):
                return None
            loads = _pack(("FUNCTION", "LOAD", "REPLACE", library.source))
        return None


async def reply_of(connection: Any) -> Any:
    """Return the next reply; an error is returned as one."""
    try:
        return await connection.read_response()
    except rx.ResponseError as error:
        return error


async def _tidy(connection: Any) -> None:
    """Delete the libraries of other versions, if there are too many of ours and the user may."""
    await connection.send_command("FUNCTION", "LIST", "LIBRARYNAME", f"{PREFIX}*")
    listed = await reply_of(connection)
    names = [row[1] for row in listed] if isinstance(listed, list) else []
    if len(names) > MOST_LIBRARIES:
        ours = {op.library.name.encode() for op in map(script, FUNCTIONS) if op.library}
        for name in names:
            if name not in ours:
                await connection.send_command("FUNCTION", "DELETE", name)
                await reply_of(connection)
