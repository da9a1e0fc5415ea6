"""This module spells keys; no other module does.

``hg:{<namespace>/<encoded name>}`` is the destination's own hash; its parts add ``:<part>``. The braces make one
destination one hash slot; neither they nor glob characters can occur in what they enclose.
"""

import binascii
import hashlib
import re
import secrets
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from headgate.core.names import decode_name, encode_name, given_name, is_slice, messages_pool, slices_pool, whole_name
from headgate.errors import InvalidName

PARTS: Final = (
    "sessions",
    "leases",
    "waiters",
    "messages",
    "subscriptions",
    "consumers",
    "hungry",
    "redelivered",
    "refs",
    "orphans",
    "expiry",
    "pace",
    "drops",
    "slices",
    "links",
    "spooled",
    "fair",
    "rota",
    "later",
    "ledger",
)
"""In the order of lua/lib/keys.lua, between the destination's own hash and the caller's receipt."""

LIMITER_PARTS: Final = ("holds", "keyed", "line", "shares")
"""Of a limiter beside those, in the order of lua/lib/limiter_keys.lua: after the caller's receipt."""

BY_KEY: Final = ":keys"
"""The suffix for the limiter beside a gate or a bucket, in which its keys take turns."""

POOL_PARTS: Final = ("members", "line")
INDEX: Final = ("wildcards", "holders", "topics")
"""Of a namespace, in the order of lua/lib/index.lua."""
NODES: Final = ("nodes", "beats")
"""Likewise, in the order of lua/lib/node_keys.lua."""
OWNED: Final = ("owned", "owners")
"""Of a namespace, in the order of lua/lib/owned.lua."""
NOTES: Final = ("waits", "deadlocks")
"""Of a namespace; each of them is lua/lib/notes_key.lua's."""

_NAMESPACE: Final = re.compile(r"[a-z0-9-]{1,63}\Z", re.ASCII)
_SITE: Final = re.compile(r"[a-z0-9-]{1,32}\Z", re.ASCII)
_SESSION: Final = re.compile(r"[A-Za-z0-9_~-]{1,80}\Z", re.ASCII)
_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]{1,20}\Z", re.ASCII)
_LINK: Final = re.compile(r"(link~[A-Za-z0-9_-]*~[0-9a-f]{16})(?:~[0-9]{1,2})?\Z", re.ASCII)
_OWN: Final = re.compile(r"[A-Za-z0-9_-]{1,48}~[0-9a-f]{8}([0-9a-f]{16})?\Z", re.ASCII)


def check_namespace(namespace: str) -> str:
    """Return the namespace as it is.

    Raises:
        InvalidName: not 1 to 63 of a-z, 0-9 and '-'.
    """
    if not isinstance(namespace, str) or not _NAMESPACE.match(namespace):
        raise InvalidName(f"namespace {namespace!r:.100}: use 1 to 63 of a-z, 0-9 and '-'")
    return namespace


def check_session(session: str) -> str:
    """Return the session id as it is.

    Raises:
        InvalidName: not 1 to 80 of A-Z, a-z, 0-9, '_', '~' and '-'.
    """
    if not isinstance(session, str) or not _SESSION.match(session):
        raise InvalidName(f"session {session!r:.100}: use 1 to 80 of A-Z, a-z, 0-9, '_', '~' and '-'")
    return session


def session_id(name: str, prefix: str = "", key: str = "") -> str:
    """Return an id: ``prefix``, a readable form of ``name``, and what nobody else has, or a hash of ``key``."""
    readable = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")[:48] or "session"
    own = hashlib.sha256(key.encode()).hexdigest()[:24] if key else secrets.token_hex(4)
    return check_session(f"{prefix}{readable}~{own}")


def session_prefix(user: str) -> str:
    """Return what the ids of a user's sessions begin with: no two users have the same, nor one that begins another.

    ``alice~`` for whoever has a short plain name, ``~<hash>~`` for others. Ids that belong to no user, as
    :func:`session_id` makes them without a prefix, have one ``~`` only, those of users at least two.
    """
    return f"{user}~" if _PLAIN.match(user) else f"~{hashlib.sha256(user.encode()).hexdigest()[:16]}~"


