"""What `make test` leaves out."""

import pytest

from tests.support.extent import at_another_server

pytest_plugins = ["pytester"]

TESTS = """
import pytest

servers = pytest.mark.parametrize("redis_url", ["new", "old"])

@servers
@pytest.mark.parametrize("n", range(4))
def test_by_turns(redis_url, n): ...

@servers
@pytest.mark.each_server
def test_everywhere(redis_url): ...

@servers
@pytest.mark.soak
def test_for_long(redis_url): ...

def test_of_no_server(): ...
"""


@pytest.fixture
def items(pytester: pytest.Pytester) -> list[pytest.Item]:
    pytester.makeini("[pytest]\nmarkers =\n  each_server\n  soak\nasyncio_default_fixture_loop_scope = function")
    return pytester.getitems(TESTS)


def test_a_file_has_its_tests_on_one_server_after_another(items: list[pytest.Item]) -> None:
    """Mutants: all on the first; each test on a server that its place in the file chooses."""
    left = {item.name for item in at_another_server(items)}
    stays = {item.name for item in items} - left
    turns = [name for name in stays if name.startswith("test_by_turns")]
    assert sorted(name.partition("[")[2].strip("newold-]") for name in turns) == list("0123")
    assert [sum(server in name for name in turns) for server in ("new", "old")] == [2, 2]
    assert len(stays) == len(turns) + 2 + 2 + 1
    assert {item.name for item in at_another_server(items[::-1])} == left


def test_what_was_asked_for_by_its_name_runs_there(items: list[pytest.Item]) -> None:
    assert not any(at_another_server([item]) for item in items)
