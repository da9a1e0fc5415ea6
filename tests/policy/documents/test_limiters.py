"""Limiters of documents: what they compile to, what is refused of them, and that nothing is lost on the way."""

import re
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.limits.limit import Limit, limits_of, limits_text
from headgate.core.limits.limiter_forms import read_limits, weights_text
from headgate.core.limits.zones import MOST_OFFSETS, offsets_text, zone_named
from headgate.core.policy import Policy
from headgate.errors import InvalidValue, PolicyError
from headgate.policy import BadDocument, loads
from headgate.settings import DEFAULTS, Settings
from tests.support.extent import each

HEAD = '[[limiter]]\nmatch = "llm"\n'


def limit(name: str, text: str) -> str:
    return f'[[limiter.limit]]\nname = "{name}"\n{text}\n'


def fields(text: str, name: str = "llm") -> dict[str, str]:
    return dict(loads(text, "shop.toml").resolve(name).fields)


def refused(text: str) -> list[str]:
    with pytest.raises(BadDocument) as caught:
        loads(text, "shop.toml")
    return [str(problem) for problem in caught.value.problems]


def test_a_limiter_with_every_form() -> None:
    text = HEAD + (
        'unknown_keys = "refuse"\nmax_keys = "200k"\nhold_off = "2min"\nlease_ahead = "250ms"\nledger_keys = "off"\n'
        'durability = "replicas:1"\n'
        + limit("requests", 'rate = "500/min"')
        + limit("tokens", 'rate = "200k/min"\nburst = "4k"')
        + limit("in_flight", "at_once = 50")
        + limit("bytes", 'at_once = "64MiB"')
        + limit("spend", 'quota = "1_000_000/week"\nresets = "tue 06:30 Europe/Berlin"')
        + '[limiter.per_key]\ntokens = "20k/min"\nin_flight = 5\nspend = "1000/week"\n'
        'weight = { "gold-*" = 4, "*" = 1, "gold-7" = 9, "é" = 2 }\n'
    )
    policy = loads(text, "shop.toml")
    resolved = policy.resolve("llm")
    assert resolved.kind == "limiter"
    assert resolved.fields == {
        "slices": "",
        "limits": "requests rate 8.333333333333334 500;tokens rate 3333.3333333333335 4000;in_flight at_once 50;"
        f"bytes at_once {64 << 20};spend quota 1000000 week 1830",
        "key_limits": "tokens rate 333.3333333333333 20000;in_flight at_once 5;spend quota 1000 week 1830",
        "shadow_limits": "", "shadow_key_limits": "",
        "key_weights": "%C3%A9=2;gold-7=9;gold-*=4;*=1",
        "zone": offsets_text("Europe/Berlin"),
        "unknown_keys": "refuse", "max_keys": "200000", "hold_off_ms": "120000", "lease_ahead_ms": "250",
        "ledger_keys": "off", "ledger": "all", "ledger_keep": "10000",
        "durability": "replicas:1",
    }  # fmt: skip
    assert resolved.origins["limits"] == "llm@shop.toml:9"
    assert resolved.origins["key_weights"] == "llm@shop.toml:30"
    assert Policy.from_json(policy.to_json(), defaults=DEFAULTS).resolve("llm") == resolved


def test_shadow_limits_stand_beside_real_ones_or_alone() -> None:
    text = HEAD + (
        limit("tokens", "rate = 10")
        + limit("tokens", 'rate = 5\nenforce = "shadow"')
        + limit("slots", 'at_once = 8\nenforce = "shadow"')
        + "[limiter.per_key]\ntokens = 2\nslots = 3\n[limiter.shadow_per_key]\ntokens = 1\n"
    )
    found = fields(text)
    assert found["limits"] == "tokens rate 10.0 10;slots at_once 4503599627370496"
    assert found["key_limits"] == "tokens rate 2.0 2"
    assert found["shadow_limits"] == "tokens rate 5.0 5;slots at_once 8"
    assert found["shadow_key_limits"] == "slots at_once 3;tokens rate 1.0 1"


