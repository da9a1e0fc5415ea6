"""Shadow limits of queues, topics, gates and buckets in a policy document and by hand."""

import pytest

from headgate.errors import InvalidValue, PolicyError
from headgate.policy import BadDocument, loads
from headgate.policy.compile import shown, title_of
from headgate.settings import Settings

HEAD = '[[destination]]\nmatch = "a"\n'


def fields(text: str) -> dict[str, str]:
    (rule,) = loads(HEAD + text, "a.toml").rules
    return dict(rule.fields)


def test_all_limits_of_a_rule_are_shadow_limits() -> None:
    """Mutants: one of them binds all the same; a rule of before that does not enforce goes on."""
    found = fields(
        'limit = { bytes = "1MB", messages = 50 }\nrate = { messages = "100/s", burst = 7 }\nenforce = "shadow"'
    )
    assert found == {
        "limit_bytes": "unlimited", "limit_messages": "unlimited", "send_rate": "", "send_burst": "", "enforce": "",
        "shadow": "bytes at_once 1000000;messages at_once 50;rate rate 100.0 7",
    }  # fmt: skip


def test_a_bucket_has_a_shadow_of_its_rate() -> None:
    assert fields('kind = "bucket"\nrate = "10/s"\nburst = 3\nenforce = "shadow"') == {
        "rate": "", "burst": "", "shadow": "tokens rate 10.0 3"
    }  # fmt: skip


def test_shadow_limits_stand_beside_real_ones() -> None:
    found = fields('kind = "gate"\nlimit = "10MB"\nshadow = { bytes = "5MB", messages = 3 }')
    assert found == {"limit_bytes": "10000000", "shadow": "bytes at_once 5000000;messages at_once 3"}
    found = fields('shadow = { byte_rate = "1kB/s", rate = { rate = "5/s", burst = 9 } }')
    assert found == {"shadow": "rate rate 5.0 9;byte_rate rate 1000.0 1000"}


def test_by_hand_they_are_said_alike_and_taken_away() -> None:
    assert Settings(kind="queue", limit="1kB", enforce="shadow").fields()["shadow"] == "bytes at_once 1000"
    assert Settings(shadow={"rate": 5}).fields() == {"shadow": "rate rate 5.0 5"}
    assert Settings(shadow="rate rate 5.0 5").fields() == {"shadow": "rate rate 5.0 5"}
    assert Settings(shadow="default").fields() == {"shadow": ""}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('enforce = "shadow"', "give shadow together with the limits"),
        ('limit = 5\nhard_limit = 9\nenforce = "shadow"', "hard_limit is not part of a shadow"),
        ('limit = 5\npools = ["p"]\nenforce = "shadow"', "pools is not part of a shadow"),
        ('limit = 5\nshadow = { bytes = 3 }\nenforce = "shadow"', "shadow is not part of a shadow"),
        ('kind = "gate"\nlimit = 5\nper_key = { bytes = 3 }\nenforce = "shadow"', "not part of a shadow"),
        ('kind = "gate"\nshadow = { rate = 3 }', "rate means nothing for a gate; that takes bytes, messages"),
        ('kind = "bucket"\nshadow = { bytes = 3 }', "bytes means nothing for a bucket; that takes tokens"),
        ('kind = "bucket"\nrate = 3\nenforce = "off"', "means nothing for a bucket"),
        ("shadow = { calls = 3 }", "calls"),
        ('shadow = { tokens = "5/s" }', r"shadow\.tokens: tokens is of a bucket: write kind = 'bucket'"),
        (
            'limit = { bytes = "1MB", scope = "shared" }\nenforce = "shadow"',
            "enforce: a shared limit cannot be a shadow limit",
        ),
        (
            'limit = { bytes = "1MB", scope = "shared" }\nrate = { messages = 5 }\nenforce = "shadow"',
            "enforce: a shared limit cannot be a shadow limit",
        ),
        ("shadow = {}", "a shadow of what?"),
    ],
)
def test_what_means_nothing_is_refused_with_its_place(text: str, problem: str) -> None:
    with pytest.raises(BadDocument, match=problem) as found:
        fields(text)
    assert "a.toml:" in str(found.value)


@pytest.mark.parametrize(
    "value", [{}, {"bytes": 0}, {"bytes": -1}, {"rate": {"burst": 3}}, {"x": 1}, "x", "bytes at_once", 5]
)
def test_what_cannot_be_read_is_refused(value: object) -> None:
    with pytest.raises((InvalidValue, PolicyError)):
        Settings(shadow=value).fields()  # type: ignore[arg-type]


def test_people_read_which_limits_are_shadows_and_which_bind_nothing() -> None:
    """Mutant: both are called `limit`, and what binds nothing has the number that Redis keeps for it."""
    (rule,) = loads(
        '[[limiter]]\nmatch = "llm"\n[[limiter.limit]]\nname = "calls"\nrate = "5/s"\nenforce = "shadow"', "a.toml"
    ).rules
    read = {title_of(field): shown(field, value) for field, value in rule.fields.items()}
    assert (read["limit"], read["limit (shadow)"]) == ("calls unlimited", "calls 5/s (5 at once)")
