"""One server is checked here: facts in, findings out."""

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from headgate.core.durability import Durability
from headgate_coordinator.doctor.deployment import ServerFacts
from headgate_coordinator.doctor.findings import Finding

OLDEST: Final = (6, 2)
_MENDED: Final[dict[str, dict[tuple[int, ...], int]]] = {
    "Redis": {(6, 2): 20, (7, 2): 11, (7, 4): 6, (8, 0): 4, (8, 2): 2},
    "Valkey": {(7, 2): 11, (8, 0): 6, (8, 1): 4},
}
"""Patch level of each series that has the fixes for Lua of 2025."""
_WAITAOF: Final = (7, 2)
_LOADS_AS_DEFAULT: Final = (7,)
_NEARLY_FULL: Final = 0.85
_FULL: Final = 0.95
_CLOCK: Final = 5.0
"""Seconds that a server's clock may differ from ours."""
_LAG: Final = 3
"""Seconds that a replica may be behind."""
_SCRIPTS: Final = 5000
_LEAST_BUFFER: Final = 1 << 20
_LEAST_BACKLOG: Final = 10 << 20
_MIB: Final = 1 << 20


def check_server(server: ServerFacts, wanted: Durability) -> Iterator[Finding]:
    """Yield the findings about one server that let us in."""
    for check in _CHECKS:
        yield from check(server, wanted, partial(Finding, places=(server.place,)))


Say = Callable[..., Finding]


def _version(server: ServerFacts, _: Durability, say: Say) -> Iterator[Finding]:
    version = server.version
    if not version:
        yield say("version", "problem", "its version cannot be seen: INFO " + _why(server, "INFO"),
                  "every connection reads the version and the run id", "let the user run INFO")  # fmt: skip
        return
    text = f"{server.product} {'.'.join(map(str, version))}"
    mended = _MENDED.get(server.product, {}).get(version[:2])
    if version < OLDEST:
        yield say("version", "problem", text, "scripts need 6.2 or newer", "upgrade to Redis 7.2 or Valkey 8 or newer")
    elif server.product not in _MENDED:
        yield say("version", "warning", text, "Headgate is tested with Redis and Valkey", "use one of them")
    elif mended is not None and version[2] < mended:
        fixed = ".".join(map(str, (*version[:2], mended)))
        yield say("version", "warning", text, "it lacks fixes for scripts by which a user can take over the server",
                  f"upgrade to {fixed} or newer, unless your distribution has patched it")  # fmt: skip
    else:
        yield say("version", "ok", f"{text}, answers in {server.answer_seconds * 1000:.1f} ms")


def _persistence(server: ServerFacts, wanted: Durability, say: Say) -> Iterator[Finding]:
    if "aof_enabled" not in server.info:
        return
    fsync = server.config.get("appendfsync", "")
    append = "CONFIG SET appendonly yes, and write it into redis.conf"
    if server.info["aof_enabled"] != "1":
        snapshots = server.config.get("save") or ("not known" if "save" not in server.config else "none")
        yield say("persistence", "problem" if wanted.fsync else "warning", f"appendonly no, save: {snapshots}",
                  "a restart loses everything since the last snapshot: messages, credits, limits",
                  append)  # fmt: skip
    elif wanted.fsync and fsync != "always" and (fsync != "everysec" or server.version < _WAITAOF):
        how = "always" if server.version < _WAITAOF else "everysec"
        yield say("persistence", "warning" if not fsync else "problem", f"appendfsync {fsync or 'cannot be seen'}",
                  "acknowledged messages are not on disk yet", f"CONFIG SET appendfsync {how}")  # fmt: skip
    elif fsync == "no":
        yield say("persistence", "warning", "appendonly yes, appendfsync no",
                  "a power failure may lose half a minute of writes", "CONFIG SET appendfsync everysec")  # fmt: skip
    else:
        yield say("persistence", "ok", f"appendonly yes, appendfsync {fsync or 'cannot be seen'}")
    for name, meaning in (("aof_last_write_status", "write to the AOF"), ("rdb_last_bgsave_status", "snapshot")):
        if server.info.get(name, "ok") != "ok":
            stops = name.startswith("aof") or server.config.get("stop-writes-on-bgsave-error", "yes") == "yes"
            yield say("persistence", "problem" if stops else "warning", f"the last {meaning} failed",
                      "Redis refuses writes (MISCONF) until one succeeds" if stops else "a restart loads an old one",
                      "look at its log, and at the room on its disk")  # fmt: skip
    if server.info.get("loading", "0") != "0":
        yield say("persistence", "problem", "it is loading its file", "it answers nothing until then", "wait")


