"""The versions that make's targets install fit what is asked for, and leave nothing out."""

import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
NOT_INSTALLED = {"litellm"}
"""Extras whose libraries are so large that `make setup` leaves them out; the tests of each run where it is."""


def pins() -> dict[str, str]:
    lines = (ROOT / ".ci" / "constraints.txt").read_text().splitlines()
    words = (line.split("==") for line in lines if not line.startswith("#"))
    return {canonicalize_name(name): version for name, version in words}


def test_each_requirement_has_a_version_that_fits() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    asked = [*project["dependencies"], *(line for extra in {*extras} - NOT_INSTALLED for line in extras[extra])]
    pinned = pins()
    for requirement in map(Requirement, asked):
        version = pinned[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), f"{requirement} is not {version}: run `make pins`"


def test_make_setup_keeps_to_them() -> None:
    assert "--constraint .ci/constraints.txt" in (ROOT / "Makefile").read_text()
