"""A Redis of a world: the real scripts run in a database of a real server, by the clock of the world.

It speaks the protocol, knows runs of itself, forgets scripts, carries hints, and can lose its last writes. All else a
real server does, one command after another.
"""

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
from tests.simulation.doors import Channels, Door
from tests.simulation.loop import BEGINS, Process, VirtualLoop
from tests.simulation.network import Network

Rewrite = Callable[[str, str], str]
"""Takes a script's name and its text; returns the text as it is to be run."""
CONFIG: Final = {
    "databases": "32",
    "hz": "2",
    # Fields are listed as they came, and not as a seed of the server's has it.
    **{f"{kind}-max-listpack-{what}": "1000000" for kind in ("hash", "zset", "set") for what in ("entries", "value")},
}
VERSION: Final = "6.2.99"
"""As which it answers: functions come with 7.0, and would be one more way of the same calls."""
NO_HISTORY: Final = "0" * 40
DAY: Final = 1_700_000_000.0
"""The calendar as a world begins."""
AGAIN: Final = " again"
"""Behind the caller of a call that came before, and comes once more."""
LOST: Final = (0, 1, 2, 3, 5, 8, 13, 1000)
OF_LIMITERS: Final = 26
"""Keys of a script of limiters."""
_pack: Final[Any] = hiredis.pack_command
_HEAR: Final[bytes] = _pack(("LPOP", "sim:said", 1_000_000))
_HERE: Final = (
    (r"redis\.call\('TIME'\)", "redis.call('HMGET', 'sim:now', 's', 'us')"),
    (r"redis\.call\('PUBLISH',", "redis.call('RPUSH', 'sim:said',"),
    (r"redis\.call\('PEXPIRE', (\S+), int\(\w+\)\)", r"redis.call('PERSIST', \1)"),
    (r"redis\.call\('HRANDFIELD', (.+?), [^()]+\)", r"redis.call('HKEYS', \1)"),
    (r"redis\.call\('ZRANDMEMBER', (\S+?), (.+?)\)\)", r"redis.call('ZRANGE', \1, 0, \2 - 1))"),
)
_OF_DESTINATION: Final = re.compile(rb"hg:\{[^{}/]+/[^{}]+\}")
_COPY: Final = """
redis.call('SELECT', ARGV[2])
redis.call('FLUSHDB')
redis.call('SELECT', ARGV[1])
for _, key in ipairs(redis.call('KEYS', '*')) do
  redis.call('COPY', key, key, 'DB', ARGV[2])
end
"""


_MOVE: Final = """
for _, key in ipairs(KEYS) do
  redis.call('COPY', key, key, 'DB', ARGV[1], 'REPLACE')
  redis.call('DEL', key)
end
"""


