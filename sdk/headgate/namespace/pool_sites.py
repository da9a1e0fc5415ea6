"""A pool over sites is shown to people as parts: those that sites have of it, or the one that it is of another."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

from headgate.core.limits.pool_sites import Terms, sites_named
from headgate.core.names import decode_name
from headgate.errors import PolicyError
from headgate.namespace.pool_slices import Pools
from headgate.redis.backend import Backend
from headgate.redis.keys import PoolAddress
from headgate.redis.replies import record
from headgate.redis.stores.pool_sites import SILENT, Held, Letter, PoolSiteStore, now_ms, since
from headgate.redis.stores.pools import UNLIMITED, PoolStore, Share

TROUBLES: Final[Mapping[str, tuple[str, str]]] = {
    "unset": ("nodes here have no use for its URL", "set its URL at nodes here, as their logs say"),
    "unreachable": ("nodes here do not reach its Redis", "let them reach it"),
    "failing": ("its Redis answers nodes here with an error", "mend that, as their logs say"),
    "refused": ("it refuses nodes here", "give them a user that may: `headgate acl --pool --site` there prints one"),
    "silent": ("nobody there answers", "run nodes there, with forwarding on, and name this site in its pool's sites"),
    "unnamed": ("its pool names no part for this site any more", "name this site in the pool's sites there"),
    "stale": (
        "it has heard of a later pool by this site's name",
        "give each deployment a site_name of its own, or, where there is but this one, forget this site there",
    ),
    "twin": ("another deployment has this site's name", "give each deployment a site_name of its own"),
    "ahead": ("its clock was set back after it had lost its pool", "set its clock right"),
}
"""Why no more is to be had of another site, by the codes of `pool_share`; and what to do about it."""
REFUSED: Final[Mapping[str, tuple[str, str]]] = {
    "stale": (
        "reports of an earlier pool come in its name too",
        "give each deployment a site_name; where there is but one: headgate pool forget-site {pool} {site} --gone",
    ),
    "ahead": ("it has heard of a later pool than there is here", "this one was lost: set the clock here right"),
}
"""Why reports of a site are refused, by the codes of `pool_site`; and what to do about it."""
REACH: Final = "let nodes here and there reach each other"


@dataclass(frozen=True, slots=True)
class SitePart:
    """A site has a part of a pool here.

    Attributes:
        site: its name.
        most: bytes that it may have; 0 where the pool names it no more, and waits for what it has.
        weight: its share beside other sites, and destinations, that wait for more.
        least: bytes that nobody else gets, whether it uses them or not.
        held: bytes that were granted to it and have not come back.
        kept: bytes beyond these that nobody else gets: of its least, or for state was lost here.
        heard: seconds since its last report; None when there was none.
        stranded: whether it is cut off: what it holds, and what is kept for it, cannot be taken back.
        trouble: why reports in its name are refused; empty while none is.
        remedy: what to do about it; empty while nothing is wrong.
    """

    site: str
    most: int
    weight: int
    least: int
    held: int
    kept: int
    heard: float | None
    stranded: bool
    trouble: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class PoolPart:
    """A pool here may be a part of one at another site: what it holds of that is its limit.

    Attributes:
        site: the other.
        pool: its pool.
        held: bytes.
        most: bytes that it can have there; None while that is not known, or for any number.
        heard: seconds since the other site was heard of; None when it never was.
        confirmed: False after a loss of state here, until the other site confirmed it: nothing new is granted.
        stranded: whether it is cut off: what it holds can be used, and no more can be had.
        trouble: why no more can be had, as far as nodes here know; empty while nothing is wrong.
        remedy: what to do about it; empty while nothing is wrong.
    """

    site: str
    pool: str
    held: int
    most: int | None
    heard: float | None
    confirmed: bool
    stranded: bool
    trouble: str = ""
    remedy: str = ""

    def __str__(self) -> str:
        """Return what it is a part of, and how that stands."""
        most = "" if self.most is None else f" of at most {self.most}"
        state = "" if self.confirmed else "; that site has to confirm it first, for state was lost here"
        silent = "never heard of, " if self.heard is None else f"cut off for {self.heard:.0f} s, "
        if self.stranded or self.trouble:
            why = f"for {self.trouble}, " if self.trouble else ""
            state = f"; {silent if self.stranded else 'stuck, '}{why}so no more can be had"
        return f"a part of pool {self.pool} at site {self.site}, which lent {self.held} bytes{most}{state}"


async def site_parts(
    server: Backend, pool: PoolAddress, fields: Mapping[str, str], members: Collection[Share]
) -> tuple[SitePart, ...]:
    """Return the parts that sites have of a pool."""
    named = sites_named(fields)
    shares = {share.site: share for share in members if share.site}
    if not named and not shares:
        return ()
    now, epoch = await now_ms(server, pool.keys[0]), int(fields["epoch"])
    sites = sorted({*named, *shares})
    return tuple(_site_part(site, pool.name, named.get(site), shares.get(site), now, epoch) for site in sites)


def _site_part(site: str, pool: str, named: Terms | None, share: Share | None, now: int, epoch: int) -> SitePart:
    most, least, weight = named or Terms(0, 0, share.weight if share else 1)
    held = share.held if share else 0
    kept = max(0, (most if share is None or share.heard != epoch else least) - held)
    heard = since(share.seen_ms, now) if share and share.seen_ms else None
    stranded = held + kept > 0 and (heard is None or heard > SILENT)
    code, _, at = share.refused.partition("@") if share else ("", "", "")
    trouble, remedy = REFUSED.get(code, ("", "")) if at and since(int(at), now) <= SILENT else ("", "")
    remedy = remedy.format(pool=pool, site=site)
    return SitePart(site, most, weight, least, held, kept, heard, stranded, trouble, remedy)


async def pool_part(server: Backend, pool: PoolAddress, fields: Mapping[str, str]) -> PoolPart | None:
    """Return what a pool holds of one at another site; None where it is no part of any."""
    if "part_of" not in fields:
        return None
    return part_now(fields, await now_ms(server, pool.keys[0]))


def part_now(fields: Mapping[str, str], now_ms: int) -> PoolPart:
    """Return what a pool holds of one at another site, from the fields of its state."""
    site, _, there = fields["part_of"].partition("/")
    share, noted = (record(fields.get(name, "").encode()) for name in ("share", "trouble"))
    trouble, remedy = "", ""
    if noted.get("of") == fields["part_of"]:  # or it is of the site that had lent to it earlier
        trouble, remedy = TROUBLES.get(noted.get("code", ""), ("a reason that newer clients know", ""))
    if share.get("of") != fields["part_of"]:
        return PoolPart(site, decode_name(there), 0, None, None, False, True, trouble, remedy or REACH)
    most, heard_ms = int(share["most"]), int(share["heard"])
    heard = since(heard_ms, now_ms) if heard_ms else None
    stranded = heard is None or heard > SILENT
    return PoolPart(
        site, decode_name(there), int(share["granted"]) - int(share["returned"]),
        most if heard_ms and most < UNLIMITED // 2 else None, heard, share["epoch"] == fields["epoch"], stranded,
        trouble, remedy or (REACH if stranded else ""),
    )  # fmt: skip


async def take_in(
    pools: Pools, pool: PoolAddress, letter: Letter, *, of: str, idle: int, asked: set[str],
    trouble: str | None = None,
) -> Held:  # fmt: skip
    """Tell a part what the other site answered, and have members give back what is lacking there.

    Args:
        pools: of this site.
        pool: the part.
        letter: the answer; an empty one where there is no new one.
        of: the other site and its pool.
        idle: bytes to give back as far as no member has them.
        asked: what earlier calls left there.
        trouble: why no more is to be had there, a code, empty for nothing; None where that is not known.

    Raises:
        CoordinatorUnavailable: Redis does not answer.
    """
    store = PoolSiteStore(pools.store.server)
    held = await store.share(pool, letter, of=of, idle=idle, trouble=trouble)
    await pools.deliver(pool, held.served, held.epoch)
    lacks = max(0, letter.lacks - max(0, held.returned - letter.returned))
    if held.code != "OK" or (lacks == 0 and held.owed == 0):
        return held
    await pools.collect(pool, held.epoch, lacks, held.owed, asked)
    held = await store.share(pool, replace(letter, lacks=lacks, owed=0), of=of)
    await pools.deliver(pool, held.served, held.epoch)
    return held


async def forget_site(server: Backend, pool: PoolAddress, site: str) -> int:
    """Take all that a site holds of a pool for given back, and return how many bytes that were.

    That is for a site that is gone for good. One that is there hears of it, and grants nothing new until it holds as
    little; what it uses meanwhile comes on top of the limit.

    Raises:
        PolicyError: there is no such pool, or no such site has a part of it.
        CoordinatorUnavailable: Redis does not answer.
    """
    store = PoolStore(server)
    if not (fields := await store.fields(pool)):
        raise PolicyError(f"there is no pool {pool.name!r}; headgate status lists them")
    parts = [part.site for part in await site_parts(server, pool, fields, await store.members(pool, match="@*"))]
    if site not in parts:
        raise PolicyError(f"no site {site!r} has a part of pool {pool.name!r}; {', '.join(parts) or 'none'} has")
    code, _, size, _, _ = await PoolSiteStore(server).account(pool, site, mode="forget")
    if code == "UNKNOWN":
        raise PolicyError(f"there is no pool {pool.name!r}; headgate status lists them")
    return size
