"""One limiter under a clock that the test moves, and sessions that number their calls."""

from typing import Any, Final

from headgate.core.ledger import columns
from headgate.redis.keys import Address
from headgate.redis.store import Store
from headgate.redis.stores.limiter_levels import LimiterLevels
from headgate.redis.stores.limiters import NO_KEY, HoldAnswers, HoldCall, LimiterStore, Op
from tests.lua.place import BEGIN_MS
from tests.support.rewriting import RewritingServer

TTL_MS: Final = 5000


class Limiter:
    """A limiter. The clock stands at ``now``, in milliseconds, until :meth:`wait` moves it."""

    def __init__(self, server: RewritingServer, address: Address) -> None:
        self.server = server
        self.store = LimiterStore(server)
        self.address = address
        self.now = BEGIN_MS
        self.sequence: dict[str, int] = {}
        self.epoch = 0

    async def create(
        self, limits: str, key_limits: str = "", *, mode: Any = "ensure", ttl_ms: int = TTL_MS, **settings: str
    ) -> None:
        await self.wait(0)
        await Store(self.server).apply(
            self.address,
            {"kind": "limiter", "limits": limits, "key_limits": key_limits, **settings},
            mode=mode,
            ttl_ms=ttl_ms,
        )

    async def change(self, **settings: str) -> None:
        await Store(self.server).apply(self.address, settings, mode="change", ttl_ms=TTL_MS)

    async def wait(self, ms: int) -> None:
        self.now += ms
        await self.server.set_clock(self.address, self.now)

    async def call(self, session: str, *calls: HoldCall, seq: int | None = None) -> HoldAnswers:
        if seq is None:
            seq = self.sequence.get(session, 0) + 1
        self.sequence[session] = max(seq, self.sequence.get(session, 0))
        answers = await self.store.admit(self.address, session, seq=seq, epoch=self.epoch, calls=calls)
        if answers.code == "OK":
            self.epoch = answers.epoch
        return answers

    async def one(
        self, op: Op, hold: str, amounts: str = "-", *, key: str = NO_KEY, wait_ms: int = 0, ttl: int = TTL_MS
    ) -> str:
        """Call with one operation, and return its answer."""
        answers = await self.call(hold.rpartition(".")[0], HoldCall(op, hold, key, amounts, ttl, wait_ms))
        assert answers.code == "OK", answers
        return answers.answers[0]

    async def admit(self, hold: str, amounts: str, *, key: str = NO_KEY, wait_ms: int = 0, ttl: int = TTL_MS) -> str:
        return await self.one("admit", hold, amounts, key=key, wait_ms=wait_ms, ttl=ttl)

    async def release(self, hold: str) -> str:
        return await self.one("release", hold)

    async def sweep(self, ms: int, *, every: int = 500) -> None:
        """Let time pass, with somebody looking in now and then."""
        for _ in range(0, ms, every):
            await self.wait(every)
            await self.store.sweep(self.address)

    async def look(self, key: str = NO_KEY) -> LimiterLevels:
        levels = await self.store.levels(self.address, key=key, most=1000)
        assert levels is not None, "the limiter is gone"
        return levels

    async def taken(self, name: str, key: str = NO_KEY) -> int:
        """Return how much of a limit is taken, of all together or of a key."""
        levels = await self.look(key)
        rows = [row.split() for row in (levels.limits if key == NO_KEY else levels.of_key)]
        return next(int(row[5]) for row in rows if row[0] == name)

    async def events(self) -> list[tuple[int, str]]:
        """Return what the ledger has since it was made: ms, and the text of the event."""
        key = f"{self.address.key}:ledger"
        entries = [text.decode() for _, (_, text) in await self.server.command(key.encode(), "XRANGE", key, "-", "+")]
        rows = [row for row in map(columns, entries) if row is not None and row["op"] == "admit"]
        return [(int(row["time"]), event) for row in rows for event in row["detail"].split(";")]

    async def field(self, name: str) -> bytes | None:
        """Return a field of its hash."""
        key = self.address.key
        value = await self.server.command(key.encode(), "HGET", key, name)
        return value if value is None else bytes(value)

    async def left(self, part: str) -> int:
        """Return how many fields a hash of it has, or members a sorted set."""
        key = f"{self.address.key}:{part}"
        count = await self.server.command(key.encode(), "HLEN" if part in ("holds", "keyed") else "ZCARD", key)
        assert isinstance(count, int)
        return count
