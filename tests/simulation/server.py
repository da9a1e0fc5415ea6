"""A Redis of a world: the real scripts run in a database of a real server, by the clock of the world.

It speaks the protocol, knows runs of itself, forgets scripts, carries hints, and can lose its last writes. All else a
real server does, one command after another.
"""

import asyncio
import functools
import hashlib
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import hiredis

from headgate.redis.scripts import script, script_names
from tests.simulation.loop import BEGINS, Process, VirtualLoop
from tests.simulation.network import Network

Rewrite = Callable[[str, str], str]
"""Takes a script's name and its text; returns the text as it is to be run."""
CONFIG: Final = {
    "databases": "32",
    # Fields are listed as they came, and not as a seed of the server's has it.
    **{f"{kind}-max-listpack-{what}": "1000000" for kind in ("hash", "zset", "set") for what in ("entries", "value")},
}
VERSION: Final = "6.2.99"
"""As which it answers: functions come with 7.0, and would be one more way of the same calls."""
DAY: Final = 1_700_000_000.0
"""The calendar as a world begins."""
AGAIN: Final = " again"
"""Behind the caller of a call that came before, and comes once more."""
_pack: Final[Any] = hiredis.pack_command
_HERE: Final = (
    (r"redis\.call\('TIME'\)", "redis.call('HMGET', 'sim:now', 's', 'us')"),
    (r"redis\.call\('PUBLISH',", "redis.call('RPUSH', 'sim:said',"),
    (r"redis\.call\('HRANDFIELD', (.+?), [^()]+\)", r"redis.call('HKEYS', \1)"),
    (r"redis\.call\('ZRANDMEMBER', (\S+?), (.+?)\)\)", r"redis.call('ZRANGE', \1, 0, \2 - 1))"),
)
_OF_DESTINATION: Final = re.compile(rb"hg:\{[^{}/]+/[^{}]+\}")
_OBSERVE: Final = """
return { redis.call('HGETALL', KEYS[1]), redis.call('HGETALL', KEYS[2]),
  redis.call('ZRANGE', KEYS[4], 0, -1, 'WITHSCORES'), redis.call('XRANGE', KEYS[5], '-', '+') }
"""
_COPY: Final = """
redis.call('SELECT', ARGV[2])
redis.call('FLUSHDB')
redis.call('SELECT', ARGV[1])
for _, key in ipairs(redis.call('KEYS', '*')) do
  redis.call('COPY', key, key, 'DB', ARGV[2])
end
"""


class Backing:
    """The real server behind those of all worlds; one command after another."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(path)
        self._reader = hiredis.Reader()
        self._scripts: dict[bytes, bytes] = {}

    def run(self, *commands: bytes) -> list[Any]:
        """Send packed commands in one write and return their replies; an error is returned as one."""
        self._socket.sendall(b"".join(commands))
        replies: list[Any] = []
        while len(replies) < len(commands):
            reply = self._reader.gets()
            if reply is False:
                self._reader.feed(self._socket.recv(1 << 16))
            else:
                replies.append(reply)
        return replies

    def load(self, source: str) -> bytes:
        """Return the name by which a script is called; it stays loaded."""
        sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest().encode()
        if sha not in self._scripts:
            (self._scripts[sha],) = self.run(_pack(("SCRIPT", "LOAD", source)))
        return sha

    def close(self) -> None:
        self._socket.close()


@functools.cache
def rewritten(name: str) -> str:
    """Return a script with the world's clock and hints in the place of the server's, and nothing by chance."""
    source = script(name).source
    for old, new in _HERE:
        source = re.sub(old, new, source)
    for left in ("'TIME'", "'PUBLISH'", "'HRANDFIELD'", "'ZRANDMEMBER'"):
        assert left not in source, f"{name}.lua: {left}"
    return source


@functools.cache
def by_sha() -> Mapping[bytes, str]:
    return {script(name).sha.encode(): name for name in script_names()}


def encoded(value: Any) -> bytes:
    """Return a reply as it is on the wire."""
    if isinstance(value, bytes):
        return b"$%d\r\n%b\r\n" % (len(value), value)
    if isinstance(value, int):
        return b":%d\r\n" % value
    if isinstance(value, list):
        return b"*%d\r\n%b" % (len(value), b"".join(map(encoded, value)))
    if value is None:
        return b"$-1\r\n"
    return b"-%b\r\n" % str(value).encode()


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a script: what was called by whom, the answer, and what lies at the destination then."""

    caller: str
    script: str
    words: Sequence[bytes]
    reply: Any
    seen: Any
    at_ms: int
    """By the server's calendar."""


