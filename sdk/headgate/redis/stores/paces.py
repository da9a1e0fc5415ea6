"""A pace store makes the calls by which a consumer of several slices is judged as one."""

from dataclasses import dataclass

from headgate.redis.backend import Backend
from headgate.redis.keys import Address
from headgate.redis.scripts import script


@dataclass(frozen=True, slots=True)
class Pace:
    """A pace is what one slice knows of a consumer; see ``lua/pace.lua``."""

    code: str
    epoch: int = 0
    now_ms: int = 0
    settled: int = 0
    held: int = 0
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """A verdict is the answer of the first slice; see ``lua/judge.lua``."""

    code: str
    slow: bool = False
    again_ms: int = 0


class PaceStore:
    """A pace store reads how consumers settle at slices, and has the first slice judge one of them."""

    def __init__(self, server: Backend) -> None:
        self.server = server

    async def look(self, part: Address, session: str, number: int) -> Pace:
        """Read what a slice knows of its part of a consumer.

        Raises:
            CoordinatorUnavailable: Redis does not answer.
        """
        op = script("pace")
        values = {"run_id": None, "session": session, "number": number}
        code, *numbers = await self.server.call(op, part.keys(session), op.argv(values))
        return Pace(code.decode(), *map(int, numbers))

    async def judge(
        self, whole: Address, session: str, number: int, *, began: int, busy_ms: int, total: Pace, parts: str
    ) -> Verdict:
        """Have the first slice judge a consumer by what its slices know together.

        Raises:
            CoordinatorUnavailable: Redis does not answer.
        """
        op = script("judge")
        values = {
            "run_id": None, "session": session, "number": number, "began": began, "busy_ms": busy_ms,
            "settled": total.settled, "held": total.held, "waiting": total.waiting, "parts": parts,
        }  # fmt: skip
        code, *numbers = await self.server.call(op, whole.keys(session), op.argv(values))
        _, slow, again_ms = (*map(int, numbers), 0, 0, 0)[:3]
        return Verdict(code.decode(), bool(slow), again_ms)
