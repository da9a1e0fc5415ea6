"""An authorizer checks each call of a user at a node's gateway before it runs.

Nothing of what a client says is passed on unseen: its keys are not even carried but follow from the first one, values
are of the types that the script's header declares, and a session must be one of the user's own.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from headgate.core.names import decode_name, is_slice, read_name, whole_name
from headgate.errors import AccessDenied, InvalidValue
from headgate.namespace.topics import PLACEHOLDER, WildcardSubscription
from headgate.redis.keys import (
    BY_KEY,
    NOTES,
    Address,
    PoolAddress,
    index_keys,
    is_session_of,
    notes_key,
    parse_key,
    parse_pool_key,
    parse_store_key,
    policy_key,
    session_prefix,
)
from headgate.redis.replies import STORE_FIELDS
from headgate.redis.scripts import Script
from headgate.redis.stores.notes import KEEP_MS, PAGE, Tie
from headgate_coordinator.fleet.reply_queues import is_reply_queue
from headgate_coordinator.node.gateway.required_grants import (
    ANY,
    HOLD_WORDS,
    INDEX_SCRIPTS,
    LIMITER_SCRIPTS,
    MANAGES,
    MAX_BATCH,
    MOST_NAMES,
    MOST_READ,
    OPEN_READS,
    POOL_SCRIPTS,
    READS,
    RIGHTS,
    SENDS,
    STORE_READS,
    STORE_SCRIPTS,
    TAKES,
    check_rest,
    destination_named,
    destination_of_pool_call,
    forges_references,
    keys_of,
    named,
    text_of,
)
from headgate_coordinator.security import EVERYTHING, Action
from headgate_coordinator.security.access import Access

_CHANNEL: Final = re.compile(
    rf"hg:\{{([a-z0-9-]+)(?:(/[A-Za-z0-9._~%-]+)\}}(?:{BY_KEY})?|\}}):wake(?::([A-Za-z0-9_~-]*))?"
)
_FIGURES: Final = frozenset(STORE_FIELDS)
_OF_NAMESPACE: Final = re.compile(r"hg:\{([a-z0-9-]{1,63})[/}]")
_STAND_IN: Final = re.compile(rf"{PLACEHOLDER}[0-9a-f]{{16}}")


@lru_cache(maxsize=4096)
def place_of(key: bytes) -> Address | PoolAddress | str:
    """Return whose key it is, of a destination, store or pool; the key itself where it is one of a namespace.

    Raises:
        InvalidValue: it is not Headgate's, or not spelled as clients spell it.
    """
    text = key.decode("ascii", "replace")
    place: Address | PoolAddress
    if parsed := parse_key(text):
        place = Address.of(*parsed)
    elif parsed := parse_key(text.removesuffix(BY_KEY)):
        place = Address.of(*parsed).by_key
    elif parsed := parse_store_key(text):
        place = Address.of_store(*parsed)
    elif parsed := parse_pool_key(text):
        place = PoolAddress.of(*parsed)
    else:
        return text
    if place.key != text:
        raise InvalidValue(f"{text[:80]!r} is not a key of Headgate's: its name is spelled {place.key[:80]!r}")
    return place


class Authorizer:
    """An authorizer knows one user's rights at a gateway, and asks the connection's access at each call."""

    def __init__(self, access: Access, namespace: str) -> None:
        self.access = access
        self.user = access.user
        self.namespace = namespace
        self.prefix = session_prefix(self.user)
        """The prefix of the user's sessions; a manager of the namespace may act for any."""

    @property
    def manages_all(self) -> bool:
        """Whether the user may change what concerns the whole namespace."""
        return self.access.manages_all

    def manages(self, destination: str) -> bool:
        """Return whether the user may change things there."""
        return self.access.may(Action.MANAGE, destination)

    def has(self, actions: frozenset[Action], destination: str) -> bool:
        """Return whether the user may do one of these there."""
        return any(self.access.may(action, destination) for action in actions)

    def need(self, actions: frozenset[Action], destination: str, what: str) -> None:
        """Check that the user may do one of these there.

        Raises:
            AccessDenied: it may not.
        """
        if not self.has(actions, destination):
            wanted = " or ".join(action.value for action in Action if action in actions)
            raise self._denied(f"{what} needs {wanted} at {destination!r}", wanted, destination)

    def _denied(self, text: str, action: str = "", destination: str = "") -> AccessDenied:
        return AccessDenied(
            f"user {self.user!r}: {text}; ask an operator for a grant",
            user=self.user,
            action=action,
            destination=destination,
        )

    def place(self, key: Any) -> Address | PoolAddress | str:
        """Return whose key it is.

        Raises:
            AccessDenied: it is not of the node's namespace.
            InvalidValue: it is not Headgate's.
        """
        if not isinstance(key, bytes | str):
            raise InvalidValue("a key is text")
        place = place_of(key if isinstance(key, bytes) else key.encode("utf-8", "replace"))
        if not isinstance(place, str):
            other = place.namespace
        elif place in self._keys():
            return place
        elif not (named := _OF_NAMESPACE.match(place)) or (other := named[1]) == self.namespace:
            raise self._denied(f"{place[:80]!r} is not a key of {self.namespace!r}, the namespace served here")
        if other != self.namespace:
            served = f"the node serves namespace {self.namespace!r}, not {other!r}"
            raise AccessDenied(f"{served}; connect with namespace={self.namespace!r}", user=self.user)
        return place

    def _keys(self) -> tuple[str, ...]:
        notes = (notes_key(self.namespace, sort).decode() for sort in NOTES)
        return (policy_key(self.namespace), *(key.decode() for key in index_keys(self.namespace)), *notes)

    def call(self, op: Script, key: Any, argv: Sequence[Any]) -> tuple[tuple[bytes, ...], dict[str, Any]]:
        """Check a call of a script; returns its keys, and its arguments by name.

        Raises:
            AccessDenied: the user may not do that.
            InvalidValue: it is none.
        """
        place, values = self.place(key), named(op, argv)
        wanted = RIGHTS[op.name]
        if op.name in POOL_SCRIPTS:
            if not isinstance(place, PoolAddress):
                raise InvalidValue(f"{op.name} is for pools")
            self.need(wanted, destination_of_pool_call(op.name, place, values), op.name)
            return place.keys, values
        if op.name in INDEX_SCRIPTS:
            keys = index_keys(self.namespace)
            if place != keys[0].decode():
                raise InvalidValue(f"{op.name} is for the index of a namespace")
            self._index(op, values)
            return keys, values
        if op.name == "policy":
            own = policy_key(self.namespace)
            if place != own:
                raise InvalidValue("policy is for the policy of a namespace")
            self.need(wanted, EVERYTHING, op.name)
            return (own.encode(),), values
        if op.name == "note":
            waits = notes_key(self.namespace, "waits")
            if place != waits.decode() or values["keep_ms"] != KEEP_MS["waits"]:
                raise InvalidValue("note is for the waits of a namespace")
            self._waits(argv[len(values) :])
            return (waits,), values
        if not isinstance(place, Address) or (place.limited and op.name not in (*LIMITER_SCRIPTS, "secure")):
            raise InvalidValue(f"{op.name} is for destinations")
        if _is_store(place):
            self._store(op.name, place.name, allowed=op.name in STORE_SCRIPTS)
            return place.keys("-"), values
        session = values.get("session", "-") if op.name != "snapshot" else "-"
        if op.name != "snapshot" and "session" in values:
            self._session(op, place.name, values, wanted)
        else:
            self.need(wanted, place.name, op.name)
        self._bounds(op, place.name, values, argv)
        return keys_of(op, place, session), values

    def _session(self, op: Script, destination: str, values: dict[str, Any], wanted: frozenset[Action]) -> None:
        session, consumer = values["session"], values.get("consumer", "")
        if self.stands_in(op, values):
            if is_reply_queue(destination):
                raise self._denied(f"{destination!r} is not a topic")
            self.need(frozenset({SENDS, TAKES}) if op.name == "attach" else frozenset({TAKES}), destination, op.name)
            return
        self.need(wanted, destination, op.name)
        if op.name == "attach":
            self.subscription(decode_name(values["subscription"]))
        if op.name == "detach" and session == "-" and consumer.startswith("!"):
            self.subscription(decode_name(consumer[1:]))
            return
        self.own(session)
        if consumer and not consumer.startswith(f"{session}."):
            raise self._denied(f"consumer {consumer!r} is not of session {session!r}")
        if op.name == "acquire" and not self.has(frozenset({SENDS}), destination):
            asks = any(
                values[name] for name in ("granted", "granted_m", "need", "need_m", "want", "want_m", "size", "sent")
            )
            if asks:
                raise self._denied(f"credit needs produce at {destination!r}", SENDS.value, destination)

    def subscription(self, name: str) -> None:
        """Check that a subscription is not kept for another user.

        Raises:
            AccessDenied: it is.
        """
        if not self.access.owns(name):
            raise self._denied(f"subscription {name!r} is kept for AMQP clients of another user")

    @staticmethod
    def stands_in(op: Script, values: Mapping[str, Any]) -> bool:
        """Return whether it is a call for the paused consumer that holds a new subscription of a pattern."""
        if not _STAND_IN.fullmatch(values["session"]):
            return False
        if op.name == "attach":
            return bool(values["window"] == "paused" and values["number"] == 1)
        if op.name == "detach":
            return bool(values["consumer"] == f"{values['session']}.1")
        return op.name == "acquire" and values["leave"] == "leave"

    def own(self, session: str) -> None:
        """Check that a session is the user's.

        Raises:
            AccessDenied: it is not.
        """
        if not self.manages_all and not is_session_of(session, self.prefix):
            raise self._denied(f"session {session!r} is not yours: yours begin with {self.prefix!r}")

    def _store(self, what: str, name: str, *, allowed: bool) -> None:
        self.need(frozenset({MANAGES}), EVERYTHING, f"{what} of spool store {name!r}")
        if not allowed:
            raise self._denied(f"{what} of spool store {name!r} is not among what a node does for others")

    def _bounds(self, op: Script, destination: str, values: Mapping[str, Any], argv: Sequence[Any]) -> None:
        if op.name == "publish" and values["beyond"] == "hard" and not self.manages(destination):
            raise self._denied("only nodes go up to the hard limit", MANAGES.value, destination)
        if op.name == "publish" and forges_references(values, argv[len(values) :]):
            raise AccessDenied(  # by no grant: it would have others read what is not its own
                f"user {self.user!r}: only nodes, and clients at Redis itself, send what is in a spool store",
                user=self.user,
                action=SENDS.value,
                destination=destination,
            )
        if op.name == "admit" and not self.manages(destination):
            for hold in argv[len(values) + 1 :: HOLD_WORDS]:
                self.own(text_of(hold).rpartition(".")[0])
        if op.variadic:
            check_rest(op.name, values, argv[len(values) :])

    def _index(self, op: Script, values: Mapping[str, Any]) -> None:
        if op.name == "topic":
            removes, name = values["present"] != 1, destination_named(values["name"])
            if is_reply_queue(name) and not self.manages_all:
                raise self._denied(f"{name!r} is in no index")
            if not (removes and self.manages_all):  # who manages the namespace may take anything out
                self.need(frozenset({MANAGES}) if removes else RIGHTS["topic"], name, "the index")
            return
        entry = WildcardSubscription.read(values["name"], durable=False, ttl_ms=0)
        if entry is None:
            if not (values["mode"] == "end" and self.manages_all):
                raise InvalidValue("a wildcard subscription is a pattern and a name, each as clients spell it")
            return
        self.need(RIGHTS["wildcard"], entry.pattern.text, "a subscription by pattern")
        self.subscription(entry.subscription)
        if values["holder"] != "-":
            self.own(values["holder"].rpartition("~")[0])

    def _waits(self, rest: Sequence[Any]) -> None:
        """Check notes of waits: each of a consumer of the user's own, and of a send to where it may send."""
        if len(rest) % 2 or len(rest) > 2 * PAGE or not all(isinstance(word, str) for word in rest):
            raise InvalidValue(f"notes of waits are at most {PAGE} pairs of name and text")
        for name, text in zip(rest[::2], rest[1::2], strict=True):
            tie = _tie(name, text)
            if tie is None or len(text) > 2000:
                raise InvalidValue(f"{name[:80]!r} is not a note about a wait")
            self.own(tie.session)
            if text:
                self.need(frozenset({SENDS if tie.held else TAKES}), tie.destination, "a note of a wait")
                self.need(frozenset({SENDS}), tie.at, "a note of a wait")

    def read(self, key: Any, words: Sequence[Any]) -> None:
        """Check a read-only command: one of those that the SDK makes, on keys of one place.

        Raises:
            AccessDenied: the user may not read that.
            InvalidValue: it is no such command.
        """
        if [text_of(word) for word in words] == ["TIME"]:
            self.place(_split(text_of(key))[0])
            return
        if len(words) < 2 or not all(isinstance(word, str | bytes | int) for word in words):
            raise InvalidValue("a command has a key and consists of strings")
        name, wanted = text_of(words[0]).upper(), text_of(words[1])
        base, part = _split(wanted)
        place = self.place(base)
        if len(words) > 128 or (name in ("XRANGE", "HSCAN", "SSCAN") and not _is_bounded(words)):
            raise InvalidValue(f"{name} reads at most {MOST_READ} at a time: COUNT is its last word but one")
        if _split(text_of(key))[0] != base:
            raise InvalidValue("a command reads the key that it is sent for")
        if isinstance(place, Address) and _is_store(place):
            if (name, part) == ("HMGET", "") and _FIGURES.issuperset(words[2:]):
                return  # how full it is, which explains a wait; not where it is
            self._store(name, place.name, allowed=(name, part) in STORE_READS)
        elif isinstance(place, Address):
            self._read_part(place.name, name, part, words)
        elif isinstance(place, PoolAddress):
            if is_slice(place.name):  # what a destination's slices hold says how much is in it
                self.need(ANY, whole_name(place.name), name)
            self._read_pool(name, part, wanted)
        elif (name, place) == ("HGETALL", notes_key(self.namespace, "deadlocks").decode()):
            self.need(frozenset({MANAGES}), EVERYTHING, "looking for deadlocks")
        elif (name, place.rpartition(":")[2]) not in OPEN_READS:
            raise self._denied(f"{name} of {wanted[:80]!r} is not among the reads that a node makes for others")

    def _read_part(self, destination: str, name: str, part: str, words: Sequence[Any]) -> None:
        actions = READS.get((name, part))
        if actions is None:
            what = text_of(words[1])[:80]
            raise self._denied(f"{name} of {what!r} is not among the reads that a node makes for others")
        self.need(actions, destination, name)
        if not part and not self.manages_all and "front" in map(text_of, words[2:]):
            raise self._denied(f"only managers see who is first in the line of {destination!r}")
        if name != "XPENDING":
            return
        if len(words) != 7 or type(words[5]) is not int or not 0 < words[5] <= MAX_BATCH:
            raise InvalidValue(f"XPENDING reads up to {MAX_BATCH} ids that one consumer holds")
        self.own(text_of(words[6]).rpartition(".")[0])

    def _read_pool(self, name: str, part: str, wanted: str) -> None:
        if (name, f"pool:{part}" if part else "pool") in OPEN_READS:
            return
        if (name, part) != ("HSCAN", "members"):
            raise self._denied(f"{name} of {wanted[:80]!r} is not among the reads that a node makes for others")
        self.need(frozenset({MANAGES}), EVERYTHING, "the members of a pool")

    def channel(self, channel: Any) -> bool:
        """Return whether the user may hear the hints of a channel."""
        match = _CHANNEL.fullmatch(text_of(channel))
        if not match or match[1] != self.namespace:
            return False
        if match[2] is None:
            return match[3] is None
        mine = match[3] is None or self.manages_all or is_session_of(match[3], self.prefix)
        name = read_name(match[2][1:].partition("%.")[0])  # of a slice, that of the whole
        return mine and name is not None and self.has(ANY, name)


def _tie(name: str, text: str) -> Tie | None:
    """Return what a note of a wait says, spelled as it has to be; one without text takes a note away."""
    try:
        tie = Tie.read(name, text or "at=- wait=- waited=0 left=-", 0)
    except (KeyError, ValueError):
        return None
    return tie if tie.name == name and (not text or tie.text == text) else None


def _split(key: str) -> tuple[str, str]:
    """Return the key of a place, and which part of it another key is."""
    place = re.fullmatch(r"([^}]*/[^}]*\}(?::pool)?|[^}]*\}:pool:[^:]+)(?::(.*))?", key)
    return (place[1], place[2] or "") if place else (key, "")


def _is_store(place: Address) -> bool:
    return parse_store_key(place.key) is not None


def _is_bounded(words: Sequence[Any]) -> bool:
    count = words[-1]
    most = MOST_NAMES if text_of(words[0]).upper() == "SSCAN" else MOST_READ
    return len(words) >= 4 and text_of(words[-2]).upper() == "COUNT" and type(count) is int and 0 < count <= most
