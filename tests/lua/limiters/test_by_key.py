"""Keys of a gate or a bucket take turns in a limiter beside it, under the limits and the settings of that one."""

from collections.abc import AsyncIterator

import pytest

from headgate.core.ledger import columns
from headgate.redis.keys import Address
from headgate.redis.store import Store
from headgate.redis.stores.limiters import LimiterStore
from tests.lua.limiters.trial import TTL_MS, Limiter
from tests.support.rewriting import RewritingServer, virtual_clock

AT_ONCE = "bytes=1,calls=1"


class ByKey(Limiter):
    """The limiter beside a gate or a bucket, whose own address is ``own``."""

    def __init__(self, server: RewritingServer, own: Address) -> None:
        super().__init__(server, own.by_key)
        self.own = own

    async def apply(self, *, mode: str = "ensure", **settings: str) -> None:
        await self.wait(0)
        await Store(self.server).apply(self.own, settings, mode=mode, ttl_ms=TTL_MS)  # type: ignore[arg-type]

    async def wait(self, ms: int) -> None:
        await super().wait(ms)
        await self.server.set_clock(self.own, self.now)


@pytest.fixture
async def keys(redis_url: str, namespace: str) -> AsyncIterator[ByKey]:
    server = RewritingServer(redis_url, virtual_clock)
    await server.open()
    keys = ByKey(server, Address.of(namespace, "db"))
    yield keys
    await server.forget(keys.own)
    await server.forget(keys.address, *keys.sequence)
    await server.close()


async def test_its_limits_are_those_of_the_gate_at_once(keys: ByKey) -> None:
    """Mutant: they are those of when it was made."""
    await keys.apply(kind="gate", limit_bytes="2", limit_messages="unlimited")
    assert await keys.admit("ann.1", "bytes=3,calls=1", key="t") == "never 2 bytes all"
    assert await keys.admit("ann.2", "bytes=2,calls=1", key="t") == "held"
    assert await keys.admit("ann.3", AT_ONCE, key="u") == "late - bytes all"
    await keys.apply(mode="change", limit_bytes="3")
    assert await keys.admit("ann.3", AT_ONCE, key="u") == "held"
    await keys.apply(mode="change", limit_messages="2")
    assert await keys.admit("ann.4", "calls=1", key="u") == "late - calls all"
    await keys.apply(mode="change", enforce="off")
    assert await keys.admit("ann.4", "bytes=9000,calls=1", key="u") == "held"


async def test_its_rate_is_that_of_the_bucket(keys: ByKey) -> None:
    """Mutant: a bucket has none."""
    await keys.apply(kind="bucket", rate="10", burst="2")
    assert await keys.admit("ann.1", "tokens=2", key="t") == "held"
    assert await keys.admit("ann.2", "tokens=1", key="t") == "late 100000 tokens all"
    await keys.apply(mode="change", rate="", burst="")
    assert await keys.admit("ann.2", "tokens=1000000", key="t") == "held"


async def test_limits_and_weights_of_keys_are_those_of_the_gate(keys: ByKey) -> None:
    """Mutant: they are not read."""
    await keys.apply(kind="gate", limit_bytes="8", key_limits="bytes at_once 1", key_weights="gold=3", max_keys="2")
    assert await keys.admit("ann.1", AT_ONCE, key="t") == "held"
    assert await keys.admit("ann.2", AT_ONCE, key="t") == "late - bytes key"
    assert await keys.admit("ann.2", AT_ONCE, key="gold") == "held"
    assert await keys.admit("ann.3", AT_ONCE, key="third") == "keys"


async def test_what_the_one_may_have_lost_the_other_may_have_lost(keys: ByKey) -> None:
    """Mutant: it lets somebody in while the gate learns."""
    await keys.apply(kind="gate", limit_bytes="2")
    assert await keys.admit("ann.1", AT_ONCE, key="t") == "held"
    known = keys.epoch
    await keys.server.forget(keys.own)
    await keys.server.forget(keys.address, *keys.sequence)
    await keys.wait(1000)
    assert (await keys.store.levels(keys.address)) is None
    await keys.apply(mode="recover", kind="gate", limit_bytes="2")
    keys.sequence.clear()
    assert await keys.admit("bob.1", AT_ONCE, key="t") == "late - bytes all"
    keys.epoch = known
    assert await keys.one("claim", "ann.1", AT_ONCE, key="t") == "ok"
    assert await keys.taken("bytes") == 1
    await keys.wait(TTL_MS)
    assert await keys.admit("bob.2", AT_ONCE, key="t") == "held"


