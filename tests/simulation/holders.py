"""Applications of a history that hold something of a limiter with slices."""

import asyncio
from typing import Any, Final

import headgate
from headgate.errors import HeadgateError
from tests.simulation.applications import Application
from tests.simulation.drawing import TAKES, Event
from tests.simulation.judge.holdings import ALL, KEY, KEYS, Holdings, Limit

LIMITER: Final = "l"
UNLIMITED: Final = {"slots": {"at_once": "unlimited"}, "tokens": {"rate": "unlimited"}}
HOLDS: Final = 2.0
"""Seconds for which something is held at the most."""
LEAST_PATIENCE, PATIENCE = 1.0, 4.0
LEARNS: Final = 25.0
"""Seconds after which a slice that may have lost something has long learnt what is held."""


def limits_of(limit: Limit) -> dict[str, dict[str, Any]]:
    """Return limits as they are applied."""
    return {"slots": {"at_once": limit.slots}, "tokens": {"rate": f"{60 * limit.rate:g}/min", "burst": limit.burst}}


def taken(number: int) -> tuple[str, dict[str, int]]:
    """Return for which key, and how much, is taken by a kind of these."""
    key, much = KEYS[number % len(KEYS)], number * len(KEYS) // TAKES
    return key, [{"slots": 1}, {"slots": 2}, {"slots": 1, "tokens": 2}, {"slots": 2, "tokens": 3}][much % 4]


class Holder(Application):
    """A process with a client of its own, which takes of a limiter as it is bid."""

    oracle: Holdings
    limiter: headgate.Limiter | None = None

    async def make(self) -> None:
        of_all = UNLIMITED if self.oracle.of_all is None else limits_of(self.oracle.of_all)
        rule = self.oracle.rule
        turns: dict[str, Any] = (
            {"order": "deadline"} if rule.by_deadline else {"aging": rule.aging} if rule.bands else {}
        )
        if rule.reserve:
            turns["reserve"] = {"0": rule.reserve}
        await self.patiently(
            lambda: self.client.apply(
                LIMITER, kind="limiter", limits=of_all, key_limits=limits_of(KEY), slices=3, **turns
            )
        )

    async def work(self) -> None:
        in_hand = self.oracle.in_hand
        self.limiter = await self.patiently(lambda: self.session.limiter(LIMITER, in_hand=in_hand))

    def can(self, _: str) -> bool:
        return self.limiter is not None

    async def job(self, event: Event, number: int) -> None:
        what = f"{event.what}{number}"
        self.world.note(self.process.name, what)
        begun = self.world.loop.now
        try:
            if event.what == "slices":
                await self.client.apply(LIMITER, slices=int(event.much))
            else:
                begun = await self._take(begun, *taken(int(event.much)))
            self.world.note(self.process.name, what, "is done")
        except HeadgateError as error:
            self.world.note(self.process.name, what, f"{type(error).__name__}: {error}"[:200])
        if event.what != "slices":  # which wait for masters that are away, and while one learns
            late = self.world.loop.now - max(begun + PATIENCE, self.frozen_until)
            self.oracle.ended(f"{what} of {self.process}", late)

    async def _take(self, asked: float, key: str, amounts: dict[str, int]) -> float:
        """Hold something for a while; returns when it was no longer."""
        assert self.limiter
        rule, patience = self.oracle.rule, PATIENCE
        band = self.chance.choice(rule.bands) if rule.bands else None
        if rule.by_deadline:
            patience = self.chance.uniform(LEAST_PATIENCE, PATIENCE)
        if self.chance.random() < 0.25:
            found = await self.limiter.attempt(key=key, band=band, **amounts)
            if not isinstance(found, headgate.Hold):
                return asked
        else:
            found = await self.limiter.admit(key=key, timeout=patience, band=band, **amounts)
        with found as hold:
            held = self.oracle.begins(self.process, hold, key, amounts, asked)
            await asyncio.sleep(self.chance.uniform(0.0, HOLDS))
            if amounts.get("tokens", 0) > 1 and self.chance.random() < 0.5:
                self.oracle.settles(held, 1)
                hold.settle(tokens=1)
            held.over = True
        return self.world.loop.now

    async def finish(self) -> None:
        """See that nothing is held for good."""
        assert self.limiter
        of_all = [(None, self.oracle.of_all.slots)] if self.oracle.of_all else []
        for key, slots in [*((key, KEY.slots) for key in KEYS), *of_all]:
            try:
                (await self.limiter.admit(key=key, timeout=LEARNS, slots=slots, band=0)).release()
            except HeadgateError as error:
                self.oracle.breaks("P4", f"nobody holds anything for {key or ALL}, and {error}")
