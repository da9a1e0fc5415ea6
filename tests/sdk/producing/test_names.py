"""Names and values that people get wrong: refused at once, by their own name, before anything is changed."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headgate
from headgate import InvalidName, InvalidValue, PolicyError, Settings, Window
from headgate.core.names import decode_name, encode_name
from headgate.core.when_full import WhenFull
from headgate.redis.keys import Address, check_session, parse_key
from headgate.units import MAX_SIZE, parse_duration, parse_limit, parse_rate, parse_size
from tests.support.extent import each

BAD_NAMES = [
    "",
    "x" * 256,
    "ü" * 128,
    "a{b",
    "a}b",
    "{}",
    "all*",
    "o?",
    "[ab]",
    "back\\slash",
    "orders.#",
    "orders.>",
    "nul\x00",
    "new\nline",
    "del\x7f",
    "surrogate\ud800",
    None,
    b"bytes",
    7,
]


PATTERNS = ["orders.#", "orders.>"]
"""Which only consumers may name."""


@each("name", BAD_NAMES)
def test_bad_names_are_refused_and_named(name: str) -> None:
    with pytest.raises(InvalidName, match=r"^destination "):
        Address.of("default", name)


@pytest.mark.parametrize(
    "namespace", ["", "Upper", "under_score", "a/b", "{x}", "x" * 64, "ä", "a\n", None, 5], ids=repr
)
def test_bad_namespaces_are_refused(namespace: str) -> None:
    with pytest.raises(InvalidName, match=r"^namespace "):
        headgate.connect("redis://localhost", namespace=namespace)


@pytest.mark.parametrize("session", ["", "a.b", "a b", "x" * 81, "ä", None], ids=repr)
def test_bad_session_ids_are_refused(session: str) -> None:
    with pytest.raises(InvalidName, match=r"^session "):
        check_session(session)


@pytest.mark.one_server
@pytest.mark.parametrize("name", BAD_NAMES, ids=repr)
async def test_every_door_refuses_a_bad_name_and_creates_nothing(client: headgate.Client, name: str) -> None:
    async with client.session("s") as session:
        if name not in PATTERNS:
            with pytest.raises(InvalidName):
                await session.consumer(name)
        for call in (
            session.producer,
            session.gate,
            session.bucket,
            client.apply,
            client.explain,
            client.recount,
            client.purge,
            client.remove,
        ):
            with pytest.raises(InvalidName):
                await call(name)
        if name is not None:
            with pytest.raises(InvalidName, match=r"^subscription "):
                await session.consumer("news", subscription=name)
    assert await client.destinations() == []


@pytest.mark.one_server
async def test_any_session_name_makes_a_readable_id(client: headgate.Client) -> None:
    for name in ("invoice service", "ünï", "*", "x" * 300, "a.b/c{d}"):
        async with client.session(name) as session:
            assert session.name == name
            assert check_session(session.id)


@settings(max_examples=50)
@given(st.text(min_size=1))
def test_a_good_name_survives_its_key_and_a_bad_one_is_refused(name: str) -> None:
    try:
        encoded = encode_name(name)
    except InvalidName:
        return
    assert decode_name(encoded) == name
    assert parse_key(Address.of("n", name).key) == ("n", name)
    assert not set(encoded) & set("{}*?[]\\ \n\x00")


@settings(max_examples=50)
@given(st.text(min_size=1), st.text(min_size=1))
def test_two_names_never_share_a_key(one: str, two: str) -> None:
    try:
        assert (Address.of("n", one).key == Address.of("n", two).key) == (one == two)
    except InvalidName:
        return


@each(
    "value",
    ["10 XB", "", "B", "-1", -1, "1.2.3", "0x10", "1e3", "10 M B", "½", "\u0661", 1.5, True, None, "1.0000001B", [1]],
)
def test_bad_sizes_are_refused(value: int) -> None:
    with pytest.raises(InvalidValue, match=r"^window: .* is not a size"):
        parse_size(value, "window")


@pytest.mark.parametrize("value", [2**60, 2**52, "4PiB", "5000TiB", "1" * 400], ids=lambda value: repr(value)[:12])
def test_sizes_that_a_counter_cannot_hold_are_refused(value: int) -> None:
    with pytest.raises(InvalidValue):
        parse_size(value)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("512", 512),
        ("512 B", 512),
        ("64KiB", 65536),
        ("64 kib", 65536),
        ("10MB", 10**7),
        ("1.5KiB", 1536),
        (" 2GiB ", 2**31),
        (MAX_SIZE - 1, MAX_SIZE - 1),
    ],
)
def test_sizes_read_as_people_write_them(text: int | str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("value", ["", "s", "-1s", -1, "5 days", "1h30", float("inf"), float("nan"), True, None])
def test_bad_durations_are_refused(value: str) -> None:
    with pytest.raises(InvalidValue, match="is not a duration"):
        parse_duration(value)


@pytest.mark.parametrize("value", ["3000", "1.5", " 30 "])
def test_a_duration_in_a_text_needs_a_unit(value: str) -> None:
    number = value.strip()
    spellings = f"{number} has no unit; write '{number}s' for seconds or '{number}ms' for milliseconds"
    for read in (parse_duration, lambda text: WhenFull.parse(f"fail-after {text}")):
        with pytest.raises(InvalidValue, match=re.escape(spellings)):
            read(value)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("fail-after 3000ms", "fail-after 3s"),
        ("fail-after 1000h", "fail-after 3600000s"),
        ("fail-after 10us", "fail-after 0.00001s"),
        ("fail-after 1234567ms", "fail-after 1234.567s"),
        ("fail-after 0", "fail"),
        ("block", "block"),
        ("drop", "drop"),
        ("spool", "spool"),
    ],
)
def test_what_is_kept_of_when_full_is_read_as_it_was_meant(text: str, kept: str) -> None:
    assert Settings(when_full=text).fields()["when_full"] == kept
    assert WhenFull.parse(kept) == WhenFull.parse(WhenFull.parse(text).text)


@pytest.mark.parametrize("value", [0, -1, "0/s", "", "5", "5/year", "x/s", float("inf"), float("nan"), True, None])
def test_bad_rates_are_refused(value: str) -> None:
    with pytest.raises(InvalidValue):
        parse_rate(value)


def test_nothing_is_spelled_zero() -> None:
    with pytest.raises(InvalidValue, match="write 'unlimited' or at least 1"):
        parse_limit(0)
    for messages, size in ((0, 1), (-1, 1), (1, 0), (1, -1)):
        with pytest.raises(InvalidValue):
            Window(messages=messages, bytes=size)
    for top_up in (0, -0.5, 1.1):
        with pytest.raises(InvalidValue):
            Window(top_up=top_up)


@pytest.mark.parametrize(
    ("values", "error", "text"),
    [
        ({"limt": 5}, PolicyError, "setting 'limt' is unknown; did you mean 'limit'"),
        ({"kind": "stack"}, PolicyError, "kind: 'stack'; use queue, topic, gate, bucket or limiter"),
        ({"limit": 0}, InvalidValue, "^limit: 0"),
        ({"limit": "10 XB"}, InvalidValue, "^limit: '10 XB'"),
        ({"limit_messages": -5}, InvalidValue, "^limit_messages: -5"),
        ({"limit": 2**60}, InvalidValue, "^limit: "),
        ({"kind": "queue", "rate": 5}, PolicyError, "belong to a bucket"),
        ({"burst": 5}, PolicyError, "burst without rate"),
        ({"kind": "bucket"}, PolicyError, "a bucket needs a rate"),
        ({"rate": 5, "burst": 0}, InvalidValue, "burst: 0 has no meaning"),
        ({"rate": -5}, InvalidValue, "^rate: -5"),
        ({"ledger": "some"}, PolicyError, "ledger: 'some'; use all or off"),
        ({"ledger_keep": -1}, InvalidValue, "^ledger_keep: "),
        ({"settings": Settings(), "limit": 5}, PolicyError, "not both"),
    ],
    ids=lambda value: repr(value)[:30] if isinstance(value, dict) else "",
)
@pytest.mark.one_server
async def test_settings_that_mean_nothing_change_nothing(
    client: headgate.Client, values: dict[str, object], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        await client.apply("orders", **values)  # type: ignore[arg-type]
    assert await client.destinations() == []


@pytest.mark.one_server
async def test_a_kind_does_not_change(client: headgate.Client) -> None:
    await client.apply("orders", limit=5)
    with pytest.raises(PolicyError, match="'orders' is a queue, and a kind does not change"):
        await client.apply("orders", kind="gate")
    with pytest.raises(PolicyError, match="there is no destination 'none' in namespace"):
        await client.explain("none")
    for ttl in (0.5, 3601, "x"):
        with pytest.raises(InvalidValue, match=r"^ttl"):
            client.session(ttl=ttl)
    with pytest.raises(InvalidValue, match=r"^on_loss"):
        client.session(on_loss="panic")