def test_a_whole_limiter_is_a_shadow() -> None:
    text = HEAD + 'enforce = "shadow"\n' + limit("tokens", "rate = 10")
    text += limit("slots", 'at_once = 8\nenforce = "always"')
    found = fields(text + "[limiter.per_key]\ntokens = 2\nslots = 3\n")
    assert found["limits"] == "slots at_once 8;tokens rate 1000000000000000.0 4503599627370496"
    assert found["key_limits"] == "slots at_once 3"
    assert (found["shadow_limits"], found["shadow_key_limits"]) == ("tokens rate 10.0 10", "tokens rate 2.0 2")


def test_by_hand_all_limits_are_shadows_or_bind() -> None:
    limits: dict[str, Any] = {"limits": {"slots": {"at_once": 8}}, "key_limits": {"slots": {"at_once": 2}}}
    shadow = Settings(kind="limiter", enforce="shadow", **limits).fields()
    assert (shadow["limits"], shadow["key_limits"]) == ("slots at_once 4503599627370496", "")
    assert (shadow["shadow_limits"], shadow["shadow_key_limits"]) == ("slots at_once 8", "slots at_once 2")
    real = Settings(kind="limiter", enforce="always", **limits).fields()
    assert (real["limits"], real["shadow_limits"], real["shadow_key_limits"]) == ("slots at_once 8", "", "")
    assert "enforce" not in shadow | real


def test_the_durability_of_all_is_that_of_limiters_too() -> None:
    found = fields('[[destination]]\nmatch = "#"\ndurability = "replicas:2"\n' + HEAD + limit("a", "rate = 1"))
    assert found["durability"] == "replicas:2"


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        ('"500/min"', "8.333333333333334 500"), ('"1000/day"', "0.011574074074074073 1000"), ('"1/2s"', "0.5 1"),
        ('"36/h"', "0.01 36"), ('"10/s"', "10.0 10"), ("10", "10.0 10"),
        ("0.5", "0.5 1"), ('"1MB/s"', "1000000.0 1000000"),
        ('"1_000/month"', f"{1000 / 2629800!r} 1000"), ('"5/week"', f"{5 / 604800!r} 5"),
        ('"2k/100ms"', "20000.0 2000"),
    ],
)  # fmt: skip
def test_a_rate_without_a_burst_has_the_amount_that_it_is_written_with(rate: str, text: str) -> None:
    assert fields(HEAD + limit("a", f"rate = {rate}"))["limits"] == f"a rate {text}"


@pytest.mark.parametrize(
    ("quota", "resets", "minutes"),
    [
        ("1/hour", "00:15 UTC", 15), ("1/h", None, 0), ("1/day", "23:59 UTC", 1439), ("1/week", "mon 00:00 UTC", 0),
        ("1/week", "sun 12:00 UTC", 6 * 1440 + 720), ("1/week", "06:00 UTC", 360),
        ("1/month", "28 00:01 UTC", 27 * 1440 + 1),
        ("1/month", "06:00 UTC", 360),
    ],
)  # fmt: skip
def test_a_quota_resets_so_many_minutes_after_its_window_begins(quota: str, resets: str | None, minutes: int) -> None:
    said = f'quota = "{quota}"' + (f'\nresets = "{resets}"' if resets else "")
    text = fields(HEAD + limit("a", said))["limits"]
    assert text.endswith(f" {minutes}")
    again = limits_of(text)["a"].resets
    assert Limit.of("a", {"quota": quota, "resets": again}).minutes == minutes


