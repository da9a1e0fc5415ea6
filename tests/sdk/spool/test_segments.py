"""Segments and the references to them, as values; and what is refused of a store's settings."""

import contextlib
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate import InvalidValue, PolicyError
from headgate.core.segment import MARK, Reference, is_reference, pack
from headgate.explain.spool_causes import REFERENCE_BYTES
from headgate.message import encode
from headgate.spool.storage import shown
from headgate.spool.stores import SpoolSettings, store_fields

names = st.text("abcdefghijklmnopqrstuvwxyz0123456789-%_.~", min_size=1, max_size=30)


@given(payloads=st.lists(st.binary(max_size=50), max_size=20), store=names, name=names)
def test_every_payload_is_where_its_reference_says(payloads: list[bytes], store: str, name: str) -> None:
    """Mutants: the offset is that of the next; the checksum is of the segment."""
    data, references = pack(payloads, store, name)
    assert len(references) == len(payloads)
    for payload, stored in zip(payloads, references, strict=True):
        assert is_reference(stored)
        reference = Reference.parse(stored)
        assert reference.encode() == stored
        assert (reference.store, reference.name, reference.segment) == (store, name, f"{store}/{name}")
        found = data[reference.offset : reference.offset + reference.size]
        assert found == payload
        assert reference.check(found)


@given(
    payload=st.binary(min_size=1, max_size=60), at=st.integers(0, 1000), bit=st.integers(0, 7), cut=st.integers(1, 60)
)
def test_a_payload_that_is_not_as_it_was_written_is_noticed(payload: bytes, at: int, bit: int, cut: int) -> None:
    """Mutants: only the length is looked at; only the checksum, which a shorter one may have too."""
    reference = Reference.parse(pack([payload], "disk", "s1")[1][0])
    damaged = bytearray(payload)
    damaged[at % len(payload)] ^= 1 << bit
    assert not reference.check(bytes(damaged))
    assert not reference.check(payload[:-cut])
    assert not reference.check(payload + b"\0" * cut)


@given(stored=st.binary(max_size=80))
def test_what_is_no_reference_is_refused(stored: bytes) -> None:
    for text in (stored, MARK + stored):
        with contextlib.suppress(InvalidValue):
            assert Reference.parse(text).encode() == text


@pytest.mark.parametrize(
    "stored",
    [
        b"",
        MARK,
        b"disk/s1 0 1 00000000",
        MARK + b"disk/s1 0 1 0000000",
        MARK + b"disk/s1 0 1 000000000",
        MARK + b"disk 0 1 00000000",
        MARK + b"disk/s1 -1 1 00000000",
        MARK + b"disk/../s1 0 1 00000000",
        MARK + b"disk/s1 0 1 0000000G",
        MARK + b"disk/s1 0 1 00000000\n",
    ],
)
def test_these_are_no_references(stored: bytes) -> None:
    """A message could lead out of the storage else. Mutant: the end is not looked at."""
    with pytest.raises(InvalidValue, match="is not a reference"):
        Reference.parse(stored)


@given(body=st.one_of(st.binary(max_size=20), st.text(max_size=20)))
def test_no_message_is_taken_for_a_reference(body: bytes | str) -> None:
    assert not is_reference(encode(body, {}))
    assert not is_reference(b"")


def test_a_reference_takes_less_than_the_writer_reckons_with() -> None:
    reference = Reference("s" * 12, f"{'0' * 10}-{1 << 24:x}", 64 << 20, 64 << 20, 0xFFFFFFFF)
    assert len(reference.encode()) <= REFERENCE_BYTES


def test_a_stores_settings_are_read_as_they_were_written() -> None:
    fields = store_fields("s3://bucket/prefix", percent=25, total="8MiB", segment="64KiB", when_full="fail-after 3s")
    settings = SpoolSettings.of(fields)
    assert (settings.url, settings.limit, settings.segment) == ("s3://bucket/prefix", 2 << 20, 64 << 10)
    assert settings.when_full.patience == 3.0
    assert (fields["percent"], fields["total_bytes"]) == ("25", str(8 << 20))
    assert SpoolSettings.of(store_fields("memory://x", limit="unlimited")).limit is None
    assert store_fields("memory://x", limit=4096)["percent"] == "", "what it said before is taken back"


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"url": "/var/spool"}, "use one like"),
        ({"url": 7}, "use one like"),
        ({"url": "s3://key:secret@bucket/x"}, "a user or a password"),
        ({"limit": None}, "needs a limit"),
        ({"percent": 10}, "not both"),
        ({"limit": None, "percent": 10}, "belong together"),
        ({"total": 10}, "belong together"),
        ({"limit": None, "percent": 0, "total": 100}, "above 0"),
        ({"limit": None, "percent": 101, "total": 100}, "up to 100"),
        ({"limit": None, "percent": True, "total": 100}, "above 0"),
        ({"limit": "much"}, "limit"),
        ({"limit": -1}, "limit"),
        ({"segment": 4095}, "4 KiB to 64 MiB"),
        ({"segment": "65MiB"}, "4 KiB to 64 MiB"),
        ({"when_full": "spool"}, "does not spool to another"),
        ({"when_full": "burst"}, "use block, fail"),
        ({"when_full": "fail-after soon"}, "when_full"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises((PolicyError, InvalidValue), match=says):
        store_fields(**cast(Any, {"url": "memory://x", "limit": 4096} | settings))


@pytest.mark.parametrize(
    ("url", "seen"),
    [
        ("s3://bucket/prefix", "s3://bucket/prefix"),
        ("sftp://ann:secret@host/a/b@c", "sftp://host/a/b@c"),
        ("https://host/a?token=secret", "https://host/a"),
        ("file:///var/spool", "file:///var/spool"),
    ],
)
def test_no_secret_of_a_url_is_shown(url: str, seen: str) -> None:
    assert shown(url) == seen
