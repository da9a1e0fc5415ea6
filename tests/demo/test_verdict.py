"""Each check fails when, and only when, its fact is altered."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from headgate_coordinator.demo.forwarding import Forwarded
from headgate_coordinator.demo.journal import Accepted, Received
from headgate_coordinator.demo.verdict import Facts, NodeDeath, judge
from tests.support.extent import each


def sent(number: int, producer: str, seq: int, connection: int = 1) -> Accepted:
    return Accepted(f"{number}-100", producer, seq, f"digest {number}", 100, f"file {number}", connection)


def got(message: Accepted, attempts: int = 0) -> Received:
    digest = message.sha256
    return Received(
        message.id, message.producer, message.seq, digest, digest, message.size, attempts, message.connection
    )


FAST = [sent(1, "fast", 1), sent(3, "fast", 2), sent(4, "fast", 3), sent(6, "fast", 4)]
MEDIUM = [sent(2, "medium", 1), sent(5, "medium", 2)]
TAIL = sent(7, "medium", 3)  # stored, but its producer was killed before it could write that down

GOOD = Facts(
    limit=1000,
    ttl=3.0,
    accepted=[*FAST, *MEDIUM],
    received={"slow": [got(FAST[0]), got(FAST[2])], "fast": [got(m) for m in (MEDIUM[0], FAST[1], MEDIUM[1], FAST[3])]},
    victim="medium",
    held=300,
    reclaimed=2.7,
    leased_without_it=True,
    peak=1000,
    sampled_peak=900,
    blocked=2,
    waits=17,
    stored=(0, 0, 0, 0, 0, 0),
    counted=(0, 0, 0, 0, 0, 0),
    exits={"producer fast": 0, "producer medium": -9, "consumer slow": 0, "consumer fast": 0},
    errors={},
    lingering=(),
)


WITH_NODES = replace(
    GOOD,
    looks=300,
    node=NodeDeath("a", 2, 200, 2.9, leased_without_it=True, back={"producer amqp-a": 0.1}),
    exits=GOOD.exits | {"node a": -9, "node b": 0},
    forwarded=Forwarded((1, 2, 3), {"berlin": (1, 2, 3), "archive": (1, 2, 3)}, {"news": 1000}, 1000, 5),
)
UNACKNOWLEDGED = sent(20, "amqp-a", 1)  # stored by the node that was killed, which could not say so any more
AGAIN = sent(21, "amqp-a", 1, connection=2)


def failing(facts: Facts) -> set[str]:
    return {check.name for check in judge(facts) if not check.passed}


def received(facts: Facts, change: Callable[[list[Received]], list[Received]]) -> Facts:
    return replace(facts, received=facts.received | {"fast": change(list(facts.received["fast"]))})


def test_good_facts_pass_every_check() -> None:
    checks = judge(GOOD)
    assert len({check.name for check in checks}) == len(checks) == 11
    assert failing(GOOD) == set()


def test_with_nodes_there_are_four_checks_more() -> None:
    assert {check.name for check in judge(WITH_NODES)} - {check.name for check in judge(GOOD)} == {
        "node reclaimed",
        "went on",
        "forwarded",
        "both limits",
    }
    assert failing(WITH_NODES) == set()


def of_node(**changed: Any) -> Facts:
    assert WITH_NODES.node is not None
    return replace(WITH_NODES, node=replace(WITH_NODES.node, **changed))


@pytest.mark.parametrize(
    ("facts", "fails"),
    [
        (of_node(held=0), "node reclaimed"),
        (of_node(reclaimed=None), "node reclaimed"),
        (of_node(reclaimed=4.01), "node reclaimed"),
        (of_node(leased_without_it=False), "node reclaimed"),
        (of_node(back={}), "went on"),
        (of_node(back={"producer amqp-a": None}), "went on"),
        (of_node(back={"producer amqp-a": 2.01}), "went on"),
        (replace(WITH_NODES, exits=WITH_NODES.exits | {"node a": 0}), "processes"),
        (replace(WITH_NODES, exits=WITH_NODES.exits | {"node b": -9}), "processes"),
    ],
)
def test_an_altered_fact_of_the_node_fails_its_check(facts: Facts, fails: str) -> None:
    assert failing(facts) == {fails}


def of_links(**changed: Any) -> Facts:
    assert WITH_NODES.forwarded is not None
    return replace(WITH_NODES, forwarded=replace(WITH_NODES.forwarded, **changed))


@pytest.mark.parametrize(
    ("facts", "fails"),
    [
        (of_links(sent=(), arrived={}), "forwarded"),
        (of_links(arrived={"berlin": (1, 2), "archive": (1, 2, 3)}), "forwarded"),
        (of_links(arrived={"berlin": (1, 3, 2), "archive": (1, 2, 3)}), "forwarded"),
        (of_links(arrived={"berlin": (1, 2, 2, 3), "archive": (1, 2, 3)}), "forwarded"),
        (of_links(errors=("publisher: no room",)), "forwarded"),
        (of_links(peaks={"news": 1000, "archive": 1001}), "both limits"),
        (of_links(waits=0), "both limits"),
    ],
)
def test_an_altered_fact_of_the_links_fails_its_check(facts: Facts, fails: str) -> None:
    assert failing(facts) == {fails}


def test_what_a_client_sent_again_may_be_doubled_if_it_was_never_acknowledged() -> None:
    facts = replace(WITH_NODES, accepted=[*WITH_NODES.accepted, AGAIN])
    both = received(facts, lambda r: [*r, got(UNACKNOWLEDGED), got(AGAIN)])
    assert failing(both) == set()
    assert "1 are doubled" in judge(both)[3].sentence
    assert failing(received(facts, lambda r: [*r, got(UNACKNOWLEDGED)])) == {"delivered"}
    twice = received(facts, lambda r: [*r, got(UNACKNOWLEDGED), got(UNACKNOWLEDGED), got(AGAIN)])
    assert failing(twice) == {"once", "in order"}


def test_one_of_hundreds_may_come_late_as_another_gave_it_back_unbegun() -> None:
    many = [sent(100 + n, "fast", 100 + n) for n in range(300)]
    facts = replace(GOOD, accepted=[*GOOD.accepted, *many])
    late = received(facts, lambda r: [*r, *map(got, many[1:]), got(many[0])])
    assert failing(late) == set()
    assert "all but 1" in next(check.sentence for check in judge(late) if check.name == "in order")


def test_what_was_never_acknowledged_at_all_may_not_come_from_a_client_that_lived() -> None:
    assert failing(received(WITH_NODES, lambda r: [*r, got(UNACKNOWLEDGED)])) == {"nothing else"}


@each(
    ("facts", "fails"),
    [
        (received(GOOD, lambda r: r[:-1]), "delivered"),
        (replace(GOOD, accepted=[], received={}), "delivered"),
        (received(GOOD, lambda r: [*r[:-1], replace(r[-1], sha256="other")]), "identical"),
        (received(GOOD, lambda r: [*r[:-1], replace(r[-1], stated="other")]), "identical"),
        (received(GOOD, lambda r: [*r[:-1], replace(r[-1], sha256="other", stated="other")]), "identical"),
        (received(GOOD, lambda r: [*r, got(sent(9, "fast", 9))]), "nothing else"),
        (received(GOOD, lambda r: [*r, got(sent(9, "medium", 1), 1)]), "nothing else"),
        (replace(GOOD, received=GOOD.received | {"third": [got(FAST[0])]}), "once"),
        (received(GOOD, lambda r: [r[2], r[1], r[0], r[3]]), "in order"),
        (replace(GOOD, peak=1001), "limit"),
        (replace(GOOD, sampled_peak=1001), "limit"),
        (replace(GOOD, blocked=0), "blocked"),
        (replace(GOOD, held=0), "reclaimed"),
        (replace(GOOD, reclaimed=None), "reclaimed"),
        (replace(GOOD, reclaimed=4.01), "reclaimed"),
        (replace(GOOD, leased_without_it=False), "reclaimed"),
        (replace(GOOD, stored=(5, 1, 0, 0, 0, 0)), "counters"),
        (replace(GOOD, stored=(5, 1, 0, 0, 0, 0), counted=(5, 1, 0, 0, 0, 0)), "counters"),
        (replace(GOOD, stored=(), counted=()), "counters"),
        (replace(GOOD, exits=GOOD.exits | {"producer medium": 0}), "processes"),
        (replace(GOOD, exits=GOOD.exits | {"consumer slow": -9}), "processes"),
        (replace(GOOD, exits=GOOD.exits | {"consumer slow": None}), "processes"),
        (replace(GOOD, exits={}), "processes"),
        (replace(GOOD, errors={"consumer slow": "CreditTimeout: no credit"}), "processes"),
        (replace(GOOD, lingering=["process consumer slow"]), "clean"),
    ],
)
def test_an_altered_fact_fails_its_check(facts: Facts, fails: str) -> None:
    assert failing(facts) == {fails}


def test_what_the_killed_producer_could_not_write_down_may_arrive() -> None:
    facts = received(GOOD, lambda r: [*r, got(TAIL)])
    assert failing(facts) == set()
    assert "1 came from the killed producer" in judge(facts)[2].sentence


def test_it_must_arrive_as_it_was_sent_too() -> None:
    facts = received(GOOD, lambda r: [*r, replace(got(TAIL), sha256="other")])
    assert failing(facts) == {"identical"}


def test_a_message_may_arrive_again_after_a_failed_attempt() -> None:
    facts = replace(GOOD, received=GOOD.received | {"third": [got(FAST[0], attempts=1)]})
    assert failing(facts) == set()
    assert "1 messages arrived twice, each marked" in judge(facts)[3].sentence


def test_the_summary_counts_messages_and_names_counters() -> None:
    summary = GOOD.summary()
    assert summary["accepted_messages"] == {"fast": 4, "medium": 2}
    assert (summary["accepted_bytes"], summary["received_bytes"]) == (600, 600)
    assert summary["counters"]["pending_bytes"] == 0
