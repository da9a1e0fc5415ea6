"""A file is read up to a bound, whatever is at its name."""

from pathlib import Path

import pytest

from headgate.policy import BadDocument, load
from headgate.policy.read import MOST_BYTES
from headgate_coordinator.security.file import read_users


@pytest.fixture
def too_large(tmp_path: Path) -> Path:
    file = tmp_path / "large.toml"
    with file.open("wb") as opened:
        opened.truncate(MOST_BYTES + 1)
    return file


@pytest.mark.parametrize("reader", [load, read_users])
def test_a_file_that_is_too_large_is_refused_unread(reader: object, too_large: Path) -> None:
    """Mutant: all of it is read, which at a device never ends."""
    assert callable(reader)
    with pytest.raises(BadDocument, match=r"large\.toml: cannot be read: more than 16 MiB; give a TOML"):
        reader(too_large)


def test_lines_end_as_they_do_anywhere(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    for end in ("\n", "\r\n"):
        file.write_bytes(end.join(("[[destination]]", 'match = "a"', 'limit = "1MB"', "")).encode())
        assert load(file).resolve("a", "queue").origins["limit_bytes"] == "a@policy.toml:3"
