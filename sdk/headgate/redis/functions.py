"""This module decides which scripts are called as functions of a server, and what becomes of a refused call.

``FCALL`` costs less than ``EVALSHA`` of the same, see :mod:`headgate.redis.text.library`. Functions came with Redis 7,
and not every user may call or load them: a server is asked for that, so that nothing is refused and logged. A function
is loaded where it is missing, just as a script is. On any other error ``EVALSHA`` has the last word: a server that is
out of memory, or lacks replicas, refuses a function as it begins, and lets a script answer that writes nothing.
"""

import hashlib
import time
from typing import Any, Final

import redis.exceptions as rx

from headgate.redis.connection_options import pack
from headgate.redis.scripts import FUNCTIONS, Script, script
from headgate.redis.text.library import PREFIX, Library

SINCE: Final = (7, 0)
LOADS: Final = 20
"""Times that a function is loaded again during one call: somebody may flush them all the time."""
AGAIN_AFTER: Final = 60.0
"""Seconds after which a server is asked anew, and for which one whose function was refused goes by EVALSHA.
One call goes by EVALSHA each time: a user who may load nothing finds the scripts loaded that come with that one."""
MOST_LIBRARIES: Final = 64
"""Libraries of ours on a server, of several versions. When there are more as one is loaded, those of other versions are
deleted: whoever calls one of them loads it again."""
_ASK: Final = "return { redis.acl_check_cmd('FCALL', 'f', 0), redis.acl_check_cmd('FUNCTION', 'LOAD', 'f') }"
"""Returns 1 or nil for whether the user may do either; Redis logs nothing."""
_ASK_SHA: Final = hashlib.sha1(_ASK.encode(), usedforsecurity=False).hexdigest()
_QUESTION: Final = pack(("EVALSHA", _ASK_SHA, 0))
_LOAD_QUESTION: Final = pack(("SCRIPT", "LOAD", _ASK))
_LIST: Final = pack(("FUNCTION", "LIST", "LIBRARYNAME", f"{PREFIX}*"))
_MISSING: Final = "Function not found"
_THERE: Final = "already exists"
_ELSEWHERE: Final = (rx.MovedError, rx.AskError, rx.TryAgainError, rx.ClusterDownError, rx.ReadOnlyError)
"""Errors that EVALSHA would answer with too."""


class Functions:
    """The functions of one server, as far as its user may call them."""

    def __init__(self) -> None:
        self.run = b""
        """The run that was asked last; empty before any was."""
        self._asked = -AGAIN_AFTER
        """When it was asked last, by the clock that never goes back."""
        self._may_call = self._may_load = False
        self._refused: dict[str, float] = {}
        """Name of a script -> when its function was."""

    def of(self, op: Script, connection: Any) -> Library | None:
        """Return the library by which a script is to be called now over a connection; None for EVALSHA."""
        if not self._may_call or self.is_due(connection):
            return None
        return op.library if time.monotonic() - self._refused.get(op.name, -AGAIN_AFTER) >= AGAIN_AFTER else None

    def is_due(self, connection: Any) -> bool:
        """Return whether it is to be asked, for it was not within a minute, or is another run."""
        return bool(connection.headgate_run_id != self.run) or time.monotonic() - self._asked >= AGAIN_AFTER

    async def ask(self, connection: Any) -> None:
        """Ask what its user may do."""
        self.run, self._asked = connection.headgate_run_id, time.monotonic()
        if connection.headgate_version < SINCE:
            return
        await connection.send_packed_command(_QUESTION)
        rights = await reply_of(connection)
        if isinstance(rights, rx.NoScriptError):
            await connection.send_packed_command(_LOAD_QUESTION + _QUESTION)
            await reply_of(connection)
            rights = await reply_of(connection)
        may = isinstance(rights, list)  # an error: it knows no such thing, or nobody may ask
        self._may_call, self._may_load = may and rights[:1] == [1], may and rights[1:] == [1]

    def refused(self, op: Script) -> None:
        """Note that EVALSHA did what had been refused as a function."""
        self._refused[op.name] = time.monotonic()

    async def heal(self, connection: Any, library: Library, command: bytes, replies: list[Any]) -> bool:
        """Load a function that is missing, and send the refused call of it again; returns whether it was answered.

        ``replies`` are those of the call and of the commands sent with it, and become the new ones. Where this returns
        False, EVALSHA is to be called, and its answer counts.
        """
        loads, loaded = pack(("FUNCTION", "LOAD", library.source)) + _LIST, None
        for _ in range(LOADS):
            error = replies[0]
            if isinstance(error, _ELSEWHERE):
                raise error
            if not str(error).startswith(_MISSING) or not self._may_load or _failed(loaded):
                return False
            await connection.send_packed_command(loads + command)  # in one write, to leave no gap for another
            loaded, listed = await reply_of(connection), await reply_of(connection)
            replies[:] = [await reply_of(connection) for _ in replies]
            if not isinstance(replies[0], rx.ResponseError):
                await _tidy(connection, listed)
                return True
        return False


async def reply_of(connection: Any) -> Any:
    """Return the next reply; an error is returned as one."""
    try:
        return await connection.read_response()
    except rx.ResponseError as error:
        return error


def _failed(loaded: Any) -> bool:
    """Return whether a library is not there after that answer to its load; another client may have been first."""
    return isinstance(loaded, rx.ResponseError) and _THERE not in str(loaded)


async def _tidy(connection: Any, listed: Any) -> None:
    """Delete the libraries of other versions, if too many of ours are listed; an error is no list."""
    names = [row[1] for row in listed] if isinstance(listed, list) else []
    if len(names) > MOST_LIBRARIES:
        ours = {op.library.name.encode() for op in map(script, FUNCTIONS) if op.library}
        for name in names:
            if name not in ours:
                await connection.send_command("FUNCTION", "DELETE", name)
                await reply_of(connection)
