"""The scripts changed on their way to Redis, for tests alone: a clock that the test moves, a look at what they touch.

A `RewritingServer` takes the place of `headgate.redis.server.Server` and sends each script as its rewrites leave it.
"""

import functools
import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from headgate.redis.keys import Address
from headgate.redis.scripts import Script, script, script_names
from headgate.redis.server import Server
from headgate.redis.text.library import FIRST_LINE, Library
from headgate.redis.url import parse_url

Rewrite = Callable[[str], str]
AS_FUNCTIONS: Final = os.environ.get("HEADGATE_CALLS") != "scripts"
"""Whether any script is called as a function: mutants are judged both ways."""

# The text of a library runs as it is loaded, when Valkey has no function of Lua's and no `redis.call`: so each call
# looks for what there is then.
_TABLE: Final = """
local redis = (function()
  local function server() return redis end
  local own = {}
  function own.call(...) return server().call(...) end
  function own.error_reply(...) return server().error_reply(...) end
  function own.sha1hex(...) return server().sha1hex(...) end
  function own.register_function(...) return server().register_function(...) end
  own.raw_call = own.call
  return own
end)()
""".lstrip()
_TEST_CLOCK: Final = """
do
  local real = redis.call
  redis.call = function(name, ...)
    if name ~= 'TIME' then
      return real(name, ...)
    end
    local us = tonumber(redis.raw_call('GET', KEYS[1] .. ':clock'))
    return { string.format('%d', math.floor(us / 1000000)), string.format('%d', us % 1000000) }
  end
end
"""

# Refuses what a script may not touch, and notes its commands beside the destination, where the test reads them.
_WATCH: Final = """
do
  local real = redis.call
  local at = { XGROUP = 2, XINFO = 2, XREADGROUP = false, PUBLISH = false, TIME = false }
  redis.call = function(name, ...)
    local declared = {}
    for _, key in ipairs(KEYS) do
      declared[key] = true
    end
    local args, first = { ... }, at[name]
    if name == 'XREADGROUP' then
      for i, word in ipairs(args) do
        first = word == 'STREAMS' and i + 1 or first
      end
    end
    if first == nil then
      first = 1
    end
    for i = first or 1, (name == 'UNLINK' or name == 'DEL') and #args or (first or 0) do
      if not declared[args[i]] then
        error('undeclared key ' .. tostring(args[i]) .. ' for ' .. name)
      end
    end
    real('RPUSH', KEYS[1] .. ':trace', name)
    return real(name, ...)
  end
end
"""


def virtual_clock(source: str) -> str:
    """Read the time, in microseconds, from the destination's key `:clock` instead of from Redis."""
    return _before(_TEST_CLOCK, source)


def watched(source: str) -> str:
    """Fail on a key that was not declared; push the name of each command to the destination's key `:trace`."""
    return _before(_WATCH, source)


def _before(statements: str, source: str) -> str:
    """Put statements before those of a script, or of a library, which begins with the names that they use.

    What follows in a library is a function then: some have as many local names as one may have.
    """
    first = FIRST_LINE if source.startswith(FIRST_LINE) else ""
    rest = source.removeprefix(first)
    if first and not rest.startswith(_TABLE):
        rest = f"local run = (function()\n{rest}return run\nend)()\n"
    return first + _TABLE + statements + rest.removeprefix(_TABLE)


@functools.cache
def _by_sha() -> dict[str, Script]:
    return {one.sha: one for one in map(script, script_names())}


class RewritingServer(Server):
    """A server whose scripts are rewritten.

    Attributes:
        run: the run id that calls carry; None for the server's own. What names no run before, as `now<before`, says
            that state may be lost.
        as_functions: whether scripts are called as functions where they may be.
    """

    def __init__(self, url: str, *rewrites: Rewrite, as_functions: bool = True) -> None:
        super().__init__(parse_url(url))
        self.run: bytes | None = None
        self._rewrites, self._functions = rewrites, as_functions and AS_FUNCTIONS
        self._sent: dict[str, Script] = {}

    async def call(
        self, script: Script, keys: Sequence[bytes], argv: Sequence[Any], after: Sequence[Sequence[Any]] = ()
    ) -> Any:
        if argv and argv[0] is None and self.run is not None:
            argv = [self.run if b"<" in self.run else self.run + b"!", *argv[1:]]
        return await super().call(self._rewritten(script), keys, argv)

    def _rewritten(self, script: Script) -> Script:
        """Return it as it is sent. Its hash would be of all its parts at each call, and it has a sum."""
        found = self._sent.get(script.sha)
        if found is None:
            found = self._sent[script.sha] = _rewrite(self._rewrites, self._functions, script)
        return found

    async def burst(self, commands: Sequence[tuple[bytes, Sequence[Any]]]) -> list[Any]:
        """Send no script as it is: one that others loaded would run by the real clock."""
        return await super().burst([
            (key, (word[0], self._rewritten(_by_sha()[word[1]]).sha, *word[2:]) if word[0] == b"EVALSHA" else word)
            for key, word in commands
        ])  # fmt: skip

    async def set_clock(self, address: Address, now_ms: int) -> None:
        key = f"{address.key}:clock"
        await self.command(key.encode(), "SET", key, now_ms * 1000)

    async def take_trace(self, address: Address) -> list[str]:
        """Return the commands of the calls since this was last asked."""
        key = f"{address.key}:trace".encode()
        names = await self.command(key, "LRANGE", key, 0, -1)
        await self.command(key, "DEL", key)
        return [name.decode() for name in names]

    async def forget(self, address: Address, *sessions: str) -> None:
        """Delete everything there is of a destination, whatever state it is in."""
        receipts = [f"{address.key}:receipt:{session}".encode() for session in (*sessions, "-")]
        beside = [f"{address.key}:{part}".encode() for part in ("clock", "trace")]
        limiter = address.limiter_keys("-")
        await self.command(address.shared[0], "UNLINK", *limiter, *receipts, *beside)


def _rewrite(rewrites: tuple[Rewrite, ...], as_functions: bool, script: Script) -> Script:
    def rewritten(source: str) -> str:
        return functools.reduce(lambda text, rewrite: rewrite(text), rewrites, source)

    source, library = rewritten(script.source), script.library
    return replace(
        script,
        source=source,
        sha=hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest(),
        library=Library.of(script.name, rewritten(library.body)) if library and as_functions else None,
    )
