"""The programs of docs/nodes.md, run as they stand there but for the ports."""

import itertools
import os
import subprocess
import sys

from tests.amqp.nodes import NodeProcess
from tests.amqp.rhea_client import rhea_modules
from tests.docs.test_readme import assert_shown, blocks


def _program(language: str, node: NodeProcess) -> tuple[str, str]:
    """Return a program that goes to the node, and what it is to print."""
    found = blocks("docs/nodes.md")
    ((source, shown),) = [
        (text, follower) for (name, text, _), (_, follower, _) in itertools.pairwise(found) if name == language
    ]
    for port in ("5672", "5673"):
        assert port in source or language == "python"
        source = source.replace(port, str(node.port))
    return source, shown


def _run(*command: str, source: str, **env: str) -> str:
    done = subprocess.run(
        command, input=source, env=os.environ | env, capture_output=True, text=True, timeout=240, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_python_client_of_the_page_prints_what_it_shows(node: NodeProcess) -> None:
    source, shown = _program("python", node)
    assert_shown(_run(sys.executable, "-W", "error", "-", source=source), shown)


def test_the_rhea_client_of_the_page_prints_what_it_shows(node: NodeProcess) -> None:
    source, shown = _program("javascript", node)
    assert_shown(_run("node", "-", source=source, NODE_PATH=str(rhea_modules())), shown)
