"""The cost of scripts to Redis: processor time a call, beside one that does nothing, and with a crowd in the state."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from redis.asyncio import Redis

from bench.harness import Figure, at_most, private_client
from headgate.redis.keys import Address
from headgate.redis.replies import Account
from headgate.redis.store import Store

CALLS = 3_000
CROWD = 100_000
LINE = 10_000


def script_stats(stats: dict[str, Any]) -> tuple[int, int]:
    """Return how many calls of scripts Redis counted, as such or as functions, and the microseconds they took."""
    rows = [stats[name] for name in ("cmdstat_evalsha", "cmdstat_fcall") if name in stats]
    return sum(row["calls"] for row in rows), sum(row["usec"] for row in rows)


class Meter:
    """Redis' own count of time spent in scripts, whichever way they are called."""

    def __init__(self, redis: Any) -> None:
        self._redis = redis

    async def reset(self) -> None:
        """Begin anew."""
        await self._redis.config_resetstat()

    async def per_call(self) -> float:
        """Return microseconds a call since the reset."""
        calls, usec = script_stats(await self._redis.info("commandstats"))
        return usec / calls


async def _noop(redis: Any, meter: Meter) -> float:
    sha = await redis.script_load("return 1")
    await meter.reset()
    for _ in range(CALLS):
        await redis.evalsha(sha, 1, "k")
    return await meter.per_call()


async def _acquire(store: Store, meter: Meter, address: Address, calls: int = CALLS) -> float:
    account = Account("bench", 1, 0, want=65_536, want_m=64)
    answer = await store.acquire(address, account, ttl_ms=10_000)
    account = replace(account, epoch=answer.epoch, granted=answer.granted, granted_m=answer.granted_m)
    await meter.reset()
    for _ in range(calls):
        await store.acquire(address, account, ttl_ms=10_000)
    return await meter.per_call()


async def _publish_settle(
    store: Store, meter: Meter, address: Address, bodies: Sequence[bytes], calls: int
) -> tuple[float, float]:
    account = Account("bench", 1, 0, want=1 << 30, want_m=1 << 20)
    answer = await store.acquire(address, account, ttl_ms=60_000)
    account = replace(
        account, epoch=answer.epoch, granted=answer.granted, need=answer.granted, want=1 << 30, want_m=1 << 20
    )
    await meter.reset()
    for number in range(calls):
        await store.publish(address, account, seq=1 + number * len(bodies), bodies=bodies, ttl_ms=60_000)
    publish = await meter.per_call()
    await store.attach(address, "c", number=1, subscription="queue", durable=True, window="-", ttl_ms=60_000)
    ids: list[bytes] = []
    await meter.reset()
    for number in range(calls + 1):
        answer_2 = await store.settle(
            address,
            "c",
            "c.1",
            ttl_ms=60_000,
            accepted=ids,
            fetch=number + 1,
            max_messages=len(bodies),
            max_bytes=1 << 22,
        )
        ids = [message[0] for message in answer_2.messages]
    return publish, await meter.per_call()


async def _bare(redis: Any, body: bytes, calls: int) -> tuple[float, float]:
    """Return what the stream commands alone cost, in microseconds, for one message in and out."""
    await redis.xgroup_create("bare", "g", "0", mkstream=True)
    await redis.config_resetstat()
    for _ in range(calls):
        await redis.xadd("bare", {"m": body})
    for _ in range(calls):
        ((_, entries),) = await redis.xreadgroup("g", "c", {"bare": ">"}, count=1)
        await redis.xack("bare", "g", entries[0][0])
        await redis.xdel("bare", entries[0][0])
    stats = await redis.info("commandstats")
    cost = {name: float(stats[f"cmdstat_{name}"]["usec_per_call"]) for name in ("xadd", "xreadgroup", "xack", "xdel")}
    await redis.delete("bare")
    return cost["xadd"], cost["xreadgroup"] + cost["xack"] + cost["xdel"]


async def crowd(redis: Any, address: Address, sessions: int, line: int) -> None:
    """Write the records of sessions that hold credit, and of others that wait, straight into the state."""
    key = address.key
    record = (
        "inc=1 granted={0} used=0 returned=0 granted_m=1 used_m=0 returned_m=0 need={1} need_m=2 want={1} want_m=2 "
        "weight=1 consumers=0 since={2} seen={2} strike=0 ttl=600000 turn=0"
    )
    seconds, _ = await redis.time()
    now = seconds * 1000
    for start in range(0, sessions, 1000):
        names = [f"crowd-{number}" for number in range(start, min(start + 1000, sessions))]
        pipe = redis.pipeline(transaction=False)
        pipe.hset(f"{key}:sessions", mapping=dict.fromkeys(names, record.format(1, 1, 0)))
        pipe.zadd(f"{key}:leases", dict.fromkeys(names, now + 600_000))
        await pipe.execute()
    for start in range(0, line, 1000):
        names = [f"line-{number}" for number in range(start, min(start + 1000, line))]
        pipe = redis.pipeline(transaction=False)
        pipe.hset(f"{key}:sessions", mapping=dict.fromkeys(names, record.format(0, 1 << 40, now + 600_000)))
        pipe.zadd(f"{key}:leases", dict.fromkeys(names, now + 600_000))
        pipe.zadd(f"{key}:waiters", {name: number for number, name in enumerate(names, start + 1)})
        await pipe.execute()
    await redis.hset(
        key,
        mapping={"leased_bytes": sessions, "leased_messages": sessions, "weight": sessions + line, "blocked": line,
                 "tickets": line},
    )  # fmt: skip


async def measure(*, quick: bool) -> list[Figure]:
    """Return microseconds of Redis a script call, alone and among 100,000 sessions and 10,000 waiters."""
    calls = CALLS // 10 if quick else CALLS
    sessions, line = (CROWD // 10, LINE // 10) if quick else (CROWD, LINE)
    async with private_client() as (client, server):
        redis = Redis(unix_socket_path=server.url.removeprefix("unix://").split("?")[0], protocol=2)
        meter = Meter(redis)
        noop = await _noop(redis, meter)
        address = Address.of("default", "bench")
        await client.apply("bench", limit="1GiB")
        acquire = await _acquire(client.store, meter, address)
        await client.remove("bench")
        await client.apply("bench", limit=1 << 40)
        body = b"x" * 1024
        xadd, out = await _bare(redis, body, calls)
        publish, settle = await _publish_settle(client.store, meter, address, [body], calls)
        batches = Address.of("default", "batches")  # another, for the session's receipts outlive a destination
        await client.apply("batches", limit=1 << 40)
        publish_64, settle_64 = await _publish_settle(client.store, meter, batches, [body] * 64, calls // 20)
        await client.remove("batches")
        await client.remove("bench")
        await client.apply("bench", limit=1 << 41)
        await crowd(redis, address, sessions, line)
        crowded = await _acquire(client.store, meter, address, calls)
        await client.remove("bench")
        await redis.aclose()
    return [
        at_most("no-op EVALSHA", [noop], "us"),
        at_most("acquire, renewing", [acquire], "us"),
        at_most("publish of one 1 KiB message", [publish], "us"),
        at_most("  beyond XADD", [publish - xadd], "us", 10),
        at_most("settle one and fetch one of 1 KiB", [settle], "us"),
        at_most("  beyond XREADGROUP, XACK, XDEL", [settle - out], "us", 10),
        at_most("publish in batches of 64, a message", [publish_64 / 64], "us"),
        at_most("settle and fetch in batches of 64, a message", [settle_64 / 64], "us"),
        at_most(f"acquire among {sessions} sessions and {line} waiters", [crowded], "us", 1000),
    ]
