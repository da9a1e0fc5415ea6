"""An executor makes the calls of SDKs as they are, once they are permitted.

Calls that concern others are not left to users who only produce and consume: settings of a new destination are those of
the policy, new topics are given their subscriptions, and pools are drawn from and given back to, by the node
itself, and a list of names shows those that the user has to do with.
"""

import asyncio
import math
from collections.abc import Sequence
from typing import Any, Final, cast

from headgate.context import Context
from headgate.core.durability import Durability
from headgate.core.names import decode_name, encode_name, slice_number
from headgate.errors import AccessDenied, CoordinatorUnavailable, InvalidValue
from headgate.namespace.policy_follower import GOVERNED
from headgate.redis.backend import Backend
from headgate.redis.durable_calls import DurableBackend
from headgate.redis.keys import Address, PoolAddress, is_session_of, parse_key, policy_key
from headgate.redis.scripts import Script, script, script_names
from headgate.settings import KINDS
from headgate.waits import KINDS as WAITED_FOR
from headgate.waits import OUTCOMES, Kind, Outcome, Wait
from headgate_coordinator.fleet.reply_queues import is_reply_queue
from headgate_coordinator.node.conditions import LinkQueueGone
from headgate_coordinator.node.credit.counting import COUNTED, counted
from headgate_coordinator.node.credit.quotas import Quotas
from headgate_coordinator.node.gateway.authorizer import Authorizer
from headgate_coordinator.node.gateway.pinned_calls import PinnedCalls
from headgate_coordinator.node.gateway.pool_calls import PoolCalls
from headgate_coordinator.node.gateway.rate_calls import RATE_SCRIPTS, RateCalls, sender_of
from headgate_coordinator.node.gateway.required_grants import MOST_WAITED_MS, SECURED, text_of
from headgate_coordinator.node.gateway.spooled_batches import SpooledBatches
from headgate_coordinator.node.gateway.visible import VisibleNamespace, asks_for_policy, hide_holds
from headgate_coordinator.node.shown_policies import ShownPolicies
from headgate_coordinator.security import EVERYTHING, Action
from headgate_coordinator.security.creation_quota import CreationQuota

MASTERS: Final = (("CONFIG", "GET", "maxmemory"), ("INFO", "memory"))
"""Commands that may go to every master."""
MOST_WAITS: Final = 256
"""Waits that one call tells of."""
LONGEST_WAIT: Final = 1e7
"""Seconds of one of them."""
SOURCES: Final = 1024
"""Destinations that a connection receives from whose dead letters are looked after."""
HELD_BACK: Final = 1.0
"""Seconds that a batch of an SDK waits for its user's quota, before it has to come again."""
LOOK_EVERY: Final = 1.0
"""Seconds between looks where the dead letters of these go."""