def is_session_of(session: str, prefix: str) -> bool:
    """Return whether it is an id that :func:`session_id` makes with that prefix."""
    return session.startswith(prefix) and _OWN.match(session, len(prefix)) is not None


def link_id(name: str) -> str:
    """Return the id of a link: a session's id, the same wherever it is asked for, that begins readably.

    Raises:
        InvalidName: empty.
    """
    if not isinstance(name, str) or not name:
        raise InvalidName(f"link {name!r}: a name is text and not empty")
    readable = re.sub(r"[^A-Za-z0-9_]+", "-", name).strip("-")[:48]
    return check_session(f"link~{readable}~{hashlib.sha256(name.encode()).hexdigest()[:16]}")


def link_at(link: str, part: int) -> str:
    """Return the id under which a link commits what one slice of its source has; of the first slice its own.

    >>> link_at(link_id("a>b"), 3), link_of(link_at(link_id("a>b"), 3))
    ('link~a-b~998a5be88dc5c0d4~3', 'link~a-b~998a5be88dc5c0d4')
    """
    return f"{link}~{part}" if part else link


def link_of(session: str) -> str:
    """Return the id of the link that commits under this one; the id of any other session is returned as it is."""
    match = _LINK.match(session)
    return match[1] if match else session


def is_link(session: str) -> bool:
    """Return whether it is an id that :func:`link_id` or :func:`link_at` makes."""
    return _LINK.match(session) is not None


def forwarder_id(namespace: str, link: str) -> str:
    """Return the id of a link of a policy, in the state of both its ends.

    Args:
        namespace: of its source.
        link: as :attr:`headgate.core.links.link.Link.link` names it. A link to another site is distinct there
            from those of other namespaces by ``namespace``.
    """
    return link_id(f"{namespace}/{link}" if ":" in link else link)


def move_id(source: "Address", target: "Address") -> str:
    """Return the id of the link that stands for all messages moved by hand from one destination to another."""
    return link_id(f"moved {source.name}>{target.name}")


SLOTS: Final = 16384
_TWELFTHS: Final = (0, 4, 8, 2, 6, 10, 1, 5, 9, 3, 7, 11)
"""Places of slices on the ring, from the first: 3, 6 and 12 of them lie evenly, and so does each round after."""
_NEAR: Final = SLOTS // 128
_TRIES: Final = 4096


def slot_of(tag: str) -> int:
    """Return the slot of a Redis Cluster that keys with this hash tag are in."""
    return binascii.crc_hqx(tag.encode(), 0) % SLOTS


@lru_cache(maxsize=4096)
def _slice_tag(namespace: str, encoded: str) -> str:
    """Return the hash tag of a slice: with a number behind its name that puts it where it belongs on the ring."""
    whole, _, number = encoded.rpartition("%.")
    round_, place = divmod(int(number), len(_TWELFTHS))
    beyond = (_TWELFTHS[place] + round_ / 4) * SLOTS / len(_TWELFTHS)
    wanted = int(slot_of(f"{namespace}/{whole}") + beyond) % SLOTS
    tags = (f"{namespace}/{encoded}%.{salt}" for salt in range(_TRIES))
    return next((tag for tag in tags if (slot_of(tag) - wanted) % SLOTS < _NEAR), f"{namespace}/{encoded}")


@lru_cache(maxsize=1024)  # all sessions at a destination share them
def _shared(key: str) -> tuple[bytes, ...]:
    return (key.encode(), *(f"{key}:{part}".encode() for part in PARTS))


def _pools_of_slices(name: str) -> tuple[str, str]:
    """Return the names of the pools that the slices have of the destination that this name is of."""
    return slices_pool(whole := whole_name(name)), messages_pool(whole)


