"""One destination under a clock that the test moves, and callers that know of it what a client would."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from headgate.redis.keys import Address
from headgate.redis.replies import Account, Credit, Deliveries, Recount
from headgate.redis.store import Store
from tests.lua.observing import Observation, observe
from tests.support.rewriting import RewritingServer

TTL_MS: Final = 10_000
BEGIN_MS: Final = 1_800_000_000_000


class Place:
    """A destination. The clock stands at ``now``, in milliseconds, until :meth:`wait` moves it."""

    def __init__(self, server: RewritingServer, address: Address) -> None:
        self.server = server
        self.store = Store(server)
        self.address = address
        self.now = BEGIN_MS
        self.sessions: set[str] = set()

    async def create(
        self,
        kind: str = "queue",
        limit: int | str = 1000,
        messages: int | str = "unlimited",
        *,
        mode: Literal["ensure", "change", "recover"] = "ensure",
        **settings: str,
    ) -> str:
        await self.wait(0)
        limits = {"kind": kind, "limit_bytes": str(limit), "limit_messages": str(messages)}
        code, _ = await self.store.apply(self.address, limits | settings, mode=mode, ttl_ms=TTL_MS)
        return code

    async def change(self, **settings: str) -> None:
        await self.store.apply(self.address, settings, mode="change", ttl_ms=TTL_MS)

    async def wait(self, ms: int) -> None:
        self.now += ms
        await self.server.set_clock(self.address, self.now)

    async def forget(self) -> None:
        """Lose all that Redis knows, as a restart without persistence does; the clock stays."""
        await self.server.forget(self.address, *self.sessions)
        await self.wait(0)

    async def look(self) -> Observation:
        seen = await observe(self.server, self.address)
        assert seen is not None, "the destination is gone"
        return seen

    async def usage(self) -> int:
        """Return pending and leased bytes together, recounted and found right."""
        seen, count = await self.look(), await self.recount()
        assert count.equal, count
        return seen.pending.bytes + seen.leased.bytes

    async def recount(self) -> Recount:
        return await self.store.recount(self.address)

    async def reap(self) -> None:
        await self.store.reap(self.address)

    async def sweep(self, ms: int, *, every: int = 500) -> None:
        """Let time pass, with somebody looking in now and then."""
        for _ in range(0, ms, every):
            await self.wait(every)
            await self.reap()

    def producer(self, session: str, **settings: Any) -> "Producer":
        self.sessions.add(session)
        return Producer(self, session, **settings)

    async def consumer(
        self, session: str, subscription: str = "queue", *, durable: bool = False, selector: str = "="
    ) -> "Consumer":
        consumer = self.reader(session, subscription)
        assert await consumer.attach(durable=durable, selector=selector) == "OK"
        return consumer

    def reader(self, session: str, subscription: str) -> "Consumer":
        """Return a consumer that is not attached yet."""
        self.sessions.add(session)
        return Consumer(self, session, subscription)

    async def full(self, *holders: int, limit: int = 100) -> list["Producer"]:
        """Create a queue whose whole limit is held by producers h0, h1..., so many bytes each."""
        await self.create(limit=limit)
        producers = [self.producer(f"h{number}") for number in range(len(holders))]
        for producer, size in zip(producers, holders, strict=True):
            await producer.ask(size)
        assert await self.usage() == sum(holders)
        return producers


@dataclass
class Producer:
    """A session that sends; its totals are what the answers said."""

    place: Place
    session: str
    ttl_ms: int = TTL_MS
    inc: int = 1
    epoch: int = 0
    granted: int = 0
    granted_m: int = 0
    used: int = 0
    used_m: int = 0
    returned: int = 0
    returned_m: int = 0
    seq: int = 1

    @property
    def held(self) -> int:
        return self.granted - self.used - self.returned

    def account(self, need: int = 0, window: int = 0, weight: int = 1, ahead: tuple[int, int] = (0, 0)) -> Account:
        """Return the totals that ask for a message of ``need`` bytes, and for ``window`` in hand, after ``ahead``."""
        base, base_m = self.used + self.returned + ahead[0], self.used_m + self.returned_m + ahead[1]
        return Account(
            self.session, self.inc, self.epoch, self.granted, self.granted_m, self.used, self.used_m, self.returned,
            self.returned_m, base + need if need else self.granted, base_m + 1 if need else self.granted_m,
            base + max(window, need), base_m + (8 if window or need else 0), weight, need,
        )  # fmt: skip

    async def ask(self, need: int = 0, window: int = 0, *, weight: int = 1) -> Credit:
        return self.hear(await self.call(self.account(need, window, weight)))

    async def renew(self) -> Credit:
        return await self.ask(window=self.held)

    async def give_back(self, size: int, messages: int = 0) -> Credit:
        self.returned, self.returned_m = self.returned + size, self.returned_m + messages
        return await self.renew()

    async def leave(self, *, keep: bool = False) -> Credit:
        return await self.call(self.account(weight=0), leave=True, resume=keep)

    async def call(self, account: Account, *, leave: bool = False, resume: bool = False, sent: int = 0) -> Credit:
        store, address = self.place.store, self.place.address
        return await store.acquire(address, account, ttl_ms=self.ttl_ms, leave=leave, resume=resume, sent=sent)

    async def publish(self, *sizes: int, need: int = 0, window: int = 0, expires_ms: int = 0, **words: Any) -> Credit:
        """Publish a batch, and expect it to be taken."""
        spent = (sum(sizes), len(sizes))
        account = self.account(need, window, ahead=spent)
        credit = await self.publish_as(account, self.seq, *sizes, expires_ms=expires_ms, **words)
        assert credit.code == "OK", credit
        self.used, self.used_m, self.seq = self.used + spent[0], self.used_m + spent[1], self.seq + spent[1]
        return self.hear(credit)

    async def publish_as(self, account: Account, seq: int, *sizes: int, expires_ms: int = 0, **words: Any) -> Credit:
        bodies = [bytes([65 + number % 26]) * size for number, size in enumerate(sizes)]
        return await self.place.store.publish(
            self.place.address, account, seq=seq, bodies=bodies, ttl_ms=self.ttl_ms, expires_ms=expires_ms, **words
        )

    async def send(self, *sizes: int, expires_ms: int = 0, **words: Any) -> Credit:
        """Ask for the credit, and publish; ``words`` are arguments of each message, as the script has them."""
        assert (await self.ask(sum(sizes))).code == "OK"
        return await self.publish(*sizes, expires_ms=expires_ms, **words)

    async def send_held(self) -> int:
        """Publish one message that takes all that is held; returns its bytes, 0 where it is not taken."""
        size = self.held
        if not size or (await self.publish_as(self.account(ahead=(size, 1)), self.seq, size)).code != "OK":
            return 0
        self.used, self.used_m, self.seq = self.used + size, self.used_m + 1, self.seq + 1
        return size

    def hear(self, credit: Credit) -> Credit:
        if credit.code == "OK":
            self.epoch = credit.epoch
            self.granted = max(self.granted, credit.granted)
            self.granted_m = max(self.granted_m, credit.granted_m)
        return credit

    def start_anew(self) -> None:
        self.inc += 1
        self.granted = self.granted_m = self.used = self.used_m = self.returned = self.returned_m = 0


@dataclass
class Consumer:
    """The first consumer of a session."""

    place: Place
    session: str
    subscription: str
    fetches: int = 0
    held: list[bytes] = field(default_factory=list)

    @property
    def id(self) -> str:
        return f"{self.session}.1"

    async def attach(self, *, durable: bool = False, selector: str = "=") -> str:
        code, _ = await self.place.store.attach(
            self.place.address, self.session, number=1, subscription=self.subscription, durable=durable,
            window="10/1000", ttl_ms=TTL_MS, selector=selector,
        )  # fmt: skip
        return code

    async def fetch(self, messages: int = 256, size: int = 1 << 30) -> list[bytes]:
        """Fetch, and return the ids."""
        self.fetches += 1
        answer = await self.call(fetch=self.fetches, max_messages=messages, max_bytes=size)
        assert answer.code == "OK", answer
        ids = [identifier for identifier, _, _ in answer.messages]
        self.held += ids
        return ids

    async def accept(self, *ids: bytes) -> Deliveries:
        return await self.call(accepted=ids)

    async def call(self, *, accepted: Sequence[bytes] = (), **arguments: Any) -> Deliveries:
        return await self.place.store.settle(
            self.place.address, self.session, self.id, ttl_ms=TTL_MS, accepted=accepted, **arguments
        )

    async def detach(self, *, failed: bool = False) -> str:
        return await self.place.store.detach(self.place.address, self.session, self.id, failed=failed)
