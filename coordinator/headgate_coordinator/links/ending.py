"""Ends a link for good: its source lets go of what the target has, and gets back what the link had in hand."""

from headgate.redis.link_store import LinkStore
from headgate.redis.replies import Account
from headgate_coordinator.links.ends import Place


async def end_link(link: str, source: Place, target: Place, *, fence: int, ttl_ms: int) -> None:
    """End a link that no policy names any more. May be repeated; ends that are gone do not matter.

    Both ends hear of the fence first, so that no call of an earlier worker, however late, stores anything after the
    mark was asked for. Else what it stored would be given back at the source too.

    Args:
        link: its id in the state of both.
        source: where it read.
        target: where it wrote.
        fence: above the number of any lease that a worker of it had.
        ttl_ms: length of the lease on the credit, which is given back here.

    Raises:
        CoordinatorUnavailable: no answer; call again.
    """
    here, there = LinkStore(source.client.store.server), LinkStore(target.client.store.server)
    while True:
        opened = await here.open(source.address, link, fence=fence, window="1/1")
        answer = await there.commit(target.address, link, fence=fence, born=opened.born, prev=0, ttl_ms=ttl_ms)
        if not (later := max(opened.fence, answer.fence)):
            break
        fence = later + 1  # the leases were lost, and are numbered anew
    mark = answer.mark if answer.code not in ("UNKNOWN", "KIND", "STALE") else 0
    if opened.code == "OK":
        code = "MORE" if mark else "OK"
        while code == "MORE":
            said = await here.read(
                source.address, link, fence=fence, born=opened.born, mark=mark, after=mark, messages=0, size=1
            )
            code = said.code
        for member in (f"{link}.1", f"!{link}"):
            while await source.client.store.detach(source.address, link, member, failed=False) == "MORE":
                pass
    await target.client.store.acquire(target.address, Account(link, fence, 0, weight=0), ttl_ms=ttl_ms, leave=True)