@dataclass(frozen=True, slots=True)
class Address:
    """An address names a destination of a namespace, and every key that belongs to it.

    ``limited`` is the own hash of the gate or bucket whose :attr:`by_key` it is; empty where it is nobody's.
    """

    namespace: str
    name: str
    key: str
    shared: tuple[bytes, ...] = field(compare=False)
    limited: bytes = b""

    @classmethod
    def of(cls, namespace: str, name: str) -> "Address":
        """Return the address of a destination.

        Raises:
            InvalidName: the namespace or the name cannot be used.
        """
        tag = f"{check_namespace(namespace)}/{encode_name(name)}"
        if "#" in name:
            if name in _pools_of_slices(name):
                raise InvalidName(f"destination {name!r}: slices are numbered from 1, and the first is the whole's own")
            tag = _slice_tag(namespace, encode_name(name))
        key = f"hg:{{{tag}}}"
        return cls(namespace, name, key, _shared(key))

    @classmethod
    def given(cls, namespace: str, name: str) -> "Address":
        """Return the address of a destination that somebody names; its slices are nobody's to name.

        Raises:
            InvalidName: the namespace or the name cannot be used, or it is that of a slice.
        """
        given_name(name)
        return cls.of(namespace, name)

    @property
    def whole(self) -> "Address":
        """The destination that this is a slice of; itself where it is none."""
        return Address.of(self.namespace, whole_name(self.name)) if is_slice(self.name) else self

    @property
    def shown(self) -> str:
        """The name that people know it by: of a slice, that of the whole."""
        return whole_name(self.name)

    @classmethod
    def of_channel(cls, namespace: str, channel: str) -> "Address":
        """Return the address of the bucket of a channel's rate; no destination has a name that leads here.

        Raises:
            InvalidName: the namespace or the name cannot be used.
        """
        return cls._of_sort("channel", namespace, channel)

    @classmethod
    def of_store(cls, namespace: str, store: str) -> "Address":
        """Return the address of a spool store; no destination has a name that leads here.

        Raises:
            InvalidName: the namespace or the name cannot be used.
        """
        return cls._of_sort("store", namespace, store)

    @classmethod
    def _of_sort(cls, sort: str, namespace: str, name: str) -> "Address":
        key = f"hg:{{{check_namespace(namespace)}/{sort}:{encode_name(name, sort)}}}"
        return cls(namespace, name, key, _shared(key))

    @property
    def by_key(self) -> "Address":
        """The limiter in which keys of a gate or a bucket take turns."""
        key = self.key + BY_KEY
        return Address(self.namespace, self.name, key, _shared(key), self.shared[0])

    @lru_cache(maxsize=1024)  # noqa: B019 -- addresses are values, and so few of them are kept
    def keys(self, session: str) -> tuple[bytes, ...]:
        """Return what every script gets as KEYS, for a call on behalf of one session."""
        return (*self.shared, f"{self.key}:receipt:{session}".encode())

    @lru_cache(maxsize=1024)  # noqa: B019
    def limiter_keys(self, session: str) -> tuple[bytes, ...]:
        """Return what scripts of limiters get as KEYS, for a call on behalf of one session."""
        own = (*self.keys(session), *(f"{self.key}:{part}".encode() for part in LIMITER_PARTS))
        return (*own, self.limited, self.limited + b":ledger") if self.limited else own

    @property
    def every_key(self) -> tuple[bytes, ...]:
        """Every key that it may have, but receipts."""
        return (*self.limiter_keys("-"), *self.by_key.limiter_keys("-")[:-2])

    def channels(self, session: str) -> tuple[str, str]:
        """Return the session's own wake-up channel and the one that everybody hears."""
        return f"{self.key}:wake:{session}", f"{self.key}:wake"


