"""A supervisor runs the links that one node works on: its part of those in the policy, by leases that all nodes share.

Each round reads which links there are, renews and claims leases, and begins or ends the work on each. Nothing hangs on
it but speed: a node that believes to have a lease that is another's does no harm, its calls are refused by number.
"""

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from headgate._util.tasks import stop
from headgate.client import Client
from headgate.core.links.channel import Feed, feed_of
from headgate.core.links.link import Link, Site, ends_of
from headgate.core.links.trouble import Trouble
from headgate.errors import HeadgateError
from headgate.redis.keys import namespace_channel, owned_keys
from headgate_coordinator.fleet.leases import LeaseAnswer, LeaseStore, Mode, pages
from headgate_coordinator.fleet.node_facts import BridgeFacts
from headgate_coordinator.fleet.rounds import LeaseRounds
from headgate_coordinator.links.channel_job import ChannelJob, end_feed
from headgate_coordinator.links.endpoints import places_of
from headgate_coordinator.links.job import AnyJob, LinkTotals
from headgate_coordinator.links.link_job import LinkJob
from headgate_coordinator.links.removal import end_link
from headgate_coordinator.links.routed import links_now
from headgate_coordinator.links.sites import Sites
from headgate_coordinator.links.wait_notes import LinkTies
from headgate_coordinator.security.policy_reach import PolicyReach

_log = logging.getLogger("headgate.explain.links")
ENDING: Final = 16
"""Links that are ended at a time."""
BEGINNING: Final = 16
"""Links whose ends are made at a time, at one site: one that does not answer holds up those that lead there alone."""
LOOK: Final = 0.5
"""Seconds between looks whether ends of links are gone, or pools have room for targets that have none: a look may make
calls, and two a second are enough, however often workers meet that."""
CLOSING: Final = 2.0
"""Seconds to give back leases and credit; without Redis, they end by themselves."""


