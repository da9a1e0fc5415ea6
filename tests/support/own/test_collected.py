"""Tests that were collected in another session run as if they had been collected in this one."""

import pytest

from tests.support.workers.collected import Adopting, Collecting

pytest_plugins = ["pytester"]

TESTS = """
import pytest

@pytest.fixture(scope="session")
def options(request):
    return request.config.option

def test_this(request, options):
    assert options.keyword == "this" and request.node.config is request.config and request.node.session.items

def test_other(): ...
"""


def test_each_run_has_its_own_options_and_says_what_could_not_be_collected(pytester: pytest.Pytester) -> None:
    """Mutants: what was left out elsewhere, or not, is so here; a file that cannot be imported is passed over."""
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function")
    pytester.makepyfile(
        test_some=TESTS,
        test_left_out="def test_this(): ...",
        test_broken="import nothing_like_it",
        test_whole="import pytest; pytest.skip('there is no such thing here', allow_module_level=True)",
    )
    collected = Collecting()
    assert not pytester.inline_run(plugins=[collected]).listoutcomes()[0], "it ran a test"
    options = ("-k", "this", "--ignore", "test_left_out.py", "--continue-on-collection-errors")
    passed, skipped, failed = pytester.inline_run(*options, plugins=[Adopting(collected)]).listoutcomes()
    assert [report.nodeid for report in passed] == ["test_some.py::test_this"]
    assert [report.nodeid for report in skipped] == ["test_whole.py"]
    assert [report.nodeid for report in failed] == ["test_broken.py"]
