"""What is proposed for a limiter, from what its ledger says."""

import tomllib

import pytest
from pyspark.sql import SparkSession

import headgate
from headgate.core.limits.limit import Limit, limits_of
from headgate.policy import loads
from headgate_coordinator.policy.lint import lint
from headgate_pipeline.cli.what_if import render
from headgate_pipeline.ledger.events import prepare
from headgate_pipeline.ledger.limiter_course import course
from headgate_pipeline.recommend.demand import DestinationDemand, needs
from headgate_pipeline.recommend.limiter_demand import LimitDemand, needs_of
from headgate_pipeline.recommend.limiter_proposals import propose_limits
from headgate_pipeline.recommend.policy_document import document
from headgate_pipeline.recommend.proposals import Bounds, Proposal
from headgate_pipeline.simulate.scenario import ask, seen_of
from headgate_pipeline.simulate.what_if import look, what_if
from tests.pipeline.limiter_story import rows
from tests.pipeline.rows import entry, frame

LIMITS = "limiter:slots at_once 10|tokens rate 10 10|spend quota 99 day 0:slots at_once 2"


def steady(seconds: int = 400, used: int = 5) -> list[tuple[int, int, str]]:
    """One admission a second that holds a slot for three; it reserves 8 tokens."""
    found = [(1, 1, LIMITS)]
    for second in range(seconds):
        events = [f"held:a.{second}:t{second % 2}:tokens=8 spend=1 slots:1"] if second < seconds - 3 else []
        if second >= 3:
            events += [f"used:a.{second - 3}:tokens={used}", f"freed:a.{second - 3}"]
        found.append((1, 1 + second * 1000, ";".join(events)))
    return found


def proposals(told: list[tuple[int, int, str]]) -> dict[str, Proposal]:
    limits = tuple(
        LimitDemand(**{key: value for key, value in row.items() if value is not None}) for row in needs_of(course(told))
    )
    need = DestinationDemand("llm", 1, 0, 1, kind="limiter", limits=limits)
    return {proposal.key: proposal for proposal in propose_limits(need, Bounds())}


def test_numbers_are_of_what_was_held_and_came_and_each_has_its_reason() -> None:
    """Mutants: what was reserved and not what was settled; without the room."""
    found = proposals(steady())
    slots, tokens = found["limit.slots.at_once"], found["limit.tokens.rate"]
    assert (slots.value, slots.now) == (5, 10), "3 at once and a quarter more, and one step at a time"
    assert "By Little's law 0.995 holds a second, each held for 3 s, are 2.98 at once on average" in slots.reason
    assert (tokens.value, tokens.now) == (6.3, 10)
    assert "5/s were asked for at most, as they were settled" in tokens.reason
    assert "Nobody waited for it" in tokens.reason
    own = found["per_key.slots.at_once"]
    assert (own.value, own.now) == (3, 2), "two of a key and a quarter more"
    assert "by one key of 2" in own.reason
    assert found["limit.spend.quota"].value is None
    assert found["ttl of admit, s"].value == 3.8


@pytest.mark.parametrize(("spent", "quota"), [(1, 45), (2, 80)])
def test_a_quota_is_what_a_window_of_its_length_needs(spent: int, quota: int) -> None:
    """Mutants: what was reserved and not what was settled; without the room."""
    told = [(1, 1, "limiter:spend quota 40 hour 0:spend quota 38 hour 0")] + [
        (1, 1 + at * 100_000, f"held:a.{at}:t1:spend=2;used:a.{at}:spend={spent};freed:a.{at}")
        for at in range(36 * 30 + 5)  # 30 hours, and 500 s
    ]
    found = proposals(told)
    assert (found["limit.spend.quota"].value, found["limit.spend.quota"].now) == (quota, 40)
    assert found["per_key.spend.quota"].value is not None


def test_a_rate_that_was_reached_is_raised_and_too_little_proposes_nothing() -> None:
    assert proposals(steady(used=10))["limit.tokens.rate"].value == 13
    few = proposals(steady(9))
    assert (few["limit.tokens.rate"].value, few["ttl of admit, s"].value) == (None, None)


