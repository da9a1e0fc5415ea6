"""What others wrote, as commands print it: a terminal obeys none of it."""

import io
import subprocess
from pathlib import Path

import pytest
from rich.table import Table

import headgate
from headgate_coordinator.operate.terminal import _Console, inert
from tests.demo.command import run

pytestmark = pytest.mark.one_server
EVIL = "\x1b[31m \x9b2J \x07 \u202e \u2066 \u200f \u2028 \x7f \x00 \r"


def obeyed(text: str) -> list[str]:
    return [each for each in text if not each.isprintable() and each not in "\n\t"]


def test_what_a_terminal_would_obey_is_spelled() -> None:
    assert obeyed(inert(EVIL)) == []
    assert inert("a\tb\nü…—") == "a\tb\nü…—"
    assert "\\x9b" in inert(EVIL)


@pytest.mark.parametrize("terminal", [True, False])
def test_tables_have_colours_of_ours_and_none_of_theirs(terminal: bool) -> None:
    """Breaks when only lines without a table are looked at."""
    file = io.StringIO()
    table = Table("name")
    table.add_row("\x9b2J\u202eevil\x1b]0;x\x07", style="red")
    _Console(file=file, force_terminal=terminal, width=100, highlight=False).print(table)
    shown = file.getvalue()
    assert ("\x1b[31m" in shown) is terminal
    assert not {"\x9b", "\u202e", "\x07"} & set(shown)
    assert "\x1b]" not in shown


async def test_commands_print_names_that_do_nothing(redis_url: str, cleanup_namespace: str, tmp_path: Path) -> None:
    name = "orders\x9b2J\u202e"
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
        await client.apply(name, limit=1000)
        await client.block(name, reason="because")
        where = ("--redis", redis_url, "--namespace", cleanup_namespace)
        for command in (("status",), ("explain", name), ("explain", "no\x9bthing"), ("block", name, "--reason", "x")):
            done: subprocess.CompletedProcess[str] = run(*command, *where)
            assert "orders\\x9b2J" in done.stdout + done.stderr or "no\\x9bthing" in done.stdout + done.stderr
            assert obeyed(done.stdout + done.stderr) == []
