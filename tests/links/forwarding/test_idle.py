"""A link without messages asks its source ever more rarely, as long as hints come for certain, and misses none."""

import asyncio
from collections.abc import AsyncIterator
from typing import TypeVar

import pytest

from headgate.core.links.calls import Commit, Committed, Entry, Fetch, Open, Opened, Read
from headgate.core.links.trouble import Trouble
from headgate.errors import CoordinatorUnavailable
from headgate.redis.hints import PubSubWakeUps
from headgate.redis.server import Server
from headgate.redis.url import parse_url
from headgate_coordinator.links.forwarder import LONGEST_LOOK, LOOK_AGAIN, Forwarder
from headgate_coordinator.links.rules import Forwarding
from headgate_coordinator.links.worker import LinkSide, LinkWorker
from tests.links.site import LINK, Sites
from tests.support.faultproxy import FaultProxy
from tests.support.servers import available_servers
from tests.support.shared import SharedServers
from tests.support.waiting import wait_until

NOTHING = Read("OK", 0)
C = TypeVar("C", Fetch, Commit)


def opened(*, hinted: bool = True) -> Forwarder:
    """Return a worker that is open, knows its mark, and has not looked yet."""
    worker = Forwarder(Forwarding("here", "there", window=10))
    worker.hinted = hinted
    worker.hear(Open(), Opened("OK", 1), 0)
    (ask,) = worker.calls(0)
    worker.hear(ask, Committed("OK", 0), 0)
    return worker


def only(worker: Forwarder, kind: type[C], now: float) -> C:
    """Return the call of that kind; others get no answer."""
    found = []
    for call in worker.calls(now):
        if isinstance(call, kind):
            found.append(call)
        else:
            worker.missed(call, now)
    (wanted,) = found
    return wanted


def fetch(worker: Forwarder, now: float) -> Fetch:
    return only(worker, Fetch, now)


def commit(worker: Forwarder, now: float) -> Commit:
    return only(worker, Commit, now)


def pauses(worker: Forwarder, count: int) -> list[float]:
    """Return how long it waits after each of so many looks that find nothing."""
    told, now = [], worker.wake_at
    for _ in range(count):
        worker.hear(fetch(worker, now), NOTHING, now)
        told.append(worker.wake_at - now)
        now = worker.wake_at
    return told


def test_it_looks_ever_more_rarely_where_hints_come_for_certain() -> None:
    """Mutants: it waits as long each time; ever longer without an end."""
    assert pauses(opened(), 6) == [1, 2, 4, 8, LONGEST_LOOK, LONGEST_LOOK]


def test_it_looks_once_a_second_where_they_do_not() -> None:
    """Mutant: hints need not be certain."""
    worker = opened(hinted=False)
    assert pauses(worker, 3) == [LOOK_AGAIN] * 3
    worker.hinted = True
    assert pauses(worker, 3) == [1, 2, 4]
    worker.hinted = False
    assert pauses(worker, 2)[1] == LOOK_AGAIN


def test_a_message_makes_it_look_as_often_as_at_first() -> None:
    """Mutant: the pause stays as long as it has become."""
    worker = opened()
    pauses(worker, 5)
    worker.woken(source=True)
    worker.hear(fetch(worker, 500), Read("OK", 0, (Entry(1, b"x"),)), 500)
    reserve = commit(worker, 500)
    worker.hear(reserve, Committed("OK", 0, held=10, held_m=9), 500)
    worker.hear(commit(worker, 500), Committed("OK", 1, held=9, held_m=9), 500)
    assert pauses(worker, 2) == [1, 2]


def test_it_does_not_rest_for_as_long_as_a_rate_says_at_either_end() -> None:
    """The rate may be raised, and the hint of that be lost. Mutants: a rest at the source, the target, has no end."""
    worker = opened(hinted=False)
    worker.hear(fetch(worker, 0), Read("OK", 0, (), 1_000_000), 0)
    assert worker.wake_at == LONGEST_LOOK
    worker.hear(fetch(worker, LONGEST_LOOK), Read("OK", 0, (Entry(1, b"x"),)), LONGEST_LOOK)
    worker.hear(commit(worker, LONGEST_LOOK), Committed("RATE", 0, held=10, held_m=9, again_ms=1_000_000), LONGEST_LOOK)
    assert commit(worker, 2 * LONGEST_LOOK).entries


def test_a_hint_that_comes_while_the_source_is_asked_is_not_forgotten() -> None:
    """The answer may be of before the message that the hint is about. Mutant: the answer counts."""
    worker = opened()
    look = fetch(worker, 0)
    worker.woken(source=True)
    worker.hear(look, NOTHING, 0)
    worker.hear(fetch(worker, 0), NOTHING, 0)
    assert worker.wake_at > 0, "one hint, one look"


def test_a_hint_that_comes_while_the_target_is_asked_is_not_forgotten() -> None:
    """Mutant: the answer counts."""
    worker = opened()
    worker.hear(fetch(worker, 0), Read("OK", 0, (Entry(1, b"x"),)), 0)
    ask = commit(worker, 0)
    worker.woken(target=True)
    full = Committed("OK", 0, held=0, place=1, again_ms=1000)
    worker.hear(ask, full, 0)
    worker.hear(commit(worker, 0), full, 0)
    assert not any(isinstance(call, Commit) for call in worker.calls(0.5)), "one hint, one question"


