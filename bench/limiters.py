"""Limiters: what a decision costs Redis, what a key costs memory, and how many admissions come from what is in hand."""

import asyncio
import time
from typing import Any, Final

from redis.asyncio import Redis

import headgate
from bench.harness import Figure, at_least, at_most, median, private_client
from bench.scripts import Meter
from headgate.redis.keys import Address
from headgate.redis.stores.limiters import NO_KEY, HoldCall, LimiterStore

LIMITS: Final = {"requests": {"rate": "1M/s"}, "tokens": {"rate": "1G/s"}, "in_flight": {"at_once": 1_000_000}}
KEY_LIMITS: Final = {"tokens": {"rate": "1/s", "burst": 1_000_000}, "in_flight": {"at_once": 1000}}
AMOUNTS: Final = "requests=1,tokens=100,in_flight=1"
BATCH: Final = 64
FULL: Final = 128
"""Operations that a call has at the most."""
TTL_MS: Final = 60_000
KEYS: Final = 1_000_000


class Caller:
    """One session that admits and releases, in batches."""

    def __init__(self, store: LimiterStore, address: Address) -> None:
        self._store, self._address = store, address
        self._seq = self._hold = 0

    async def call(self, calls: list[HoldCall]) -> None:
        """Make one numbered call.

        Raises:
            RuntimeError: something was refused.
        """
        self._seq += 1
        answers = await self._store.admit(self._address, "bench~1", seq=self._seq, epoch=0, calls=calls)
        if set(answers.answers) - {"held", "ok"}:
            raise RuntimeError(f"the bench's limiter refused: {set(answers.answers)}")

    async def round(self, size: int, keys: int, *, amounts: str = AMOUNTS) -> None:
        """Admit so many, for keys in turn, and release them."""
        first = self._hold + 1
        self._hold += size
        ids = [(f"bench~1.{number}", f"k{number % keys}") for number in range(first, first + size)]
        await self.call([HoldCall("admit", hold, key, amounts, TTL_MS) for hold, key in ids])
        await self.call([HoldCall("release", hold) for hold, _ in ids])


async def _cost(caller: Caller, meter: Meter, size: int, keys: int, rounds: int) -> float:
    """Return microseconds of Redis for one admission; its release costs about the same again and is half of the sum."""
    await meter.reset()
    for _ in range(rounds):
        await caller.round(size, keys)
    return await meter.per_call() / size


