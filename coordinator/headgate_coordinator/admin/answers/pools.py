"""The answers of the JSON API about pools."""

from pydantic import Field

from headgate import PoolState
from headgate_coordinator.admin.answers.stores import Answer


class PoolHolder(Answer):
    """A pool holder is a destination, shown with the bytes of the pool that it holds."""

    destination: str
    held: int


class PoolSite(Answer):
    """A pool site shows the part that another site has of a pool."""

    site: str
    most: int = Field(description="bytes that it may have; 0: the pool names it no more, and waits for what it has")
    weight: int = Field(description="its share beside other sites, and destinations, that wait for more")
    least: int = Field(description="bytes that nobody else gets, whether it uses them or not")
    held: int = Field(description="bytes that were granted to it and have not come back")
    kept: int = Field(description="bytes beyond these that nobody else gets: of its least, or since a loss here")
    heard: float | None = Field(description="seconds since its last report; null: there was none")
    stranded: bool = Field(description="it is cut off: what it holds, and what is kept for it, cannot be taken back")
    trouble: str = Field(description="why reports in its name are refused; empty: nothing is wrong")
    remedy: str = Field(description="what to do about it; empty: nothing is wrong")


class PoolPart(Answer):
    """A pool part names the pool at another site that this one is a part of: what it holds there is its limit."""

    site: str
    pool: str = Field(description="its name there")
    held: int = Field(description="bytes")
    most: int | None = Field(description="bytes that it can have there; null: not known, or any number")
    heard: float | None = Field(description="seconds since the other site was heard of; null: it never was")
    confirmed: bool = Field(description="false after a loss here, until the other site confirmed it")
    stranded: bool = Field(description="it is cut off: what it holds can be used, and no more can be had")
    trouble: str = Field(description="why no more can be had, as far as nodes here know; empty: nothing is wrong")
    remedy: str = Field(description="what to do about it; empty: nothing is wrong")


class Pool(Answer):
    """A pool is a limit in bytes that destinations share."""

    name: str
    limit: int | None = Field(description="bytes; null: unlimited")
    reserve: int = Field(description="bytes of it that only reserved destinations may use")
    granted: int = Field(description="bytes that destinations hold as slices, used or not")
    used: int = Field(description="bytes pending and leased at these destinations")
    full: float | None = Field(description="share of the limit in use; 1.0 is all of it; null: no limit")
    members: int = Field(description="destinations and sites that hold a slice")
    holders: list[PoolHolder] = Field(description="those that hold most, at most five")
    waiting: int = Field(description="destinations in line for more")
    percent: str = Field(description="where the limit comes from; empty: it is absolute")
    learning: bool = Field(description="its state may have been lost, and nothing is granted yet")
    origins: dict[str, str] = Field(description="field -> place in the policy")
    sites: list[PoolSite] = Field(description="parts that other sites have of it")
    part_of: PoolPart | None = Field(description="the pool at another site that it is a part of; null: of none")

    @classmethod
    def of(cls, state: PoolState) -> "Pool":
        """Return it from what was read."""
        return cls(**state.as_dict(), full=state.used / state.limit if state.limit else None)


class Pools(Answer):
    """This answer lists the pools of the namespace."""

    pools: list[Pool]