async def test_a_key_is_held_off_no_longer_than_the_gate_allows(keys: ByKey) -> None:
    """Mutant: the limiter's own setting counts, which nobody sets."""
    await keys.apply(kind="gate", limit_bytes="2", hold_off_ms="1000")
    assert await keys.store.hold_off(keys.address, "ann", key="t", ms=9000, reason="429") == ("OK", 1000)
    assert await keys.admit("ann.1", AT_ONCE, key="t") == "late 1000000 hold_off key"
    assert await keys.admit("ann.2", AT_ONCE, key="u") == "held"


async def test_there_is_none_beside_what_is_no_gate_and_none_is_left_of_one_that_is_removed(keys: ByKey) -> None:
    """Mutant: it is made beside anything."""
    await keys.apply(kind="queue")
    assert await LimiterStore(keys.server).levels(keys.address) is None
    await Store(keys.server).remove(keys.own, everything=True)
    await keys.apply(kind="gate", limit_bytes="2")
    assert await keys.admit("ann.1", AT_ONCE, key="t") == "held"
    await Store(keys.server).remove(keys.own, everything=True)
    for key in (*keys.address.shared, *keys.address.limiter_keys("-")):
        assert await keys.server.command(key, "EXISTS", key) == 0


async def test_keys_of_a_gate_wait_in_the_bands_that_it_says(keys: ByKey) -> None:
    await keys.apply(kind="gate", limit_bytes="1", limit_messages="unlimited", bands="batch-*=6", aging="2")
    assert await keys.admit("ann.1", AT_ONCE, key="t") == "held"
    for number, (key, band) in enumerate((("batch-1", ""), ("t", ""), ("*", "~0")), 1):
        assert (await keys.admit(f"bob.{number}", AT_ONCE + band, key=key, wait_ms=99_000)).startswith("wait ")
    before = "ann.1"
    for after in ("bob.3", "bob.2", "bob.1"):
        await keys.release(before)
        assert (await keys.look()).holds[after].startswith("H ")
        before = after


async def turns(keys: ByKey) -> list[list[str]]:
    """Return the events of each entry that the ledger of the gate has of who takes turns."""
    key = keys.own.shared[-1]
    entries = [text.decode() for _, (_, text) in await keys.server.command(key, "XRANGE", key, "-", "+")]
    found = [row for row in map(columns, entries) if row is not None]
    seq = await keys.server.command(keys.own.shared[0], "HGET", keys.own.key, "ledger_seq")
    assert int(seq) == len(found), "each has a number"
    return [row["detail"].split(";") for row in found if row["op"] == "turn"]


async def test_the_ledger_of_a_gate_has_who_takes_turns_while_there_are_bands(keys: ByKey) -> None:
    """None without; with a policy all, by rules that are there once, and again when they change."""
    await keys.apply(kind="gate", limit_bytes="1", limit_messages="unlimited")
    assert await keys.admit("ann.1", f"{AT_ONCE}~0") == "held"
    await keys.admit("bob.1", AT_ONCE, wait_ms=99_000)
    await keys.release("ann.1")
    assert await turns(keys) == []
    await keys.apply(mode="change", aging="2")
    await keys.release("bob.1")
    assert await keys.admit("ann.2", f"{AT_ONCE}~0", key="t") == "held"
    await keys.admit("bob.2", f"{AT_ONCE}~4", wait_ms=99_000)
    await keys.admit("bob.3", AT_ONCE, wait_ms=99_000)
    await keys.release("bob.3")
    await keys.apply(mode="change", limit_bytes="2", key_limits="calls at_once 9")
    await keys.release("ann.2")
    assert await turns(keys) == [
        ["turns:bytes at_once 1::2:-", "band:ann.2:0", "went:ann.2:t:bytes:1 calls:1"],
        ["waits:bob.2:*:bytes:all:bytes:1 calls:1", "band:bob.2:4"],
        ["waits:bob.3:*:bytes:all:bytes:1 calls:1"],
        ["quit:bob.3"],
        ["turns:bytes at_once 2:calls at_once 9:2:-", "band:bob.2:4", "went:bob.2:*:bytes:1 calls:1"],
    ]
    await keys.apply(mode="change", ledger="off")
    assert await keys.admit("ann.3", AT_ONCE) == "held"
    assert len(await turns(keys)) == 5
