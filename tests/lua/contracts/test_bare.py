"""A script reaches Redis without its comments: Lua makes the very same code of it, line for line."""

import re
from typing import Final

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from headgate.redis import scripts
from headgate.redis.scripts import expand, lua_root, parse, script, script_names
from headgate.redis.text.hastening import bare, enclose, lessen

SAME_CODE: Final = "return string.dump(loadstring(ARGV[1], '=x')) == string.dump(loadstring(ARGV[2], '=x')) and 1"
BIG: Final = {
    "acquire",
    "admit",
    "apply",
    "attach",
    "detach",
    "discard",
    "hold_off",
    "join",
    "levels",
    "link_commit",
    "link_open",
    "link_read",
    "move",
    "publish",
    "recount",
    "reap",
    "remove",
    "settle",
    "slice",
}
"""Those that are still beyond what Redis reads together with the call behind them."""
text = st.text("-'\"[]=a \\", max_size=12)


def long(content: str, level: int) -> str:
    marks = "=" * (level + len(max(re.findall("=*", content))) + bool({"[", "]"} & set(content)))
    return f"[{marks}[ {content} ]{marks}]"


strings = st.one_of(
    text.map(lambda content: "'" + re.sub(r"(['\\])", r"\\\1", content) + "'"),
    text.map(lambda content: '"' + re.sub(r'(["\\])', r"\\\1", content) + '"'),
    st.builds(long, text.map(lambda content: content + "\n  --"), st.integers(0, 2)),
)
comments = st.one_of(
    text.map(lambda content: f"--! {content}\n"),
    text.map(lambda content: f"-- [[! {content}\n"),
    st.builds(lambda content, lines, level: f"--{long('!' + content + lines, level)}", text, text, st.integers(0, 2)),
    st.builds(lambda content: f"--{long('!' + content + chr(10), 1)}", text),
)
gaps = st.lists(st.one_of(comments, st.sampled_from((" ", "\n", "\n  ", "\t"))), max_size=4).map("".join)
programs = st.lists(st.tuples(gaps, strings, gaps), max_size=5).map(
    lambda parts: f"return{{{','.join(''.join(part) for part in parts)}}}--[[!]]"
)


@pytest.fixture
def direct(redis_url: str) -> redis.Redis:
    return redis.Redis.from_url(redis_url)


@pytest.mark.one_server
def test_comments_go_and_the_code_stays_as_it_is(direct: redis.Redis) -> None:
    @given(programs)
    def each(program: str) -> None:
        stripped = bare(program)
        assert "!" not in stripped, "a comment was left"
        assert stripped.count("\n") == program.count("\n"), "an error names another line"
        assert direct.eval(SAME_CODE, 0, program, stripped)

    each()


def test_every_script_is_the_same_code_without_its_comments(
    direct: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    shortened = {name: script(name).source for name in script_names()}  # and kept, for other tests call these
    monkeypatch.setattr(scripts, "bare", str)
    for name, short in shortened.items():
        whole = parse(name, enclose(lessen(expand(lua_root(), name))), checked=True).source
        assert "  Codes  " in whole
        assert "  Codes  " not in short
        assert direct.eval(SAME_CODE, 0, whole, short), name


def test_most_scripts_are_read_together_with_the_call_behind_them() -> None:
    assert {name for name in script_names() if len(script(name).source) >= 32 * 1024} == BIG
