"""The processes at an address: one that answers for itself, or a worker that answers for all of them."""

import asyncio
import dataclasses
import functools
from typing import Final, Literal

from pydantic import Field

from headgate import Client, HeadgateError
from headgate_coordinator.admin.answers.stores import Answer
from headgate_coordinator.admin.namespace_watch import CachedValue
from headgate_coordinator.fleet.node_facts import NodeView
from headgate_coordinator.fleet.reports import Address, Report, Siblings, Unready
from headgate_coordinator.fleet.waits import WaitTimes

READINESS_TIMEOUT: Final = 1.0
"""Seconds that Redis, and then the node, may take to say that they can admit."""
WHY: Final = {
    "starting": "begins, or stops",
    "draining": "stops",
    "unavailable": "cannot reach Redis",
    "silent": "does not answer",
}


class Live(Answer):
    """The process answers."""

    status: Literal["live"] = "live"


class Ready(Answer):
    """This answer says whether messages can be admitted here."""

    status: Literal["ready", "not ready"]
    reason: str = Field(description="why not; empty when it can")


class Process:
    """This process, as it tells others of itself.

    Args:
        client: connected.
        node: that it runs; None where it runs none.
        waits: of its clients.
    """

    def __init__(self, client: Client, node: NodeView, waits: WaitTimes) -> None:
        self._client, self._node, self._waits = client, node, waits

    def report(self, *, counted: bool) -> Report:
        """Return how it is, with its counts or without."""
        report = Report.of(self._node.facts(), counted=counted)
        return dataclasses.replace(report, counts=report.counts | self._waits.counts()) if counted else report

    async def unready(self) -> Unready | None:
        """Return why it takes no clients; None when it does."""
        if self._node.facts().state != "ready":
            return "draining"
        return "unavailable" if await why_not(self._client, self._node) else None


class Processes:
    """All processes at the address.

    Args:
        client: connected; it stays the caller's.
        node: that runs in this one; None where there is none.
        waits: of this one's clients.
        siblings: the workers that it is one of; None where it is alone.
    """

    def __init__(self, client: Client, node: NodeView | None, waits: WaitTimes, siblings: Siblings | None) -> None:
        self._client, self._node, self._waits = client, node, waits
        self._own = Process(client, node, waits) if node is not None else None
        self._reports = {
            counted: CachedValue(functools.partial(siblings.reports, counted=counted)) for counted in (True, False)
        } if siblings is not None else None  # fmt: skip
        self._unready = CachedValue(siblings.unready) if siblings is not None else None
        if siblings is not None:
            siblings.oneself = self._own

    async def reports(self, *, counted: bool) -> Address:
        """Return how they are, with their counts or without."""
        if self._reports is not None:
            return await self._reports[counted].get()
        if self._own is None:
            return Address(counts=self._waits.counts())
        report = self._own.report(counted=counted)
        return Address((report,), report.counts, report.started)

    async def why_not(self) -> str | None:
        """Return why messages cannot be admitted at every one of them; None when they can."""
        # A worker that drains has its successor at the address: how its place is, the supervisor knows.
        is_going = self._unready is not None and self._node is not None and self._node.facts().state == "draining"
        why = None if is_going else await why_not(self._client, self._node)
        if why is not None or self._unready is None:
            return why
        unready = await self._unready.get()
        reasons = (
            f"worker {place} {WHY[code]}" if place else "the supervisor does not answer" for place, code in unready
        )
        return ", ".join(reasons) or None

    async def close(self) -> None:
        """Ask nobody any more."""
        for asking in (*(self._reports or {}).values(), self._unready):
            if asking is not None:
                await asking.close()


async def why_not(client: Client, node: NodeView | None) -> str | None:
    """Return why this process cannot admit messages, in a sentence; None when it can."""
    try:
        async with asyncio.timeout(READINESS_TIMEOUT):
            await client.store.server.everywhere("PING")
            return await node.readiness() if node is not None else None
    except TimeoutError:
        return f"{client.redis_url} did not answer within {READINESS_TIMEOUT} s"
    except HeadgateError as error:
        return str(error)