class Redis:
    """One server. Its state survives a restart; ``watch`` is called after each script."""

    def __init__(
        self,
        loop: VirtualLoop,
        network: Network,
        backing: Backing,
        *,
        name: str,
        database: int,
        rewrite: Rewrite | None,
    ) -> None:
        self.process = Process(name)
        self.watch: Callable[[Call], None] | None = None
        self._loop, self._network, self._backing, self._rewrite = loop, network, backing, rewrite
        self._context = loop.begin(self.process)
        self._database = database
        self._runs = 0
        self._chance = Random(f"repeats of {name}")
        self.serves = False
        self.silent_until = 0.0
        """Until then half of the answers are lost, and the connection with each."""
        self.repeats_until = 0.0
        """Until then calls are carried out once more, late."""
        self._loaded: set[bytes] = set()
        self._called: dict[str, bytes] = {}
        self.channels: dict[bytes, dict[Door, None]] = {}
        self._run(_pack(("FLUSHDB",)))
        self.start()

    @property
    def run_id(self) -> str:
        return hashlib.sha1(f"{self.process.name} {self._runs}".encode(), usedforsecurity=False).hexdigest()

    @property
    def now_us(self) -> int:
        """Microseconds by its calendar."""
        return round((DAY + self._loop.now - BEGINS + self.process.ahead) * 1e6)

    def start(self) -> None:
        """Serve, as another run than any before."""
        self._runs += 1
        self.serves = True
        self._loaded.clear()
        self._network.listen(self.process.name, self.process, self._context, lambda: Door(self))

    def stop(self) -> None:
        """End as a killed one does."""
        self.serves = False
        self._network.refuse(self.process.name)
        self._network.reset(self.process)
        self.channels.clear()

    def forget_scripts(self) -> None:
        self._loaded.clear()

    def keep(self, slot: int) -> None:
        """Keep the state as it is now, as a replica has it that gets no more."""
        self._run(_pack(("EVAL", _COPY, 0, self._database, slot)))

    def lose(self, slot: int) -> None:
        """Go back to the state that was kept."""
        self._run(_pack(("EVAL", _COPY, 0, slot, self._database)))

    def call(self, caller: str, name: str, words: Sequence[bytes]) -> Any:
        """Run one script, carry its hints, and show what is there then."""
        sha = self._called.get(name)
        if sha is None:
            source = rewritten(name)
            sha = self._called[name] = self._backing.load(self._rewrite(name, source) if self._rewrite else source)
        seconds, us = divmod(self.now_us, 1_000_000)
        looks = _OF_DESTINATION.fullmatch(words[1]) is not None
        keys = words[: 1 + int(words[0])] if looks else ()
        _, reply, said, _, *seen = self._run(
            _pack(("HSET", "sim:now", "s", seconds, "us", us)),
            _pack((b"EVALSHA", sha, *words)),
            _pack(("LRANGE", "sim:said", 0, -1)),
            _pack(("DEL", "sim:said")),
            *((_pack((b"EVALSHA", self._backing.load(_OBSERVE), *keys)),) if looks else ()),
        )
        for channel, text in zip(said[::2], said[1::2], strict=True):
            for listener in tuple(self.channels.get(channel, ())):
                listener.say([b"message", channel, text])
        if self.watch:
            self.watch(Call(caller, name, words, reply, seen[0] if seen else None, self.now_us // 1000))
        return reply

    def _perhaps_again(self, caller: str, name: str, words: Sequence[bytes]) -> None:
        """Have a call come once more, late, as from a network that kept it; but not where that is an exception."""
        if self._loop.now < self.repeats_until and name not in ("apply", "remove"):
            late = self._loop.now + self._chance.uniform(0.0, 2.0)
            self._loop.at(late, self._again, caller, name, words, context=self._context)

    def _again(self, caller: str, name: str, words: Sequence[bytes]) -> None:
        if self.serves:
            self.call(f"{caller}{AGAIN}", name, words)

    def do(self, door: "Door", words: Sequence[bytes]) -> None:
        """Do one command and answer it."""
        match words[0].upper():
            case b"EVALSHA" if words[1] in self._loaded:
                self._answer(door, by_sha()[words[1]], words[2:])
            case b"EVALSHA":
                door.say(hiredis.ReplyError("NOSCRIPT No matching script. Please use EVAL."))
            case b"SCRIPT":
                sha = hashlib.sha1(words[2], usedforsecurity=False).hexdigest().encode()
                self._loaded.add(sha)
                door.say(sha)
            case b"SUBSCRIBE":
                for channel in words[1:]:
                    self.channels.setdefault(channel, {})[door] = None
                    door.say([b"subscribe", channel, 1])
            case b"UNSUBSCRIBE":
                for channel in words[1:]:
                    self.channels.get(channel, {}).pop(door, None)
                    door.say([b"unsubscribe", channel, 0])
            case b"PING":
                door.say([b"pong", b""])
            case b"INFO":
                door.say(self._info())
            case b"CLIENT":
                door.say(b"OK")
            case _:
                (reply,) = self._run(_pack(tuple(words)))
                door.say(reply)

    def _answer(self, door: "Door", name: str, words: Sequence[bytes]) -> None:
        reply = self.call(door.caller, name, words)
        self._perhaps_again(door.caller, name, words)
        if self._loop.now < self.silent_until and self._chance.random() < 0.5:
            self._network.break_off(door.transport)
        door.say(reply)

    def _info(self) -> bytes:
        facts = {
            "role": "master", "master_replid": self.run_id, "master_replid2": "0" * 40, "second_repl_offset": -1,
            "redis_version": VERSION, "run_id": self.run_id, "redis_mode": "standalone",
            "maxmemory_policy": "noeviction",
        }  # fmt: skip
        return "".join(f"{name}:{value}\r\n" for name, value in facts.items()).encode()

    def _run(self, *commands: bytes) -> list[Any]:
        return self._backing.run(_pack(("SELECT", self._database)), *commands)[1:]


class Door(asyncio.Protocol):
    """The server's side of one connection."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._reader = hiredis.Reader()
        self._replies: list[bytes] = []

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.caller = transport.peer.owner.name

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        while (words := self._reader.gets()) is not False:
            self._redis.do(self, words)

    def connection_lost(self, _: Exception | None) -> None:
        for listeners in self._redis.channels.values():
            listeners.pop(self, None)

    def say(self, reply: Any) -> None:
        self.transport.write(encoded(reply))
