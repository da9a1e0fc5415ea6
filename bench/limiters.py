"""Limiters: what a decision costs Redis, what a key costs memory, and how many admissions come from what is in hand."""

import asyncio
import random
import socket
import sys
import time
from asyncio.subprocess import PIPE
from typing import Any, Final
from urllib.parse import urlsplit

import hiredis
from redis.asyncio import Redis

import headgate
from bench.harness import Figure, at_least, at_most, median, private_client
from bench.scripts import Meter
from headgate.redis.keys import Address
from headgate.redis.scripts import script
from headgate.redis.stores.limiters import NO_KEY, HoldCall, LimiterStore

LIMITS: Final = {"requests": {"rate": "1M/s"}, "tokens": {"rate": "1G/s"}, "in_flight": {"at_once": 1_000_000}}
KEY_LIMITS: Final = {"tokens": {"rate": "1/s", "burst": 1_000_000}, "in_flight": {"at_once": 1000}}
PAID: Final[dict[str, object]] = {"rate": "1M/s"}
AMOUNTS: Final = "requests=1,tokens=100,in_flight=1"
BATCH: Final = 64
FULL: Final = 128
"""Operations that a call has at the most."""
SLOTS: Final = "slots=1"
AHEAD: Final = 8
"""Calls that are under way at a time, so that Redis has always one."""
TTL_MS: Final = 60_000
KEYS: Final = 1_000_000
REST: Final = (NO_KEY, "-", "0", "0")
"""Words of a release after its hold."""
PLAIN: Final = """
for i = 2, #ARGV do
  redis.call('HSET', KEYS[1], ARGV[i], redis.call('HGET', KEYS[1], ARGV[i]) and ARGV[1])
end
"""


class Caller:
    """One session that admits and releases, in batches."""

    def __init__(self, store: LimiterStore, address: Address, session: str = "bench~1") -> None:
        self._store, self._address, self._session = store, address, session
        self._seq = self._hold = 0

    async def call(self, calls: list[HoldCall]) -> None:
        """Make one numbered call.

        Raises:
            RuntimeError: something was refused.
        """
        self._seq += 1
        answers = await self._store.admit(self._address, self._session, seq=self._seq, epoch=0, calls=calls)
        if set(answers.answers) - {"held", "ok"}:
            raise RuntimeError(f"the bench's limiter refused: {set(answers.answers)}")

    async def round(self, size: int, keys: int, *, amounts: str = AMOUNTS, first: int | None = None) -> None:
        """Admit so many, for keys in turn, and release them; ``first``: the number of the first key."""
        ahead = 0 if first is None else first - self._hold - 1
        first = self._hold + 1
        self._hold += size
        ids = [(f"{self._session}.{number}", f"k{(number + ahead) % keys}") for number in range(first, first + size)]
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


