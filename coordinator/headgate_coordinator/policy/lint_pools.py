"""The linter knows a trap of pools over sites: what is kept for these after a loss may leave nothing to others."""

from collections.abc import Iterator

from headgate.core.limits.pool_sites import sites_named
from headgate.core.policy import Policy
from headgate_coordinator.policy.finding import Finding

CODES = ("HG140",)


def pool_traps(policy: Policy) -> Iterator[Finding]:
    """Yield pools whose sites may have all of it: until they were heard of after a loss, nobody else gets any."""
    for pool in policy.pools:
        limit, kept = pool.fields.get("limit_bytes", ""), sum(site.most for site in sites_named(pool.fields).values())
        left = int(limit) - int(pool.fields.get("reserve_bytes", 0)) if limit.isdigit() else kept + 1
        if kept >= left > 0:
            yield Finding(
                "HG140",
                pool.origins["sites"],
                "sites",
                f"its sites may have {kept} bytes of {left}: after a loss of state here, nobody is granted anything "
                "until these sites were heard of",
                "let the sites have less together than the limit, by what is to go on here without them",
            )
