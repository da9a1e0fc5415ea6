"""What the documents show is what happens: their programs are run, their output compared, their links followed.

A text block that follows a Python block is its output. `...` in it stands for anything. Durations, ids of sessions,
servers and epochs may differ.
"""

import ast
import asyncio
import codeop
import contextlib
import functools
import inspect
import io
import itertools
import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

import headgate
from tests.demo.command import run as headgate_command
from tests.docs.settings_page import page
from tests.support import forked
from tests.support.extent import each
from tests.support.waiting import wait_until

REPOSITORY = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted(
    path.relative_to(REPOSITORY).as_posix()
    for path in (*REPOSITORY.glob("*.md"), REPOSITORY / "lua" / "README.md", *(REPOSITORY / "docs").rglob("*.md"))
)
EXAMPLES = sorted(path.name for path in (REPOSITORY / "examples").glob("*.py"))


def read(name: str) -> str:
    return (REPOSITORY / name).read_text(encoding="utf-8")


def blocks(name: str) -> list[tuple[str, str, int]]:
    """Return (language, text, line) of each fenced block."""
    text = read(name)
    return [
        (match[1], match[2], text.count("\n", 0, match.start()) + 2)
        for match in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    ]


def programs(name: str) -> Iterator[tuple[int, str, str]]:
    """Yield line, source and shown output of each Python block."""
    found = blocks(name)
    for (language, source, line), (follower, shown, _) in zip(found, [*found[1:], ("", "", 0)], strict=True):
        if language == "python":
            yield line, source, shown if follower == "text" else ""


def plain(text: str) -> str:
    """Return the text with everything that no two runs share put in one form."""
    for pattern, word in (
        (r"\b[0-9a-f]{40}\b", "<run id>"),
        (r"~[0-9a-f]{8}\b", "~<id>"),
        (r"\b1[0-9]{12}\b", "<ms>"),
        (r"\b\d+(\.\d+)?(e-\d+)? s\b", "<n> s"),
    ):
        text = re.sub(pattern, word, text)
    return text.strip()


def assert_shown(output: str, shown: str) -> None:
    wanted = ".*".join(map(re.escape, plain(shown).split("...")))
    assert re.fullmatch(wanted, plain(output), re.DOTALL), f"it prints\n{output}\nand not, as shown,\n{shown}"


