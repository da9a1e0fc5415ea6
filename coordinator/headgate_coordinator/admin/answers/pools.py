"""The answers of the JSON API about pools."""

from pydantic import Field

from headgate import PoolState
from headgate_coordinator.admin.answers.stores import Answer


class PoolHolder(Answer):
    """A destination and the bytes of a pool that it holds."""

    destination: str
    held: int


class Pool(Answer):
    """A limit in bytes that destinations share."""

    name: str
    limit: int | None = Field(description="bytes; null: unlimited")
    reserve: int = Field(description="bytes of it that only reserved destinations may use")
    granted: int = Field(description="bytes that destinations hold as slices, used or not")
    used: int = Field(description="bytes pending and leased at these destinations")
    full: float | None = Field(description="share of the limit in use; 1.0 is all of it; null: no limit")
    members: int = Field(description="destinations that hold a slice")
    holders: list[PoolHolder] = Field(description="those that hold most, at most five")
    waiting: int = Field(description="destinations in line for more")
    percent: str = Field(description="where the limit comes from; empty: it is absolute")
    learning: bool = Field(description="its state may have been lost, and nothing is granted yet")
    origins: dict[str, str] = Field(description="field -> place in the policy")

    @classmethod
    def of(cls, state: PoolState) -> "Pool":
        """Return it from what was read."""
        return cls(**state.as_dict(), full=state.used / state.limit if state.limit else None)


class Pools(Answer):
    """The pools of the namespace."""

    pools: list[Pool]
