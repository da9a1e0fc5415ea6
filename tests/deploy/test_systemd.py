"""The units, read by systemd where it is installed."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.files import DEPLOY, assert_runs, read

UNIT = "systemd/headgate-node@.service"
DROP_IN = "systemd/redis-server.service.d/headgate.conf"
ANALYZE = shutil.which("systemd-analyze")
needs_systemd = pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not installed")


def settings(name: str) -> dict[str, list[str]]:
    """Return all values of each key of a unit, by `Section.Key`."""
    found: dict[str, list[str]] = {}
    section = ""
    for line in read(name).splitlines():
        if match := re.fullmatch(r"\[(\w+)\]", line):
            section = match[1]
        elif line and not line.startswith("#"):
            key, sign, value = line.partition("=")
            assert sign, line
            found.setdefault(f"{section}.{key}", []).append(value)
    return found


def only(name: str, key: str) -> str:
    (value,) = settings(name)[key]
    return value


def test_it_runs_our_command() -> None:
    program, *arguments = only(UNIT, "Service.ExecStart").split()
    assert Path(program).name == "headgate"
    assert_runs(arguments)


def test_it_has_longer_to_end_than_it_takes_to_drain() -> None:
    drain = assert_runs(only(UNIT, "Service.ExecStart").split()[1:])["drain"]
    assert float(only(UNIT, "Service.TimeoutStopSec")) >= drain + 10


def test_the_node_says_when_it_listens_and_restarts_its_workers_when_asked() -> None:
    """As `tests/workers` sees it do; without workers SIGHUP would end it."""
    assert only(UNIT, "Service.Type") == "notify"
    assert only(UNIT, "Service.ExecReload") == "/bin/kill -HUP $MAINPID"
    assert only(UNIT, "Service.Environment") == "HEADGATE_WORKERS=1"


def test_its_settings_come_from_a_file_and_those_of_an_instance_from_another() -> None:
    assert settings(UNIT)["Service.EnvironmentFile"] == ["/etc/headgate/node.env", "-/etc/headgate/node-%i.env"]


def test_it_may_have_a_file_for_each_connection() -> None:
    connections = assert_runs(only(UNIT, "Service.ExecStart").split()[1:])["connections"]
    assert int(only(UNIT, "Service.LimitNOFILE")) > 2 * connections


def test_it_is_not_root() -> None:
    assert only(UNIT, "Service.User") not in ("", "root", "0")
    assert only(UNIT, "Service.NoNewPrivileges") == "yes"
    assert only(UNIT, "Service.CapabilityBoundingSet") == ""


def unit_with_a_program(folder: Path) -> Path:
    """Return an instance of the unit whose program is there."""
    text = re.sub(r"^ExecStart=\S+", f"ExecStart={sys.executable}", read(UNIT), flags=re.MULTILINE)
    unit = folder / "headgate-node@1.service"
    unit.write_text(text)
    return unit


@needs_systemd
def test_systemd_understands_it(tmp_path: Path) -> None:
    unit = unit_with_a_program(tmp_path)
    done = subprocess.run(
        [ANALYZE or "", "verify", "--man=no", unit], capture_output=True, text=True, timeout=240, check=False
    )
    ours = [line for line in done.stderr.splitlines() if "headgate" in line]
    assert ours == []


@needs_systemd
def test_systemd_notices_what_it_does_not_understand(tmp_path: Path) -> None:
    unit = unit_with_a_program(tmp_path)
    unit.write_text(unit.read_text().replace("KillMode=mixed", "KillMode=nonsense\nNoSuchKey=1"))
    done = subprocess.run(
        [ANALYZE or "", "verify", "--man=no", unit], capture_output=True, text=True, timeout=240, check=False
    )
    assert "nonsense" in done.stderr
    assert "NoSuchKey" in done.stderr


@needs_systemd
def test_systemd_finds_it_little_exposed(tmp_path: Path) -> None:
    """On systemd's scale of 0 to 10; a service without any of it has 9.6."""
    unit = unit_with_a_program(tmp_path)
    command = [ANALYZE or "", "security", "--offline=yes", "--no-pager", "--threshold=20", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    if "unrecognized option" in done.stderr:
        pytest.skip("this systemd-analyze cannot judge a file")
    assert done.returncode == 0, done.stdout[-400:] + done.stderr


def test_the_drop_in_starts_redis_with_our_settings_in_place_of_debians() -> None:
    before, command = settings(DROP_IN)["Service.ExecStart"]
    assert before == ""
    assert command.split()[:2] == ["/usr/bin/redis-server", "/etc/redis/headgate.conf"]
    (maxclients,) = re.findall(r"^maxclients (\d+)$", read("redis.conf"), re.MULTILINE)
    assert int(only(DROP_IN, "Service.LimitNOFILE")) > int(maxclients)
    assert (DEPLOY / "redis.conf").exists()
