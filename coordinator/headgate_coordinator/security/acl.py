"""Each part of Headgate has a user of Redis, with the commands that it calls and no others."""

import functools
import hashlib
import re
from collections.abc import Mapping
from typing import Final, Literal, get_args

from headgate.errors import InvalidValue
from headgate.redis.keys import INDEX, NOTES, PoolAddress, check_namespace
from headgate.redis.scripts import script, script_names

Role = Literal["node", "operator", "metrics", "sdk"]
ROLES: Final[tuple[Role, ...]] = get_args(Role)

_CALL: Final = re.compile(r"(?:redis\.call\(|= \{) ?'([A-Z]{3,})'(?:, '([A-Z]+)')?")
"""In a script: a call, or the table that a call unpacks."""
_CONTAINERS: Final = {"XGROUP", "XINFO"}
"""Commands of which a subcommand is allowed, not all."""

_CONNECT: Final = ("evalsha", "info", "ping", "select", "subscribe", "unsubscribe", "multi", "discard")
"""`multi` and `discard`, but no `exec`, are how a user finds out what it may do: `headgate doctor`."""
_READ: Final = (
    *("scan", "hget", "hmget", "hgetall", "hkeys", "hlen", "hexists", "hscan", "sismember", "sscan"),
    *("xrange", "xlen", "zcard", "zrange", "zscore", "wait"),
    *("zlexcount", "zrandmember", "zrangebylex", "zrangebyscore", "zrevrange"),  # of limiters: `levels`
)
_FUNCTIONS: Final[Mapping[Role, tuple[str, ...]]] = {
    "node": ("fcall", "function|delete", "function|list", "function|load"),
    "sdk": ("fcall",),
}
"""Services call functions that nodes have loaded: who loads one writes code that others run with their own rights."""
_CHANGES: Final = ("client|tracking",)
"""Of nodes, which subscribe to changes, for KEDA."""
_LETTERS: Final = ("hget", "hset", "publish")
"""Of a site with a part in a pool here."""
_CLUSTER: Final = ("cluster|slots", "cluster|shards", "cluster|nodes", "command", "asking")
_OPERATOR: Final = (
    *("acquire", "admit", "apply", "attach", "discard", "free", "hold_off", "levels", "link_commit", "move", "node"),
    *("policy", "pool", "pool_forget", "pool_set", "reap", "recount", "remove", "slice", "snapshot", "spent", "topic"),
    *("unspool", "users", "wildcard", "pool_site", "pin", "parted", "join", "rate_lend", "rate_take"),
)
"""Calls of the command line: `audit --repair` frees what stores hold in vain, and making a topic makes
its wildcard subscriptions: `attach`."""


def scripts_of(role: Role) -> tuple[str, ...]:
    """Return the scripts that a role calls."""
    if role == "node":
        return script_names()
    if role == "sdk":
        return tuple(name for name in script_names() if name != "users")
    return _OPERATOR if role == "operator" else ("levels", "snapshot")


@functools.cache
def commands_of_script(name: str) -> frozenset[str]:
    """Return the commands that a script calls, as an ACL names them."""
    found = set()
    for command, first in _CALL.findall(script(name).source):
        found.add(f"{command}|{first}".lower() if command in _CONTAINERS else command.lower())
    return frozenset(found)


def commands_of(role: Role, *, cluster: bool = False, functions: bool = False) -> tuple[str, ...]:
    """Return every command that a role needs, those inside its scripts included: Redis checks them too.

    ``functions``: with those by which a role that has many calls makes them cheaper; Redis knows them since 7.0.
    """
    found = {*_CONNECT, *_READ, *(_CLUSTER if cluster else ()), *(_FUNCTIONS.get(role, ()) if functions else ())}
    if role == "node":
        found.update(_CHANGES)
    if role != "metrics":  # which calls what others have loaded: who may load a script may load one that never ends
        found.add("script|load")
    for name in scripts_of(role):
        if (role, name) != ("metrics", "levels"):  # in whose text there is what `admit` writes, and it never calls that
            found |= commands_of_script(name)
    return tuple(sorted(found))


def keys_of(role: Role, namespace: str) -> tuple[str, ...]:
    """Return the patterns of keys that a role may touch; the users are for nodes and operators alone."""
    ns = check_namespace(namespace)
    if role in ("node", "operator"):
        return f"hg:{{{ns}/*", f"hg:{{{ns}}}:*"
    return f"hg:{{{ns}/*", f"hg:{{{ns}}}:pool:*", *(f"hg:{{{ns}}}:{part}" for part in (*INDEX, "policy", *NOTES))


def site_line(namespace: str, pool: str, site: str, *, password: str | None = None, cluster: bool = False) -> str:
    """Return the line of an ACL file for another site that has a part of a pool here.

    It may leave reports and read answers, in one key that is for nothing else. It calls no script, and reads no policy.

    Raises:
        InvalidName, InvalidValue: a name that cannot be used, or an empty password.
    """
    key = PoolAddress.of(namespace, pool).site_key(site).decode()
    commands = sorted({*_CONNECT, *_LETTERS, *(_CLUSTER if cluster else ())} - {"evalsha", "multi", "discard"})
    words = (
        "user",
        f"hg-{namespace}-site-{site}",
        *_login(password, site),
        "resetchannels",
        f"~{key}",
        f"&{key}",
        "&hg",
    )
    return " ".join((*words, "-@all", *(f"+{command}" for command in commands)))


def _login(password: str | None, name: str) -> tuple[str, ...]:
    if password is not None and not password:
        raise InvalidValue(f"the password of {name!r} is empty; give one, or none to leave the user off")
    return ("off",) if password is None else ("on", f"#{hashlib.sha256(password.encode()).hexdigest()}")


def acl_line(
    role: Role, namespace: str, *, user: str | None = None, password: str | None = None, cluster: bool = False,
    functions: bool = False,
) -> str:  # fmt: skip
    """Return the line of an ACL file for a role.

    Args:
        role: what the user is for.
        namespace: the only one that it reaches.
        user: its name; ``hg-<namespace>-<role>`` when None.
        password: only its SHA-256 is in the line; without one the user is off.
        cluster: with the commands that find out where slots are.
        functions: with those by which nodes load functions, and services call them.

    Raises:
        InvalidValue: a name with blanks, an empty password, or a role that is none.
    """
    if role not in ROLES:
        raise InvalidValue(f"role {role!r} is unknown; there are {', '.join(ROLES)}")
    name = user or f"hg-{check_namespace(namespace)}-{role}"
    if not re.fullmatch(r"[!-~]+", name):
        raise InvalidValue(f"user {name!r:.100}: use visible characters of ASCII, without blanks")
    login = _login(password, name)
    keys = (f"~{pattern}" for pattern in keys_of(role, namespace))
    channels = (f"&hg:{{{namespace}/*", f"&hg:{{{namespace}}}:*", "&hg")
    allowed = (f"+{command}" for command in commands_of(role, cluster=cluster, functions=functions))
    return " ".join(("user", name, *login, "resetchannels", *keys, *channels, "-@all", *allowed))
