"""example.env explains what `headgate node` reads, all of it and nothing else."""

import re

import pytest

from headgate.redis.url import parse_url
from tests.deploy.files import document, node_environment, read, walk

_LINE = re.compile(r"^(# )?([A-Z][A-Z_]*)=(.*)$")


def explained() -> dict[str, tuple[bool, str, str]]:
    """Return (is set, value, comment above) of each variable; neighbours share a comment."""
    found: dict[str, tuple[bool, str, str]] = {}
    comment: list[str] = []
    for line in read("example.env").splitlines():
        if match := _LINE.match(line):
            assert match[2] not in found, f"{match[2]} is there twice"
            found[match[2]] = (not match[1], match[3], " ".join(comment))
        elif line.startswith("# "):
            comment.append(line[2:])
        else:
            assert line == "", line
            comment = []
    return found


def test_each_variable_of_the_node_is_explained_and_no_other_is_there() -> None:
    assert set(explained()) == set(node_environment())


@pytest.mark.parametrize("name", sorted(node_environment()))
def test_what_it_says_is_said_in_words(name: str) -> None:
    assert len(explained()[name][2].split()) >= 3


def test_what_it_sets_is_what_holds_without_it_but_for_the_redis() -> None:
    known = node_environment()
    there = {name: value for name, (is_set, value, _) in explained().items() if is_set}
    assert parse_url(there.pop("HEADGATE_URL").partition("?")[0]).username == "hg-default-node"
    assert there == {name: known[name] for name in there}


def test_it_holds_no_secret() -> None:
    for name in ("HEADGATE_ADMIN_TOKEN", "HEADGATE_ADMIN_READ_TOKEN"):
        is_set, value, _ = explained()[name]
        assert not is_set
        assert value == ""


def test_other_files_name_no_variable_that_nobody_reads() -> None:
    known = node_environment()
    for name in (
        "compose.yaml",
        "Dockerfile",
        "first-run.sh",
        "kubernetes/configmap.yaml",
        "kubernetes/deployment.yaml",
    ):
        used = set(re.findall(r"\bHEADGATE_[A-Z_]+", read(name)))
        assert used - set(known) == set(), name
    for mapping in walk(document("compose.yaml")):
        for variable in mapping.get("environment") or {}:
            assert variable in known or variable.startswith("GF_")