def test_with_the_settings_in_force_they_are_a_policy_that_applies() -> None:
    """Mutants: what stays is left out, and so taken away; weights are; a key may have more than all together."""
    limits = tuple(
        LimitDemand(**{key: value for key, value in row.items() if value is not None})
        for row in needs_of(course(steady()))
    )
    need = DestinationDemand("llm", 1, 0, 1, kind="limiter", limits=limits)
    fields = {
        "limits": "slots at_once 10;tokens rate 10.0 10;spend quota 99 week 540;other rate 0.5 3",
        "key_limits": "slots at_once 9;spend quota 9 week 540", "key_weights": "lead=2;gold-%C3%A4*=4", "zone": "",
    }  # fmt: skip
    text = document([need], Bounds(), {"llm": fields})
    resolved = loads(text).resolve("llm")
    assert resolved.kind == "limiter"
    assert resolved.fields["limits"] == "slots at_once 5;tokens rate 6.3 10;spend quota 99 week 540;other rate 0.5 3"
    assert resolved.fields["key_limits"] == "slots at_once 3;spend quota 9 week 540"
    assert resolved.fields["key_weights"] == "lead=2;gold-%C3%A4*=4"
    assert "# now 10: held and waited for at the same time" in text
    unknown = document([need], Bounds(), {"llm": fields | {"zone": "0 7201"}})
    assert tomllib.loads(unknown) == {}
    assert "by hand, for the name of its time zone is not known" in unknown


def test_shadows_stay_shadows_and_what_adapts_goes_on_to_adapt() -> None:
    """Mutants: a limit that was only tried is proposed as one that binds; shadows, and that it adapts, are left out."""
    limits = tuple(
        LimitDemand(**{key: value for key, value in row.items() if value is not None})
        for row in needs_of(course(steady()))
    )
    need = DestinationDemand("llm", 1, 0, 1, kind="limiter", limits=limits)
    fields = {
        "limits": "slots at_once 10 2 aimd;spend quota 99 week 540;tokens rate 1000000000000000.0 4503599627370496",
        "shadow_limits": "spend quota 50 week 540;tokens rate 10.0 10", "shadow_key_limits": "slots at_once 1",
        "zone": "",
    }  # fmt: skip
    text = document([need], Bounds(), {"llm": fields})
    resolved = loads(text).resolve("llm", "limiter")
    assert {name: resolved.fields[name] for name in ("limits", "shadow_limits", "shadow_key_limits")} == {
        name: fields[name] for name in ("limits", "shadow_limits", "shadow_key_limits")
    }
    assert "# as it is; limit.tokens.rate = 6.3, now 10: " in text


@pytest.mark.parametrize(("text", "rate"), [("200k/min", '"200000/min"'), ("1000/day", '"1000/day"'), ("7/s", "7")])
def test_a_rate_that_stays_is_spelled_exactly(text: str, rate: str) -> None:
    """Mutant: it is rounded, and so would change."""
    limit = Limit.of("words", {"rate": text, "burst": 9})
    limits = tuple(
        LimitDemand(**{key: value for key, value in row.items() if value is not None})
        for row in needs_of(course(steady()))
    )
    need = DestinationDemand("llm", 1, 0, 1, kind="limiter", limits=limits)
    written = document([need], Bounds(), {"llm": {"limits": limit.text}})
    assert f"rate = {rate}" in written.splitlines()
    (again,) = limits_of(loads(written).resolve("llm", "limiter").fields["limits"]).values()
    assert again == limit