def _loader(server: ServerFacts, _: Durability, say: Say) -> Iterator[Finding]:
    """Yield what Redis, from 7 on, will not load of its append-only file: it loads what scripts wrote as `default`."""
    rights = server.loader.get("commands", ""), server.loader.get("keys", "")
    if server.version < _LOADS_AS_DEFAULT or server.info.get("aof_enabled") != "1" or not server.loader:
        return
    if "+@all" not in rights[0].split() or "~*" not in rights[1].split():
        yield say("users", "problem", f"user default lacks some rights: {' '.join(rights)[:80]}",
                  "a restart does not load what scripts wrote: messages, credits and limits are lost",
                  "ACL SETUSER default off ~* &* +@all, and write it into the aclfile, before any restart")  # fmt: skip
    else:
        yield say("users", "ok", "user default has the rights needed to load the append-only file")


def _eviction(server: ServerFacts, _: Durability, say: Say) -> Iterator[Finding]:
    policy = server.info.get("maxmemory_policy")
    if policy == "noeviction":
        yield say("eviction", "ok", "maxmemory-policy noeviction")
    elif policy:
        yield say("eviction", "problem", f"maxmemory-policy {policy[:40]}",
                  "when memory is full Redis deletes messages and counters, and limits do not hold any more",
                  "CONFIG SET maxmemory-policy noeviction, write it into redis.conf, then `headgate audit`",
        )  # fmt: skip


def _memory(server: ServerFacts, _: Durability, say: Say) -> Iterator[Finding]:
    used, most, there = (server.number(name) for name in ("used_memory", "maxmemory", "total_system_memory"))
    if used is None or most is None:
        return
    held = f"{used / _MIB:.0f} MiB in use"
    if most == 0:
        yield say("memory", "warning", f"{held}, maxmemory 0: unlimited",
                  "a Redis that the kernel kills loses more than one that refuses writes",
                  "set maxmemory to two thirds of what the host has, above the sum of all limits")  # fmt: skip
    elif used > _NEARLY_FULL * most:
        yield say("memory", "problem" if used > _FULL * most else "warning",
                  f"{held} of {most / _MIB:.0f} MiB: {100 * used / most:.0f} %",
                  "when it is full senders are refused", "consume, lower the limits, or raise maxmemory")  # fmt: skip
    elif there and most > there:
        yield say("memory", "warning", f"maxmemory {most / _MIB:.0f} MiB, and the host has {there / _MIB:.0f} MiB",
                  "the kernel kills it before it refuses", "lower maxmemory")  # fmt: skip
    else:
        yield say("memory", "ok", f"{held} of {most / _MIB:.0f} MiB")


def _replicas(server: ServerFacts, wanted: Durability, say: Say) -> Iterator[Finding]:
    if "role" not in server.info:
        return
    if server.is_replica:
        if server.info.get("master_link_status") != "up":
            yield say("replicas", "warning", "this replica does not hear its master",
                      "if promoted, it would lose what came since", "look at its log and its masterauth",
            )  # fmt: skip
        return
    followers = server.replicas
    late = [f"{one.get('ip')}:{one.get('port')} ({_state(one)})" for one in followers if not _follows(one)]
    if late:
        yield say("replicas", "warning", f"{len(late)} of {len(followers)} are behind: {', '.join(late[:5])}",
                  "what they lack is lost if the master dies", "check that they run and that the network keeps up",
        )  # fmt: skip
    good = len(followers) - len(late)
    if good < wanted.replicas:
        yield say("replicas", "problem", f"{good} are up to date, durability = {wanted.text} needs {wanted.replicas}",
                  "no send is acknowledged", "start replicas, or ask for less")  # fmt: skip
    elif 0 < wanted.replicas < len(followers):
        yield say("replicas", "warning", f"durability = {wanted.text} waits for {wanted.replicas} of {len(followers)}",
                  "a failover may promote one that has not heard of a message yet",
                  f"ask for replicas:{len(followers)}, or fail over by hand to the one that has most")  # fmt: skip
    elif not late:
        yield say("replicas", "ok", f"{good}, all up to date" if good else "none")


