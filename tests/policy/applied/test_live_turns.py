"""A large policy is read and written beside the loop: all else of a process goes on meanwhile."""

import asyncio
import gc
import time
from collections.abc import Iterator

import pytest

import headgate
from headgate.core.policy import Policy, Rule
from headgate.namespace.policy_follower import GOVERNED
from tests.policy.live import settles
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server
RULES = 5000


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """Seconds of processor time of each turn of the loop, garbage collections aside."""
    found: list[float] = []
    run = asyncio.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        began = time.thread_time()
        run(handle)
        found.append(time.thread_time() - began)

    gc.disable()
    monkeypatch.setattr(asyncio.Handle, "_run", timed)
    yield found
    gc.enable()


async def test_a_large_policy_comes_into_force_in_short_turns(
    client: headgate.Client, other: headgate.Client, turns: list[float]
) -> None:
    """Mutants: it is read on the loop by whoever follows it; it is written there by whoever applies it."""
    rules = [Rule(f"a{n}.*", None, {"limit_bytes": str(n + 5)}, {"limit_bytes": f"x:{n}"}) for n in range(RULES)]
    policy = Policy(0, rules, (), "x")
    text = policy.to_json()
    began = time.thread_time()
    Policy.from_json(text, defaults=GOVERNED)
    whole = time.thread_time() - began
    async with other.session("s") as session:
        await session.producer("a7.b")
        await asyncio.sleep(0)  # the turn that read the policy above is over
        turns.clear()
        version = await client.apply_policy(policy)
        await settles(other, "a7.b", limit_bytes="12")
        follower = other.parts.registry.policies
        await wait_until(lambda: follower.policy.version == version)
        assert follower.policy.rules == policy.rules
        assert max(turns) < whole / 3, f"{max(turns):.3f} s of {whole:.3f} s in one turn"
