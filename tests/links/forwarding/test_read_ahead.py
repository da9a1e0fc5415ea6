"""How much a link takes out of its source: what its target grants credit for, and one message to ask it for."""

import asyncio

import pytest

from headgate.core.links.calls import Commit, Committed, Fetch, TakeRate
from headgate.core.links.trouble import NO_ROOM
from headgate_coordinator.links.forwarder import Forwarder
from headgate_coordinator.links.rules import Forwarding, Refusal
from tests.links.site import Sites
from tests.links.world import Links, sent
from tests.model.link import ModelTarget
from tests.support.waiting import wait_until


@pytest.mark.parametrize(("limit", "window"), [(30, 25), (30, 1000), (35, 1000), (10, 1000)])
def test_a_full_target_stops_the_link_with_one_message_in_hand(limit: int, window: int) -> None:
    """The rest is for whoever else takes messages there."""
    how = Forwarding("here", "there", window=window)
    links = sent(Links(target=ModelTarget(limit=limit), how=how), [b"x" * 10] * 9)
    with pytest.raises(AssertionError, match="no room"):
        links.run({}, drain=False)
    assert len(links.target.log) == limit // 10
    assert len(links.source.held) == 1
    links.run({})
    assert len(links.target.log) == 9


def test_a_link_reads_a_batch_ahead_of_what_it_commits_where_the_target_has_room() -> None:
    links = sent(Links(target=ModelTarget(limit=1 << 20), how=Forwarding("here", "there")), [b"x"] * 1500)
    worker, together = Forwarder(links.how), 0
    while links.source.stored:
        calls = worker.calls(0.0)
        kinds = {type(call): call for call in calls}
        commit, fetch = kinds.get(Commit), kinds.get(Fetch)
        if isinstance(commit, Commit) and isinstance(fetch, Fetch):
            together += len(commit.entries) > 200 and fetch.messages > 200
        for call in calls:
            worker.hear(call, links.answer(call), 0.0)
    assert together >= 3


def test_what_is_skipped_is_read_in_batches_and_one_by_one_where_the_target_is_full() -> None:
    def skipped(limit: int) -> int:
        how = Forwarding("here", "there", judge=lambda entry: Refusal("selector") if entry.body == b"-" else None)
        links = sent(Links(target=ModelTarget(limit=limit), how=how), [b"put"] + [b"-"] * 600 + [b"put"] * 9)
        worker, most = Forwarder(how), 0
        for _ in range(2000):
            for call in worker.calls(0.0):
                worker.hear(call, links.answer(call), 0.0)
            most = max(most, worker.in_hand)
        assert (worker.mark or 0) >= 601
        return most

    assert skipped(1000) > 200
    assert skipped(3) == 1


def test_a_link_reads_no_more_ahead_than_its_rate_lets_go_soon() -> None:
    links = sent(Links(target=ModelTarget(limit=1 << 20), how=Forwarding("a", "b", pace=(5, 1000))), [b"x"] * 100)
    worker = Forwarder(links.how)
    for _ in range(20):
        for call in worker.calls(0.0):
            if not isinstance(call, TakeRate):
                worker.hear(call, links.answer(call), 0.0)
    assert worker.in_hand == len(links.source.held) == 10


@pytest.mark.parametrize("code", ["RATE", "STOPPED"])
def test_a_link_whose_target_takes_nothing_for_another_reason_reads_no_more(code: str) -> None:
    links = sent(Links(target=ModelTarget(limit=1 << 20), how=Forwarding("here", "there")), [b"x"] * 1500)
    worker, most = Forwarder(links.how), 0
    for now in range(10):
        for call in worker.calls(now):
            entries = isinstance(call, Commit) and call.entries
            answer = Committed(code, 0, held=1 << 20, held_m=512) if entries else links.answer(call)
            worker.hear(call, answer, now)
        most = max(most, worker.in_hand)
    assert most <= 1 + 256


@pytest.mark.parametrize("limits", [{"limit": 300}, {"limit_messages": "3"}])
async def test_consumers_at_the_source_get_what_a_full_target_does_not(
    sites: Sites, limits: dict[str, int | str]
) -> None:
    await sites.here.make("orders")
    await sites.there.make("orders", **limits)  # type: ignore[arg-type]  # a limit of bytes, or of messages
    worker = sites.worker(how=Forwarding("a", "b"), hints=True)
    task = asyncio.create_task(worker.run())
    bodies = [b"%03d" % number * 33 for number in range(40)]
    await sites.here.send("orders", *bodies)
    await wait_until(lambda: worker.forwarder.committed == 3 and worker.forwarder.trouble == NO_ROOM)
    taken = await sites.here.take("orders")
    assert (worker.forwarder.in_hand, len(taken)) == (1, 36)
    arrived: list[bytes] = []

    async def all_there() -> bool:
        arrived.extend(await sites.there.take("orders", 1))
        return len(arrived) == 4

    await wait_until(all_there)
    assert sorted(arrived + taken) == bodies
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    for end in (worker.source, worker.target):
        assert end.wake_ups is not None
        await end.wake_ups.close()
    await sites.check()