def test_a_call_that_only_releases_does_not_put_off_the_next_look() -> None:
    """Else a link whose window was full would stand still for a second. Mutant: it is a look that found nothing."""
    worker = opened()
    worker.hear(fetch(worker, 0), Read("OK", 0, (Entry(1, b"x"),)), 0)
    worker.hear(commit(worker, 0), Committed("OK", 0, held=100, held_m=9), 0)
    worker.hear(fetch(worker, 0), Read("OK", 0, (Entry(2, b"more than the window"),)), 0)
    worker.missed(Commit(1, 0), 0)
    worker.woken(target=True)
    worker.hear(commit(worker, 0), Committed("OK", 1, held=100, held_m=9), 0)
    release = fetch(worker, 0)
    assert (release.mark, release.messages) == (1, 0)
    worker.hear(release, Read("OK", 1), 0)
    worker.missed(Commit(1, 0), 0)
    worker.woken(target=True)
    worker.hear(commit(worker, 0), Committed("OK", 2, held=80, held_m=9), 0)
    assert fetch(worker, 0).messages > 0


@pytest.fixture
async def proxy(shared_servers: SharedServers) -> AsyncIterator[FaultProxy]:
    """The line over which hints come from the source."""
    async with FaultProxy(shared_servers.standalone(available_servers()[-1])) as proxy:
        yield proxy


@pytest.fixture
async def idle(sites: Sites, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LinkWorker]:
    """A worker that has found nothing so often that it would look again in an hour."""
    monkeypatch.setattr("headgate.redis.hints.HEARTBEAT", 0.05)
    monkeypatch.setattr("headgate.redis.hints._GIVEN_UP", 0.5)
    await sites.make()
    hints = Server(parse_url(proxy.url)).wake_ups()
    here = sites.here.end("orders")
    worker = LinkWorker(
        LINK, LinkSide(here.store, here.address, hints), sites.there.end("orders"), Forwarding("a", "b"), fence=1
    )
    task = asyncio.create_task(worker.run())
    monkeypatch.setattr("headgate_coordinator.links.forwarder.LONGEST_LOOK", 3600.0)
    forwarder = worker.forwarder

    def waits_long() -> bool:
        if forwarder.mark is not None and forwarder.wake_at > asyncio.get_running_loop().time() + 3000:
            return True
        forwarder._pause = 3600.0
        forwarder.woken(source=True)
        worker._event.set()
        return False

    await wait_until(waits_long)
    yield worker
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await hints.close()


async def arrives(sites: Sites, body: bytes) -> None:
    async def there() -> bool:
        return body in await sites.there.stored("orders")

    await wait_until(there)


def hints_of(worker: LinkWorker) -> PubSubWakeUps:
    assert isinstance(worker.source.wake_ups, PubSubWakeUps)
    return worker.source.wake_ups


async def test_an_idle_link_is_woken_by_a_hint(sites: Sites, idle: LinkWorker) -> None:
    await sites.here.send("orders", b"one")
    await arrives(sites, b"one")


async def test_what_came_while_hints_were_cut_off_is_found_when_they_come_again(
    sites: Sites, idle: LinkWorker, proxy: FaultProxy
) -> None:
    """Mutant: a new connection says nothing."""
    proxy.refuse()
    proxy.reset()
    await sites.here.send("orders", b"one")
    proxy.pass_through()
    await arrives(sites, b"one")
    await wait_until(lambda: hints_of(idle).sure(sites.here.address("orders").channels(LINK)))


async def test_a_line_that_has_gone_silent_is_found_out_and_given_up(
    sites: Sites, idle: LinkWorker, proxy: FaultProxy
) -> None:
    """Mutant: a connection that answers no heartbeat is kept."""
    channels = sites.here.address("orders").channels(LINK)
    assert hints_of(idle).sure(channels)
    proxy.hold()
    await sites.here.send("orders", b"one")
    await wait_until(lambda: not hints_of(idle).sure(channels))
    proxy.reset()  # what it held is lost
    proxy.pass_through()
    await arrives(sites, b"one")


async def test_hints_are_certain_only_where_a_channel_is_subscribed_to(idle: LinkWorker) -> None:
    assert not hints_of(idle).sure(("hg:{nobody}:wake",))


async def test_a_source_that_is_removed_is_noticed_at_once(sites: Sites, idle: LinkWorker) -> None:
    """Mutant: of that hint nothing is made."""
    await sites.here.store.remove(sites.here.address("orders"), everything=True)
    await wait_until(lambda: idle.forwarder.trouble == Trouble.of("no-source") or idle.forwarder.born is None)


@pytest.fixture
def quick_to_leave(idle: LinkWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gives credit back soon, and would look at its source in an hour."""
    monkeypatch.setattr("headgate_coordinator.links.forwarder.LOOK_AGAIN", 3600.0)
    monkeypatch.setattr("headgate_coordinator.links.worker.IDLE", 0.1)


async def test_credit_goes_back_long_before_the_next_look(sites: Sites, idle: LinkWorker, quick_to_leave: None) -> None:
    """Mutant: it waits for the look."""
    await sites.here.send("orders", b"one")
    await arrives(sites, b"one")

    async def nothing_held() -> bool:
        seen = await sites.there.store.snapshot(sites.there.address("orders"))
        return seen is not None and seen.fields["leased_bytes"] == "0" and idle.forwarder.held == 0

    await wait_until(nothing_held)


async def test_credit_that_cannot_be_given_back_is_left_to_its_lease(
    sites: Sites, idle: LinkWorker, quick_to_leave: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutant: it is tried again and again, without a pause, until the next look."""
    tries = []  # how much it had forwarded at each

    async def leave() -> None:
        tries.append(idle.forwarder.committed)
        raise CoordinatorUnavailable("there is no way to the target")

    monkeypatch.setattr(idle, "leave", leave)
    await sites.here.send("orders", b"one")
    await arrives(sites, b"one")
    await wait_until(lambda: 1 in tries and idle.forwarder.held == 0)
    assert tries.count(1) == 1, "it has credit as it opens, too: a slow machine gives that back before"