class Supervisor:
    """A supervisor does a node's part in the forwarding of its namespace.

    Args:
        client: connected; it stays the caller's.
        node: id of the node.
        ttl: seconds after which others take over when nothing is heard of it.
        reach: what the policy may name at this node; None for nothing but variables for sites.

    Attributes:
        sites: clients of the other sites.
    """

    def __init__(self, client: Client, node: str, *, ttl: float, reach: PolicyReach | None = None) -> None:
        self._client, self._node, self._ttl = client, node, ttl
        self._leases = LeaseStore(client.store.server, client.namespace)
        self.sites = Sites(client.namespace, reach or PolicyReach())
        self._jobs: dict[str, AnyJob] = {}
        self._ties = LinkTies(client, self._jobs)
        self._carried: dict[str, LinkTotals] = {}  # by jobs that ended
        self._where: dict[str, str] = {}  # targets of links in the policy, for people
        self._facts: dict[str, tuple[object, BridgeFacts]] = {}  # of each link what it was when its facts were made
        self._troubles: dict[str, Trouble] = {}  # of links that could not be ended
        self._ending: dict[str, tuple[int, asyncio.Task[None]]] = {}  # with the numbers of their leases
        self._enders = asyncio.Semaphore(ENDING)
        self._beginning = defaultdict[str, asyncio.Semaphore](lambda: asyncio.Semaphore(BEGINNING))
        self._above = 0
        self._by_pattern = False
        self._rounds = LeaseRounds(self.round, self._lose, ttl=ttl, name="links")
        self._tells: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin."""
        await self._client.parts.wake_ups.subscribe((namespace_channel(self._client.namespace),), self._hear)
        self._rounds.start()
        self._tells = asyncio.create_task(self._ties.run(), name="headgate ties of links")
        self._looking = asyncio.create_task(self._look_after(), name="headgate ends of links")

    async def close(self) -> None:
        """Stop, and let others go on at once."""
        await self._client.parts.wake_ups.unsubscribe((namespace_channel(self._client.namespace),), self._hear)
        await stop(self._looking)
        await self._rounds.stop()
        await self._stop_ending({})
        await stop(self._tells)
        with contextlib.suppress(HeadgateError, TimeoutError):
            async with asyncio.timeout(CLOSING):
                held = list(self._jobs)
                await self._stop(held)
                for page in pages(held) if held else ([],):
                    await self._call("leave", page, held=0, total=0)
        await self._stop(list(self._jobs), lost=True)
        await self.sites.close()

    def facts(self) -> tuple[BridgeFacts, ...]:
        """Return the links that this node works on, or worked on while they are in the policy."""
        current, jobs = dict[str, tuple[object, BridgeFacts]](), self._jobs
        for link in sorted({*jobs, *self._carried, *self._troubles}):
            job = jobs.get(link)
            carried = self._total(link, job)
            trouble = job.trouble if job else self._troubles.get(link)
            now = (carried, trouble, job is None)
            before = self._facts.get(link)  # of thousands of links, few moved since a second ago
            current[link] = (
                before if before and before[0] == now else (now, self._facts_of(link, job, carried, trouble))
            )
        self._facts = current
        return tuple(facts for _, facts in current.values())

    def _facts_of(self, link: str, job: AnyJob | None, carried: LinkTotals, trouble: Trouble | None) -> BridgeFacts:
        ends = ends_of(link)
        return BridgeFacts(
            link,
            ends.source,
            self._where.get(link) or ends.where,
            works=job is not None,
            trouble=trouble,
            messages=carried.messages,
            bytes=carried.bytes,
            packets=carried.packets,
            backlog=carried.backlog,
        )

    def _total(self, link: str, job: AnyJob | None) -> LinkTotals:
        now, earlier = job.carried if job else LinkTotals(), self._carried.get(link)
        return now.after(earlier) if earlier else now

    def _hear(self, words: list[str]) -> None:
        if words[0] == "policy" or (words[0] == "created" and self._by_pattern):
            self._rounds.hurry()

    async def _look_after(self) -> None:
        while True:
            await asyncio.sleep(LOOK)
            for job in self._jobs.values():
                job.look_after()

    async def round(self) -> int | None:
        """Do once what is to be done; returns in how many ms a lease may become free, None when that is not known.

        Raises:
            CoordinatorUnavailable: Redis does not answer; repeat it.
        """
        known = await self._known()  # before the policy: what is here and is not there, that policy does not name
        policy = await self._client.policy()
        self._by_pattern = bool(policy.patterns)
        wanted = await links_now(self._client, policy)
        where = {name: link.where for name, link in wanted.items()}
        if where != self._where:
            self._where, self._facts = where, {}
        await asyncio.sleep(0)  # here and below: all that a large policy takes at once would hold up all else
        gone = [
            name for name, job in self._jobs.items() if (link := wanted.get(name)) is not job.link and link != job.link
        ]
        await self._stop(gone)
        for page in pages([name for name in gone if name in wanted]):
            # They begin anew under a later lease: a segment that they wrote and did not commit is nobody's then.
            await self._call("release", page, held=0, total=0)
        await self.sites.keep(policy.sites)
        self._carried = {link: carried for link, carried in self._carried.items() if link in wanted}
        await asyncio.sleep(0)
        names = sorted({*wanted, *known}, key=lambda link: (link not in self._jobs, hash((self._node, link))))
        await asyncio.sleep(0)
        held, fences, fair, again = len(self._jobs), dict[str, int](), 1, list[int]()
        sought: list[tuple[Mode, list[str]]] = [
            ("hold", [link for link in names if link in wanted]),
            ("known", [link for link in names if link not in wanted]),  # another may have ended it just now
        ]
        for mode, page in [(mode, page) for mode, links in sought for page in pages(links)]:
            answer = await self._call(mode, page, held=held, total=len(names))
            held += len(answer.fences) - sum(link in self._jobs for link in page)
            fences |= answer.fences
            fair = answer.fair
            again += [answer.again_ms] if answer.again_ms else []
        await self._stop([link for link, job in self._jobs.items() if fences.get(link) != job.fence], lost=True)
        ending = {link: fence for link, fence in fences.items() if link not in wanted}
        await self._stop_ending(ending)
        mine = [link for link in fences if link in wanted]
        given = await self._give_back(mine, len(fences) - fair)
        begin = sorted({*mine} - {*self._jobs} - {*given})
        for page in pages(begin):
            self._jobs |= {link: self._begin(wanted[link], fences[link]) for link in page}
            await asyncio.sleep(0)
        await self._end_each(ending, {site.name: site for site in policy.sites})
        return min(again, default=None)

    def _begin(self, link: Link | Feed, fence: int) -> AnyJob:
        if isinstance(link, Feed):
            return ChannelJob(self._client, link, fence)
        return LinkJob(
            self._client, self.sites, link, fence, ttl=self._ttl, on_wait=self._ties.changed.set,
            beginning=self._beginning,
        )  # fmt: skip

    async def _known(self) -> set[str]:
        """Return the links of which there is or was a lease."""
        key = owned_keys(self._client.namespace)[0]
        names = (name.decode() for name in await self._client.store.server.command(key, "HKEYS", key))
        return {name for name in names if ">" in name}

    async def _call(self, mode: Mode, names: Sequence[str], *, held: int, total: int) -> LeaseAnswer:
        return await self._leases.call(
            self._node, names, mode=mode, ttl_ms=int(self._ttl * 1000), held=held, total=total, above=self._above
        )

    async def _give_back(self, links: Sequence[str], surplus: int) -> Sequence[str]:
        """Leave to others what is above this node's part, and what a later lease than this one is known of."""
        fenced = [link for link in links if link in self._jobs and self._jobs[link].later]
        self._above = max([self._above, *(self._jobs[link].later for link in fenced)])
        others = [link for link in links if link not in fenced]
        given = [*fenced, *others[len(others) - surplus :]] if surplus > 0 else fenced
        await self._stop(given)
        for page in pages(given):
            await self._call("release", page, held=0, total=0)
        return given

    async def _end_each(self, fences: dict[str, int], sites: dict[str, Site]) -> None:
        """End links that the policy does not name; what takes longer than a round goes on beside the next ones."""
        for page in pages([link for link in fences if link not in self._ending]):
            for link in page:
                task = asyncio.create_task(self._end(link, fences[link], sites), name=f"headgate ends {link}")
                self._ending[link] = fences[link], task
            await asyncio.sleep(0)
        tasks = {task for _, task in self._ending.values()}
        if tasks:
            await asyncio.wait(tasks, timeout=self._ttl / 4)  # leases are to be renewed meanwhile
        self._ending = {link: (fence, task) for link, (fence, task) in self._ending.items() if not task.done()}
        slow = dict.fromkeys(self._ending, Trouble.of("slow-end"))
        self._troubles = slow | {link: trouble for link, trouble in self._troubles.items() if link in fences}
        for link, trouble in self._troubles.items():
            _log.warning("the link %s, which the policy no longer names, has not ended: %s", link, trouble.text)

    async def _stop_ending(self, fences: dict[str, int]) -> None:
        """Leave links alone that are another's to end now, or that the policy names again."""
        for link in [link for link, (fence, _) in self._ending.items() if fences.get(link) != fence]:
            await stop(self._ending.pop(link)[1])

    async def _end(self, link: str, fence: int, sites: dict[str, Site]) -> None:
        try:
            async with self._enders:
                await self._end_now(link, fence, sites)
        except HeadgateError as error:
            self._troubles[link] = Trouble.of("error", error)
        else:
            self._troubles.pop(link, None)
            _log.info("the link %s has ended: the policy no longer names it", link)

    async def _end_now(self, link: str, fence: int, sites: dict[str, Site]) -> None:
        if feed_of(link):
            await end_feed(self._client, link, fence=fence + 1)
        else:
            name, source, target = await places_of(link, self._client, self.sites, sites)
            await end_link(
                name, source, target, fence=fence + 1, ttl_ms=int(self._ttl * 1000), copies=ends_of(link).copies
            )
        await self._call("forget", [link], held=0, total=0)

    async def _lose(self) -> None:
        await self._stop(list(self._jobs), lost=True)

    async def _stop(self, links: Iterable[str], *, lost: bool = False) -> None:
        ending = {link: self._jobs.pop(link) for link in tuple(links) if link in self._jobs}
        for page in pages(list(ending)):  # all of a large policy at once would hold up whatever else the node does
            await asyncio.gather(*(ending[link].stop(lost=lost) for link in page))
        for link, job in ending.items():
            self._carried[link] = self._total(link, job)