class Executor:
    """Does what one user asks for.

    Args:
        parts: the node's ways to the state.
        authorizer: the user's.
        creations: the node's count of what users make.
        spooled_batches: spools for it.
        quotas: of users, over all nodes.
        policies: what users are shown of the policy.
    """

    def __init__(
        self,
        parts: Context,
        authorizer: Authorizer,
        creations: CreationQuota,
        spooled_batches: SpooledBatches,
        quotas: Quotas,
        policies: ShownPolicies,
    ) -> None:
        self._quotas = quotas
        self._parts = parts
        self._spooled_batches = spooled_batches
        self._authorizer = authorizer
        self._creations = creations
        self._server = parts.store.server
        self._pool_calls = PoolCalls(parts)
        self._pinned_calls, self._rate_calls = PinnedCalls(parts, self._server), RateCalls(parts, self._server)
        self.shown = VisibleNamespace(authorizer.access, policies)
        self._sources: dict[str, None] = {}
        self._looked_at = -math.inf

    async def perform(self, what: Any, words: Sequence[Any]) -> Any:
        """Do what a call asks for, and return the answer.

        Raises:
            AccessDenied: the user may not do that.
            InvalidValue: it is no call.
            CoordinatorUnavailable: Redis does not answer.
        """
        if what == "call" and len(words) == 3:
            return await self._call(*words)
        if what == "secure" and len(words) == 5:
            return await self._secure(*words)
        if what == "command" and len(words) == 2 and isinstance(words[1], list):
            return await self._command(*words)
        if what == "scan" and len(words) == 1:
            return await self._scan(words[0])
        if what == "everywhere" and len(words) == 1 and isinstance(words[0], list):
            return await self._everywhere(words[0])
        if what == "waited" and len(words) == 1:
            return self._waited(words[0])
        if what == "ping":
            return None
        raise InvalidValue(f"{str(what)[:40]!r} with {len(words)} words is not a call that this node knows")

    async def _call(self, name: Any, key: Any, argv: Any, server: Backend | None = None) -> Any:
        if not isinstance(name, str) or name not in script_names() or not isinstance(argv, list):
            raise InvalidValue(f"there is no script {str(name)[:40]!r} here: node and client have different versions")
        op = script(name)
        keys, values = await self._permitted(op, key, argv)
        if op.arguments[0] == "run_id":
            argv[0] = None  # the node's own connection knows which run of Redis answers
        rest = argv[len(values) :]
        if not self._authorizer.manages_all and (done := await self._instead(op, keys, values, rest)) is not None:
            return done
        if name == "publish":
            return await self._publish(op, keys, values, argv, server or self._server)
        if name == "policy" and values["expected"] == "lost":  # the client may not have seen all of it
            return [b"OK", str((await self._parts.registry.policies.look()).version).encode()]
        if name in ("apply", "slice") and (parsed := parse_key(keys[0].decode())):  # else it is a store, and he manages
            address = Address.of(*parsed)
            if name == "apply":
                async with self._creations.by(self._authorizer.access, address.name):
                    await self._check_slice(address)
                    if not self._authorizer.manages(address.name):
                        return await self._apply(address, values["mode"], argv[3:])
                    await self._check_apply(address, argv[3:])
                    return await (server or self._server).call(op, keys, argv)
            if not self._authorizer.manages_all:
                argv[2:] = [0, 0, 0, 0, 0, "keep"]  # a look
        in_flight = await self._quotas.in_flight(self._authorizer.user) if name in COUNTED else None
        reply = await counted(in_flight, server or self._server, op, keys, argv)
        if name in ("levels", "snapshot") and not self._authorizer.manages_all:
            hide_holds(name, reply, own=name == "levels" and is_session_of(values["who"], self._authorizer.prefix))
        return reply

    async def _publish(
        self, op: Script, keys: tuple[bytes, ...], values: dict[str, Any], argv: list[Any], server: Backend
    ) -> Any:
        """Have a batch wait for its user's quota, and count there what of it is stored.

        The part of one batch that goes beyond the quota is owed. Nothing is counted that was refused, or was stored
        before. Where no answer came all is, for it may have been stored; when it comes again, it is counted no more.

        Raises:
            CoordinatorUnavailable: nothing of the quota was left in time.
        """
        bodies = argv[len(op.arguments) - 1 :]  # a spool puts references in their places
        limited = self._quotas.of(self._authorizer.user) is not None
        allowance = await self._quotas.allowance(self._authorizer.user) if limited else None
        batch, counted_before = (keys[0], values["session"], values["inc"], values["seq"]), False
        if allowance is not None:
            counted_before = allowance.counts(batch)
            if not counted_before and not await allowance.opened(HELD_BACK):
                raise CoordinatorUnavailable(allowance.why)  # it comes again, as to a Redis that is away
            allowance.begin(batch, bodies)
        if values["beyond"] == "spool":
            place = self._authorizer.place(keys[0])
            assert isinstance(place, Address)  # noqa: S101 -- it was permitted as one
            reply = await self._spooled_batches.publish(op, place, values, argv, server)
        else:
            reply = await server.call(op, keys, argv)
        if allowance is not None:
            codes = (b"OK", b"DUPLICATE") if counted_before else (b"OK",)
            allowance.end(batch, bodies, int(reply[8]) if bytes(reply[0]) in codes else 0)
        return reply

    async def _secure(self, name: Any, key: Any, argv: Any, durability: Any, within_ms: Any) -> list[Any]:
        if name not in SECURED or type(within_ms) is not int or not 0 < within_ms <= MOST_WAITED_MS:
            raise InvalidValue(f"a node waits up to {MOST_WAITED_MS} ms, after {', '.join(sorted(SECURED))}")
        wanted = Durability.parse(durability)
        waiting = DurableBackend(self._server, wanted, within_ms)
        reply = await self._call(name, key, argv, waiting.backend)
        held = waiting.held
        return [reply, held.replicas, held.fsynced, held.trouble, held.problem]

    async def _permitted(self, op: Script, key: Any, argv: list[Any]) -> tuple[tuple[bytes, ...], dict[str, Any]]:
        try:
            return self._authorizer.call(op, key, argv)
        except AccessDenied as denied:
            if not await self._look_for_dead_letters(denied):
                raise
            return self._authorizer.call(op, key, argv)

    async def _instead(
        self, op: Script, keys: Sequence[bytes], values: dict[str, Any], rest: Sequence[Any]
    ) -> list[Any] | None:
        """Do what a node does itself for who does not manage the namespace; None where the call goes on as it is."""
        if op.name == "topic" and values["present"] == 1:  # else any number of names that every pattern has to try
            named = Address.of(self._authorizer.namespace, decode_name(text_of(values["name"])))
            return None if await self._parts.registry.kind(named) == "topic" else [b"OK"]
        if op.name == "wildcard" and values["mode"] == "keep":
            pattern, subscription = map(decode_name, text_of(values["name"]).split(" "))
            async with self._creations.by(self._authorizer.access, pattern, subscription):
                return list(await self._server.call(op, keys, [values[name] for name in values]))
        address = self._authorizer.place(keys[0])
        if isinstance(address, PoolAddress):
            return await self._at_pool(op.name, address, values)
        if not isinstance(address, Address):
            return None
        if op.name in ("attach", "settle"):
            if Authorizer.stands_in(op, values):  # only for subscriptions that there are, and as they are
                await self._parts.registry.index.enter(address)
                return [b"OK", b"0"]
            if address.shown not in self._sources and len(self._sources) < SOURCES:
                self._sources[address.shown] = None
                self._looked_at = -math.inf  # what it receives from now on has dead letters too
        if op.name in RATE_SCRIPTS:
            action = Action.CONSUME if values["kind"] == "delivery" else Action.PRODUCE
            self._authorizer.need(frozenset({action}), address.name, op.name)
            if (sender := sender_of(op, rest)) is not None:
                self._authorizer.own(sender.id)
                if action is Action.PRODUCE:  # consumers count as they are, and one may have any number of them
                    await self._check_weight(address, sender.weight)
            return await self._rate_calls.make(op, address, keys, values, sender, rest)
        await self._check_weight(address, values.get("weight", 0))
        return await self._pinned_calls.make(op, address, values)

    async def _at_pool(self, name: str, pool: PoolAddress, values: dict[str, Any]) -> list[Any]:
        if name == "pool":
            return await self._pool_calls.draw(pool, values["member"])
        if name == "pool_forget":
            return await self._pool_calls.forget(pool, values["member"], values["epoch"])
        return await self._pool_calls.unshare(pool)

    async def _check_weight(self, address: Address, weight: int) -> None:
        """Let nobody who does not manage it take a larger share than the destination's settings give to all."""
        registry = self._parts.registry
        if weight <= 1 or self._authorizer.manages(address.name):
            return
        if weight > int(registry.fields(address).get("producer_weight") or 1):
            await registry.refresh(address)
            most = int(registry.fields(address).get("producer_weight") or 1)
            if weight > most:
                what = f"weight {weight} is more than the producer_weight of {address.shown!r}, {most}"
                self._authorizer.need(frozenset({Action.MANAGE}), address.name, what)

    async def _look_for_dead_letters(self, denied: AccessDenied) -> bool:
        """See where dead letters go of what the user receives; returns whether that permits what was denied."""
        now = asyncio.get_running_loop().time()
        access, name = self._authorizer.access, denied.destination
        if not name or not self._sources or now < self._looked_at + LOOK_EVERY:
            return False
        self._looked_at = now
        sources = [name for name in self._sources if access.may(Action.CONSUME, name)]
        keys = [Address.of(self._authorizer.namespace, name).shared[0] for name in sources]
        found = await self._server.burst([(key, (b"HGET", key, "dead_letter")) for key in keys])
        access.dead_letters = {}
        for source, target in zip(sources, found, strict=True):
            if isinstance(target, bytes) and target:
                access.dead_letters.setdefault(target.decode(), []).append(source)
        return access.may(Action.PRODUCE, name)

    async def _apply(self, address: Address, mode: str, flat: Sequence[str]) -> list[bytes]:
        """Make a destination, or keep it, as the policy says; what is asked for beyond that needs manage."""
        registry = self._parts.registry
        settings = dict(zip(flat[::2], flat[1::2], strict=True))
        if mode not in ("ensure", "recover", "change"):
            raise InvalidValue(f"apply: mode {mode!r}")
        if mode != "change":
            first = settings.get("kind", "queue")
            kinds = tuple(sorted(KINDS, key=lambda kind: kind != first))
            kind = await registry.ensure(address, kinds, recover=mode == "recover")
            return [b"OK", b"0", kind.encode()]
        await registry.policies.look()
        await registry.conform([address])
        await registry.refresh(address)
        stored = registry.fields(address)
        for field, value in settings.items():
            in_force = stored.get(field, "")
            if value not in (in_force, "") and not (value == GOVERNED.get(field) and not in_force):
                self._authorizer.need(frozenset({Action.MANAGE}), address.name, f"changing {field}")
        return [b"OK", b"0", stored.get("kind", "queue").encode()]

    async def _check_slice(self, part: Address) -> None:
        """Make no slice that its destination does not have: it would be counted, shown and removed with nothing."""
        registry, whole, number = self._parts.registry, part.whole, slice_number(part.name)
        if number < int(registry.fields(whole).get("sliced", 1)) or await registry.kind(part):
            return
        await registry.ensure(whole, KINDS, recover=True)  # it may have been lost before its slice
        await registry.refresh(whole)
        if number >= int(registry.fields(whole).get("sliced", 1)):
            raise InvalidValue(f"{whole.name!r} has no slice {number}")

    async def _check_apply(self, address: Address, flat: Sequence[str]) -> None:
        """Refuse changes by managers that make a link's queue, or send dead letters where they may not."""
        registry, settings = self._parts.registry, dict(zip(flat[::2], flat[1::2], strict=True))
        if is_reply_queue(address.name) and await self._parts.store.snapshot(address, waiters=0, consumers=1) is None:
            raise LinkQueueGone(f"{address.name!r} was made for one link, and was removed with it")
        target = settings.get("dead_letter")
        if not target or self._authorizer.manages_all:
            return
        policy = await registry.policies.look()
        if policy.resolve(address.shown, settings.get("kind")).fields.get("dead_letter") != target:
            await registry.refresh(address)
            if registry.fields(address).get("dead_letter") != target:
                self._authorizer.need(
                    frozenset({Action.PRODUCE, Action.MANAGE}), target, "having dead letters sent there"
                )

    async def _command(self, key: Any, words: list[Any]) -> Any:
        try:
            self._authorizer.read(key, words)
        except AccessDenied as denied:
            if not await self._look_for_dead_letters(denied):
                raise
            self._authorizer.read(key, words)
        raw = key if isinstance(key, bytes) else str(key).encode()
        if self._authorizer.manages_all or len(words) < 2:
            return await self._server.command(raw, *words)
        name, what = text_of(words[0]).upper(), text_of(words[1])
        if what == policy_key(self._authorizer.namespace):
            return await self._read_policy(raw, words)
        if not self._authorizer.access.grants and (name == "SSCAN" or what.endswith("}:wildcards")):
            return [b"0", []] if name == "SSCAN" else []
        answer = await self._server.command(raw, *words)
        if name == "SSCAN":
            return [answer[0], await self.shown.topics(answer[1])]
        if what.endswith("}:wildcards"):
            return await self.shown.wildcards(answer)
        return answer

    async def _read_policy(self, key: bytes, words: list[Any]) -> Any:
        asked = [text_of(word) for word in words[2:]]
        if not asks_for_policy(asked):
            raise InvalidValue(f"{', '.join(asked)[:80]!r} of the policy is not something that a node reads for others")
        if "document" not in asked:
            return await self._server.command(key, *words)
        if not self._authorizer.access.grants:
            user = self._authorizer.user
            text = f"user {user!r}: reading the policy needs some grant; ask an operator for one"
            raise AccessDenied(text, user=user)
        policy = await self._parts.registry.policies.look()
        values_of = {"version": str(policy.version).encode(), "document": await self.shown.policy(policy)}
        values_of["applied_ms"] = str(self._parts.registry.policies.applied_ms).encode()
        values = [values_of[word] if policy.version else None for word in asked]
        return values if text_of(words[0]).upper() == "HMGET" else values[0]

    async def _scan(self, pattern: Any) -> list[str]:
        namespace = self._authorizer.namespace
        if pattern == f"hg:{{{namespace}}}:pool:*":
            return await self._server.scan(pattern)
        if pattern == f"hg:{{{namespace}/store:*}}":
            self._authorizer.need(frozenset({Action.MANAGE}), EVERYTHING, "listing spool stores")
            return await self._server.scan(pattern)
        if pattern != f"hg:{{{namespace}/*}}":
            raise AccessDenied(
                f"user {self._authorizer.user!r}: nodes list only destinations and pools of namespace {namespace!r}",
                user=self._authorizer.user,
                action="scan",
            )
        if not self._authorizer.access.grants:  # who is shown nothing has nothing looked for
            return []
        return await self.shown.destinations(await self._server.scan(pattern))

    def _waited(self, rows: Any) -> None:
        """Count waits of the user's callers; either all of them or none."""
        waits = waits_of(rows)
        for wait in waits:
            if not self._authorizer.access.may(Action.PRODUCE, wait.destination):
                self._authorizer.need(frozenset({Action.PRODUCE}), wait.destination, "having waited")
        for hear in self._parts.waits.of_others:
            for wait in waits:
                hear(wait)

    async def _everywhere(self, words: list[Any]) -> list[Any]:
        if tuple(map(text_of, words)) not in MASTERS:
            raise InvalidValue(
                f"{' '.join(map(text_of, words))[:80]!r} is not among the reads that a node makes for others"
            )
        self._authorizer.need(frozenset({Action.MANAGE}), EVERYTHING, "asking Redis for its memory")
        return await self._server.everywhere(*words)


def waits_of(rows: Any) -> list[Wait]:
    """Return the waits that a client tells of.

    Raises:
        InvalidValue: it tells of none, or of too many.
        InvalidName: no destination can be called so.
    """
    if not isinstance(rows, list) or len(rows) > MOST_WAITS:
        raise InvalidValue(f"waited: use up to {MOST_WAITS} rows")
    return list(map(_wait_of, rows))


def _wait_of(row: Any) -> Wait:
    match row:
        case [str(kind), str(name), float(seconds), str(outcome)] if (
            kind in WAITED_FOR and outcome in OUTCOMES and 0 <= seconds <= LONGEST_WAIT
        ):
            encode_name(name)
            return Wait(cast(Kind, kind), name, seconds, cast(Outcome, outcome))
    raise InvalidValue("waited: a row has a kind, a destination, seconds and an outcome, as headgate.waits knows them")
