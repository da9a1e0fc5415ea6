"""Masters of a limiter with slices are killed while these change: no key has too much, nor all keys together."""

import asyncio
import os
import random
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

import headgate
from headgate._util.reconnect import until_answered
from tests.faults import admitting
from tests.faults.deployments import Replicated, is_linked, is_master
from tests.faults.judging import most_at_once, read
from tests.faults.test_limiters import AT_ONCE, KEY_AT_ONCE, KEY_RATES, RATES
from tests.faults.traffic import GUARD
from tests.support.forked import PIPE, Forked
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.one_server, pytest.mark.timeout(300)]
TTL: Final = 10.0
FREE: Final[dict[str, Any]] = {
    **{name: {"at_once": "unlimited"} for name in AT_ONCE}, **{name: {"rate": "unlimited"} for name in RATES},
    "mails": {"quota": "unlimited/day"},
}  # fmt: skip
OF_ALL: Final[dict[str, Any]] = {
    **{name: {"at_once": most} for name, most in AT_ONCE.items()},
    **{name: {"rate": f"{rate}/s", "burst": burst} for name, (rate, burst) in RATES.items()},
    "mails": {"quota": "unlimited/day"},
}  # fmt: skip
OF_KEYS: Final[dict[str, Any]] = {
    **{name: {"at_once": most} for name, most in KEY_AT_ONCE.items()},
    **{name: {"rate": f"{rate}/s", "burst": burst} for name, (rate, burst) in KEY_RATES.items()},
}  # fmt: skip


class Crowd:
    """Processes that admit, and write down what they hold."""

    def __init__(self, stack: ExitStack, url: str, namespace: str, path: Path) -> None:
        self._stack, self._words, self._path = stack, (url, namespace, str(path)), path
        self.processes: list[Forked] = []
        self._begun = 0

    async def begin(self) -> None:
        self._begun += 1
        words = (admitting.__name__, *self._words, f"s{self._begun}", str(TTL), "yes" if self._begun % 2 else "no")
        async with asyncio.timeout(GUARD):
            while True:  # some masters are asked that are not there any more
                process = self._stack.enter_context(Forked(*words, environment=os.environ, stdin=PIPE, stdout=PIPE))
                assert process.stdout is not None
                if (await asyncio.to_thread(process.stdout.readline)).startswith("ready"):
                    break
        self.processes.append(process)

    def kill9(self) -> None:
        self.processes.pop(0).kill()

    async def goes_on(self) -> None:
        """Wait until each process has admitted again, for a key."""
        begun, pids = len(self._path.read_text().splitlines()), {str(one.pid) for one in self.processes}

        def admit() -> bool:
            rest = [line.split(" ") for line in self._path.read_text().splitlines()[begun:]]
            return pids <= {words[0] for words in rest if words[1] == "begin" and len(words) > 7 and words[7] != "*"}

        await wait_until(admit, timeout=2 * GUARD, description="all admit again for keys")


@pytest.mark.soak  # histories of `limiters of a cluster` have it in `make test`
@pytest.mark.parametrize("seed", range(1, 21))
async def test_no_kill_of_masters_holders_and_movers_gives_a_key_or_all_more_than_their_limit(
    cluster: Replicated, cleanup_namespace: str, tmp_path: Path, seed: int
) -> None:
    dice, path = random.Random(seed), tmp_path / "witness"
    path.touch()
    async with headgate.connect(cluster.url, namespace=cleanup_namespace) as client:
        await client.apply(
            admitting.LIMITER, kind="limiter", limits=OF_ALL if seed % 2 else FREE, key_limits=OF_KEYS,
            slices=dice.choice([1, 3]),
        )  # fmt: skip
        with ExitStack() as stack:
            crowd = Crowd(stack, cluster.url, client.namespace, path)
            for _ in range(2):
                await crowd.begin()

            async def change(*, breaks_off: bool) -> None:
                slices = dice.choice([2, 3, 6, 12])
                task = asyncio.ensure_future(
                    until_answered(lambda _: None)(client.apply, admitting.LIMITER, slices=slices)
                )
                if breaks_off:
                    await asyncio.sleep(dice.random() / 50)
                    task.cancel()
                    await asyncio.wait([task])
                else:
                    async with asyncio.timeout(GUARD):
                        await task

            pairs = list(zip(cluster.masters, cluster.replicas, strict=True))
            dice.shuffle(pairs)
            for master, replica in pairs[:2]:
                await crowd.goes_on()
                await change(breaks_off=dice.random() < 0.5)
                await wait_until(partial(is_linked, replica), timeout=GUARD)
                moving = asyncio.ensure_future(change(breaks_off=True))
                await asyncio.sleep(dice.random() / 20)
                master.kill9()
                dies = dice.random() < 0.5
                if dies:
                    crowd.kill9()
                await wait_until(partial(is_master, replica), timeout=GUARD)
                with suppress(headgate.HeadgateError):
                    await moving
                if dies:
                    await crowd.begin()
                await crowd.goes_on()
                await change(breaks_off=False)
            await crowd.goes_on()
            for process in crowd.processes:
                process.kill()
                await asyncio.to_thread(process.wait, GUARD)
    holds = read(path)
    assert {one.key for one in holds} >= {"a", "b", "c"}
    for name, most in KEY_AT_ONCE.items():
        held = most_at_once(holds, name)
        of_all = held.pop("*")
        assert not seed % 2 or of_all <= AT_ONCE[name], (name, of_all)
        assert all(number <= most for number in held.values()), (name, held)
