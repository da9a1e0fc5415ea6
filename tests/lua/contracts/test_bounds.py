"""However many sessions and waiters there are, a call costs what it costs with ten of them: no timing but ratios."""

import statistics
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import pytest

from headgate.redis.keys import Address
from headgate.redis.scripts import Script, parse
from tests.lua.place import BEGIN_MS, TTL_MS, Place
from tests.support.extent import WHOLE
from tests.support.rewriting import RewritingServer, virtual_clock
from tests.support.servers import RedisServer

pytestmark = pytest.mark.usefixtures("patient")
MANY: Final = 100_000 if WHOLE else 20_000
ROUNDS: Final = 4
EACH: Final = 10
CALLS: Final = ROUNDS * EACH
CROWD: Final[Script] = parse(
    "crowd",
    """--[[
  crowd - sessions as their record is written, a piece a call.

  ARGV[1] first
  ARGV[2] last
  ARGV[3] lease  when their leases end
  ARGV[4] need   what they wait for, 0 for nothing
  Codes    OK
]]
local lease, need = ARGV[3], tonumber(ARGV[4])
for i = tonumber(ARGV[1]), tonumber(ARGV[2]) do
  local sid = 'crowd' .. i
  redis.call('HSET', KEYS[2], sid, 'inc=1 granted=0 used=0 returned=0 granted_m=0 used_m=0 returned_m=0 need=' ..
    need ..
    ' need_m=' .. (need > 0 and 1 or 0) .. ' want=' .. need .. ' want_m=' .. (need > 0 and 1 or 0) ..
    ' weight=0 consumers=0 since=' .. (need > 0 and 1 or 0) .. ' seen=' .. lease .. ' strike=0 ttl=10000 turn=0')
  redis.call('ZADD', KEYS[3], lease, sid)
  if need > 0 then
    redis.call('ZADD', KEYS[4], i, sid)
    redis.call('HINCRBY', KEYS[1], 'blocked', 1)
  end
end
return { 'OK' }
""",
)

Calls = dict[str, Callable[[], Awaitable[Any]]]


@pytest.fixture(scope="module")
def redis() -> Any:
    with RedisServer.start(persist=False) as server:
        yield server


@pytest.fixture
async def server(redis: RedisServer) -> AsyncIterator[RewritingServer]:
    server = RewritingServer(redis.url, virtual_clock)
    await server.open()
    await server.command(b"", "CONFIG", "SET", "slowlog-log-slower-than", 0)
    await server.command(b"", "CONFIG", "SET", "slowlog-max-len", 10_000)
    yield server
    await server.command(b"", "FLUSHALL")
    await server.close()


async def crowded(server: RewritingServer, name: str, count: int, *, lease: int, need: int = 0) -> Place:
    """Return a queue with so many sessions beside those that call, and with some messages."""
    place = Place(server, Address.of("bounds", name))
    await place.create(limit=10_000)
    await place.producer("first").send(*[10] * 8)
    for first in range(1, count + 1, 5000):
        await server.call(CROWD, place.address.keys("-"), (first, min(first + 4999, count), lease, need))
    return place


async def calls_of(place: Place) -> Calls:
    """Return one repeatable call of each script that serves a destination."""
    ann, bob = place.producer("ann"), await place.consumer("bob")
    await ann.ask(window=20)
    parting = place.producer("parting")

    async def publish() -> None:
        account = ann.account(window=20)
        credit = await ann.publish_as(account, ann.seq, 5)
        if credit.code == "OK":
            ann.used, ann.used_m, ann.seq = ann.used + 5, ann.used_m + 1, ann.seq + 1
            ann.hear(credit)

    async def fetch_and_settle() -> None:
        bob.fetches += 1
        ids, bob.held = bob.held, []
        answer = await bob.call(accepted=ids, fetch=bob.fetches, max_messages=1, max_bytes=50)
        bob.held = [identifier for identifier, _, _ in answer.messages]

    async def detach_and_attach() -> None:
        await bob.detach()
        bob.held, bob.fetches = [], 0
        await bob.attach()

    async def come_and_leave() -> None:
        await parting.ask(window=5)
        await parting.leave()
        parting.start_anew()

    return {
        "acquire": ann.renew,
        "publish": publish,
        "settle": fetch_and_settle,
        "attach, detach": detach_and_attach,
        "leave": come_and_leave,
        "reap": place.reap,
        "apply": lambda: place.change(limit_bytes="10000"),
        "snapshot": lambda: place.store.snapshot(place.address, waiters=100, session="ann", consumers=100),
        "snapshot of nothing": lambda: place.store.snapshot(place.address, waiters=0, consumers=0),
    }


