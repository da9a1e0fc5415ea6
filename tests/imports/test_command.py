"""The command `headgate import` as people call it: stdin, a file that is there, another product's files, a terminal."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from headgate_coordinator.cli.commands import command_line
from tests.support.servers import newest_server
from tests.support.shared import SharedServers

CONFIGURATIONS = Path(__file__).parent / "configurations"
EXAMPLE = CONFIGURATIONS / "artemis" / "example" / "broker.xml"
HEADGATE = (sys.executable, "-m", "headgate_coordinator")


def invoke(*arguments: str | Path) -> Result:
    return CliRunner().invoke(command_line(), ["import", *map(str, arguments)])


@pytest.mark.parametrize("file", [EXAMPLE, EXAMPLE.with_name("none.xml")], ids=["a configuration", "nothing"])
def test_an_output_that_is_there_is_refused_before_anything_is_read(tmp_path: Path, file: Path) -> None:
    output = tmp_path / "shop.toml"
    output.write_text("mine")
    result = invoke("artemis", file, "--output", output)
    assert str(result.exception) == f"--output {output}: is there already; name a new file"
    assert output.read_text() == "mine"


@pytest.mark.parametrize(
    ("product", "of"),
    [
        ("artemis", "activemq/example/activemq.xml"),
        ("activemq", "artemis/example/broker.xml"),
        ("ems", "artemis/example/broker.xml"),
        ("artemis", "ems/overflow/queues.conf"),
        ("rabbitmq", "blazingmq/fanout/fan.json"),
        ("blazingmq", "rabbitmq/export/export.json"),
        ("artemis", "rabbitmq/export/export.json"),
    ],
)
def test_files_of_another_product_are_refused_with_the_command_that_reads_them(product: str, of: str) -> None:
    error = str(invoke(product, CONFIGURATIONS / of).exception)
    assert error.startswith(f"{Path(of).name}:1: ")
    assert error.endswith(f"; `headgate import {of.partition('/')[0]}` reads it")


def test_a_file_that_no_product_has_is_told_of_by_the_one_that_was_named(tmp_path: Path) -> None:
    (tmp_path / "x.xml").write_text("<project/>")
    error = str(invoke("artemis", tmp_path / "x.xml").exception)
    assert error == "x.xml:1: <project> holds no settings of Artemis; give a broker.xml"


def test_a_configuration_comes_from_a_pipe_and_a_terminal_gets_lines_of_its_width(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = (*HEADGATE, "import", "artemis", "-", "--output", str(tmp_path / "shop.toml"))
    environment = os.environ | {"COLUMNS": "60"}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=theirs, env=environment) as process:
        os.close(theirs)
        process.communicate(EXAMPLE.read_bytes(), timeout=60)
    said = os.read(ours, 10_000).decode().splitlines()
    os.close(ours)
    assert process.returncode == 0
    assert said[0] == "stdin:4: kept: address-setting.match ="
    assert said[1] == "    'jms.queue.exampleQueue' -> match"
    assert " ".join("\n".join(said).split()).endswith("kept with a difference, 0 not covered")
    assert max(map(len, said)) <= 60
    assert 'match = "jms.queue.exampleQueue"' in (tmp_path / "shop.toml").read_text()


def test_check_shows_what_drifted_and_not_where_it_is_written(
    tmp_path: Path, cleanup_namespace: str, shared_servers: SharedServers
) -> None:
    """Mutants: a rule without destinations shows nothing; a comment in the document that was applied is drift."""
    where = ("--redis", shared_servers.standalone(newest_server()), "--namespace", cleanup_namespace)
    applied = tmp_path / "shop.toml"

    def apply(text: str) -> None:
        applied.write_text(text)
        assert CliRunner().invoke(command_line(), ["policy", "apply", str(applied), *where]).exit_code == 0

    result = invoke("artemis", EXAMPLE, "--check", *where)
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (1, "no policy is in force now")
    document = result.stdout
    apply(f"# reviewed\n\n{document}")
    result = invoke("artemis", EXAMPLE, "--check", *where)
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (
        0, "its settings are in force already, as version 1, where they are written otherwise",
    )  # fmt: skip
    apply(document.replace("limit.bytes = 100000", "limit.bytes = 300000"))
    result = invoke("artemis", EXAMPLE, "--check", *where)
    assert result.exit_code == 1
    assert "rule jms.queue.exampleQueue: limit.bytes: 300000 -> 100000 (shop.toml:11)" in result.stderr.splitlines()
    result = invoke("artemis", EXAMPLE, "--check", "--json", *where)
    planned = json.loads(result.stdout)["plan"]
    assert (result.exit_code, planned["alike"], planned["rules"][0]["old"]) == (1, False, "300000")


def test_check_that_cannot_ask_writes_nothing(tmp_path: Path) -> None:
    output = tmp_path / "shop.toml"
    result = invoke("artemis", EXAMPLE, "--check", "--redis", "redis://127.0.0.1:1", "--output", output)
    assert "127.0.0.1:1" in str(result.exception)
    assert not output.exists()