def _min_replicas(server: ServerFacts, wanted: Durability, say: Say) -> Iterator[Finding]:
    least, lag, there = server.number("min-replicas-to-write"), server.number("min-replicas-max-lag"), server.replicas
    if least is None or "role" not in server.info or server.is_replica:
        return
    set_it = f"CONFIG SET min-replicas-to-write {max(1, wanted.replicas)}, and CONFIG SET min-replicas-max-lag {_LAG}"
    if least > sum(map(_follows, there)):
        yield say("min-replicas", "problem", f"min-replicas-to-write {least}, of {len(there)} replicas",
                  "every write is refused (NOREPLICAS)", "start replicas, or lower it")  # fmt: skip
    elif least < wanted.replicas or (there and (least == 0 or lag == 0)):
        yield say("min-replicas", "problem" if wanted.replicas else "warning",
                  f"min-replicas-to-write {least}, min-replicas-max-lag {lag}",
                  "a master that is cut off keeps accepting writes, which are lost when it comes back", set_it,
        )  # fmt: skip
    elif there and lag is not None and lag > 10 * _LAG:
        yield say("min-replicas", "warning", f"min-replicas-max-lag {lag}",
                  f"a master that is cut off accepts writes for {lag} s more, which are lost", set_it)  # fmt: skip
    else:
        yield say("min-replicas", "ok", f"min-replicas-to-write {least}, min-replicas-max-lag {lag}")


def _backlog(server: ServerFacts, _: Durability, say: Say) -> Iterator[Finding]:
    """Yield what keeps clients from telling a failover that lost nothing from one that lost something."""
    size, lasts, end = (server.number(name) for name in ("repl-backlog-size", "repl-backlog-ttl", "second_repl_offset"))
    if size is None or lasts is None or server.is_replica:
        return
    text = f"repl-backlog-size {size}, repl-backlog-ttl {lasts}"
    if end is not None and end >= 0 and lasts and not server.replicas:
        yield say("backlog", "warning", f"{text}: once promoted it has no replica, and forgets that after {lasts} s",
                  "then what that failover lost is not reported for destinations that have not been called since",
                  "start a replica, or CONFIG SET repl-backlog-ttl 0")  # fmt: skip
    elif server.replicas and size < _LEAST_BACKLOG:
        yield say("backlog", "warning", text,
                  "a requested failover can lose writes where more is written before both replicas follow",
                  "CONFIG SET repl-backlog-size 67108864, or as much as is written in some seconds")  # fmt: skip
    elif server.replicas or (end is not None and end >= 0):
        yield say("backlog", "ok", text)


def _clock(server: ServerFacts, _: Durability, say: Say) -> Iterator[Finding]:
    if server.clock is None:
        return
    ahead = server.clock.ahead
    off = f"{abs(ahead):.{1 if abs(ahead) < 10 else 0}f} s {'ahead of' if ahead > 0 else 'behind'} ours"
    if abs(ahead) - server.clock.within > _CLOCK:
        yield say("clock", "warning", off,
                  "expiry and rates depend on it: if two servers differ, a failover stretches or shortens them",
                  "have all hosts follow one time source, with a clock that slews")  # fmt: skip
    else:
        yield say("clock", "ok", f"within {max(abs(ahead), server.clock.within, 0.001):.3f} s of ours")


def _connections(server: ServerFacts, _: Durability, say: Say) -> Iterator[Finding]:
    idle, alive = server.number("timeout"), server.number("tcp-keepalive")
    if idle:
        yield say("connections", "warning", f"timeout {idle}",
                  "idle connections are closed, and opened again when needed",
                  "CONFIG SET timeout 0")  # fmt: skip
    if alive == 0:
        yield say("connections", "warning", "tcp-keepalive 0",
                  "connections of hosts that disappeared are never closed", "CONFIG SET tcp-keepalive 60")  # fmt: skip
    there, most = server.number("connected_clients"), server.number("maxclients")
    if there is not None and most and there > _NEARLY_FULL * most:
        yield say("connections", "warning", f"{there} of {most} are open",
                  "more are refused", "raise maxclients, or use nodes in place of direct connections")  # fmt: skip
    elif there is not None and not idle and alive != 0:
        seen = "" if alive is None else f", timeout {idle}, tcp-keepalive {alive}"
        yield say("connections", "ok", f"{there} open{seen}")


def _scripts(server: ServerFacts, _: Durability, say: Say) -> Iterator[Finding]:
    cached = server.number("number_of_cached_scripts")
    if cached is None:
        return
    functions = server.number("number_of_functions")
    text = f"{cached} scripts cached" + ("" if functions is None else f", {functions} functions")
    if cached > _SCRIPTS:
        yield say("scripts", "warning", text, "some client keeps creating scripts, and they fill the memory",
                  "find out who calls EVAL with ever different texts; SCRIPT FLUSH does not harm Headgate")  # fmt: skip
    else:
        yield say("scripts", "ok", text)


