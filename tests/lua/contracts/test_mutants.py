"""The table of mutants is about the scripts as they are; `make soak` also runs many of them."""

import re

import pytest

from tests.lua.mutants import MUTANTS, ROOT, Mutant, file_of, main
from tests.support.extent import each, for_long


@each("mutant", MUTANTS)
def test_each_mutant_changes_one_place_and_names_a_test_of_make_test(mutant: Mutant) -> None:
    source = (ROOT / "lua" / f"{mutant.file}.lua").read_text(encoding="utf-8")
    assert source.count(mutant.old) == 1
    assert mutant.new != mutant.old
    name = mutant.test.partition("::")[2]
    text = file_of(mutant.test).read_text(encoding="utf-8")
    before, found, _ = text.partition(f"def {name}(")
    assert found
    marks = before.rpartition("\n\n\n")[2]
    assert not re.search(r"^@pytest\.mark\.(whole|soak)", marks, re.MULTILINE), "`make test` would not catch it"


def test_every_script_and_library_has_a_mutant() -> None:
    """Or says here why not: what is only read, spelled or formatted."""
    files = {path.relative_to(ROOT / "lua").as_posix().removesuffix(".lua") for path in (ROOT / "lua").rglob("*.lua")}
    without = {
        "lib/keys",
        "lib/limiter_keys",
        "lib/pool_keys",
        "lib/site_key",
        "lib/policy_key",
        "lib/node_keys",
        "lib/users_key",
        "lib/made_key",
        "lib/notes_key",
        "lib/clock",
    }
    assert files - {mutant.file for mutant in MUTANTS} == without


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_mutants_are_caught() -> None:
    assert main([], most=for_long(len(MUTANTS))) == 0