@dataclass(frozen=True, slots=True)
class PoolAddress:
    """A pool address names a pool of a namespace, and every key that belongs to it.

    The keys are in the order of lua/lib/pool_keys.lua.
    """

    namespace: str
    name: str
    key: str
    keys: tuple[bytes, ...]

    @classmethod
    def of(cls, namespace: str, name: str) -> "PoolAddress":
        """Return the address of a pool.

        Raises:
            InvalidName: the namespace or the name cannot be used.
        """
        key = f"hg:{{{check_namespace(namespace)}}}:pool:{encode_name(name, 'pool')}"
        if "#" in name:  # in a slot of its own, where no other pool is in its way
            if name not in _pools_of_slices(name):
                raise InvalidName(f"pool {name!r}: a slice has no pool of its own")
            key = f"hg:{{{namespace}/{encode_name(name, 'pool')}}}:pool"
        return cls(namespace, name, key, (key.encode(), *(f"{key}:{part}".encode() for part in POOL_PARTS)))

    @property
    def channel(self) -> str:
        """Of one that slices share: where they say what is worth another look."""
        return self.key.removesuffix("pool") + "wake"

    def site_key(self, site: str) -> bytes:
        """Return the key of the letters between the pool and a site with a part in it.

        Raises:
            InvalidName: no site is called so.
        """
        if not _SITE.match(site):
            raise InvalidName(f"site {site!r}: use 1 to 32 of a-z, 0-9 and '-'")
        return f"{self.key}:site:{site}".encode()


def parse_pool_key(key: str) -> tuple[str, str] | None:
    """Return (namespace, name) when the key is a pool's own hash, else None."""
    match = re.fullmatch(r"hg:\{([a-z0-9-]+)\}:pool:([A-Za-z0-9._~%-]+)", key)
    match = match or re.fullmatch(r"hg:\{([a-z0-9-]+)/([A-Za-z0-9._~%-]+%\.[0m])\}:pool", key)
    return (match[1], decode_name(match[2])) if match else None


def policy_key(namespace: str) -> str:
    """Return the key of the namespace's policy."""
    return f"hg:{{{check_namespace(namespace)}}}:policy"


def users_key(namespace: str) -> str:
    """Return the key of the namespace's users."""
    return f"hg:{{{check_namespace(namespace)}}}:users"


def made_key(namespace: str, user: str) -> bytes:
    """Return the key of what a user of nodes has made."""
    return f"hg:{{{check_namespace(namespace)}}}:made:{encode_name(user, 'user')}".encode()


def namespace_channel(namespace: str) -> str:
    """Return the channel on which a namespace tells what concerns more than one destination."""
    return f"hg:{{{check_namespace(namespace)}}}:wake"


def index_keys(namespace: str) -> tuple[bytes, ...]:
    """Return what the scripts of the namespace's index get as KEYS."""
    return tuple(f"hg:{{{check_namespace(namespace)}}}:{part}".encode() for part in INDEX)


def node_keys(namespace: str) -> tuple[bytes, ...]:
    """Return what the script of the namespace's registry of nodes gets as KEYS."""
    return tuple(f"hg:{{{check_namespace(namespace)}}}:{part}".encode() for part in NODES)


def owned_keys(namespace: str) -> tuple[bytes, ...]:
    """Return what the script of the namespace's named leases gets as KEYS."""
    return tuple(f"hg:{{{check_namespace(namespace)}}}:{part}".encode() for part in OWNED)


def notes_key(namespace: str, sort: str) -> bytes:
    """Return the key of a namespace's notes of one sort, one of :data:`NOTES`."""
    return f"hg:{{{check_namespace(namespace)}}}:{NOTES[NOTES.index(sort)]}".encode()


def parse_key(key: str) -> tuple[str, str] | None:
    """Return (namespace, name) when the key is a destination's own hash, else None."""
    match = re.fullmatch(r"hg:\{([a-z0-9-]+)/([A-Za-z0-9._~%-]+)\}", key)
    return (match[1], decode_name(match[2])) if match else None


def parse_store_key(key: str) -> tuple[str, str] | None:
    """Return (namespace, name) when the key is a spool store's own hash, else None."""
    match = re.fullmatch(r"hg:\{([a-z0-9-]+)/store:([A-Za-z0-9._~%-]+)\}", key)
    return (match[1], decode_name(match[2])) if match else None
