"""Estimates of waits at a limiter: what `fail_if_late` goes by, beside how long it then takes."""

import asyncio
import random
from collections.abc import Callable
from time import monotonic
from typing import Any, Final

import headgate
from bench.harness import Figure, median, private_client

WITHIN: Final = 0.02
"""Seconds within which an admission would have to come, for the estimate to be heard."""
WARM: Final = 2.0
"""Seconds of waits before the first estimate: it goes by what came back while somebody waited."""
ASKED: Final = 0.25
"""The median error that is asked for, as a share of the wait."""
HELD: Final = 0.2
"""Seconds for which a slot is held, on average."""


async def _estimate(limiter: headgate.Limiter, key: str | None, amounts: dict[str, int]) -> float | None:
    """Return after how many seconds an admission would come, as the limiter sees it; None where it came, or none is."""
    try:
        async with limiter.admit(key=key, timeout=WITHIN, fail_if_late=True, **amounts):
            return None
    except headgate.CreditTimeout as error:
        return error.retry_after
    except headgate.CoordinatorUnavailable:  # the machine is busy
        return None


async def _errors(
    client: Any, name: str, limit: dict[str, Any], keys: list[str | None], held: Callable[[], float], times: int,
    asked: str | None,
) -> list[float]:  # fmt: skip
    """Return by which share of the wait each estimate was off, while others wait; whoever asks holds as they do."""
    await client.apply(name, kind="limiter", limits={"calls": limit})
    errors: list[float] = []
    opened = monotonic()
    async with client.session(name) as session:
        limiter = await session.limiter(name, in_hand=False, timeout="unlimited")

        async def go_on(key: str | None) -> None:
            while True:
                async with limiter.admit(calls=1, key=key):
                    await asyncio.sleep(held())

        tasks = [asyncio.create_task(go_on(key)) for key in keys]
        try:
            while len(errors) < times:
                key = asked or random.choice(keys)
                told, began = await _estimate(limiter, key, {"calls": 1}), monotonic()
                async with limiter.admit(calls=1, key=key):
                    took = monotonic() - began
                    await asyncio.sleep(held())
                if told is not None and began > opened + WARM:
                    errors.append(abs(told - took) / took)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    return errors


async def measure(*, quick: bool) -> list[Figure]:
    """Return the median error of estimates at a rate and of slots, for one key and for two that take turns."""
    times = 10 if quick else 40
    cases: dict[str, tuple[dict[str, Any], list[str | None], Callable[[], float], str | None]] = {
        "a rate, 40 in line": ({"rate": "40/s", "burst": 1}, [None] * 40, lambda: 0.0, None),
        "slots, each held as long, 40 in line": ({"at_once": 8}, [None] * 48, lambda: HELD, None),
        "slots, held for times that scatter": ({"at_once": 8}, [None] * 48, lambda: random.expovariate(1 / HELD), None),
        "slots, 40 of a key beside 8 of another": ({"at_once": 8}, [*["a"] * 40, *["b"] * 8], lambda: HELD, None),
        "slots, 50 of a key beside 4 of another, which asks": (
            {"at_once": 8},
            [*["a"] * 50, *["b"] * 4],
            lambda: HELD,
            "b",
        ),
    }
    async with private_client() as (client, _):
        found = {
            name: await _errors(client, f"estimates-{number}", *case[:-1], times, case[-1])
            for number, (name, case) in enumerate(cases.items())
        }
    return [
        Figure(name, median(errors), "of the wait, median", f"<= {ASKED:g}", median(errors) <= ASKED, errors)
        for name, errors in found.items()
    ]