@each(
    ("text", "says"),
    [
        (limit("a", 'rate = "500/fortnight"'), "shop.toml:5: limiter[1].limit[1].rate: '500/fortnight' is not a rate"),
        (
            limit("a", ""),
            "shop.toml:3: limiter[1].limit[1]: a limit is one of rate = '500/min', at_once = 50 and quota",
        ),
        (limit("a", "rate = 1\nat_once = 1"), "a limit is one of"),
        (limit("a", "at_once = 1\nburst = 1"), "burst belongs to a rate; leave it out"),
        (limit("a", 'rate = 1\nresets = "00:00 UTC"'), "resets belongs to a quota; leave it out"),
        (
            limit("A", "rate = 1"),
            "limiter[1].limit[1].name: 'A' is not a name for a limit; use 1 to 32 of a-z, 0-9 and '_'",
        ),
        (limit("key", "rate = 1"), "'key' has a meaning of its own beside the names of limits; use another"),
        (limit("a", "rate = 1") * 2, "shop.toml:7: limiter[1].limit[2].name: there is a limit 'a' already; keep one"),
        ("".join(limit(f"a{n}", "rate = 1") for n in range(17)), "17 are too many; at most 16"),
        (limit("a", "at_once = 0"), "0 has no meaning of its own here"),
        (limit("a", "at_once = 4503599627370496"), "is too large"),
        (
            limit("a", "rate = 0.001\nburst = 1000000000"),
            "limit[1].burst: 1000000000 at 0.001 a second takes more than ten",
        ),
        (limit("a", 'quota = "5/min"'), "'5/min' is not a quota; write an amount of an hour, day, week or month"),
        (
            limit("a", 'quota = "5/month"\nresets = "29 00:00 UTC"'),
            "is not a reset time of a quota; write e.g. '00:00 Europe/Berlin'",
        ),
        (
            limit("a", 'quota = "5/day"\nresets = "mon 00:00 UTC"'),
            "is not a reset time of a day; write e.g. '00:00 Europe/Berlin'",
        ),
        (limit("a", 'quota = "5/hour"\nresets = "01:00 UTC"'), "is not a reset time of a hour"),
        (limit("a", 'quota = "5/day"\nresets = "24:00 UTC"'), "is not a reset time of a day"),
        (
            limit("a", 'quota = "5/day"\nresets = "00:00 Mars/Base"'),
            "'Mars/Base' is not a time zone known here",
        ),
        (
            limit("a", 'quota = "5/day"\nresets = "00:00 UTC"')
            + limit("b", 'quota = "5/day"\nresets = "00:00 Asia/Tokyo"'),
            "limit[2].resets: quotas of one limiter have one time zone, and here are Asia/Tokyo and UTC",
        ),
        (
            limit("a", "rate = 1") + "[limiter.per_key]\nb = 1",
            "limiter[1].per_key.b: there is no limit 'b' of all keys",
        ),
        (limit("a", "at_once = 5") + '[limiter.per_key]\na = "1/s"', "limiter[1].per_key.a: "),
        (limit("a", 'quota = "5/day"') + '[limiter.per_key]\na = "1/hour"', "is of a day; write that here too"),
        (limit("a", "at_once = 5") + '[limiter.per_key]\nweight = { "a*b" = 1 }', "'a*b' is neither a key"),
        (limit("a", "at_once = 5") + "[limiter.per_key]\nweight = { b = 1001 }", "use a weight of 1 to 1000"),
        (limit("a", "rate = 1") + limit("a", "at_once = 1\nenforce = 'shadow'"), "are of two sorts, rate and at_once"),
        (
            limit("a", "rate = 1") + "[limiter.shadow_per_key]\nb = 1",
            "shadow_per_key.b: there is no limit 'b'",
        ),
        ("enforce = 'shadow'\n", "limiter[1].enforce: there are no limits of all keys together here"),
        ("[limiter.per_key]\na = 1", "limiter[1].per_key: there are no limits of all keys together here"),
        ('unknown_keys = "refuse"\n' + limit("a", "rate = 1"), "every key of limiters such as 'llm' is refused"),
        ('hold_off = "48h"\n' + limit("a", "rate = 1"), "shop.toml:3: limiter[1].hold_off: '48h'; use at most 86400 s"),
        ("hold_of = 1", "limiter[1].hold_of: unknown key; did you mean 'hold_off'?"),
        ("limit = []", "[] limits nothing; add [[limiter.limit]]"),
        ("max_keys = 5", "a limiter such as 'llm' has no limits; add [[limiter.limit]]"),
        ("", "shop.toml:1: limiter: a limiter such as 'llm' has no limits; add [[limiter.limit]]"),
    ],
)
def test_what_is_wrong_is_said_with_its_place_and_the_form_that_is_accepted(text: str, says: str) -> None:
    assert any(says in problem for problem in refused(HEAD + text)), refused(HEAD + text)


def test_a_limit_of_a_key_may_be_a_table() -> None:
    text = HEAD + limit("a", 'rate = "10/s"') + '[limiter.per_key]\na = { rate = "1/s", burst = 5 }\n'
    assert fields(text)["key_limits"] == "a rate 1.0 5"
    assert "it is a rate of all keys together" in refused(text.replace('rate = "1/s", burst = 5', "at_once = 5"))[0]
    assert "bust is not a key of a limit" in refused(text.replace("burst = 5", "bust = 5"))[0]


