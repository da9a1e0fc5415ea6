"""From a policy document to what is replayed of it, and to what is not: named, never left out in silence."""

from math import inf
from pathlib import Path

import pytest

from headgate.core.policy import Policy
from headgate.policy import BadDocument, load, loads
from headgate.settings import FIELD_OF
from headgate_pipeline.audit.known_settings import RATES
from headgate_pipeline.live_settings import SettingsInForce
from headgate_pipeline.simulate import rules
from headgate_pipeline.simulate.rules import Bucket
from headgate_pipeline.simulate.scenario import ObservedDestination, Scenario, ask

SHOP = """
[[destination]]
match = "#"
kind = "queue"
limit = { bytes = "1MiB", messages = 100 }
rate = { messages = 50, burst = 5 }
when_full = "fail-after 3s"
message_ttl = "1h"
ledger = "all"
[destination.producer]
window = "128KiB"
rate = 5
[destination.consumer]
window = 10
shared_rate = 40

[[destination]]
match = "eu.#"
limit = { bytes = "2MiB", scope = "shared" }

[[destination]]
match = "emails"
kind = "bucket"
rate = 10

[[destination]]
match = "eu.maybe"
enforce = "with-consumers"
pools = ["memory"]

[[pool]]
name = "memory"
percent = 70

[[bridge]]
name = "b"
from = "eu.a"
to = "eu.b"
"""
ALL = [
    ObservedDestination("eu.a", "queue", 1000.0),
    ObservedDestination("eu.b", "queue"),
    ObservedDestination("emails", "bucket"),
    ObservedDestination("door", "gate"),
    ObservedDestination("x", "queue"),
]


def shop(text: str = SHOP) -> Policy:
    return loads(text)


def why(question: Scenario, of: str) -> str:
    return " | ".join(said for about, said in question.not_judged if about == of)


def test_what_a_policy_says_of_a_destination_is_what_is_replayed() -> None:
    """Mutants: the limit in messages dropped; a shared limit taken for a limit of each."""
    question = ask(ALL, shop(), {})
    rules = question.asked["eu.a"]
    assert (rules.limit, rules.limit_m, rules.patience) == (1 << 20, 100, 3000)
    assert (rules.sends, rules.each_sends, rules.deliveries) == (Bucket(50, 5), Bucket(5, 1), Bucket(40, 40))
    assert rules.pools == ("~eu.~all",)
    assert question.pools["~eu.~all"] == 2 << 20
    assert question.asked["emails"].tokens == Bucket(10, 10)
    assert question.same["eu.a"].limit == 1000
    assert question.parts()["eu.a"] == question.parts()["eu.b"]
    assert "x" not in question.parts()


def test_what_no_replay_judges_is_named_with_its_rule() -> None:
    """Mutants: fields that are not judged skipped; a gate left out."""
    question = ask([*ALL, ObservedDestination("eu.maybe", "queue")], shop(), {})
    assert "message_ttl = 3600000 (#@policy.toml:8): not part of the model" in why(question, "eu.a")
    assert "consumer_window = 10/unlimited (#@policy.toml:14)" in why(question, "eu.a")
    assert "with --redis it is asked" in why(question, "eu.a")
    assert "ledger" not in why(question, "eu.a")
    assert "permits of a gate are not in the ledger" in why(question, "door")
    assert "as if there was always a consumer" in why(question, "eu.maybe")
    assert "pool memory" in why(question, "eu.maybe")
    assert why(question, "links") == "1 in this policy; what they carry is replayed as it was"
    assert "door" not in question.asked


def test_keys_of_a_limiter_with_slices_are_not_replayed_slice_by_slice() -> None:
    """Mutant: each slice is a limiter, with what its own keys asked for."""
    sliced = ObservedDestination("emails", "limiter", slices=("emails", "emails#1"))
    question = ask([sliced, ObservedDestination("eu.a", "queue", slices=("eu.a#1",))], None, {"emails": 5, "eu.a": 5})
    assert "its keys are spread over slices" in why(question, "emails")
    assert set(question.asked) == {"eu.a"}
    assert question.parts() == {"eu.a": "=eu.a", "eu.a#1": "=eu.a"}


def test_what_is_in_force_tells_windows_and_rates_that_hid_demand() -> None:
    """Mutants: a rate that is raised judged as if all demand had been seen; what stays the same named too."""
    fields = {"kind": "queue", "producer_window": "65536", "send_rate": "20.0", "message_ttl_ms": "3600000"}
    fields |= {"when_full": "drop"}
    now = SettingsInForce({"eu.a": fields}, {"old": 500.0})
    question = ask(ALL, shop(), {}, now)
    assert question.asked["eu.a"].idle == 2
    assert "20 held in the period, so what would have come above is not known" in why(question, "eu.a")
    assert "message_ttl" not in why(question, "eu.a")
    assert (question.same["eu.a"].sends, question.same["eu.a"].patience) == (Bucket(20, 20), 0)
    assert question.same["eu.a"].limit == 1000  # as the ledger says
    assert question.same_pools == {"old": 500}


def test_a_single_limit_wins_over_the_policy_and_changes_nothing_else() -> None:
    """Mutant: the policy's limit kept."""
    question = ask(ALL, shop(), {"eu.a": 5.0})
    assert (question.asked["eu.a"].limit, question.asked["eu.a"].limit_m) == (5, 100)
    alone = ask(ALL, None, {"eu.a": inf})
    assert list(alone.asked) == ["eu.a"]
    assert (alone.asked["eu.a"].limit, alone.same["eu.a"].limit) == (inf, 1000)


def test_a_destination_without_a_rule_stays_as_it_is() -> None:
    """Mutant: it gets the defaults, which are no limit."""
    question = ask(ALL, shop('[[destination]]\nmatch = "x"\nlimit = "1MiB"\n'), {})
    assert list(question.asked) == ["x"]
    assert why(question, "eu.a") == "no rule matches it: it stays as it is"


def test_documents_are_read_as_apply_reads_them(tmp_path: Path) -> None:
    """Mutant: only the first thing that is wrong told."""
    file = tmp_path / "shop.toml"
    file.write_text(SHOP, encoding="utf-8")
    assert load(file).resolve("eu.a").fields["limit_messages"] == "100"
    file.write_text('[[destination]]\nlimt = "1MiB"\nmatch = "a"\nwhen_ful = "fail"\n', encoding="utf-8")
    with pytest.raises(BadDocument, match=r"(?s)did you mean 'limit'.*did you mean 'when_full'"):
        load(file)
    with pytest.raises(BadDocument, match=r"nowhere\.toml: cannot be read"):
        load(tmp_path / "nowhere.toml")


def test_what_is_judged_and_audited_are_fields_that_there_are() -> None:
    """Mutant: a field of another name."""
    assert {*rules.JUDGED, *rules._NO_BEARING, *rules._DEFAULT_OF, *rules._HIDDEN, *RATES} <= set(FIELD_OF.values())