async def cost(server: RewritingServer, call: Callable[[], Awaitable[Any]]) -> float:
    """Return the median time, in microseconds, that Redis itself took for the scripts of a few calls."""
    await server.command(b"", "SLOWLOG", "RESET")
    for _ in range(EACH):
        await call()
    entries = await server.command(b"", "SLOWLOG", "GET", -1 if server.version >= (7,) else 10_000)
    return statistics.median(int(entry[2]) for entry in entries if entry[3][0] in {b"EVALSHA", b"FCALL"})


async def dearer(server: RewritingServer, few: Place, many: Place) -> dict[str, tuple[float, float]]:
    """Return the calls that cost more than five times as much where there are many, with both costs.

    Both are taken in turn, and of each the least counts: what runs beside only adds to it.
    """
    calls, others = await calls_of(few), await calls_of(many)
    costs = {}
    for name, call in calls.items():
        rounds = [(await cost(server, call), await cost(server, others[name])) for _ in range(ROUNDS)]
        costs[name] = tuple(min(side) for side in zip(*rounds, strict=True))
    return {name: (least, most) for name, (least, most) in costs.items() if most > 5 * least}


async def test_a_hundred_thousand_sessions_cost_a_call_no_more_than_ten(server: RewritingServer) -> None:
    """Mutant: `reap` reads every lease to know the first."""
    far = BEGIN_MS + 10**9
    few = await crowded(server, "few", 10, lease=far)
    many = await crowded(server, "many", MANY, lease=far)
    assert await dearer(server, few, many) == {}
    assert (await many.look()).number("pending_messages") > 0


@pytest.mark.whole  # what is done of much, a bounded piece a call, has the last one too
async def test_a_hundred_thousand_dead_cost_a_call_no_more_than_sixteen(server: RewritingServer) -> None:
    """What changes MAX_REAPED, test_p4_reclaim.py catches."""
    few = await crowded(server, "few", 16 * 12 * CALLS, lease=BEGIN_MS - 1)
    many = await crowded(server, "many", MANY, lease=BEGIN_MS - 1)
    leases, calls = many.address.shared[2], server.calls
    assert await dearer(server, few, many) == {}
    left = await server.command(leases, "ZCOUNT", leases, "-inf", BEGIN_MS - 1)
    assert 16 * CALLS <= MANY - left <= 16 * (server.calls - calls)


async def test_ten_thousand_waiters_cost_a_call_no_more_than_a_hundred(server: RewritingServer) -> None:
    """Mutant: `hand_over` reads the whole line to know its head."""
    far = BEGIN_MS + 10**9
    few = await crowded(server, "few", 100, lease=far, need=9_950)
    many = await crowded(server, "many", 10_000, lease=far, need=9_950)
    assert await dearer(server, few, many) == {}


async def test_room_for_ten_thousand_waiters_is_handed_over_in_pieces(server: RewritingServer) -> None:
    """Mutant: MAX_HAND_OVERS is ten thousand."""
    place = await crowded(server, "pieces", 10_000, lease=BEGIN_MS + 10**9, need=1)
    await place.wait(TTL_MS // 10)
    served = []
    for limit in ("100000", "100001", "100002"):
        before = len((await place.look()).line)
        await place.change(limit_bytes=limit)
        served.append(before - len((await place.look()).line))
    assert served == [64, 64, 64]
