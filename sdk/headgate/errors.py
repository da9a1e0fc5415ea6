"""The errors are one tree.

HeadgateError
├── CreditTimeout           the credit did not come in time (also a TimeoutError)
├── DestinationFull         the destination refuses instead of blocking
│   └── Shed                a limiter is so full that it refuses this band
├── MessageTooLarge         no amount of waiting will make it fit
├── DeadlockDetected        waiting would never end
├── SessionExpired          the lease ran out, what it held went to others
├── SlowConsumer            the consumer was closed because it was too slow
├── PolicyError             settings that contradict each other or the destination (also a ValueError)
│   └── UnknownDestination  it is not there, and not to be made
├── PolicyConflict          somebody else applied a policy meanwhile
├── TooManySubscriptions    a topic has as many as it may
├── SubscriptionInUse       a subscription has consumers, and selects other messages
├── MessageUnavailable      one message that cannot be moved or deleted now: others have it, or it is gone
├── InvalidName             a namespace or a name that cannot be used (also a ValueError)
├── InvalidValue            a size, duration, rate, URL or option that cannot be read (also a ValueError)
│   └── MessageFormatError  a message that cannot be read or written as AMQP 1.0 or as the SDK stores it
├── CoordinatorUnavailable  Redis cannot be reached, or is not one we can use (also a ConnectionError)
│   └── DestinationDamaged  keys of the destination are missing in Redis: evicted, or deleted by hand
├── NotDurable              stored, but not yet on as many replicas, or on the disk, as asked for (also a TimeoutError)
├── SpoolUnavailable        the storage of a spool store does not take, give or delete a segment (also an OSError)
├── AccessDenied            Redis or a node refused the credentials, or what was asked for
└── Closed                  the client, session or handle was closed

Facts are attributes; the text says what happened, the facts, and what to do.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from headgate.figures import rounded


class HeadgateError(Exception):
    """Headgate could not do something that it was asked for."""


class CreditTimeout(HeadgateError, TimeoutError):
    """No credit was granted within the timeout; nothing was sent.

    Attributes:
        destination: its name.
        waited: seconds.
        size: bytes that were asked for.
        place: place in the line at the last answer; 0 when not in line.
        explanation: why, as :meth:`Client.explain` says it; None when Redis could not be asked.
        retry_after: seconds until it could be had, if nobody else comes; at a limiter, at the soonest, for others may
            stand before it. None where nobody knows.
        limit: of a limiter, the name of the limit that binds; of a gate ``bytes``, ``calls`` or ``hold_off``, of a
            bucket ``rate`` or ``hold_off``; empty elsewhere, and where it is not known.
        rule: of a limiter, ``all`` for the limit of all callers together, ``key`` for that of one key; empty elsewhere.
        amounts: of a limiter, what was asked for, by the names of limits.
        key: for which key; None without one.
        paid: whether its credit was there: only Redis, or the destination's rate, held it up.
    """

    def __init__(
        self, destination: str, waited: float, size: int, *, place: int = 0, reason: str = "", explanation: Any = None,
        gate: bool = False, retry_after: float | None = None, limit: str = "", rule: str = "",
        amounts: Mapping[str, int] | None = None, key: str | None = None, paid: bool = False,
    ) -> None:  # fmt: skip
        self.destination = destination
        self.waited = waited
        self.size = size
        self.place, self.paid = place, paid
        self.reason = reason
        self.explanation = explanation
        line = f", place {place} in line" if place else ""
        why = f": {reason}" if reason else ""
        remedy = getattr(explanation, "remedy", "") or "wait longer"
        self.retry_after = retry_after
        self.limit, self.rule = limit, rule
        self.amounts, self.key = dict(amounts or {}), key
        if rule:
            amount = f"{' '.join(f'{name}={number}' for name, number in self.amounts.items())} at limiter"
            whose = f" of key {key!r}" if rule == "key" else ""
            soonest = "when is not known" if retry_after is None else f"in {rounded(retry_after)} s at the soonest"
            if not reason:
                why = f": {limit!r}{whose} has no room, and {soonest}" if limit else ""
                remedy = "wait longer, ask for less, or raise the limit"
        else:
            amount = f"{size} at gate" if gate else f"{size} bytes on"  # a gate's size may be in calls
        within = f"within {rounded(waited)} s" if waited >= 0.001 else "at once"
        what = f"{amount} {destination!r}"
        what = f"{what} had credit and were not sent" if paid else f"no credit for {what}"
        super().__init__(f"{what} {within}{line}{why}; {remedy}")


class DestinationFull(HeadgateError):
    """The destination has no room and its settings say not to wait.

    Attributes:
        destination: its name.
        size: bytes that were asked for.
        waited: seconds.
        explanation: why, as :meth:`Client.explain` says it; None when Redis could not be asked.
    """

    def __init__(
        self,
        destination: str,
        size: int,
        reason: str = "",
        *,
        waited: float = 0.0,
        explanation: Any = None,
        gate: bool = False,
    ) -> None:
        self.destination = destination
        self.size = size
        self.reason = reason
        self.waited = waited
        self.explanation = explanation
        after = f" after {rounded(waited)} s" if waited >= 0.1 else ""
        remedy = getattr(explanation, "remedy", "") or "try again later"
        super().__init__(
            f"{destination!r} has no room for {size}{'' if gate else ' bytes'}{after}"
            f"{': ' + reason if reason else ''}; {remedy}"
        )


class Shed(DestinationFull):
    """A limiter is filled so far that it refuses calls of this band at once; nothing was taken.

    Attributes:
        band: of the call, 0 to 7.
        fill: how far the limit is filled, from 0 to 1.
        limit: its name.
        rule: ``all`` for the limit of all callers together, ``key`` for that of one key.
        key: for which key; None without one.
    """

    def __init__(
        self, destination: str, size: int, band: int, fill: float, limit: str, rule: str, *, key: str | None = None
    ) -> None:
        self.band, self.fill = band, fill
        self.limit, self.rule, self.key = limit, rule, key
        super().__init__(destination, size, f"{limit!r} is filled to {fill:.0%}, where band {band} is shed", gate=True)


class MessageTooLarge(HeadgateError):
    """The message is larger than the destination's whole limit.

    Attributes:
        destination: its name.
        size: bytes as stored.
        limit: the limit in bytes.
        pool: name of the pool whose limit it is; empty when it is the destination's own.
        name: of a limiter, the name of that limit; empty elsewhere.
        rule: of a limiter, ``all`` for the limit of all callers together, ``key`` for that of one key; empty elsewhere.
    """

    def __init__(
        self, destination: str, size: int, limit: int, *, pool: str = "", gate: bool = False, name: str = "",
        rule: str = "",
    ) -> None:  # fmt: skip
        self.destination = destination
        self.size = size
        self.limit = limit
        self.pool = pool
        self.name, self.rule = name, rule
        unit = "" if gate else " bytes"
        whose = f"whose pool {pool!r} has {limit}{unit} for it" if pool else f"whose limit is {limit}{unit}"
        if name:
            whose = f"whose limit {name!r}{' of each key' if rule == 'key' else ''} is {limit}"
        what = f"{size} at once" if gate else f"a message of {size} bytes"
        super().__init__(f"{what} can never fit {destination!r}, {whose}; send less at once or raise the limit")


class DeadlockDetected(HeadgateError):
    """Every way out of this wait leads back to it; nothing was sent.

    Attributes:
        destination: its name.
        session: id of the session that waited.
        size: bytes that were asked for.
        waited: seconds.
        deadlock: the cycle: its ``steps``, each with ``who`` waits for ``what``; None when that is not known.
        explanation: why, as :meth:`Client.explain` says it; None when Redis could not be asked.
    """

    def __init__(
        self,
        destination: str,
        session: str,
        size: int,
        waited: float,
        *,
        deadlock: Any = None,
        explanation: Any = None,
    ) -> None:
        self.destination = destination
        self.session = session
        self.size = size
        self.waited = waited
        self.deadlock = deadlock
        self.explanation = explanation
        cycle = f": {deadlock}" if deadlock else ""
        moves = explanation is not None and explanation.cause == "spread-anew"
        otherwise = "set slices and order_by back, for values are to change slices" if moves else "raise the limit"
        super().__init__(
            f"{size} bytes on {destination!r} would wait forever{cycle}; consume in a task that does not send there, "
            f"settle before you send, or {otherwise}"
        )


class SessionExpired(HeadgateError):
    """The session's lease has run out, or that of a hold; what it held was given to others.

    Attributes:
        destination: its name.
        session: the session's id, or the hold's.
    """

    def __init__(self, destination: str, session: str, what: str = "") -> None:
        self.destination = destination
        self.session = session
        lost = f"hold {session} of {destination!r} is over: it was released, or not renewed for its whole lease"
        if what:
            lost = f"session {session} was not heard from for its whole lease on {destination!r}: {what}"
        super().__init__(f"{lost}; a longer ttl tolerates longer pauses")


class SlowConsumer(HeadgateError):
    """The consumer did not keep up, and the destination's rules say to detach it; others got what it held.

    Attributes:
        destination: its name.
        consumer: the consumer's id.
    """

    def __init__(self, destination: str, consumer: str) -> None:
        self.destination = destination
        self.consumer = consumer
        super().__init__(
            f"consumer {consumer} of {destination!r} was detached because it was too slow; "
            f"open another with a smaller window, or have more of them"
        )


class _SettingError(ValueError):
    """The problem is with one setting or option, or with several together.

    Attributes:
        problem: what is wrong, without the name of the one whose value it is.
        settings: that it is about, the one to change first; empty where it is about none.
    """

    def __init__(self, problem: str, *, setting: str = "", settings: Sequence[str] = ()) -> None:
        """Describe a problem, of the value of one ``setting``, or of several ``settings`` that it names itself."""
        self.problem = problem
        self.settings = (setting,) if setting else tuple(settings)
        super().__init__(f"{setting}: {problem}" if setting else problem)

    @property
    def setting(self) -> str:
        """The setting or option that it is about first; empty where it is about none."""
        return self.settings[0] if self.settings else ""

    def beside(self, setting: str) -> str:
        """Return the text as it reads beside the name of that setting: without it, if it begins with it."""
        return self.problem if self.setting == setting else str(self)

    def spelled(self, names: Mapping[str, str]) -> str:
        """Return the problem with other names for the settings that it names itself."""
        text = self.problem
        for setting in self.settings:
            text = text.replace(setting, names.get(setting, setting))
        return text


class PolicyError(HeadgateError, _SettingError):
    """These settings contradict each other, or the destination as it is."""


class UnknownDestination(PolicyError):
    """There is no such destination, and it is not to be made.

    Attributes:
        destination: its name.
        namespace: where it was looked for.
        near: names that are known, and nearly the same.
    """

    def __init__(
        self, destination: str, namespace: str, hint: str = "; headgate status lists them", near: Sequence[str] = ()
    ) -> None:
        self.destination = destination
        self.namespace = namespace
        self.near = tuple(near)
        super().__init__(f"there is no destination {destination!r} in namespace {namespace!r}{hint}")


class TooManySubscriptions(HeadgateError):
    """A topic has as many subscriptions as it may have; this one was not made.

    Attributes:
        destination: the topic.
        limit: how many it may have.
    """

    def __init__(self, destination: str, limit: int) -> None:
        self.destination = destination
        self.limit = limit
        super().__init__(
            f"topic {destination!r} has {limit} subscriptions, the most allowed; remove one that nobody needs, "
            f"or share one between several consumers"
        )


class SubscriptionInUse(HeadgateError):
    """A subscription has consumers, and another selector than the one that was asked for; nothing was changed.

    Attributes:
        destination: the topic.
        subscription: its name.
    """

    def __init__(self, destination: str, subscription: str) -> None:
        self.destination = destination
        self.subscription = subscription
        super().__init__(
            f"subscription {subscription!r} of {destination!r} has consumers with another selector; use theirs, "
            "close them first, or take another name"
        )


class MessageUnavailable(HeadgateError):
    """One message was to be moved or deleted, and cannot be now; it is as it was.

    Attributes:
        destination: where it was looked for.
        id: of the message.
        why: ``gone``, ``held`` by a consumer or a link, ``copied`` by links of its queue, ``spooled``, or ``busy``:
            other moves to the same target were under way.
        holder: with ``held``, the id of who has it; empty else.
    """

    def __init__(self, destination: str, id: str, why: str, holder: str = "") -> None:  # noqa: A002 - as the attribute
        self.destination, self.id = destination, id
        self.why, self.holder = why, holder
        what = {
            "gone": f"is not in {destination!r} (any more): list what is there again",
            "held": f"of {destination!r} is held by {holder}: try again once it has been given back",
            "copied": f"of {destination!r} cannot be moved alone: links copy from there, and would copy it twice",
            "spooled": f"of {destination!r} cannot be moved alone: its payload is in a spool store",
            "busy": f"of {destination!r} was not moved: other moves to the same target were under way; try again",
        }
        super().__init__(f"message {id} {what[why]}")


class PolicyConflict(HeadgateError):
    """Another version of the policy is in force than was expected; nothing was changed.

    Attributes:
        version: in force; 0 for none.
        expected: the version that was to be replaced.
    """

    def __init__(self, version: int, expected: int) -> None:
        self.version = version
        self.expected = expected
        super().__init__(
            f"policy version {version} is in force, not {expected}: somebody applied another meanwhile; "
            f"look at it, and apply yours over version {version} if it still should be"
        )


class InvalidName(HeadgateError, _SettingError):
    """A namespace, destination, session or subscription name cannot be used."""


class InvalidValue(HeadgateError, _SettingError):
    """A size, duration, rate, URL or option cannot be read."""


class MessageFormatError(InvalidValue):
    """A message is not what it should be: damaged, or neither AMQP 1.0 nor as the SDK stores messages.

    Attributes:
        problem: what is wrong with it.
        at: the byte where it was found; None where there is none to tell.
        id: what the message is called at its destination; empty where that is not known.
    """

    def __init__(self, problem: str, *, at: int | None = None, id: str = "") -> None:  # noqa: A002 - as of a message
        name = f"message {id}" if id else "this message"
        super().__init__(f"{name} cannot be read: {problem}{'' if at is None else f' (byte {at})'}")
        self.problem = problem
        self.at = at
        self.id = id


class CoordinatorUnavailable(HeadgateError, ConnectionError):
    """Redis, or every node, cannot be reached, does not answer in time, or is not one that can be used.

    Attributes:
        answered: whether it did answer with the reason: it is full, or loads its data.
    """

    def __init__(self, text: str, *, answered: bool = False) -> None:
        self.answered = answered
        super().__init__(text)


class DestinationDamaged(CoordinatorUnavailable):
    """Keys of the destination are missing in Redis, or are no keys of ours: they were evicted, or changed by hand."""


class NotDurable(HeadgateError, TimeoutError):
    """Something is done in Redis, and not known to be as safe as its ``durability`` asks; it is not to be done again.

    Attributes:
        destination: its name.
        receipt: of the message, which is stored; None where it is a settlement.
        durability: what was asked for.
        replicas: that were known to have it.
        needed: replicas that were to have it.
        waited: seconds.
    """

    def __init__(
        self,
        destination: str,
        what: str,
        *,
        durability: str,
        replicas: int,
        needed: int,
        waited: float,
        receipt: Any = None,
        problem: str = "",
    ) -> None:
        self.destination = destination
        self.receipt = receipt
        self.durability = durability
        self.replicas = replicas
        self.needed = needed
        self.waited = waited
        lacks = "replicated" if replicas < needed else "on disk"
        count = f"acknowledged by {replicas} of {needed} replicas" if needed else "not written to disk"
        why = f" ({problem})" if problem else ""
        super().__init__(
            f"{what} of {destination!r} is stored, not yet {lacks}: {count} within {waited * 1000:.0f} ms{why}; "
            "it is lost only if Redis fails over or stops first, so do not repeat it; see to the replicas or the disk"
        )


class SpoolUnavailable(HeadgateError, OSError):
    """The storage of a spool store did not do what it was asked for.

    Attributes:
        url: of the store, without secrets.
        verb: ``write``, ``read``, ``delete`` or ``list``.
        path: of the segment, in the store.
        problem: what the storage says.
    """

    def __init__(self, url: str, verb: str, path: str, problem: str) -> None:
        self.url = url
        self.verb = verb
        self.path = path
        self.problem = problem
        super().__init__(f"spool store at {url}: cannot {verb} {path}: {problem}; it is tried again")

    def __str__(self) -> str:
        return str(self.args[0])


class AccessDenied(HeadgateError):
    """Redis has refused the credentials, or a command that a script needs; or a node has refused, and says what.

    Attributes:
        user: whom a node refused; empty where Redis did.
        action: what that user may not do, such as ``produce``; empty where the credentials are wrong.
        destination: where, or what else it was about.
    """

    def __init__(self, text: str, *, user: str = "", action: str = "", destination: str = "") -> None:
        self.user = user
        self.action = action
        self.destination = destination
        super().__init__(text)


class Closed(HeadgateError):
    """The client, session, producer, consumer or gate was closed."""
