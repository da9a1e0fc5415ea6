"""The policy of a namespace as one client follows it: read once, heard of when it changes, put back when it is lost."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import Final, TypeVar

from headgate._util.reconnect import AWAY
from headgate._util.tasks import stop
from headgate.core.policy import Policy, origins
from headgate.core.settings_table import LIMITER_FIELDS
from headgate.errors import AccessDenied, HeadgateError, PolicyConflict, PolicyError
from headgate.redis.backend import Backend, WakeUps
from headgate.redis.keys import namespace_channel
from headgate.redis.stores.policies import PolicyStore
from headgate.settings import DEFAULTS, FIELD_OF

T = TypeVar("T")
_log = logging.getLogger("headgate")
_NONE: Final = -1
"""No version: what is in force is still to be followed."""
AT_ONCE: Final = 200
"""Entries of a policy that are read or written in one turn of the loop: some milliseconds."""
BYTES_OF_AN_ENTRY: Final = 100
"""In the text of a policy, about."""
LOOK_EVERY: Final = 1.0
"""Seconds between looks at the version, for when nobody was heard to say that it changed."""
GOVERNED: Final[dict[str, str]] = DEFAULTS | {"rate": "", "burst": ""} | dict.fromkeys(LIMITER_FIELDS, "")
"""Every field that a policy governs, at its default."""


class PolicyFollower:
    """A policy follower knows the policy in force, as last read.

    ``follow`` is called when another one is in force, again until it succeeds.

    Attributes:
        policy: in force when it was last looked at; version 0, without rules, where there is none.
        lost: how often Redis was found to have lost it: then destinations may be as an earlier one had them.
        displaced: the last version that Redis lost and gave to another policy, 0 for none.
        applied_ms: when the policy came into force, by Redis' clock.
    """

    def __init__(
        self, server: Backend, wake_ups: WakeUps, namespace: str, follow: Callable[[], Awaitable[None]]
    ) -> None:
        self.policy = Policy(0, (), defaults=GOVERNED)
        self._store = PolicyStore(server, namespace)
        self._wake_ups = wake_ups
        self._channels = (namespace_channel(namespace),)
        self._follow = follow
        self.lost = self.displaced = self.applied_ms = self._found = 0
        self._followed = 0
        self._looked_at = float("-inf")
        self._heard = asyncio.Event()
        self._lock = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    async def current(self) -> Policy:
        """Return the policy in force; the first call reads it, and begins to watch it.

        Raises:
            CoordinatorUnavailable: Redis does not answer.
        """
        if self._task is None:
            async with self._lock:
                if self._task is None:
                    await self._wake_ups.subscribe(self._channels, self._hear)
                    self._followed = (await self.look()).version
                    self._task = asyncio.create_task(self._watch(), name="headgate policy")
        return self.policy

    async def recent(self) -> Policy:
        """Return the policy as it was within the last second: as it is followed, where it is, else read.

        Raises:
            CoordinatorUnavailable: Redis does not answer.
        """
        if self._task is None and time.monotonic() - self._looked_at >= LOOK_EVERY:
            await self.look()
            self._looked_at = time.monotonic()
        return self.policy

    async def look(self) -> Policy:
        """Read the policy if it is another than the one known, or put that back if Redis has lost it.

        Raises:
            CoordinatorUnavailable: Redis does not answer.
        """
        known = self.policy
        version, applied_ms = await self._store.stamp()
        if version < known.version and applied_ms <= self.applied_ms:
            text = await apart(entries(known), known.to_json)
            done, _ = await self._store.switch(
                text, version=known.version, expected="lost", source=known.source, came_ms=self.applied_ms
            )
            if done:
                self._go_over_all()
        elif (version, applied_ms) != (known.version, self.applied_ms):
            stored = await self._store.read()
            if stored.version:
                read = partial(Policy.from_json, stored.document, defaults=GOVERNED)
                there = await apart(len(stored.document) // BYTES_OF_AN_ENTRY, read)
                if self.policy is not known:
                    return self.policy  # another look was quicker; where this one found more, the next does
                if stored.version > known.version:
                    self._take(there)
                else:
                    await self._compare(there)
            self.applied_ms = stored.applied_ms
        if self._found > self.policy.version > 0:
            await self._raise(self._found + 1)
            self._found = 0
        return self.policy

    def found(self, version: int) -> None:
        """Hear that a destination follows a version: where it is above that in force, Redis lost it.

        Nobody is left then who knew it, or it would be put back. Its settings at destinations give way to those in
        force, under a number that is above.
        """
        if version > max(self.policy.version, self._found):
            self._found = version
            self._heard.set()

    async def _compare(self, there: Policy) -> None:
        """Follow the policy that Redis has, if it is another one that was put in force after the one known.

        A failover lost the one known, and somebody applied another before it was put back. Settings under numbers up
        to that of the lost one may be of either, so the one in force gets the next.
        """
        known = self.policy
        if says_the_same(there, known):
            return
        self.displaced = known.version
        _log.warning(
            "Redis lost version %d of the policy, of %s; the one of %s, which was applied after that, is followed",
            known.version, known.source or "no file", there.source or "no file",
        )  # fmt: skip
        self.policy = there
        self._go_over_all()
        await self._raise(max(there.version, known.version) + 1)

    async def _raise(self, version: int) -> None:
        """Give the policy in force a higher number, and have it followed by all destinations."""
        before = self.policy
        above, text = await apart(entries(before), partial(_written, before, version))
        with contextlib.suppress(AccessDenied):  # a node does it, for who may not
            done, _ = await self._store.switch(text, version=version, expected=before.version, source=before.source)
            if done:
                self._take(above)
                self._go_over_all()

    def _go_over_all(self) -> None:
        self.lost += 1
        self._followed = _NONE

    async def switch(self, policy: Policy, expected: int | None, *, above: int = 0) -> int:
        """Put a policy in force; returns its version. One that says what is in force already changes nothing.

        Args:
            policy: its version does not matter.
            expected: the version that must be in force, 0 for none; whatever is in force when None.
            above: a version that the one in force must exceed, or reach if it says the same.

        Raises:
            PolicyConflict: another version is in force than was expected.
            CoordinatorUnavailable: Redis does not answer; whether it was switched is not known, and it may be repeated.
        """
        while True:
            before = await self.look()
            repeated = says_the_same(before, policy) and before.version >= above
            if expected not in (None, before.version) and not (repeated and expected == before.version - 1):
                raise PolicyConflict(before.version, expected or 0)
            if repeated:
                return before.version
            version = max(before.version, above) + 1
            new, text = await apart(entries(policy), partial(_written, policy, version))
            done, _ = await self._store.switch(text, version=version, expected=before.version, source=policy.source)
            if done:
                self._take(new)
                _, self.applied_ms = await self._store.stamp()
                return version

    @contextlib.contextmanager
    def following(self, version: int) -> Iterator[None]:
        """Leave this version to another party to apply while inside; if that fails, the watch applies it."""
        before, self._followed = self._followed, version
        try:
            yield
        except BaseException:
            self._followed = before
            raise

    async def close(self) -> None:
        """Stop watching."""
        await stop(self._task)

    def _take(self, policy: Policy) -> None:
        if policy.version > self.policy.version:
            self.policy = policy

    def _hear(self, words: list[str]) -> None:
        if words[0] == "policy":
            self._heard.set()

    async def _watch(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY):
                    await self._heard.wait()
            self._heard.clear()
            try:
                version = (await self.look()).version
                if version != self._followed:
                    await self._follow()
                    self._followed = version
            except AWAY:
                continue  # it looks again soon
            except HeadgateError as error:
                _log.warning("the policy of %s is not followed: %s", self._channels[0], error)


def numbered(policy: Policy, version: int) -> Policy:
    """Return the policy under a version, resolving to every field that policies govern."""
    return Policy(
        version, policy.rules, policy.pools, policy.source, defaults=GOVERNED, links=policy.links, site=policy.site,
        sites=policy.sites, channels=policy.channels, stores=policy.stores, strict=policy.strict,
        include_parent=policy.include_parent, descriptors=policy.descriptors, user_limits=policy.user_limits,
    )  # fmt: skip


def _written(policy: Policy, version: int) -> tuple[Policy, str]:
    """Return the policy under a version, and its text."""
    new = numbered(policy, version)
    return new, new.to_json()


def entries(policy: Policy) -> int:
    """Return how many rules, pools, links and so on a policy has."""
    parts = (
        policy.rules, policy.pools, policy.links, policy.sites, policy.channels, policy.stores, policy.descriptors,
        policy.user_limits,
    )  # fmt: skip
    return sum(map(len, parts))


async def apart(size: int, work: Callable[[], T]) -> T:
    """Return what pure work on that many entries makes: in a thread where it would hold up all else of the loop."""
    return await asyncio.to_thread(work) if size > AT_ONCE else work()


def says_the_same(one: Policy, other: Policy) -> bool:
    """Return whether two policies differ in nothing but their version."""
    return _content(one) == _content(other)


def _content(policy: Policy) -> tuple[object, ...]:
    return (
        policy.rules, policy.pools, policy.links, policy.site, policy.sites, policy.channels, policy.stores,
        policy.strict, policy.include_parent, policy.descriptors, policy.user_limits, policy.source,
    )  # fmt: skip


def due(policy: Policy, name: str, fields: Mapping[str, str]) -> dict[str, str] | None:
    """Return what to apply to a destination with these fields so that it follows the policy; None for nothing.

    Where a rule matches, the policy decides every field that it governs, those included that were set by hand. Where
    none does, only what an older policy had set goes back to its default, and what was set by hand stays.
    """
    if int(fields.get("policy_version") or 0) >= policy.version:
        return None
    resolved = policy.resolve(name, fields["kind"])
    before = origins(fields.get("policy", ""))
    if not resolved.origins and not before:
        return None
    if "..." in before:  # not all had room in the text
        before = dict.fromkeys(resolved.fields, "")
    settings = {field: GOVERNED.get(field, "") for field in before if field in FIELD_OF.values()}
    if resolved.origins:
        settings |= resolved.fields
    return {**settings, "policy_version": str(policy.version), "policy": resolved.origin_text}


def without(text: str, fields: Mapping[str, str]) -> str:
    """Return the field ``policy`` of a destination without what it says about some fields: they were set by hand."""
    kept = [entry for entry in text.split(";") if entry.partition("=")[0] not in fields]
    return ";".join(kept)


def kind_of(policy: Policy, name: str, kinds: tuple[str, ...]) -> str:
    """Return the kind that a new destination gets: of the most specific rules that name one, else the first.

    Args:
        policy: in force.
        name: of the destination.
        kinds: that will do, the first of them first where rules with one pattern name several.

    Raises:
        PolicyError: the rules name only others.
    """
    rules = [rule for rule in reversed(policy.matching(name)) if rule.kind]
    fit = [rule for rule in rules if rule.kind in kinds]
    if rules and not fit:
        raise PolicyError(
            f"the policy (version {policy.version} of {policy.source or 'no file'}) makes {name!r} a {rules[0].kind} "
            f"by its rule {rules[0].match!r}; this takes a {' or '.join(kinds)}"
        )
    named = {rule.kind for rule in fit if rule.pattern.order == fit[0].pattern.order}
    return next((kind for kind in kinds if kind in named), kinds[0])
