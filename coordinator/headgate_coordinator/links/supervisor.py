"""The links that one node works on: its part of those in the policy, by leases that all nodes share.

Each round reads which links there are, renews and claims leases, and begins or ends the work on each. Nothing hangs on
it but speed: a node that believes to have a lease that is another's does no harm, its calls are refused by number.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from headgate.client import Client
from headgate.core.bridge import ends_of
from headgate.errors import HeadgateError
from headgate.redis.keys import Address, link_id, namespace_channel, owned_keys
from headgate.redis.lease_store import Held, LeaseStore, Mode
from headgate.tasks import stop
from headgate_coordinator.links.duty import Duty
from headgate_coordinator.links.ending import end_link
from headgate_coordinator.links.ties import LinkTies
from headgate_coordinator.node.facts import BridgeFacts

_log = logging.getLogger("headgate.links")
PAGE: Final = 256
"""Leases that one call is about."""
CLOSING: Final = 2.0
"""Seconds to give back leases and credit; without Redis, they end by themselves."""


class Supervisor:
    """The part of a node in the forwarding of its namespace.

    Args:
        client: connected; it stays the caller's.
        node: id of the node.
        ttl: seconds after which others take over when nothing is heard of it.
    """

    def __init__(self, client: Client, node: str, *, ttl: float) -> None:
        self._client, self._node, self._ttl = client, node, ttl
        self._leases = LeaseStore(client.store.server, client.namespace)
        self._duties: dict[str, Duty] = {}
        self._messages: Counter[str] = Counter()  # of duties that ended
        self._bytes: Counter[str] = Counter()
        self._above = 0
        self._heard = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._tells: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin."""
        await self._client.parts.wake_ups.subscribe((namespace_channel(self._client.namespace),), self._hear)
        self._task = asyncio.create_task(self._run(), name="headgate links")
        self._tells = asyncio.create_task(LinkTies(self._client, self._duties).run(), name="headgate ties of links")

    async def close(self) -> None:
        """Stop, and let others go on at once."""
        await self._client.parts.wake_ups.unsubscribe((namespace_channel(self._client.namespace),), self._hear)
        await stop(self._task)
        await stop(self._tells)
        with contextlib.suppress(HeadgateError, TimeoutError):
            async with asyncio.timeout(CLOSING):
                held = list(self._duties)
                await self._stop(held)
                for page in _pages(held) if held else ([],):
                    await self._call("leave", page, held=0, total=0)
        await self._stop(list(self._duties), lost=True)

    def facts(self) -> tuple[BridgeFacts, ...]:
        """Return the links that this node works on, or worked on while they are in the policy."""
        told = []
        for link in sorted({*self._duties, *self._messages}):
            duty = self._duties.get(link)
            now = duty.forwarder if duty else None
            told.append(
                BridgeFacts(
                    link,
                    *ends_of(link),
                    works=duty is not None,
                    trouble=(duty.trouble or "") if duty else "",
                    messages=self._messages[link] + (now.committed if now else 0),
                    bytes=self._bytes[link] + (now.committed_bytes if now else 0),
                )
            )
        return tuple(told)

    def _hear(self, words: list[str]) -> None:
        if words[0] == "policy":
            self._heard.set()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        renewed = loop.time()
        while True:
            self._heard.clear()
            pause = self._ttl / 4
            began = loop.time()
            try:
                again_ms = await self.round()
                renewed = began
                pause = min(pause, pause if again_ms is None else again_ms / 1000)
            except HeadgateError as error:
                _log.debug("a round of links ended early: %s", error)
                if loop.time() - renewed > self._ttl:
                    await self._stop(list(self._duties), lost=True)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._heard.wait()

    async def round(self) -> int | None:
        """Do once what is to be done; returns in how many ms a lease may become free, None when that is not known.

        Raises:
            CoordinatorUnavailable: Redis does not answer; repeat it.
        """
        known = await self._known()  # before the policy: what is here and is not there, that policy does not name
        wanted = {bridge.link: bridge for bridge in (await self._client.policy()).bridges}
        await self._stop([link for link, duty in self._duties.items() if wanted.get(link) != duty.bridge])
        for link in set(self._messages) - set(wanted):
            del self._messages[link], self._bytes[link]
        names = sorted({*wanted, *known}, key=lambda link: (link not in self._duties, hash((self._node, link))))
        held, fences, fair, again = len(self._duties), dict[str, int](), 1, list[int]()
        for page in _pages(names):
            answer = await self._call("hold", page, held=held, total=len(names))
            held += len(answer.fences) - sum(link in self._duties for link in page)
            fences |= answer.fences
            fair = answer.fair
            again += [answer.again_ms] if answer.again_ms else []
        await self._stop([link for link, duty in self._duties.items() if fences.get(link) != duty.fence], lost=True)
        mine = [link for link in fences if link in wanted]
        given = await self._give_back(mine, len(fences) - fair)
        for link in mine:
            if link not in self._duties and link not in given:
                self._duties[link] = Duty(self._client, wanted[link], fences[link], ttl=self._ttl)
        await self._end_each({link: fence for link, fence in fences.items() if link not in wanted})
        return min(again, default=None)

    async def _known(self) -> set[str]:
        """Return the links of which there is or was a lease."""
        key = owned_keys(self._client.namespace)[0]
        names = (name.decode() for name in await self._client.store.server.command(key, "HKEYS", key))
        return {name for name in names if ">" in name}

    async def _call(self, mode: Mode, names: Sequence[str], *, held: int, total: int) -> Held:
        return await self._leases.call(
            self._node, names, mode=mode, ttl_ms=int(self._ttl * 1000), held=held, total=total, above=self._above
        )

    async def _give_back(self, links: Sequence[str], surplus: int) -> Sequence[str]:
        """Leave to others what is above this node's part, and what a later lease than this one is known of."""
        fenced = [link for link in links if link in self._duties and self._duties[link].done]
        self._above = max([self._above, *(self._duties[link].later for link in fenced)])
        others = [link for link in links if link not in fenced]
        given = [*fenced, *others[len(others) - surplus :]] if surplus > 0 else fenced
        await self._stop(given)
        for page in _pages(given):
            await self._call("release", page, held=0, total=0)
        return given

    async def _end_each(self, fences: dict[str, int]) -> None:
        """End links that the policy does not name; what cannot be ended now is tried again in the next round."""
        namespace, ttl_ms = self._client.namespace, int(self._ttl * 1000)
        for link, fence in fences.items():
            source, target = (Address.of(namespace, name) for name in ends_of(link))
            try:
                await end_link(self._client.store, link_id(link), source, target, fence=fence + 1, ttl_ms=ttl_ms)
                await self._call("forget", [link], held=0, total=0)
            except HeadgateError as error:
                _log.warning("the link %s, which the policy does not name any more, has not ended: %s", link, error)
            else:
                _log.info("the link %s has ended: the policy does not name it any more", link)

    async def _stop(self, links: Iterable[str], *, lost: bool = False) -> None:
        ending = {link: self._duties.pop(link) for link in tuple(links) if link in self._duties}
        await asyncio.gather(*(duty.stop(lost=lost) for duty in ending.values()))
        for link, duty in ending.items():
            if duty.forwarder:
                self._messages[link] += duty.forwarder.committed
                self._bytes[link] += duty.forwarder.committed_bytes


def _pages(names: Sequence[str]) -> Iterator[Sequence[str]]:
    for first in range(0, len(names), PAGE):
        yield names[first : first + PAGE]
