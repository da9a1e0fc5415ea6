"""What a node does for the SDKs that call it: their calls as they are, once they are permitted.

What concerns others too is not left to who may only produce and consume: settings of a new destination are those that
the policy says, pools are drawn from and given back to by the node itself, and a list of names shows those that the
user has to do with.
"""

from collections.abc import Sequence
from typing import Any, Final

from headgate.client import Parts
from headgate.errors import AccessDenied, InvalidValue
from headgate.policies import GOVERNED
from headgate.redis.keys import Address, PoolAddress, decode_name, encode_name, parse_key
from headgate.redis.scripts import script, script_names
from headgate.settings import KINDS
from headgate_coordinator.node.permits import Permits
from headgate_coordinator.node.rights import ANY, NAMESPACE_WIDE, TAKES, text_of
from headgate_coordinator.security import Action

MASTERS: Final = (("CONFIG", "GET", "maxmemory"), ("INFO", "memory"))
"""What may be asked of every master."""
_CONSUMES: Final = frozenset({TAKES})


class Desk:
    """Does what one user asks for.

    Args:
        parts: of the node's client.
        permits: the user's.
    """

    def __init__(self, parts: Parts, permits: Permits) -> None:
        self._parts = parts
        self._permits = permits
        self._server = parts.store.server

    async def perform(self, what: Any, words: Sequence[Any]) -> Any:
        """Do what a call asks for, and return the answer.

        Raises:
            AccessDenied: the user may not do that.
            InvalidValue: it is no call.
            CoordinatorUnavailable: Redis does not answer.
        """
        if what == "call" and len(words) == 3:
            return await self._call(*words)
        if what == "command" and len(words) == 2 and isinstance(words[1], list):
            return await self._command(*words)
        if what == "scan" and len(words) == 1:
            return await self._scan(words[0])
        if what == "everywhere" and len(words) == 1 and isinstance(words[0], list):
            return await self._everywhere(words[0])
        if what == "ping":
            return None
        raise InvalidValue(f"{str(what)[:40]!r} with {len(words)} words is no call that this node knows")

    async def _call(self, name: Any, key: Any, argv: Any) -> Any:
        if not isinstance(name, str) or name not in script_names() or not isinstance(argv, list):
            raise InvalidValue(f"there is no script {str(name)[:40]!r} here: node and client are of different versions")
        op = script(name)
        keys, values = self._permits.call(op, key, argv)
        if op.arguments[0] == "run_id":
            argv[0] = None  # the node's own connection knows which run of Redis answers
        if name in ("apply", "slice") and (parsed := parse_key(keys[0].decode())):  # else it is a store, and he manages
            address = Address.of(*parsed)
            if not self._permits.manages(address.name if name == "apply" else NAMESPACE_WIDE):
                if name == "apply":
                    return await self._apply(address, values["mode"], argv[3:])
                argv[2:8] = [0, 0, 0, 0, 0, "keep"]  # a look
        elif name == "pool" and not self._permits.manages(NAMESPACE_WIDE):
            return await self._draw(key, values["member"])
        return await self._server.call(op, keys, argv)

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
                self._permits.need(frozenset({Action.MANAGE}), address.name, f"changing {field}")
        return [b"OK", b"0", stored.get("kind", "queue").encode()]

    async def _draw(self, key: Any, member: str) -> list[Any]:
        """Draw from a pool what a destination lacks, and say how it stands then."""
        pool = self._permits.place(key)
        assert isinstance(pool, PoolAddress)  # noqa: S101 -- it was permitted as one
        pools, encoded = self._parts.pools, encode_name(pool.name)
        address = Address.of(self._permits.namespace, decode_name(member))
        await self._parts.registry.refresh(address)
        if encoded not in self._parts.registry.pools(address).split():
            return [b"UNKNOWN"]
        pools.refill(address, encoded, lambda _name, _limit: None)
        drawn = await pools.draw(pool, member, await pools.store.slice(address, encoded))
        totals = (drawn.pool_epoch, drawn.granted, drawn.returned, drawn.place)
        return [drawn.code.encode(), *totals, str(drawn.limit).encode(), []]

    async def _command(self, key: Any, words: list[Any]) -> Any:
        self._permits.read(key, words)
        raw = key if isinstance(key, bytes) else str(key).encode()
        answer = await self._server.command(raw, *words)
        if text_of(words[0]).upper() == "SSCAN":
            answer = [
                answer[0],
                [name for name in answer[1] if self._permits.has(_CONSUMES, decode_name(text_of(name)))],
            ]
        return answer

    async def _scan(self, pattern: Any) -> list[str]:
        namespace = self._permits.namespace
        if pattern == f"hg:{{{namespace}}}:pool:*":
            return await self._server.scan(pattern)
        if pattern == f"hg:{{{namespace}/store:*}}":
            self._permits.need(frozenset({Action.MANAGE}), NAMESPACE_WIDE, "listing spool stores")
            return await self._server.scan(pattern)
        if pattern != f"hg:{{{namespace}/*}}":
            raise AccessDenied(
                f"user {self._permits.user!r}: the node lists destinations and pools of namespace {namespace!r} only",
                user=self._permits.user,
                action="scan",
            )
        found = await self._server.scan(pattern)
        return [key for key in found if (name := _name_of(key)) is not None and self._permits.has(ANY, name)]

    async def _everywhere(self, words: list[Any]) -> list[Any]:
        if tuple(map(text_of, words)) not in MASTERS:
            raise InvalidValue(
                f"{' '.join(map(text_of, words))[:80]!r} is not among the reads that a node does for others"
            )
        self._permits.need(frozenset({Action.MANAGE}), NAMESPACE_WIDE, "asking Redis for its memory")
        return await self._server.everywhere(*words)


def _name_of(key: str) -> str | None:
    parsed = parse_key(key[: key.find("}") + 1])
    return parsed[1] if parsed else None
