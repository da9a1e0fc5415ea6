"""The answers of the JSON API about limiters."""

from pydantic import Field

from headgate import Explanation
from headgate.explain.limiter_view import LimiterView
from headgate_coordinator.admin.answers.stores import Answer


class Limiter(Answer):
    """A limiter, whoever has most of it, and whoever waits for what."""

    name: str
    state: str = Field(description="open, full (nobody waits yet), blocked (somebody waits) or learning")
    cause: str = Field(description="what keeps the head of the line waiting, a stable word")
    reason: str = Field(description="the same in a sentence")
    remedy: str = Field(description="what would free it")
    rule: str | None = Field(description="the policy rule that set what binds; null: none did")
    next_in: float | None = Field(description="seconds until the head of the line may be admitted; null: not known")
    used: float = Field(description="share of the narrowest limit that is taken; 1.0 is all of it")
    waiting_for: dict[str, int] = Field(description="limit -> admissions that wait for it")
    looked_at: str = Field(description="how many keys and holds were looked at, where there are more; empty: all")
    view: LimiterView = Field(description="its limits, top keys, holders and line, at one instant")

    @classmethod
    def of(cls, one: Explanation) -> "Limiter | None":
        """Return it from an explanation; None for what is no limiter."""
        if (view := one.limiter) is None:
            return None
        return cls.read(one, view, name=one.destination, next_in=one.unblocks_in, looked_at=view.seen, view=view)


class Limiters(Answer):
    """This answer lists some of the limiters, those that hold somebody up first."""

    total: int = Field(description="in the namespace")
    limiters: list[Limiter]