@pytest.mark.one_server
async def test_a_proposal_lays_no_trap_and_applies_to_a_server(redis_url: str, cleanup_namespace: str) -> None:
    """Of a limiter with a quota in a time zone; proposed again, nothing changes but what was proposed."""
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
        given = {"slots": {"at_once": 10}, "spend": {"quota": "99/week", "resets": "Mon 09:00 Europe/Berlin"}}
        await client.apply(
            "llm", kind="limiter", limits=given, key_limits={"slots": {"at_once": 3}}, key_weights={"a": 2}
        )
        before = (await client.explain("llm")).fields
        rows = needs_of(course(steady()))
        limits = tuple(LimitDemand(**{key: value for key, value in row.items() if value is not None}) for row in rows)
        text = document([DestinationDemand("llm", 1, 0, 1, kind="limiter", limits=limits)], Bounds(), {"llm": before})
        policy = loads(text)
        assert lint(policy) == []
        await client.remove("llm")  # what was said by hand is gone with it
        await client.apply_policy(policy)
        async with client.session("s") as session:
            assert await (await session.limiter("llm")).attempt(slots=1, key="a")
        after = (await client.explain("llm")).fields
        assert after["limits"] == before["limits"].replace("slots at_once 10", "slots at_once 5")
        assert (after["zone"], after["key_weights"]) == (before["zone"], before["key_weights"])


@pytest.mark.xdist_group("spark")
@pytest.mark.soak  # test_measured_limiters.py reads limiters with Spark, test_what_if.py asks
def test_the_document_has_them_as_comments_and_a_question_is_answered(spark: SparkSession) -> None:
    told = [
        entry(seq, ms, "apply" if seq == 1 else "admit", "llm", detail=detail)
        for seq, (_, ms, detail) in enumerate(steady(60), 1)
    ]
    entries = frame(spark, told + rows("api"))
    text = document(needs(entries), Bounds())
    assert tomllib.loads(text) == {}
    assert "# llm: " in text
    assert "[[limiter]]" in text
    assert "# limit.slots.at_once = " in text
    prepared = prepare(entries).persist()
    seen = seen_of(row.asDict() for row in look(prepared).orderBy("destination").collect())
    assert [(one.name, one.kind) for one in seen] == [("api", "limiter"), ("llm", "limiter")]
    question = ask(seen, None, {}, None, {"llm": {"slots": "2"}})
    found = {row["case"]: row.asDict() for row in what_if(prepared, question).collect()}
    assert found["same rules"]["waited"] == 0 == found["recorded"]["waited"]
    assert found["what if"]["causes"].keys() == {"slots"}
    assert "slots 2 at once" in found["what if"]["rules"]
    assert "slots 2 at once" in str(next(iter(render(list(found.values()), question.limiters))).title)
    assert any("no time zone is known" in why for _, why in question.not_judged)
    prepared.unpersist()


def test_a_shadow_stands_beside_the_real_limit() -> None:
    """Mutant: those of a key count for all."""
    rows = [
        (1, 0, "limiter:slots at_once 4503599627370496|S_slots at_once 2:S_slots at_once 1"),
        (1, 1000, "held:a.1:t1:slots:1"),
        (1, 1100, "would-wait:a.2:t1:slots:key:-:1;held:a.2:t1:slots:1"),
        (1, 1200, "would-wait:b.1:t2:slots:all:-:1;held:b.1:t2:slots:1"),
        (1, 1300, "would-wait:b.2:t1:slots:all:-:2;would-wait:b.2:t1:slots:key:-:2;held:b.2:t1:slots:1"),
        (1, 1400, "freed:a.1;freed:a.2;freed:b.1;freed:b.2"),
    ]
    limits = tuple(
        LimitDemand(**{key: value for key, value in row.items() if value is not None}) for row in needs_of(course(rows))
    )
    found = {(one.limit, one.of): one for one in limits}
    assert (found["slots", "all"].would_wait, found["slots", "key"].would_wait) == (2, 2)
    assert found["slots", "all"].most == 2, "what is proposed is compared with the shadow, where nothing binds"
    assert found["slots", "key"].would_keys == "2 of t1"
    reason = proposals(rows)["limit.slots.at_once"].reason
    assert "Its shadow, slots 2 at once, would have kept 2 of 4 waiting" in reason
