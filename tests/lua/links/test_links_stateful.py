"""The two ends of a link against the model of them: any call in any order, repeated, late, by old and new workers."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from headgate.core.links.calls import Entry, Put, Skip
from tests.lua.place import Consumer
from tests.lua.route import Route
from tests.model.link import ModelSource, ModelTarget
from tests.support.extent import WHOLE, examples
from tests.support.rewriting import RewritingServer, virtual_clock


class World:
    """A loop with a server on it."""

    def __init__(self, url: str, namespace: str) -> None:
        self.runner = asyncio.Runner()
        self.server = RewritingServer(url, virtual_clock)
        self.namespace = namespace
        self.runner.run(self.server.open())

    def run(self, coroutine: Any) -> Any:
        return self.runner.run(coroutine)

    def close(self) -> None:
        self.run(self.server.close())
        self.runner.close()


class LinkMachine(RuleBasedStateMachine):
    """A queue with another consumer, a link, and a target whose consumer takes one at a time."""

    world: World

    @initialize(limit=st.sampled_from((40, 100, 1000)), copies=st.booleans())
    def make(self, limit: int, copies: bool) -> None:
        made = Route.make(self.world.server, self.world.namespace, copies=copies, limit=str(limit))
        self.route: Route = self.world.run(made)
        self.source, self.target = ModelSource(copies=copies), ModelTarget(limit=limit)
        self.source.open(1)
        self.sender = self.route.source.producer("ann")
        self.other: Consumer = self.world.run(self.route.source.consumer("bob"))
        self.taker: Consumer = self.world.run(self.route.target.consumer("cid"))
        self.others: list[bytes] = []
        self.seen: list[Entry] = []

    def teardown(self) -> None:
        if hasattr(self, "route"):
            self.world.run(self.route.close())

    @rule(sizes=st.lists(st.integers(1, 50), min_size=1, max_size=4))
    def send(self, sizes: list[int]) -> None:
        if sum(len(entry.body) for entry in self.source.stored) + sum(sizes) > 1000:
            return
        credit = self.world.run(self.sender.send(*sizes))
        assert credit.code == "OK"
        for number, size in enumerate(sizes):
            self.source.send(bytes([65 + number]) * size)

    @rule()
    def steal(self) -> None:
        self.others += self.world.run(self.other.fetch(1))
        self.source.steal()

    @rule()
    def give_back(self) -> None:
        if self.others:
            self.world.run(self.other.call(released=[self.others.pop(0)]))
            self.source.give_back()

    @rule()
    def settle(self) -> None:
        if self.others:
            self.world.run(self.other.accept(self.others.pop(0)))
            self.source.settle()

    @rule()
    def consume(self) -> None:
        for identifier in self.world.run(self.taker.fetch(1)):
            self.world.run(self.taker.accept(identifier))
        self.target.consume()

    @rule(step=st.sampled_from((0, 0, 1, -1)))
    def open(self, step: int) -> None:
        self.route.fence = max(1, self.route.fence + step)
        answer = self.world.run(self.route.open())
        expected = self.source.open(self.route.fence)
        assert (answer.code, answer.released, answer.fence) == (expected.code, expected.released, expected.fence)

    @rule(data=st.data(), messages=st.integers(0, 4), size=st.sampled_from((1, 30, 1000)), times=st.integers(1, 2))
    def read(self, data: st.DataObject, messages: int, size: int, times: int) -> None:
        mark = data.draw(st.sampled_from((self.target.mark, self.target.mark, 0, self.source.released)))
        mark = min(mark, self.target.mark)
        after = data.draw(st.sampled_from((self.target.mark, max([0, *(entry.seq for entry in self.seen)]))))
        after = max(mark, after)
        for _ in range(times):
            answer = self.world.run(self.route.read(mark, after, messages=messages, size=size))
            expected = self.source.read(self.route.fence, self.source.born, mark, after, messages, size)
            assert (answer.code, answer.released, answer.entries) == (
                expected.code, expected.released, expected.entries,
            )  # fmt: skip
            self.seen += [entry for entry in answer.entries if entry not in self.seen]

    @rule(
        data=st.data(),
        need=st.sampled_from((0, 0, 10, 50)),
        want=st.sampled_from((0, 60, 200)),
        times=st.integers(1, 3),
    )
    def commit(self, data: st.DataObject, need: int, want: int, times: int) -> None:
        entries: list[Put | Skip] = []
        prev = 0
        if self.seen:
            first = data.draw(st.integers(0, len(self.seen) - 1))
            prev = self.seen[first - 1].seq if first else 0
            for entry in self.seen[first : first + data.draw(st.integers(0, 4))]:
                skips = data.draw(st.integers(0, 7)) == 0
                entries.append(Skip(entry.seq) if skips else Put(entry.seq, entry.body, None, ("here",)))
        for _ in range(times):
            answer = self.world.run(self.route.commit(*entries, prev=prev, need=need, want=want))
            expected = self.target.commit(
                self.route.fence, self.source.born, prev, entries, need=need, want=want, lost=False
            )
            assert (answer.code, answer.mark, answer.held, answer.fence, answer.place) == (
                expected.code, expected.mark, expected.held, expected.fence, expected.place,
            )  # fmt: skip

    @precondition(lambda self: not self.source.copies)
    @rule()
    def end(self) -> None:
        mark = self.world.run(self.route.end())
        assert mark == self.target.commit(self.route.fence, self.source.born, 0, [], need=0, want=0, lost=False).mark
        self.source.end(self.route.fence, mark)
        self.seen.clear()

    @invariant()
    def both_sides_are_alike(self) -> None:
        if not hasattr(self, "route"):
            return
        self.world.run(self.route.check())
        there = self.world.run(self.route.target.look())
        assert list(there.messages.values()) == self.target.log[self.target.consumed :]
        here = self.world.run(self.route.source.look())
        assert here.messages == {entry.seq: entry.body for entry in sorted(self.source.stored, key=lambda e: e.seq)}
        assert there.pending.bytes + there.leased.bytes <= self.target.limit


@pytest.fixture
def world(redis_url: str, namespace: str) -> Iterator[World]:
    world = World(redis_url, namespace)
    yield world
    world.close()


@pytest.fixture
def cluster_world(cluster_url: str, namespace: str) -> Iterator[World]:
    world = World(cluster_url, namespace)
    yield world
    world.close()


def drive(world: World, count: int) -> None:
    chosen = type("Chosen", (LinkMachine,), {"world": world})
    run_state_machine_as_test(
        chosen,
        settings=settings(
            max_examples=count, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


@pytest.mark.each_server
@pytest.mark.timeout(600)
def test_links_do_what_their_model_does(world: World, share: int) -> None:
    drive(world, examples(60) // share)


@pytest.mark.timeout(600)
def test_links_do_what_their_model_does_on_a_cluster(cluster_world: World) -> None:
    drive(cluster_world, 15 if WHOLE else 5)