async def _crowded(
    client: Any, redis: "Redis", meter: Meter, many: Caller, keys: int, rounds: int
) -> dict[str, list[float]]:
    """Return what a call costs with many keys, as many times that of one with few; all in turn, for the clock swings.

    Beside it, what reading and writing a field costs Redis in a hash with so many and with few fields, which is the
    memory of the machine.
    """
    await client.apply("few", kind="limiter", limits=LIMITS, key_limits=KEY_LIMITS)
    few = Caller(LimiterStore(client.store.server), Address.of(client.namespace, "few"), "few~1")
    await few.round(BATCH, BATCH)
    plain = await redis.script_load(PLAIN)
    text = "tokens=1795452627234100"
    for name, fields in (("plain-few", BATCH), ("plain-many", keys)):
        for first in range(0, fields, 1000):
            await redis.hset(name, mapping={f"k{n}": text for n in range(first, min(first + 1000, fields))})

    async def cost_of(caller: Caller, size: int, among: int) -> float:
        await meter.reset()
        for _ in range(FULL // size):
            await caller.round(size, among, first=random.randrange(among))
        return await meter.per_call() / size

    async def plainly(name: str, among: int) -> float:
        await meter.reset()
        for _ in range(4):
            fields = [f"k{random.randrange(among)}" for _ in range(BATCH)]
            await redis.evalsha(plain, 1, name, text, *fields)
        return await meter.per_call() / BATCH

    times: dict[str, list[float]] = {"alone": [], "batch": [], "plain": []}
    for number in range(rounds + 1):
        costs = {
            "alone": [await cost_of(few, 1, 10), await cost_of(many, 1, keys)],
            "batch": [await cost_of(few, BATCH, BATCH), await cost_of(many, BATCH, keys)],
            "plain": [await plainly("plain-few", BATCH), await plainly("plain-many", keys)],
        }
        for name, (of_few, of_many) in costs.items() if number else ():  # the first round warms up
            times[name].append(of_many / of_few)
    return times


async def _until_gone(store: LimiterStore, address: Address, redis: "Redis", left: int = 0) -> None:
    """Wait until time has paid what all keys owe, but for so many."""
    async with asyncio.timeout(600):
        while await redis.hlen(f"{address.key}:keyed") > left:
            await store.sweep(address)
            await asyncio.sleep(0.2)


async def _size(address: Address, redis: "Redis") -> int:
    """Return the bytes of all keys of Redis that a limiter has, but for its ledger, which has its own bound."""
    keys = [key async for key in redis.scan_iter(f"{address.key}*", 1000)]
    assert len(keys) < BATCH, "a key of the limiter is no key of Redis"
    own = [key for key in keys if not key.endswith(b":ledger")]
    return sum([int(await redis.memory_usage(key, samples=0) or 0) for key in own])


def _calls(address: Address, session: str, run_id: str | bytes, count: int) -> list[bytes]:
    """Return calls of 64 releases and 64 admissions each, as they go over the socket; the first releases nothing."""
    half, op = FULL // 2, script("admit")
    assert op.library is not None
    keys = address.limiter_keys(session)
    calls = []
    for seq in range(3, count + 3):  # after the two of a round
        first = seq * half
        words = [word for number in range(first - half, first) for word in ("release", f"{session}.{number}", *REST)]
        for number in range(first, first + half):
            words += ("admit", f"{session}.{number}", NO_KEY, SLOTS, str(TTL_MS), "0")
        parts = ["FCALL", op.library.name, str(len(keys)), *keys, run_id, session, str(seq), "0", *words]
        texts = [part.encode() if isinstance(part, str) else part for part in parts]
        calls.append(b"*%d\r\n" % len(texts) + b"".join(b"$%d\r\n%b\r\n" % (len(text), text) for text in texts))
    return calls


def _blast(path: str, calls: list[bytes]) -> float:
    """Make calls, some ahead of their answers; returns seconds. Raises where an admission was refused."""
    reader = hiredis.Reader()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        began = time.monotonic()
        connection.sendall(b"".join(calls[:AHEAD]))
        for number in range(len(calls)):
            if number % (AHEAD // 2) == 0:
                connection.sendall(b"".join(calls[number + AHEAD // 2 : number + AHEAD]) if number else b"")
            while (reply := reader.gets()) is False:
                reader.feed(connection.recv(1 << 20))
            if isinstance(reply, Exception) or reply[0] != b"OK" or set(reply[-FULL // 2 :]) != {b"held"}:
                raise RuntimeError(f"the bench's limiter refused: {reply!r:.200}")
        return time.monotonic() - began


async def _flow(url: str, name: str, session: str, calls: str) -> None:
    """Be a process whose calls are full, and encoded beforehand; print how many seconds these took."""
    async with headgate.connect(url) as client:
        address = Address.of(client.namespace, name)
        await Caller(LimiterStore(client.store.server), address, session).round(1, 1, amounts=SLOTS)
        async with Redis.from_url(url) as redis:
            run_id = await redis.hget(address.key, "run_id")
        assert run_id is not None
    ready = _calls(address, session, run_id, int(calls))
    print("ready", flush=True)
    sys.stdin.readline()
    print(_blast(urlsplit(url).path, ready), flush=True)


async def _together(client: Any, redis: "Redis", calls: int, rounds: int) -> tuple[list[float], list[float]]:
    """Return admissions a second of a process with full calls, and microseconds of Redis' processor for each.

    Its calls are encoded before: it is Redis that is to have too much to do.
    """
    await client.apply("together", kind="limiter", limits={"slots": {"at_once": 1_000_000}})

    paces, costs = [], []
    for number in range(rounds):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bench.limiters", client.redis_url, "together", f"r{number}~1", str(calls)),
            stdin=PIPE, stdout=PIPE,
        )  # fmt: skip
        assert process.stdout is not None
        await process.stdout.readline()
        before = await _processor(redis)
        seconds, _ = await process.communicate(b"\n")
        admissions = calls * FULL // 2
        paces.append(admissions / float(seconds))
        costs.append(1e6 * (await _processor(redis) - before) / admissions)
    return paces, costs


async def _processor(redis: "Redis") -> float:
    """Return the seconds of a processor that Redis has used."""
    cpu = await redis.info("cpu")
    return float(cpu["used_cpu_user"]) + float(cpu["used_cpu_sys"])


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
            many_alike = [await _admits(client, meter, "alike", {"slots": {"at_once": 1_000_000}}, SLOTS, rounds)]
            many_alike.append(await _admits(client, meter, "three", LIMITS, AMOUNTS, rounds, KEY_LIMITS))
            shared = await _cost(caller, meter, BATCH, 10, rounds // 10)
            empty, before = await _size(address, redis), int((await redis.info("memory"))["used_memory"])
            for _ in range(keys // BATCH + 1):
                await caller.round(BATCH, keys, amounts="tokens=100")
            there = await redis.hlen(f"{address.key}:keyed")
            each = (int((await redis.info("memory"))["used_memory"]) - before) / max(there, 1)
            crowded = await _crowded(client, redis, meter, caller, keys, 10 if quick else 60)
            few: list[Figure] = []
            if not quick:  # what the others owe is paid after some minutes
                await _until_gone(store, address, redis, BATCH)
                left = [(await _size(address, redis) - empty) / keys]
                few = [at_most(f"a key's part of what is left once all but {BATCH} owe nothing", left, "bytes", 0.1)]
            await client.apply("llm", key_limits={**KEY_LIMITS, "tokens": PAID})
            await _until_gone(store, address, redis)
            after = (await _size(address, redis) - empty) / keys
            together, of_redis = await _together(client, redis, 1000, 5 if quick else 15)
        hand = await _from_hand(client, 20_000 if quick else 500_000)
    return [
        Figure("a decision alone, three limits and a key's two", alone, "us of Redis"),
        at_most(f"an admission of {FULL} in a call, one limit", many_alike[:1], "us of Redis", 10),
        at_most(f"an admission of {FULL} in a call, three limits and a key's two", many_alike[1:], "us of Redis", 25),
        at_most(f"the same in a batch of {BATCH}, for 10 keys", [shared], "us of Redis", 25),
        Figure.typical(f"a decision alone with {there:,} keys, beside 10", crowded["alone"], "times", at_most=1.1),
        Figure.typical(
            f"a batch of {BATCH}, a key for each, with as many keys, beside {BATCH}",
            crowded["batch"],
            "times",
        ),
        Figure.typical("a field read and written in a hash with as many, beside as few", crowded["plain"], "times"),
        at_most("a key that is refilling", [each], "bytes", 250),
        *few,
        at_most("a key's part of what is left once they owe nothing", [after], "bytes", 0),
        at_least("admissions from what is in hand, a process", [hand], "/s", 1_000_000),
        at_least(
            f"admissions decided in Redis, by calls of {FULL // 2} and as many releases that are encoded before",
            together,
            "/s",
            100_000,
        ),
        at_most("an admission there and its release, with all Redis does for them", of_redis, "us of Redis", 10),
    ]


if __name__ == "__main__":
    asyncio.run(_flow(*sys.argv[1:5]))
