"""The doctor finds out which roles a user of Redis may take, without doing anything of what they do."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from headgate.redis.probing import Probe, ProbeRefusal
from headgate_coordinator.security.acl import ROLES, Role, commands_of, keys_of

_WORDS: Final = {
    "asking": "", "cluster|nodes": "", "cluster|shards": "", "cluster|slots": "", "command": "", "ping": "", "time": "",
    "multi": "", "discard": "",
    "info": "server", "scan": "0", "select": "0", "script|load": "return", "wait": "1 0",
    "evalsha": "0000000000000000000000000000000000000000 1 KEY",
    "publish": "CHANNEL word", "subscribe": "CHANNEL", "unsubscribe": "CHANNEL",
    "hset": "KEY field 1", "hincrby": "KEY field 1", "hscan": "KEY 0", "sscan": "KEY 0", "set": "KEY 1",
    "pexpire": "KEY 1", "xack": "KEY group 1-1", "xadd": "KEY 1-1 field 1", "xclaim": "KEY group me 0 1-1",
    "xpending": "KEY group", "xrange": "KEY - +", "xrevrange": "KEY + -",
    "xreadgroup": "GROUP group me STREAMS KEY >", "xgroup|create": "KEY group 0",
    "xgroup|delconsumer": "KEY group me", "xgroup|destroy": "KEY group",
    "xgroup|setid": "KEY group 0", "zadd": "KEY 1 member",
    "zcount": "KEY 0 1", "zlexcount": "KEY - +", "zrange": "KEY 0 1", "zrangebylex": "KEY - +",
    "zrangebyscore": "KEY 0 1", "client|tracking": "ON",
    "zrevrange": "KEY 0 1", "zrevrangebyscore": "KEY 1 0", "zunionstore": "KEY 1 KEY",
    **dict.fromkeys(
        ("del", "exists", "get", "hgetall", "hkeys", "hlen", "hrandfield", "hvals", "unlink", "xinfo|groups", "xlen",
         "zcard", "zpopmin", "zrandmember", "waitaof"), "KEY",
    ),
}  # fmt: skip
"""Arguments of each command in a form that it takes; of others, one key and one member."""
_ASK: Final = """
local found, at = {}, 1
while at <= #ARGV do
  local words, count = {}, tonumber(ARGV[at])
  for i = 1, count do words[i] = ARGV[at + i] end
  local known, may = pcall(redis.acl_check_cmd, unpack(words))
  found[#found + 1] = known and may and 1 or 0
  at = at + count + 1
end
return found
"""
"""Asks Redis 7 for the rights of who calls it; nothing is done, and nobody needs a right to ask."""
_BEYOND: Final = {
    "FLUSHALL": ("FLUSHALL",), "CONFIG SET": ("CONFIG", "SET", "maxmemory", "0"),
    "ACL SETUSER": ("ACL", "SETUSER", "a"), "SHUTDOWN": ("SHUTDOWN",), "keys of others": ("GET", "headgate-doctor"),
}  # fmt: skip
"""Commands that no role needs, and that do most harm in a program that was taken over."""
_SINCE: Final = (7, 0)
_UNKNOWN: Final = ProbeRefusal(
    "users may ask by MULTI and DISCARD, or from Redis 7 on by a script; neither is allowed here"
)
_ASKING: Final = ("multi", "discard")

Question = tuple[str, Sequence[str]]
"""The rights that a finding names, and the command that stands for each."""


class RolePermissions:
    """`RolePermissions` asks which roles a user may take in a namespace; asking of another user takes ACL DRYRUN."""

    def __init__(self, namespace: str, roles: Sequence[Role] = ROLES, user: str = "") -> None:
        self._namespace = namespace
        self._roles = roles
        self._user = user

    async def of(
        self, probe: Probe, version: tuple[int, ...], *, cluster: bool
    ) -> tuple[str, Mapping[str, tuple[str, ...]] | str]:
        """Return who was asked about, and role -> what it lacks for it, or why nobody can say."""
        who = await probe.ask("ACL", "WHOAMI")
        user = self._user or (who.decode(errors="replace") if isinstance(who, bytes) else "")
        missing: dict[str, tuple[str, ...]] = {}
        loaded = await probe.ask("SCRIPT", "LOAD", _ASK)
        for role in self._roles:
            questions = list(_questions(role, self._namespace, cluster=cluster))
            if self._user:
                allowed = await _dry_run(probe, self._user, questions)
            else:
                allowed = await _by_script(probe, loaded, questions) if version >= _SINCE else _UNKNOWN
                if isinstance(allowed, ProbeRefusal):
                    allowed = await _by_queueing(probe, questions)
            if isinstance(allowed, ProbeRefusal):
                if not self._user and isinstance(loaded, ProbeRefusal) and loaded.forbidden:
                    return user, dict.fromkeys(self._roles, _ASKING)  # nobody does without
                return user, allowed.text
            missing[role] = tuple(
                dict.fromkeys(name for (name, _), may in zip(questions, allowed, strict=True) if not may)
            )
        return user, missing

    async def beyond(self, probe: Probe, version: tuple[int, ...]) -> tuple[str, ...]:
        """Return what a user may do that no role has, where one role was asked for; none where that cannot be asked."""
        if len(self._roles) > 1:
            return ()
        questions = list(_BEYOND.items())
        if self._user:
            allowed = await _dry_run(probe, self._user, questions)
        elif version >= _SINCE:
            allowed = await _by_script(probe, await probe.ask("SCRIPT", "LOAD", _ASK), questions)
        else:  # these are not queued, not even to be discarded
            return ()
        if isinstance(allowed, ProbeRefusal):
            return ()
        return tuple(name for (name, _), may in zip(questions, allowed, strict=True) if may)


def _questions(role: Role, namespace: str, *, cluster: bool) -> Iterable[Question]:
    key, channel = f"hg:{{{namespace}/doctor}}", f"hg:{{{namespace}/doctor}}:wake"
    for command in commands_of(role, cluster=cluster):
        words = _WORDS.get(command, "KEY member").replace("KEY", key).replace("CHANNEL", channel)
        yield command, (*command.upper().split("|"), *shlex.split(words))
    for pattern in keys_of(role, namespace):
        yield f"keys {pattern}", ("HGET", pattern.replace("/*", "/doctor}").replace("*", "doctor"), "field")
    for other in (f"hg:{{{namespace}}}:wake", "hg"):
        yield f"channel {other}", ("SUBSCRIBE", other)


async def _by_script(probe: Probe, loaded: Any, questions: Sequence[Question]) -> list[bool] | ProbeRefusal:
    words = [word for _, command in questions for word in (len(command), *command)]
    found = loaded if isinstance(loaded, ProbeRefusal) else await probe.ask("EVALSHA", loaded, 0, *words)
    return found if isinstance(found, ProbeRefusal) else [bool(one) for one in found]


async def _by_queueing(probe: Probe, questions: Sequence[Question]) -> list[bool] | ProbeRefusal:
    """Queue each command in a transaction that is never executed: what is forbidden is refused at that moment."""
    if isinstance(await probe.ask("MULTI"), ProbeRefusal):
        return _UNKNOWN
    found = [name in _ASKING or _may(await probe.ask(*words)) for name, words in questions]
    return _UNKNOWN if isinstance(await probe.ask("DISCARD"), ProbeRefusal) else found


async def _dry_run(probe: Probe, user: str, questions: Sequence[Question]) -> list[bool] | ProbeRefusal:
    found = []
    for _, words in questions:
        answer: Any = await probe.ask("ACL", "DRYRUN", user, *words)
        if isinstance(answer, ProbeRefusal):
            return answer
        found.append(answer == b"OK")
    return found


def _may(answer: Any) -> bool:
    return not (isinstance(answer, ProbeRefusal) and answer.forbidden)