async def _admits(
    client: Any, meter: Meter, name: str, limits: Any, amounts: str, rounds: int, key_limits: Any = None
) -> float:
    """Return microseconds of Redis for one of the admissions of a full call, for ten keys where keys have limits."""
    await client.apply(name, kind="limiter", limits=limits, key_limits=key_limits or {})
    caller, costs, number = Caller(LimiterStore(client.store.server), Address.of(client.namespace, name)), [], 0
    for _ in range(max(10, rounds // 20)):
        ids = [f"bench~1.{number + one}" for one in range(1, FULL + 1)]
        number += FULL
        keys = [f"k{one % 10}" if key_limits else NO_KEY for one in range(FULL)]
        await meter.reset()
        await caller.call([HoldCall("admit", id_, key, amounts, TTL_MS) for id_, key in zip(ids, keys, strict=True)])
        costs.append(await meter.per_call() / FULL)
        await caller.call([HoldCall("release", id_) for id_ in ids])
    return median(costs)


async def _until_whole(store: LimiterStore, address: Address, redis: "Redis") -> None:
    """Wait until no key is left but those that were there before, which owe for hours: others are whole in minutes."""
    async with asyncio.timeout(600):
        while await redis.hlen(f"{address.key}:keyed") > BATCH:
            await store.sweep(address)
            await asyncio.sleep(0.5)


async def _decided(client: Any, seconds: float) -> float:
    """Return admissions a second of one session that Redis decides, 1,000 asked for at a time."""
    await client.apply("decided", kind="limiter", limits={"slots": {"at_once": 1_000_000}})
    async with client.session("decided") as session:
        limiter = await session.limiter("decided", in_hand=False)
        done, began = 0, time.perf_counter()
        while time.perf_counter() - began < seconds:
            for hold in await asyncio.gather(*(limiter.attempt(slots=1) for _ in range(1000))):
                if isinstance(hold, headgate.Hold):
                    hold.release()
                    done += 1
        return done / (time.perf_counter() - began)


async def _from_hand(client: Any, admissions: int) -> float:
    """Return admissions a second of one session out of what it has in hand."""
    await client.apply("hand", kind="limiter", limits={"slots": {"at_once": 1_000_000}})
    async with client.session("hand") as session:
        limiter = await session.limiter("hand")
        while limiter.try_admit(slots=1) is None:
            await asyncio.gather(*(limiter.attempt(slots=1) for _ in range(16)))
            await asyncio.sleep(0.01)
        done, began = 0, time.perf_counter()
        while done < admissions:
            for _ in range(1000):
                hold = limiter.try_admit(slots=1)
                if hold:
                    hold.release()
                    done += 1
            await asyncio.sleep(0)
        return done / (time.perf_counter() - began)


async def measure(*, quick: bool) -> list[Figure]:
    """Return what a decision costs alone, in a batch and with many keys, bytes a key, and admissions from a hand."""
    rounds, keys = (300, KEYS // 10) if quick else (2000, KEYS)
    async with private_client() as (client, _):
        await client.apply("llm", kind="limiter", limits=LIMITS, key_limits=KEY_LIMITS)
        store, address = LimiterStore(client.store.server), Address.of(client.namespace, "llm")
        caller = Caller(store, address)
        async with Redis.from_url(client.redis_url) as redis:
            meter = Meter(redis)
            alone = await _cost(caller, meter, 1, 10, rounds)
            many_alike = [await _admits(client, meter, "alike", {"slots": {"at_once": 1_000_000}}, "slots=1", rounds)]
            many_alike.append(await _admits(client, meter, "three", LIMITS, AMOUNTS, rounds, KEY_LIMITS))
            shared = await _cost(caller, meter, BATCH, 10, rounds // 10)
            few = await _cost(caller, meter, BATCH, BATCH, rounds // 10)
            before = int((await redis.info("memory"))["used_memory"])
            for _ in range(keys // BATCH + 1):
                await caller.round(BATCH, keys, amounts="tokens=100")
            there = await redis.hlen(f"{address.key}:keyed")
            each = (int((await redis.info("memory"))["used_memory"]) - before) / max(there, 1)
            many = await _cost(caller, meter, BATCH, keys, rounds // 10)
            await _until_whole(store, address, redis)
            after = int(await redis.memory_usage(f"{address.key}:keyed", samples=0) or 0) / keys
        hand = await _from_hand(client, 20_000 if quick else 500_000)
        decided = await _decided(client, 1 if quick else 5)
    return [
        Figure("a decision alone, three limits and a key's two", alone, "us of Redis"),
        at_most(f"an admission of {FULL} in a call, one limit", many_alike[:1], "us of Redis", 10),
        at_most(f"an admission of {FULL} in a call, three limits and a key's two", many_alike[1:], "us of Redis", 25),
        at_most(f"the same in a batch of {BATCH}, for 10 keys", [shared], "us of Redis", 25),
        at_most(f"the same in a batch of {BATCH}, each for a key of its own", [few], "us of Redis", 25),
        at_most(f"with {there:,} keys, beside {BATCH}: a batch, each for a key of its own", [many / few], "times", 1.1),
        at_most("a key that is refilling", [each], "bytes", 250),
        Figure("each key's part of their hash once they are gone, but for 64 that owe still", after, "bytes"),
        at_least("admissions from what is in hand, a process", [hand], "/s", 1_000_000),
        at_least("admissions decided in Redis, a process and thread", [decided], "/s", 25_000),
    ]
