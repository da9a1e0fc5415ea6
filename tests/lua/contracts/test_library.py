"""A script as a function of a library: the same statements on the same lines, and nothing left of the last call."""

import re

import pytest
import redis

from headgate.redis.scripts import FUNCTIONS, expand, library, lua_root, script, script_names
from headgate.redis.text.hastening import lessen
from headgate.redis.text.library import Library, LibraryError, library_body

pytestmark = pytest.mark.one_server  # 6.2 has no functions

PARTS = """-- comment
local TABLE = { 'a', 'b' }
local seen, other = 0
local lines = { -- what was seen
  'one', -- first
  'two',
}
local module = {}
module.count = function()
  seen = seen + 1
  return seen
end
local function all()
  return { module.count(), #lines, other or 'nothing', #TABLE, ARGV[1] }
end
"""


@pytest.fixture
def direct(redis_url: str) -> redis.Redis:
    direct = redis.Redis.from_url(redis_url, decode_responses=True)
    if int(direct.info("server")["redis_version"].partition(".")[0]) < 7:
        pytest.skip("6.2 has no functions")
    return direct


def loaded(direct: redis.Redis, body: str) -> str:
    one = Library.of("test", body)
    direct.function_load(one.source, replace=True)
    return one.name


def test_variables_begin_anew_with_each_call_and_the_rest_is_made_once(direct: redis.Redis) -> None:
    name = loaded(
        direct, library_body(PARTS, "seen = seen + 1\nother = other or 'set'\nlines[3] = 'x'\nreturn all()\n", "")
    )
    for word in ("first", "second"):
        assert direct.fcall(name, 0, word) == [2, 3, "set", 2, word]


def test_what_a_call_left_as_it_failed_is_not_there_in_the_next(direct: redis.Redis) -> None:
    name = loaded(
        direct, library_body(PARTS, "seen = 7\nif ARGV[1] == 'fail' then error('half way') end\nreturn all()\n", "")
    )
    with pytest.raises(redis.ResponseError, match="half way"):
        direct.fcall(name, 0, "fail")
    again = loaded(direct, library_body(PARTS, "return all()\n", ""))
    assert direct.fcall(again, 0, "x") == [1, 2, "nothing", 2, "x"]


def test_an_error_names_the_line_of_the_script_and_one_more(direct: redis.Redis) -> None:
    own = "\nlocal x = 1\nerror('here')\n"
    line = (PARTS + own).splitlines().index("error('here')") + 1
    with pytest.raises(redis.ResponseError, match=f":{line + 2}: here"):  # the names of KEYS and ARGV have one, too
        direct.fcall(loaded(direct, library_body(PARTS, own, "")), 0)


@pytest.mark.parametrize(
    ("part", "own", "said"),
    [
        ("local NOW = redis.call('TIME')\n", "return 1\n", "depends on the call"),
        ("local FIRST = { KEYS[1] }\n", "return 1\n", "depends on the call"),
        ("local SEEN = { all = {} }\n", "return 1\n", "depends on the call"),
        ("if true then\n  return 1\nend\n", "return 1\n", "depends on the call"),
        ("local m = { all = {} }\nm.f = function()\nend\n", "return 1\n", "depends on the call"),
        ("local m = {}\nm.f = function()\n  m.all = 1\nend\n", "return 1\n", "'m.all =': m is made once"),
        ("local m = { x = { 'a' } }\nm.f = function()\nend\n", "m.x[1] = 'b'\n", "m is made once"),
        ("local NAMES = { 'a' }\n", "NAMES[#NAMES + 1] = 'b'\n", "NAMES is made once"),
    ],
)  # fmt: skip
def test_nothing_that_is_made_once_may_depend_on_a_call_or_be_changed_by_it(part: str, own: str, said: str) -> None:
    """It would be there in the next call, of another session or another tenant."""
    with pytest.raises(LibraryError, match=re.escape(said)):
        library_body(part, own, "")


def test_every_script_can_be_one(direct: redis.Redis) -> None:
    """So none keeps anything of a call."""
    for name in script_names():
        one = library(script(name), lessen(expand(lua_root(), name)))
        direct.function_load(one.source, replace=True)
        if name not in FUNCTIONS:
            direct.function_delete(one.name)


def test_a_library_is_of_the_text_that_it_has() -> None:
    one = script("publish").library
    assert one is not None
    assert Library.of("publish", one.body) == one
    assert Library.of("publish", one.body + "\n").name != one.name