def _buffers(server: ServerFacts, _: Durability, say: Say) -> Iterator[Finding]:
    words = server.config.get("client-output-buffer-limit", "").split()
    if "pubsub" not in words or len(words) < words.index("pubsub") + 4:
        return
    hard, soft, seconds = words[words.index("pubsub") + 1 :][:3]
    text = f"client-output-buffer-limit pubsub {hard} {soft} {seconds}"
    if any(size.isdigit() and 0 < int(size) < _LEAST_BUFFER for size in (hard, soft)):
        yield say("buffers", "warning", text, "a burst of hints disconnects subscribers, which then wait a second",
                  "CONFIG SET client-output-buffer-limit 'pubsub 33554432 8388608 60'")  # fmt: skip
    else:
        yield say("buffers", "ok", text)


_KEYLESS: Final = frozenset({"ping", "info", "script|load", "time", "wait"})
"""Commands of roles that take no key: who has them, and not the keys, is the user of other keys."""
_UNSEEN: Final = {
    "INFO": "persistence, eviction, memory and replicas",
    "CONFIG GET": "appendfsync, min-replicas, timeouts and buffers",
    "TIME": "the clock",
    "permissions": "what the user may do",
    "ACL GETUSER": "whether all of the append-only file can be loaded",
    "policy": "the durability that the policy asks for",
}


def _unseen(server: ServerFacts, _: Durability, say: Say) -> Iterator[Finding]:
    for what, why in server.unanswered.items():
        if what != "INFO" or server.version:
            yield say("not seen", "warning", f"{_UNSEEN[what]}: {why}",
                      "a check that cannot be made does not pass", "ask again as an administrator of this Redis",
            )  # fmt: skip


def _permissions(server: ServerFacts, _: Durability, say: Say) -> Iterator[Finding]:
    if not server.missing:
        return
    who = f"user {server.user[:64]}" if server.user else "the user"
    enough = [role for role, lacks in server.missing.items() if not lacks]
    short = {role: lacks for role, lacks in server.missing.items() if lacks}
    if enough:
        yield say("permissions", "ok", f"{who} may be: {', '.join(enough)}")
    if enough and server.beyond:
        yield say("permissions", "warning", f"{who} may also do what no role needs: {', '.join(server.beyond)}",
                  "a compromised program, or a mistake, can delete everyone's data there",
                  f"give it the user that `headgate acl --role {enough[0]}` prints")  # fmt: skip
    # A user that is called as `headgate acl` calls it is to have that role; of others the nearest is named.
    called = [role for role in short if re.fullmatch(rf"hg-.*-{role}", server.user)]
    if short and (called or not enough or len(server.missing) == 1):
        role = called[0] if called else min(short, key=lambda role: len(short[role]))
        lacks = short[role]
        elsewhere = [found[1] for one in lacks if (found := re.fullmatch(r"keys hg:\{(.*)/\*", one))]
        more = f" and {len(lacks) - 8} more" if len(lacks) > 8 else ""
        if elsewhere and _KEYLESS.isdisjoint(lacks):
            yield say("permissions", "problem", f"{who} has no right to the keys of namespace {elsewhere[0]}",
                      "it is another namespace's user, or none of Headgate's",
                      "name the user's own --namespace; for this one its rights are those that `headgate acl --role "
                      f"{role} --namespace {elsewhere[0]}` prints")  # fmt: skip
        else:
            yield say("permissions", "problem", f"{who} cannot be {role}: it lacks {', '.join(lacks[:8])}{more}",
                      "a script that is refused halfway leaves half of its changes",
                      f"`headgate acl` prints what a user needs, e.g. `headgate acl --role {role}`")  # fmt: skip


def _state(replica: dict[str, str]) -> str:
    state = replica.get("state", "?")
    return state if state != "online" else f"{replica.get('lag', '?')} s"


def _follows(replica: dict[str, str]) -> bool:
    lag = replica.get("lag", "0")
    return replica.get("state") == "online" and (not lag.lstrip("-").isdigit() or int(lag) <= _LAG)


def _why(server: ServerFacts, what: str) -> str:
    return f"was refused: {server.unanswered[what]}" if what in server.unanswered else "says nothing of it"


_CHECKS: Final = (
    _version, _permissions, _persistence, _loader, _eviction, _memory, _replicas, _min_replicas, _backlog, _clock,
    _connections, _scripts, _buffers, _unseen,
)  # fmt: skip
