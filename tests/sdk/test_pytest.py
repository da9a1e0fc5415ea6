"""The fixtures that users' tests get, in a run of pytest of their own."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = """
import asyncio

def test_messages(headgate_client):
    with headgate_client.session("shop") as session:
        session.producer("orders").send("one")
        assert session.consumer("orders").receive(timeout=60).body == "one"

def test_others_see_nothing_of_it(headgate, headgate_client, headgate_url):
    assert headgate_client.destinations() == []
    assert headgate.url == headgate_url == headgate_client.redis_url

    async def look():
        async with headgate.connect() as client:
            await client.apply("mine", limit="1KiB")

    asyncio.run(look())
    assert headgate_client.destinations() == ["mine"]
"""


def test_services_get_a_namespace_for_each_test(tmp_path: Path) -> None:
    (tmp_path / "test_service.py").write_text(TESTS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "headgate.pytest", "-p", "no:cacheprovider", "test_service.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT / "sdk")},
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_pytest_finds_them_by_itself() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"headgate": "headgate.pytest"}
