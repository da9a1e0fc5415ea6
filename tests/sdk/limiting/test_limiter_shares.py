"""Shares of keys that wait at a limiter, over two clients."""

import asyncio
from collections import Counter

import pytest

import headgate
from tests.sdk.observing import GUARD
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server
COUNTED = 480


@pytest.mark.parametrize(("weights", "share"), [(None, 0.5), ({"few": 3}, 0.75)])
async def test_four_waiters_of_a_key_get_as_much_as_fifty_of_another(
    client: headgate.Client, other: headgate.Client, weights: dict[str, int] | None, share: float
) -> None:
    """Four slots, each held for a moment; all ask again at once. Mutant: keys go in order of asking."""
    await client.apply("llm", kind="limiter", limits={"slots": {"at_once": 4}}, key_weights=weights)
    served: list[str] = []
    async with client.session("many") as many, other.session("few") as few:

        async def work(limiter: headgate.Limiter, key: str) -> None:
            while len(served) < COUNTED:
                async with limiter.admit(slots=1, key=key, timeout=GUARD):
                    served.append(key)
                    await asyncio.sleep(0.01)

        limiters = [(await session.limiter("llm", in_hand=False), session) for session in (many, few)]
        full = [await limiters[0][0].admit(slots=1, key="first") for _ in range(4)]
        tasks = [asyncio.create_task(work(limiters[0][0], "many")) for _ in range(50)]
        tasks += [asyncio.create_task(work(limiters[1][0], "few")) for _ in range(8 if weights else 4)]

        async def all_wait() -> bool:
            return (await limiters[0][0].state()).waiting == len(tasks)

        await wait_until(all_wait, timeout=GUARD)
        for hold in full:
            hold.release()
        await asyncio.wait_for(asyncio.gather(*tasks), 2 * GUARD)
    found = Counter(served[:COUNTED])["few"] / COUNTED
    assert abs(found - share) <= 0.03, f"{found:.0%} of what was admitted"
