"""Ledgers of a limiter's slices: limits of all keys, their shadows, reserves and steps are proven by the first one."""

import asyncio
import random
from typing import Any

import headgate
from headgate.core.limiting.pins import slice_of_key
from headgate.core.names import slice_name
from headgate.redis.keys import Address
from headgate_pipeline.audit.findings import Finding
from headgate_pipeline.audit.replay import Replay
from tests.sdk.observing import GUARD

Row = tuple[Any, ...]
ADAPTS = {"min": 6, "max": 9, "adapt": "aimd"}
SETTINGS: dict[str, Any] = {
    "limits": {"slots": {"at_once": 6}, "tokens": {"rate": "2000/s"}, "calls": {"at_once": ADAPTS}},
    "key_limits": {"slots": {"at_once": 3}, "tokens": {"rate": "900/s"}},
    "shadow_limits": {"slots": {"at_once": 2}, "tokens": {"rate": "40/s"}},
    "shadow_key_limits": {"slots": {"at_once": 1}, "tokens": {"rate": "20/s"}},
    "bands": {"late-*": 5},
    "reserve": {"3": 0.3},
    "shed": {"6": 0.9},
}  # fmt: skip
KEYS = [*(f"t-{number}" for number in range(5)), *(f"late-{number}" for number in range(4))]


async def ledger(client: headgate.Client, number: int) -> list[Row]:
    key = f"{Address.of(client.namespace, slice_name('llm', number)).key}:ledger"
    found = []
    for entry_id, (_, entry) in await client.store.server.command(key.encode(), "XRANGE", key, "-", "+"):
        text = entry.decode().split(",")
        counters, seq = map(int, text[8:]), int(entry_id.partition(b"-")[0])
        found.append((seq, int(text[1]), *text[2:4], *map(int, text[4:7]), text[7], *counters, int(text[0]), None))
    return found


def replay(rows: list[Row]) -> list[Finding]:
    one = Replay(None)
    for row in rows:
        one.step(row)
    return one.finish()


async def use(limiter: headgate.Limiter, drawn: random.Random) -> None:
    for _ in range(9):
        key, band = drawn.choice(KEYS), drawn.choice((None, None, 0, 7))
        amounts = {"slots": drawn.choice((1, 1, 2)), "tokens": drawn.randrange(1, 9), "calls": 1}
        try:
            async with limiter.admit(key=key, band=band, timeout=GUARD, **amounts) as hold:
                hold.outcome = drawn.choice(("ok", "ok", "overload"))
                await asyncio.sleep(drawn.random() / 200)
                hold.settle(tokens=drawn.randrange(0, 9))
        except headgate.Shed:
            continue


async def test_ledgers_of_all_slices_are_proven_and_what_is_not_noted_of_a_shadow_is_found(
    redis_url: str, cleanup_namespace: str
) -> None:
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
        await client.apply("llm", kind="limiter", slices=3, **SETTINGS)
        async with client.session() as one, client.session() as other, asyncio.timeout(GUARD):
            limiters = [await one.limiter("llm"), await other.limiter("llm", in_hand=False)]
            holds = [await limiters[1].admit(slots=2, tokens=1, calls=1, key=key) for key in KEYS[:2]]
            for hold in holds:
                hold.release()
            await asyncio.gather(*(use(limiters[n % 2], random.Random(n)) for n in range(8)))
        ledgers = [await ledger(client, number) for number in range(3)]
    assert {slice_of_key(key, 3) for key in KEYS} == {0, 1, 2}
    for rows in ledgers:
        assert [found.finding for found in replay(rows)] == ["audited"], replay(rows)[:3]
    events = [{event.partition(":")[0] for row in rows for event in row[7].split(";")} for rows in ledgers]
    assert "would-wait" in events[0]
    assert "would-wait" in events[1] | events[2]
    whose = [
        {event.split(":")[4] for row in rows for event in row[7].split(";") if event.startswith("would-wait")}
        for rows in ledgers
    ]
    assert "all" in whose[0]
    assert whose[1] | whose[2] == {"key"}
    silent = [(*row[:7], _without(row[7], ":slots:all:"), *row[8:]) for row in ledgers[0]]
    assert "P10" in {found.promise for found in replay(silent)}


def _without(detail: str, of: str) -> str:
    return ";".join(event for event in detail.split(";") if not (event.startswith("would-wait") and of in event))
