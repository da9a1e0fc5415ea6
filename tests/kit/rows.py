"""The rows of the kit: each a promise of `docs/conformance.md` that can be seen over AMQP 1.0, and how it is tried."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from headgate.amqp.link import Outcome
from headgate.amqp.peer import Disconnected
from headgate.errors import HeadgateError
from tests.amqp import raw
from tests.amqp.client import Rude, written
from tests.kit.endpoint import STILL, Endpoint, Inbox, outcomes, told
from tests.kit.scene import Scene

LIMIT: Final = 100_000
"""Bytes that destinations have whose rows are about a limit."""
SIZE: Final = 1000
WINDOW: Final = 10
"""Messages that a receiver of such a queue holds unsettled at the most."""
TWO: Final = "kit-two"
"""A user who may have two connections."""
MOST: Final = 30 * LIMIT // SIZE
"""Messages after which nobody is expected to hold a sender up any more: more than products give credit for at first."""


_FEW: Final = 10


class Seen(NamedTuple):
    """Whether a promise held, and what was seen."""

    holds: bool
    what: str


async def _a03(scene: Scene) -> Seen:
    one = await scene.reads(1)
    none = await scene.reads(0)
    await scene.store(10)
    await one.has(1, scene.patience)
    other = await scene.reads(20)
    await other.has(9, scene.patience)
    seen = (await one.is_still(), len(none), len(other))
    return Seen(seen == (1, 0, 9), "{} in work, {} without credit, {} to another".format(*seen))


async def _a04(scene: Scene) -> Seen:
    await scene.store(20)
    slow = await scene.reads(20)
    held = await slow.has(20, scene.patience)
    fast = await scene.reads(20)
    got = await fast.is_still()
    return Seen((held, got) == (20, 0), f"the slow one holds {held}, the fast one gets {got}")


async def _a12(scene: Scene) -> Seen:
    links = [await scene.writes() for _ in range(8)]
    bodies = ["x" * SIZE] * (MOST // len(links))
    accepted = sum(await asyncio.gather(*(client.put_all(link, bodies) for client, link in links)))
    stored = max(accepted, await (await scene.reads(2 * MOST)).is_still()) * SIZE
    return Seen(stored <= LIMIT, f"{stored:,} bytes are stored of {MOST * SIZE:,} at a limit of {LIMIT:,}")


async def _a14(scene: Scene) -> Seen:
    client, link = await scene.writes()
    waits: list[asyncio.Future[tuple[Outcome, str]]] = []
    with contextlib.suppress(TimeoutError):
        while len(waits) < MOST:
            async with asyncio.timeout(STILL):
                await client.until(lambda: link.credit > 0, link)
            waits.append(client.offer(link, "x" * SIZE))
    said = await outcomes(waits)
    stored, refused = said.count("accepted"), len(said) - said.count("accepted")
    if refused or stored >= MOST:
        return Seen(False, f"after {stored} messages {f'{refused} are {said[-1]}' if refused else 'nothing stops'}")
    inbox = await scene.reads(stored)
    await inbox.has(stored, scene.patience)
    inbox.settle(stored)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(scene.patience):
            await client.until(lambda: link.credit > 0 or sum(wait.done() for wait in waits) > stored, link)
            waits.append(client.offer(link, "x" * SIZE))
            await asyncio.wait(waits)
    goes_on = sum(wait.done() for wait in waits) > stored
    return Seen(
        goes_on, f"stops after {stored} messages, {'goes on' if goes_on else 'stays stopped'} once they are taken"
    )


async def _a19(scene: Scene) -> Seen:
    await scene.empty()
    rude = await scene.endpoint.socket()
    try:
        async with asyncio.timeout(scene.patience):
            await rude.greet(raw.attach("s", 0, address=scene.address, capability=scene.kind))
            await rude.granted()
        message = written("x" * SIZE)
        await rude.say(b"".join(raw.transfer(0, number, message) for number in range(2 * MOST)))
        await _heard_out(rude)
        error = told(rude.heard)
    finally:
        rude.writer.transport.abort()
    inbox = await scene.reads(2 * MOST)
    stored = await inbox.is_still()
    holds = bool(error) and stored * SIZE <= LIMIT
    return Seen(holds, f"{stored} of {2 * MOST} are stored, {error or 'no error'}")


async def _heard_out(rude: Rude) -> None:
    """Read until the endpoint hangs up, or says nothing more."""
    with contextlib.suppress(TimeoutError):
        while True:
            async with asyncio.timeout(STILL):
                if not await rude._read():
                    return


async def _a20(scene: Scene) -> Seen:
    client, link = await scene.writes()
    given = left = link.credit
    while left > 0 and given - left < MOST:
        async with asyncio.timeout(scene.patience):
            await asyncio.gather(*(client.offer(link, "x") for _ in range(min(_FEW, left))))
        if link.credit > left - _FEW:
            return Seen(True, f"{given} at first, more when some {max(left - _FEW, 0)} are left")
        left = link.credit
    return Seen(False, f"{given} at first, none more when {given - left} are used")


async def _a23(scene: Scene) -> Seen:
    for let_in in range(3):
        try:
            client = await scene.client(user=TWO)
            await client.reads(scene.address, 0)
        except (Disconnected, OSError, HeadgateError) as error:
            why = told(str(error).encode()) or "the log-in fails"
            return Seen(let_in == 2, f"{let_in} connections are let in, then {why}")
    return Seen(False, "3 connections are let in")


async def _c01(scene: Scene) -> Seen:
    client, link = await scene.writes()
    stored = await client.put_all(link, ["x" * SIZE] * MOST)
    if stored >= MOST:
        return Seen(False, "nothing stops")
    other = await client.writes(scene.address.replace("limited", "free"), name="other")
    answered = await client.put_all(other, ["x"] * 10)
    return Seen(answered == 10, f"one stops after {stored}, of another's 10 there are {answered} accepted")


async def _f01(scene: Scene) -> Seen:
    await scene.store(30)
    inbox = await scene.reads(10)
    await inbox.has(10, scene.patience)
    first = await inbox.is_still()
    inbox.settle(5)
    settled = await inbox.is_still()
    inbox.allow(5)
    await inbox.has(15, scene.patience)
    seen = (first, settled, await inbox.is_still())
    return Seen(seen == (10, 10, 15), "{} at first, {} once 5 are settled, {} with credit for 5 more".format(*seen))


async def _f02(scene: Scene) -> Seen:
    await scene.store(30)
    client = await scene.client()
    inboxes = [await client.reads(scene.address, credit, name=f"r{credit}") for credit in (3, 7)]
    for inbox, credit in zip(inboxes, (3, 7), strict=True):
        await inbox.has(credit, scene.patience)
    seen = tuple([await inbox.is_still() for inbox in inboxes])
    return Seen(seen == (3, 7), "{} and {}".format(*seen))


async def _f03(scene: Scene) -> Seen:
    await scene.store(3)
    inbox = await scene.reads(1)
    seen = []
    for number in range(1, 4):
        await inbox.has(number, scene.patience)
        seen.append(await inbox.is_still())
        inbox.settle(1)
        inbox.allow(1)
    return Seen(seen == [1, 2, 3] and inbox.bodies == ["0", "1", "2"], f"{', '.join(map(str, seen))}, in order")


async def _f09(scene: Scene) -> Seen:
    await scene.store(10)
    first = await scene.reads(10)
    held = await first.has(10, scene.patience)
    first.link.close()
    first.client.flush()
    other = await scene.reads(10)
    again = await other.has(10, scene.patience)
    how = "in order" if other.bodies == [str(number) for number in range(10)] else "in another order"
    return Seen((held, again) == (10, 10), f"{again} of {held} come to another, {how}, delivery-count {_span(other)}")


def _span(inbox: Inbox) -> str:
    return "-".join(str(count) for count in sorted(set(inbox.counts))) or "none"


async def _b02(scene: Scene) -> Seen:
    await scene.store(30)
    inbox = await scene.reads(5)
    seen = [await inbox.has(5, scene.patience)]
    inbox.settle(5)
    inbox.allow(12)
    await inbox.has(17, scene.patience)
    seen.append(await inbox.is_still())
    inbox.settle(12)
    inbox.allow(1)
    await inbox.has(18, scene.patience)
    seen.append(await inbox.is_still())
    return Seen(seen == [5, 17, 18], f"{', '.join(map(str, seen))} with credit for 5, 12 and 1")


async def _b05(scene: Scene) -> Seen:
    paused = await scene.reads(10)
    await paused.is_still()
    paused.allow(0)
    await paused.is_still()
    await scene.store(10)
    other = await scene.reads(10)
    await other.has(10, scene.patience)
    seen = (await paused.is_still(), len(other))
    return Seen(seen == (0, 10), "{} to the one that took its credit back, {} to another".format(*seen))


async def _b07(scene: Scene) -> Seen:
    inboxes = [await scene.reads(credit, f"r{credit}") for credit in (3, 7)]
    await scene.store(10)
    for inbox, credit in zip(inboxes, (3, 7), strict=True):
        await inbox.has(credit, scene.patience)
    seen = tuple([await inbox.is_still() for inbox in inboxes])
    return Seen(seen == (3, 7), "{} and {} of 10".format(*seen))


async def _order(scene: Scene, priorities: list[int]) -> list[str]:
    """Return the priorities of messages in the order in which they come, one at a time."""
    client, link = await scene.writes()
    for priority in priorities:
        assert await client.put_all(link, [str(priority)], priority=priority) == 1
    inbox = await scene.reads(1)
    for number in range(1, len(priorities) + 1):
        await inbox.has(number, scene.patience)
        inbox.settle(1)
        inbox.allow(1)
    return inbox.bodies


async def _h01(scene: Scene) -> Seen:
    came = await _order(scene, [1, 4, 9, 5, 4])
    return Seen(came == ["9", "5", "4", "4", "1"], f"1, 4, 9, 5, 4 come as {', '.join(came)}")


async def _h02(scene: Scene) -> Seen:
    came = await _order(scene, [1, 4, 9, 5, 4])
    return Seen(came == ["1", "4", "9", "5", "4"], f"1, 4, 9, 5, 4 come as {', '.join(came)}")


async def _h05(scene: Scene) -> Seen:
    came = await _order(scene, [4, 9, 200])
    return Seen(came == ["9", "200", "4"], f"4, 9, 200 come as {', '.join(came)}")


async def _l02(scene: Scene) -> Seen:
    await scene.store(1)
    inbox = await scene.reads(1)
    await inbox.has(1, scene.patience)
    inbox.settle(1, "failed")
    inbox.allow(1)
    clock = asyncio.get_running_loop().time
    failed = clock()
    count = await inbox.has(2, scene.patience)
    at_once = clock() - failed < 1
    how = f"{'at once' if at_once else 'later'}, delivery-count {inbox.counts[-1]}" if count == 2 else "never"
    return Seen(count == 2 and at_once and inbox.counts[-1] == 1, f"it comes again {how}")


async def _l05(scene: Scene) -> Seen:
    client, link = await scene.writes()
    clock = asyncio.get_running_loop().time
    sent = clock()
    assert await client.put_all(link, ["later"], delay=1500) == 1
    assert await client.put_all(link, ["now"]) == 1
    inbox = await scene.reads(2)
    await inbox.has(2, scene.patience)
    after = clock() - sent
    waited = inbox.bodies == ["now", "later"] and after >= 1.4
    return Seen(waited, "it waits, and others pass it" if waited else f"they come as {', '.join(inbox.bodies)}")


async def _l06(scene: Scene) -> Seen:
    client, link = await scene.writes()
    for body, delay in (("long", 10_000), ("short", 500)):  # far apart: a busy broker takes its time between them
        assert await client.put_all(link, [body], delay=delay) == 1
    inbox = await scene.reads(2)
    await inbox.has(2, 10 + scene.patience)
    return Seen(inbox.bodies == ["short", "long"], f"they come as {', '.join(inbox.bodies) or 'nothing'}")


async def _l08(scene: Scene) -> Seen:
    await scene.store(1)
    first = await scene.reads(1)
    await first.has(1, scene.patience)
    first.client.abort()
    other = await scene.reads(1)
    count = await other.has(1, scene.patience)
    return Seen(
        count == 1 and other.counts == [1], f"delivery-count {other.counts[0]}" if count else "it does not come"
    )


async def _l09(scene: Scene) -> Seen:
    await scene.store(3 * WINDOW)
    inbox = await scene.reads(3 * WINDOW)
    await inbox.has(WINDOW, scene.patience)
    first = await inbox.is_still()
    inbox.settle(first)
    await inbox.has(2 * WINDOW, scene.patience)
    seen = (first, await inbox.is_still() - first)
    return Seen(seen == (WINDOW, WINDOW), "{} at first, {} more once these are settled".format(*seen))


@dataclass(frozen=True, slots=True)
class Row:
    """One promise.

    Attributes:
        id: that of the statement in `docs/conformance.md`.
        promise: that is tried over AMQP.
        run: the try.
        needs: what the destination has to be: `limited` to 100,000 bytes, at which senders wait; `bands`, delivered by
            priority; a `window`, of which receivers hold 10 messages at the most; a `topic`; for user kit-two, who may
            have `two` connections; or nothing more than a queue.
    """

    id: str
    promise: str
    run: Callable[[Scene], Awaitable[Seen]]
    needs: str = ""

    @property
    def name(self) -> str:
        """The name of its destination."""
        return ".".join(filter(None, ("kit", self.needs, self.id.lower())))

    async def tried(self, endpoint: Endpoint) -> Seen:
        """Try it on an endpoint, on a destination of its own that is emptied before.

        Raises:
            Gone: the endpoint refuses what is needed for it.
        """
        kind = "topic" if self.needs == "topic" else "queue"
        scene = Scene(endpoint, (endpoint.topic if kind == "topic" else endpoint.queue).format(self.name), kind)
        try:
            await scene.empty()
            return await self.run(scene)
        finally:
            await scene.close()


ROWS: Final = (
    Row("A03", "A receiver without credit is sent nothing; what is not in work stays for others", _a03),
    Row("A04", "What a receiver has been sent is its own while it is there, however slow it is", _a04),
    Row("A12", "Eight senders together never store more than the limit", _a12, "limited"),
    Row("A14", "At the limit a sender is stopped, and goes on once messages are taken; none is lost", _a14, "limited"),
    Row("A19", "Transfers beyond the credit are an error, and not stored above the limit", _a19, "limited"),
    Row("A20", "Credit is given in messages, and renewed before it is used up", _a20),
    Row("A23", "A user has no more connections than it may", _a23, "two"),
    Row("C01", "While one link is stopped, another of the same connection goes on", _c01, "limited"),
    Row("F01", "No more than the credit is sent, and none for settling alone", _f01),
    Row("F02", "Each link of a session or connection has credit of its own", _f02),
    Row("F03", "A credit of 1 is one message at a time, in order", _f03),
    Row("F09", "What a receiver has not settled comes to others when it closes", _f09),
    Row("B02", "Credit changes at any time", _b02),
    Row("B05", "A receiver that takes its credit back is sent nothing, and others get it", _b05),
    Row("B07", "Each subscription of a topic has credit of its own", _b07, "topic"),
    Row("H01", "Higher priorities go before, alike ones in order, and one that says none is of 4", _h01, "bands"),
    Row("H02", "A queue that is not set up for priorities delivers in order", _h02),
    Row("H05", "A priority above 9 is as 9", _h05, "bands"),
    Row("L02", "A failed message comes again at once, and its delivery-count says so", _l02),
    Row("L05", "`x-opt-delivery-delay` delays a message, and others pass it", _l05),
    Row("L06", "A short delay does not wait behind a long one", _l06),
    Row("L08", "What a lost connection held counts as a delivery that failed", _l08),
    Row("L09", "So many are delivered and not settled, whatever the credit, and then none", _l09, "window"),
)