def run(program: Path) -> str:
    """Return what a program prints that ends well and warns of nothing."""
    done = forked.run("tests.docs.program", str(program), environment=os.environ, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize(
    ("line", "source", "shown"), [pytest.param(*p, id=f"line{p[0]}") for p in programs("README.md")]
)
def test_programs_of_the_readme_print_what_they_show(line: int, source: str, shown: str, tmp_path: Path) -> None:
    assert shown, "a program without its output"
    program = tmp_path / "program.py"
    program.write_text(source)
    assert_shown(run(program), shown)


def test_the_first_program_is_short_and_comes_first() -> None:
    text = read("README.md")
    before = text[: text.index("```")].strip().splitlines()
    assert len(" ".join(before[1:]).split(". ")) == 1
    _, source, _ = next(programs("README.md"))
    assert len([line for line in source.splitlines() if line.strip()]) <= 20


def consoles(name: str, line: int) -> Iterator[tuple[list[str], str]]:
    """Yield the commands, and what they print, of the blocks between the Python block of that line and the next."""
    found = blocks(name)
    at = next(number for number, (_, _, begins) in enumerate(found) if begins == line) + 1
    for language, text, _ in itertools.takewhile(lambda block: block[0] != "python", found[at:]):
        if language == "console":
            for command in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
                typed, _, answer = command.partition("\n")
                yield shlex.split(typed), answer


async def _answer(command: list[str], client: headgate.Client) -> str:
    """Run a command beside the client of a page; redis-cli by what it would do."""
    if command[0] == "redis-cli":
        found = await client.store.server.command(command[2].encode(), *command[1:])
        return f'"{found.decode()}"'
    url = {"HEADGATE_URL": client.redis_url, "HEADGATE_NAMESPACE": client.namespace}
    done = await asyncio.to_thread(headgate_command, *command[1:], **url)
    assert done.returncode == 0, done.stderr
    return "\n".join(line.rstrip() for line in done.stdout.splitlines())


def _print_but_for_waits(*values: Any) -> None:
    """On a busy machine sends wait that do not wait elsewhere, and the guide prints the waits that it hears of."""
    if not isinstance(values[0], headgate.Blocked | headgate.Unblocked):
        print(*values)


def typed(source: str, page: str) -> Iterator[CodeType]:
    """Yield what `python -m asyncio` makes of lines that are typed: blocks end with an empty line, and no other way."""
    compiler, lines = codeop.CommandCompiler(), list[str]()
    compiler.compiler.flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    for line in [*source.splitlines(), ""]:
        lines.append(line)
        if (code := compiler("\n".join(lines), page)) is not None:
            yield code
            lines.clear()


@pytest.mark.parametrize("page", ["docs/guide.md", "docs/limits.md", "docs/doors.md"])
async def test_what_can_be_typed_in_from_top_to_bottom(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in `python -m asyncio`: one set of names, await anywhere."""
    monkeypatch.setattr(sys, "displayhook", lambda _: None)  # values that are shown there are not what a program prints
    names: dict[str, Any] = {"__name__": "guide", "print": _print_but_for_waits}
    try:
        async with asyncio.timeout(100):
            for line, source, shown in programs(page):
                output = io.StringIO()
                with contextlib.redirect_stdout(output):
                    for code in typed(source, f"{page}, from line {line}"):
                        result = eval(code, names)
                        if inspect.iscoroutine(result):
                            await result
                assert_shown(output.getvalue(), shown)
                for command, answer in consoles(page, line) if page == "docs/limits.md" else ():
                    assert_shown(await _answer(command, names["client"]), answer)
    finally:
        if client := names.get("client"):
            await client.close()


@pytest.mark.filterwarnings("ignore::UserWarning:pydantic")  # of LiteLLM's own types
async def test_calls_through_litellm_as_the_page_has_them() -> None:
    """Where LiteLLM is installed; the rest of the page needs none of it."""
    litellm = pytest.importorskip("litellm")
    shown = (Path(__file__).parents[2] / "docs" / "doors.md").read_text()
    found = re.search(r"```py\n(import litellm\n.+?)```\n\n```text\n(.+?)```", shown, re.DOTALL)
    assert found
    output, before = io.StringIO(), litellm.callbacks
    async with headgate.connect() as client:
        limits = {"requests": {"rate": "100/min"}, "tokens": {"rate": "200k/min"}, "in_flight": {"at_once": 5}}
        await client.apply("llm", kind="limiter", limits=limits)
        names = {"session": client.session("docs"), "messages": [{"role": "user", "content": "hello"}]}
        code = compile(found[1], "docs/doors.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        try:
            with contextlib.redirect_stdout(output):
                await eval(code, names)
            limiter: headgate.Limiter = names["limiter"]  # type: ignore[assignment]  # the page opens it

            async def settled() -> bool:
                return (await limiter.state())["in_flight"].taken == 0

            await wait_until(settled)
        finally:
            litellm.callbacks = before
    assert output.getvalue() == found[2]


async def test_redis_shows_what_the_readme_shows() -> None:
    async with headgate.connect() as client:
        await client.apply("orders", limit="1KiB")
        async with client.session("shop") as session:
            producer, consumer = await session.producer("orders"), await session.consumer("orders")
            await producer.send(b"x" * 800)
            assert await consumer.receive(timeout=10)
            waiting = asyncio.ensure_future(producer.send(b"y" * 800, timeout=10))

            async def blocked() -> dict[str, str] | None:
                fields = (await client.explain("orders")).fields
                return fields if fields["blocked"] == "1" else None

            fields = await wait_until(blocked)
            waiting.cancel()
    assert fields is not None
    (console,) = (text for language, text, _ in blocks("README.md") if language == "console" and "redis-cli" in text)
    seen = "\n".join(f"{name}\t{value}".rstrip() for name, value in sorted(fields.items()))
    shown = console.split("\n", 1)[1]
    same = ("tickets", "ledger_seq")  # how often a consumer came back with nothing is a matter of timing
    drop = re.compile(rf"({'|'.join(same)})\t\d+")
    assert plain(drop.sub("", seen)) == plain(drop.sub("", shown))


@pytest.mark.parametrize("name", [name for name in EXAMPLES if not name.startswith("spark_")])
def test_examples_run(name: str) -> None:
    output = run(REPOSITORY / "examples" / name)
    assert output
    assert "False" not in output


def test_there_are_the_examples_that_are_told_of() -> None:
    assert EXAMPLES == ["emails.py", "protect_api.py", "quickstart.py", "spark_fragile.py", "traced.py"]


@each("name", DOCUMENTS)
def test_links_lead_somewhere(name: str) -> None:
    text = re.sub(r"^```.*?^```$", "", read(name), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if "://" not in target:
            assert (REPOSITORY / name).parent.joinpath(target).exists(), f"{name} links to {target}"


@functools.cache
def written_tests() -> frozenset[str]:
    """Return the names of all tests."""
    sources = (path.read_text(encoding="utf-8") for path in (REPOSITORY / "tests").rglob("*.py"))
    return frozenset(name for source in sources for name in re.findall(r"def (test_\w+)\(", source))


@each("name", DOCUMENTS)
def test_tests_that_are_named_exist(name: str) -> None:
    text = read(name)
    for path in re.findall(r"`(tests/[\w/]+(?:\.py)?)`", text):
        assert (REPOSITORY / path).exists(), f"{name} names {path}"
    for test in re.findall(r"`(test_\w+)`", text):
        assert test in written_tests(), f"{name} names {test}"


def test_settings_errors_and_names_in_the_guide_are_all_there_are() -> None:
    guide = read("docs/guide.md")
    for name in headgate.__all__:
        assert re.search(rf"\b{name}\b", guide), f"docs/guide.md never mentions {name}"


def test_every_setting_is_on_its_page() -> None:
    assert read("docs/settings.md") == page(), "run python -m tests.docs.settings_page"
    assert all(f"| `{name}` |" in page() for name in headgate.Settings.__dataclass_fields__)


def test_no_page_lists_commands_of_an_acl_by_hand() -> None:
    """`headgate acl` prints them, from the scripts; tests/security/test_acl.py holds that complete."""
    for name in DOCUMENTS:
        assert not re.search(r"\+evalsha|\+xadd", read(name)), f"{name}: point to `headgate acl` instead"
