"""The fields of HTTP that speak of limits keep to the grammar of structured fields (RFC 9651), whatever the limits."""

import math
import re

import pytest

from headgate.core.limits import Limit
from headgate.explain.levels import LimiterState, LimitState
from headgate.http import fields

ITEM = r'"[ !#-\[\]-~]*"(;[a-z]+=(0|[1-9][0-9]{0,14}|"[a-z-]+"))*'
LIST = re.compile(rf"{ITEM}(, {ITEM})*")


def state(*levels: LimitState) -> LimiterState:
    by_name = {level.name: level for level in levels}
    return LimiterState(
        name="llm", key=None, limits=by_name, key_limits={}, waiting=0, keys=0, held_off=0.0, reason="", learning=0.0
    )


@pytest.mark.parametrize(
    ("name", "table", "item"),
    [
        ("requests", {"rate": "500/min"}, '"requests";q=500;w=60'),
        ("slots", {"at_once": 8}, '"slots";q=8;qu="concurrent-requests"'),
        ("bytes", {"at_once": "64MiB"}, '"bytes";q=67108864;qu="content-bytes"'),
        ("answer_bytes", {"rate": "1MiB/s"}, '"answer_bytes";q=1048576;w=1;qu="content-bytes"'),
        ("spend", {"quota": "1000/day"}, '"spend";q=1000;w=86400'),
        ("wide", {"at_once": 2**52 - 1}, '"wide";q=999999999999999;qu="concurrent-requests"'),
        ("seldom", {"rate": "1/month", "burst": 100}, '"seldom";q=100;w=262980000'),
    ],
)
def test_a_policy_says_its_units_within_what_an_integer_may_be(name: str, table: dict[str, object], item: str) -> None:
    said = fields.policy([Limit.of(name, table)])["RateLimit-Policy"]
    assert said == item
    assert LIST.fullmatch(said)


def test_no_limit_has_more_later_than_a_refusal_says_to_come_again() -> None:
    levels = state(
        LimitState("calls", "rate", 2**52 - 1, 2**52 - 1, 0, 0.0),
        LimitState("tokens", "rate", 1000, 3, 997, 10.0),
        LimitState("spend", "quota", 10, -4, 14, 86_000.2),
    )
    said = fields.levels(levels)["RateLimit"]
    assert said == '"calls";r=999999999999999, "tokens";r=3;t=10, "spend";r=0;t=86001'
    refused = fields.levels(levels, "tokens", 1.2)["RateLimit"]
    assert refused == '"calls";r=999999999999999, "tokens";r=3;t=2, "spend";r=0'
    assert fields.retry_after(1.2) == {"Retry-After": "2"}
    assert LIST.fullmatch(said)
    assert LIST.fullmatch(refused)


@pytest.mark.parametrize("after", [None, 0.0, 0.2, 3e20])
def test_what_refuses_says_a_time_only_where_there_is_one(after: float | None) -> None:
    said = fields.refused("calls", after)
    assert LIST.fullmatch(said["RateLimit"])
    assert ("Retry-After" in said) == (after is not None)
    if after:
        assert int(said["RateLimit"].rpartition("=")[2]) == min(math.ceil(after), fields.LARGEST)
