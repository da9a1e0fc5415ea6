"""The specification, in its smallest form, where there is what it takes to check it; `make spec` checks all of it."""

import pytest

from tests.links.spec import CHECKS, missing, run, verdict


@pytest.mark.skipif(bool(missing()), reason=missing() or "nothing is missing")
@pytest.mark.parametrize(
    "check", [c for c in CHECKS if c.name in ("tiny", "without the barrier")], ids=lambda c: c.name
)
def test_the_specification_says_what_it_should(check) -> None:  # type: ignore[no-untyped-def]  # a row of CHECKS
    assert verdict(check, run(check)) == ""