def test_rules_for_every_kind_say_nothing_to_a_limiter_but_what_it_has() -> None:
    text = '[[destination]]\nmatch = "#"\nlimit = "1MB"\nledger = "off"\n' + HEAD + limit("a", "rate = 1")
    assert fields(text)["ledger"] == "off"
    assert "limit_bytes" not in fields(text)
    assert "limits" not in loads(text).resolve("orders", "queue").fields
    assert "limits" not in loads(text).resolve("orders").fields


def test_the_most_specific_limiter_says_all_limits() -> None:
    text = (
        '[[limiter]]\nmatch = "llm.#"\nmax_keys = 7\n' + limit("a", "at_once = 5") + "[limiter.per_key]\na = 2\n"
        '[[limiter]]\nmatch = "llm.chat"\n' + limit("b", "at_once = 3")
    )
    resolved = fields(text, "llm.chat")
    assert (resolved["limits"], resolved["key_limits"], resolved["max_keys"]) == ("b at_once 3", "", "7")


def test_a_limiter_and_a_queue_of_one_name_contradict() -> None:
    text = '[[destination]]\nmatch = "llm"\nkind = "queue"\n' + HEAD + limit("a", "rate = 1")
    assert "'llm' is a queue (shop.toml:3)" in refused(text)[0]


def test_strict_is_part_of_the_policy() -> None:
    policy = loads("strict = true\ndestination = []")
    assert policy.strict
    assert Policy.from_json(policy.to_json()).strict
    assert not Policy.from_json(loads("destination = []").to_json()).strict


AMOUNTS = st.integers(1, 2**40)
NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,31}", fullmatch=True).filter(
    lambda name: name not in ("hold_off", "key", "line", "timeout", "ttl", "weight")
)
RATES = st.fixed_dictionaries(
    {"rate": st.builds("{}/{}".format, AMOUNTS, st.sampled_from(["s", "min", "h", "day", "week", "month", "2s"]))}
)
LIMIT_TABLES = st.one_of(
    RATES,
    st.fixed_dictionaries({"at_once": AMOUNTS}),
    st.fixed_dictionaries(
        {
            "quota": st.builds("{}/day".format, AMOUNTS),
            "resets": st.builds("{:02}:{:02}".format, st.integers(0, 23), st.integers(0, 59)),
        }
    ),
)


@given(st.dictionaries(NAMES, LIMIT_TABLES, min_size=1, max_size=16))
def test_limits_are_read_back_from_fields_as_they_were_written(tables: dict[str, dict[str, Any]]) -> None:
    body = "".join(
        limit(name, "\n".join(f"{key} = {value!r}" for key, value in table.items())) for name, table in tables.items()
    )
    text = fields(HEAD + body)["limits"]
    assert text == Settings(kind="limiter", limits=tables).fields()["limits"]
    assert limits_text(limits_of(text)) == text
    assert limits_of(text) == {name: Limit.of(name, table) for name, table in tables.items()}
    assert read_limits(text) == limits_of(text)
    for name, one in limits_of(text).items():
        assert one.most * 1_000_000 <= (one.rate or 1e15) * 315_576_000_000_000, name