@functools.lru_cache(maxsize=1024)
def _looks(keys: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Return the commands that show what lies at a destination with these keys."""
    if len(keys) >= OF_LIMITERS:
        return _pack(("HGETALL", keys[0])), _pack(("HGETALL", keys[22]))
    return (
        *(_pack(("HGETALL", key)) for key in keys[:2]),
        _pack(("ZRANGE", keys[3], 0, -1)),
        _pack(("XRANGE", keys[4], "-", "+")),
        *(_pack(("HVALS", keys[number])) for number in (6, 9)),
    )


def lost_after(seconds: float) -> int:
    """Return how many calls a failover loses, of those since its replica began to lag, some seconds before."""
    return LOST[int(100 * seconds) % len(LOST)]


class Backing:
    """The real server behind those of all worlds; one command after another."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(path)
        self._reader = hiredis.Reader()
        self._scripts: dict[str, bytes] = {}
        self._database = 0

    def run(self, *commands: bytes, database: int | None = None) -> list[Any]:
        """Send packed commands in one write and return their replies; an error is returned as one."""
        if database not in (None, self._database):
            self._database, first = database, _pack(("SELECT", database))
            return self.run(first, *commands)[1:]
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
        if source not in self._scripts:
            (self._scripts[source],) = self.run(_pack(("SCRIPT", "LOAD", source)))
        return self._scripts[source]

    def close(self) -> None:
        self._socket.close()


@functools.cache
def rewritten(name: str) -> str:
    """Return a script with the world's clock and hints in the place of the server's, and nothing by chance."""
    source = script(name).source
    for old, new in _HERE:
        source = re.sub(old, new, source)
    for left in ("'TIME'", "'PEXPIRE'", "'PUBLISH'", "'HRANDFIELD'", "'ZRANDMEMBER'"):
        assert left not in source, f"{name}.lua: {left}"
    return source


@functools.cache
def by_sha() -> Mapping[bytes, str]:
    return {script(name).sha.encode(): name for name in script_names()}


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a script: by whom, of what, the answer, and what lies at the destination then, if it has one."""

    caller: str
    script: str
    words: Sequence[bytes]
    reply: Any
    seen: Sequence[Any]
    at_ms: int
    """By the server's calendar."""
    superseded: bool = False
    """Whether another server is in charge of what lies there, and this one has not heard of that."""


class Redis:
    """One server. Its state survives a restart; ``watch`` is called after each script.

    Attributes:
        follows: its master, where it is a replica; ``followers`` its replicas.
        history, former: the replication ids that it names.
        superseded: whether another is in charge, and it does not know.
        hears: the servers that pass on each other's hints.
        redirects: returns why it does not serve a command, as a server of a cluster may not.
        after_unsent: is called after each call that a replica has not had yet.
        slots: returns which server has which slot, as it knows of.
        mode: as which it answers.
    """

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
        self.database = database
        self._runs = 0
        self.follows: Redis | None = None
        self.followers: list[Redis] = []
        self.history = self.former = NO_HISTORY
        self.superseded = False
        self.hears: Sequence[Redis] = (self,)
        self.redirects: Callable[[Redis, Sequence[bytes], bool], str | None] | None = None
        self.slots: Callable[[Redis], list[Any]] | None = None
        self.mode = "standalone"
        self._chance = Random(f"repeats of {name}")
        self.serves = False
        self.silent_until = 0.0
        """Until then half of the answers are lost, and the connection with each."""
        self.repeats_until = 0.0
        """Until then calls are carried out once more, late."""
        self._loaded: set[bytes] = set()
        self._called: dict[str, bytes] = {}
        self._unsent: list[tuple[bytes, bytes]] | None = None
        self.after_unsent: Callable[[], None] = lambda: None
        self.channels = Channels()
        self._run(_pack(("FLUSHDB",)))
        self.start()

    @property
    def now_us(self) -> int:
        """Microseconds by its calendar."""
        return round((DAY + self._loop.now - BEGINS + self.process.ahead) * 1e6)

    def start(self) -> None:
        """Serve, as another run than any before."""
        self._runs += 1
        self.run_id = hashlib.sha1(f"{self.process.name} {self._runs}".encode(), usedforsecurity=False).hexdigest()
        self.history, self.former = self.run_id, NO_HISTORY
        self.serves = True
        self._loaded.clear()
        self._network.listen(self.process.name, self.process, self._context, lambda: Door(self))

    def later(self, seconds: float, what: Callable[..., None], *args: Any) -> None:
        """Have it do something so many seconds from now, or once it is not frozen any more."""
        self._loop.at(self._loop.now + seconds, what, *args, context=self._context)

    def stop(self) -> None:
        """End as a killed one does."""
        self.serves = False
        self._network.refuse(self.process.name)
        self._network.reset(self.process)
        self.channels.clear()

    def forget_scripts(self) -> None:
        self._loaded.clear()

    def keep(self, database: int, *, lags: bool = False) -> None:
        """Have a replica's database be given all that is here; one that lags has later calls as it catches up."""
        self._run(_pack(("EVAL", _COPY, 0, self.database, database)))
        self._unsent = [] if lags else None

    def catch_up(self, database: int, lost: int) -> int:
        """Have a replica that lags do all calls of its master but the last; return how many it lost."""
        calls, self._unsent = self._unsent or [], None
        done = calls[: max(0, len(calls) - lost)]
        commands = [command for call in done for command in call]
        self._backing.run(*commands, _HEAR, database=database)
        return len(calls) - len(done)

    def lose(self, database: int) -> None:
        """Go back to the state that was kept."""
        self._run(_pack(("EVAL", _COPY, 0, database, self.database)))

    def promote(self) -> None:
        """Be a master from now on, with a history that begins where the former one ends."""
        master, self.follows = self.follows, None
        self.former = master.history if master else self.history
        self.history = hashlib.sha1(f"{self.run_id} {self.former}".encode(), usedforsecurity=False).hexdigest()

    def follow(self, master: "Redis", *, goes_on: bool) -> None:
        """Be a replica: one that goes on from its end, or that is sent all anew."""
        self.follows, self.superseded = master, False
        self.history, self.former = master.history, master.former if goes_on else NO_HISTORY
        self.followers.clear()
        if self not in master.followers:
            master.followers.append(self)

    def exist(self, keys: Sequence[bytes]) -> int:
        """Return how many of these keys are here."""
        (count,) = self._run(_pack(("EXISTS", *keys)))
        return int(count)

    def all_keys(self) -> list[bytes]:
        """Return all keys of the product's."""
        (found,) = self._run(_pack(("KEYS", "hg:*")))
        return sorted(found)

    def hand(self, keys: Sequence[bytes], to: "Redis") -> None:
        """Move keys to another server."""
        self._run(_pack(("EVAL", _MOVE, len(keys), *keys, to.database)))

    def call(self, caller: str, name: str, words: Sequence[bytes]) -> Any:
        """Run one script, carry its hints, and show what is there then."""
        sha = self._called.get(name)
        if sha is None:
            source = rewritten(name)
            sha = self._called[name] = self._backing.load(self._rewrite(name, source) if self._rewrite else source)
        seconds, us = divmod(self.now_us, 1_000_000)
        looks = _looks(tuple(words[1 : 1 + int(words[0])])) if _OF_DESTINATION.fullmatch(words[1]) else ()
        call = _pack(("HSET", "sim:now", "s", seconds, "us", us)), _pack((b"EVALSHA", sha, *words))
        _, reply, said, *seen = self._run(*call, _HEAR, *looks)
        for channel, text in zip(said[::2], said[1::2], strict=True) if said else ():
            for server in self.hears:
                server.channels.publish(channel, text)
        if self.watch:
            self.watch(Call(caller, name, words, reply, seen, self.now_us // 1000, self.superseded))
        if self._unsent is not None:
            self._unsent.append(call)
            self.after_unsent()
        return reply

    def _perhaps_again(self, caller: str, name: str, words: Sequence[bytes], code: bytes) -> None:
        """Have a call come once more, late, as from a network that kept it; but not where that is an exception.

        One is a batch that was refused beyond the limit, or whose segment is deleted since.
        """
        gone = name == "publish" and (code == b"FULL" or (code in {b"STOPPED", b"ABOVE"} and b"spool" in words))
        if self._loop.now < self.repeats_until and name not in ("apply", "remove") and not gone:
            late = self._loop.now + self._chance.uniform(0.0, 2.0)
            self._loop.at(late, self._again, caller, name, words, context=self._context)

    def _again(self, caller: str, name: str, words: Sequence[bytes]) -> None:
        moved = self.redirects and self.redirects(self, (b"EVALSHA", b"", *words), False)
        if self.serves and not self.follows and not moved:
            self.call(f"{caller}{AGAIN}", name, words)

    def do(self, door: Door, words: Sequence[bytes]) -> None:
        """Do one command and answer it."""
        asks, door.asks = door.asks, False
        if self.channels.do(door, words):
            return
        if self.redirects and (why := self.redirects(self, words, asks)):
            door.say(hiredis.ReplyError(why))
            return
        match words[0].upper():
            case b"EVALSHA" if self.follows:
                door.say(hiredis.ReplyError("READONLY You can't write against a read only replica."))
            case b"EVALSHA" if words[1] in self._loaded:
                self._answer(door, by_sha()[words[1]], words[2:])
            case b"EVALSHA":
                door.say(hiredis.ReplyError("NOSCRIPT No matching script. Please use EVAL."))
            case b"SCRIPT":
                sha = hashlib.sha1(words[2], usedforsecurity=False).hexdigest().encode()
                self._loaded.add(sha)
                door.say(sha)
            case b"INFO":
                door.say(self._info())
            case b"CLUSTER" if self.slots:
                door.say(self.slots(self))
            case b"SCAN":  # a server lists keys by a seed of its own
                (found,) = self._run(_pack(("KEYS", words[words.index(b"MATCH") + 1])))
                door.say([b"0", sorted(found)])
            case b"XPENDING":  # how long ago each was delivered is by the real clock
                (found,) = self._run(_pack(tuple(words)))
                door.say([[*entry[:2], 0, entry[3]] for entry in found])
            case b"TIME":
                door.say([b"%d" % part for part in divmod(self.now_us, 1_000_000)])
            case _:
                (reply,) = self._run(_pack(tuple(words)))
                door.say(reply)

    def _answer(self, door: Door, name: str, words: Sequence[bytes]) -> None:
        reply = self.call(door.caller, name, words)
        self._perhaps_again(door.caller, name, words, reply[0] if isinstance(reply, list) and reply else b"")
        if self._loop.now < self.silent_until and self._chance.random() < 0.5:
            self._network.break_off(door.transport)
        door.say(reply)

    def _info(self) -> bytes:
        facts = {
            "role": "slave" if self.follows else "master", "master_replid": self.history, "master_replid2": self.former,
            "second_repl_offset": -1 if self.former == NO_HISTORY else 1,
            "redis_version": VERSION, "run_id": self.run_id, "redis_mode": self.mode,
            "maxmemory_policy": "noeviction",
        }  # fmt: skip
        if self.follows:
            facts["master_link_status"] = "up" if self.follows.serves else "down"
        for number, follower in enumerate(self.followers):
            facts[f"slave{number}"] = f"ip={follower.process.name},port=6379,state=online,offset=1,lag=0"
        return "".join(f"{name}:{value}\r\n" for name, value in facts.items()).encode()

    def _run(self, *commands: bytes) -> list[Any]:
        return self._backing.run(*commands, database=self.database)