@given(st.dictionaries(st.text("abé-* ", min_size=1, max_size=6), st.integers(1, 1000), max_size=5))
def test_the_most_specific_weight_comes_first(weights: dict[str, int]) -> None:
    if any("*" in key[:-1] for key in weights):
        with pytest.raises(InvalidValue):
            weights_text(weights)
        return
    found = [entry.rsplit("=", 1)[0] for entry in weights_text(weights).split(";") if entry]
    assert len(found) == len(weights)
    for at, pattern in enumerate(found):
        for later in found[at + 1 :]:
            assert not (pattern.endswith("*") and later.rstrip("*").startswith(pattern[:-1])), "it would never count"


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Asia/Kolkata", "Africa/Casablanca", "UTC"])
def test_offsets_of_a_zone_are_right_at_and_around_each_change(zone: str) -> None:
    numbers = [int(number) for number in offsets_text(zone).split()]
    table = list(zip(numbers[::2], numbers[1::2], strict=True))
    assert len(table) <= MOST_OFFSETS

    def offset(at: int) -> int:
        return [seconds for start, seconds in table if start <= at][-1]

    def right(at: int) -> float:
        shift = datetime.fromtimestamp(at, ZoneInfo(zone) if zone != "UTC" else UTC).utcoffset()
        assert shift is not None
        return shift.total_seconds()

    begin = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp())
    for at in [
        *range(begin, begin + 20 * 365 * 86400, 7 * 86400),
        *(start + d for start, _ in table[1:] for d in (-1, 0)),
    ]:
        assert offset(at) == right(at)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"kind": "limiter", "limit": 5}, "limit means nothing for a limiter; that takes limits"),
        ({"kind": "gate", "limits": {"a": {"rate": 1}}}, "limits belongs to a limiter, not to a gate"),
        ({"limits": 5}, "limits: 5 are not limits"),
        ({"limits": "a b c"}, "are not limits"),
        ({"limits": {"a": {"rat": 1}}}, "the limit 'a' is one of rate, at_once and quota"),
        ({"limits": {"a": {"rate": 1, "bust": 1}}}, "bust is not a key of a limit"),
        (
            {"limits": {"a": {"rate": 1}}, "key_limits": {"b": {"rate": 1}}},
            "there is no limit 'b' of all keys together",
        ),
        ({"limits": {"a": {"rate": 1}}, "key_limits": {"a": {"at_once": 1}}}, "'a' is a rate of all keys together"),
        ({"zone": "Nowhere"}, "'Nowhere' is not a time zone"),
        ({"lease_ahead": "2min"}, "use at most 60 s"),
    ],
)
def test_settings_by_hand_are_refused_where_they_mean_nothing(settings: dict[str, Any], says: str) -> None:
    with pytest.raises((PolicyError, InvalidValue), match=re.escape(says)):
        Settings(**settings).fields()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("kind = 'gate'\nper_key.tokens = '1/s'", "per_key.tokens: tokens means nothing for a gate"),
        ("kind = 'bucket'\nrate = 1\nper_key.calls = 1", "per_key.calls: calls means nothing for a bucket"),
        ("kind = 'queue'\nper_key.calls = 1", "per_key: per_key belongs to a limiter, a gate or a bucket"),
        ("per_key.call = 1", "per_key.call: unknown key; did you mean 'calls'?"),
        ("per_key.tokens = '20'", "per_key: rate: '20' is not a rate"),
    ],
)
def test_what_keys_of_a_kind_do_not_have_is_refused(text: str, problem: str) -> None:
    found = refused("[[destination]]\nmatch = 'x'\n" + text)
    assert len(found) == 1
    assert f"destination[1].{problem}" in found[0]


def test_by_hand_too_a_quota_resets_in_the_time_zone_that_it_says() -> None:
    """Mutant: what follows the hour is read and forgotten."""
    berlin = {"mails": {"quota": "3/day", "resets": "00:00 Europe/Berlin"}}
    assert Settings(kind="limiter", limits=berlin).fields()["zone"] == offsets_text("Europe/Berlin")
    assert "zone" not in Settings(kind="limiter", limits={"mails": {"quota": "3/day", "resets": "06:00"}}).fields()
    with pytest.raises(PolicyError, match="not the time zone that resets says"):
        Settings(kind="limiter", limits=berlin, zone="UTC").fields()
    with pytest.raises(InvalidValue, match=r"one time zone, and here are Asia/Tokyo and Europe/Berlin"):
        Settings(limits=berlin | {"calls": {"quota": "3/day", "resets": "00:00 Asia/Tokyo"}}).fields()
    assert zone_named(offsets_text("Europe/Berlin")) == "Europe/Oslo", "which has the same offsets"


@pytest.mark.parametrize(
    ("said", "limits"),
    [('in_flight = "2k"', "in_flight at_once 2000"), ('in_flight = "64 mib"', "in_flight_bytes at_once 67108864"),
     ('in_flight = 5\nin_flight_bytes = "1kB"', "in_flight at_once 5;in_flight_bytes at_once 1000")],
)  # fmt: skip
def test_what_is_in_flight_to_users_is_a_number_or_with_a_unit_bytes(said: str, limits: str) -> None:
    """Mutant: a size is taken for as many messages."""
    text = f'[[user_limit]]\nname = "tenants"\nusers = ["ann"]\n{said}\n'
    assert loads(text).user_limits[0].limits == limits
    with pytest.raises(PolicyError, match="in_flight_bytes: in_flight is in bytes already"):
        loads(text.replace(said, 'in_flight = "1MB"\nin_flight_bytes = "1MB"'))
