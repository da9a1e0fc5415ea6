"""compose.yaml: what it refers to is there, and its parts fit each other."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from headgate.redis.url import parse_url
from tests.deploy.files import DEPLOY, assert_runs, document, node_environment, ports, read

NODES = ("node-1", "node-2")


@pytest.fixture(scope="module")
def compose() -> Any:
    return document("compose.yaml")


@pytest.fixture(scope="module")
def services(compose: Any) -> Any:
    return compose["services"]


def mounts(service: Any) -> list[list[str]]:
    return [told.split(":") for told in service.get("volumes", [])]


def plain(text: str) -> str:
    """Return what compose makes of a value when no variable is set."""
    return re.sub(r"\$\{\w+:-(\w+)\}", r"\1", text)


def test_it_has_all_that_is_needed_to_see_flow_control_at_work(services: Any) -> None:
    assert set(services) == {"first-run", "redis", *NODES, "prometheus", "grafana"}


def test_files_and_volumes_that_are_mounted_are_there(compose: Any, services: Any) -> None:
    used = set()
    for service in services.values():
        for source, _, *mode in mounts(service):
            if source.startswith("."):
                assert (DEPLOY / source).exists()
                assert mode == ["ro"]
            else:
                used.add(source)
    assert used == set(compose["volumes"])


def test_the_image_is_built_from_the_checkout(services: Any) -> None:
    for name in ("first-run", *NODES):
        build = services[name]["build"]
        assert (DEPLOY / build["context"] / build["dockerfile"]).resolve() == DEPLOY / "Dockerfile"


def test_dependencies_are_services_and_have_the_health_check_that_is_waited_for(services: Any) -> None:
    for service in services.values():
        for name, how in service.get("depends_on", {}).items():
            if how["condition"] == "service_healthy":
                assert services[name]["healthcheck"]["test"]
            else:
                assert name == "first-run"


def test_every_port_is_of_this_host_only_and_taken_once(services: Any) -> None:
    taken = [told.split(":") for service in services.values() for told in service.get("ports", [])]
    assert {host for host, _, _ in taken} == {"127.0.0.1"}
    assert len({port for _, port, _ in taken}) == len(taken)


@pytest.mark.parametrize("name", NODES)
def test_a_node_is_reached_where_it_says(services: Any, name: str) -> None:
    node = services[name]
    amqp, admin = ports()
    published = {int(inside): outside for _, outside, inside in (told.split(":") for told in node["ports"])}
    assert set(published) == {amqp, admin}
    assert node["environment"]["HEADGATE_PUBLIC"] == f"localhost:{published[amqp]}"
    assert node["environment"]["HEADGATE_ADMIN_PORT"] == admin
    assert node["environment"]["HEADGATE_NODE"] == name


@pytest.mark.parametrize("name", NODES)
def test_a_node_has_longer_to_end_than_it_takes_to_drain(services: Any, name: str) -> None:
    node = services[name]
    drain = assert_runs(node["command"])["drain"]
    assert float(node["stop_grace_period"].removesuffix("s")) >= drain + 10


@pytest.mark.parametrize("name", NODES)
def test_a_node_has_the_settings_that_the_command_reads(services: Any, name: str) -> None:
    assert set(services[name]["environment"]) <= set(node_environment())


def test_a_node_reads_its_token_from_a_file_and_gives_way_to_the_command(services: Any, tmp_path: Path) -> None:
    shell, option, script, first = services["node-1"]["entrypoint"]
    (tmp_path / "admin_token").write_text("t0ken")
    stub = tmp_path / "headgate"
    stub.write_text('#!/bin/sh\necho "$HEADGATE_ADMIN_TOKEN $*"\n')
    stub.chmod(0o755)
    script = script.replace("$$", "$").replace("/run/headgate", str(tmp_path))
    arguments = [shell, option, script, first, *services["node-1"]["command"]]
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = subprocess.run(arguments, env={"PATH": path}, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "t0ken node --drain 30\n"


def test_redis_has_the_memory_that_its_settings_speak_of(services: Any) -> None:
    (maxmemory,) = re.findall(r"^maxmemory (\d+)gb$", read("redis.conf"), re.MULTILINE)
    assert float(services["redis"]["mem_limit"].removesuffix("g")) >= 1.4 * int(maxmemory)


def test_no_secret_is_in_it(services: Any) -> None:
    for service in services.values():
        for name, value in service.get("environment", {}).items():
            assert not re.search(r"TOKEN|PASSWORD|SECRET", name)
            if name == "HEADGATE_URL":
                bare, _, options = plain(value).partition("?")
                assert parse_url(bare).password is None
                assert options.startswith("password_file=")


def test_who_logs_in_is_whom_the_first_run_makes(services: Any) -> None:
    user = parse_url(plain(services["node-1"]["environment"]["HEADGATE_URL"]).partition("?")[0]).username
    assert user == "hg-default-node"
    assert 'redis-cli --user "hg-$$HEADGATE_NAMESPACE-node"' in services["redis"]["healthcheck"]["test"][1]
    assert re.findall(r"\| (headgate acl --role node) ", read("first-run.sh"))[0].split() == [
        "headgate",
        "acl",
        "--role",
        "node",
    ]


def test_the_secrets_of_a_folder_are_mounted_by_their_readers_only(services: Any) -> None:
    readers: dict[str, set[str]] = {}
    for name, service in services.items():
        for source, _, *_ in mounts(service):
            readers.setdefault(source, set()).add(name)
    assert readers["acl"] == {"first-run", "redis"}
    assert readers["credentials"] == {"first-run", "redis", *NODES}
    assert readers["scrape"] == {"first-run", "prometheus"}


def test_what_the_first_run_calls_can_be_called() -> None:
    values = assert_runs(["acl", "--role", "node", "--namespace", "shop", "--password-stdin"])
    assert values["namespace"] == "shop"


def first_run(folder: Path) -> dict[str, str]:
    """Run first-run.sh with a `headgate` that shows what it was given; return the files."""
    stub = folder / "bin" / "headgate"
    stub.parent.mkdir(exist_ok=True)
    stub.write_text('#!/bin/sh\nread -r password\necho "user $5 $password"\n')
    stub.chmod(0o755)
    for name in ("acl", "node", "scrape"):
        (folder / name).mkdir(exist_ok=True)
    places = {f"{name.upper()}_FOLDER": str(folder / name) for name in ("acl", "node", "scrape")}
    python = str(Path(shutil.which("python3") or "").parent)
    (stub.parent / "python").unlink(missing_ok=True)
    (stub.parent / "python").symlink_to(f"{python}/python3")
    environment = {"PATH": f"{stub.parent}:{os.environ['PATH']}", "HEADGATE_NAMESPACE": "shop", **places}
    subprocess.run(
        ["/bin/sh", DEPLOY / "first-run.sh"], env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    return {
        path.relative_to(folder).as_posix(): path.read_text()
        for name in ("acl", "node", "scrape")
        for path in (folder / name).iterdir()
    }


def test_the_first_run_makes_a_user_a_password_and_a_token_once(tmp_path: Path) -> None:
    made = first_run(tmp_path)
    assert set(made) == {"acl/users.acl", "node/redis_password", "node/admin_token", "scrape/admin_token"}
    assert made["acl/users.acl"] == f"user default off ~* &* +@all\nuser shop {made['node/redis_password']}\n"
    assert made["scrape/admin_token"] == made["node/admin_token"] != made["node/redis_password"]
    assert len(made["node/admin_token"]) >= 32
    assert first_run(tmp_path) == made


def test_a_first_run_that_was_cut_short_is_done_again(tmp_path: Path) -> None:
    first_run(tmp_path)
    (tmp_path / "scrape/admin_token").unlink()
    made = first_run(tmp_path)
    assert made["scrape/admin_token"] == made["node/admin_token"]
    assert made["acl/users.acl"].endswith(f"{made['node/redis_password']}\n")


def test_the_user_is_made_anew_each_time_for_the_same_password(tmp_path: Path) -> None:
    made = first_run(tmp_path)
    users = tmp_path / "acl/users.acl"
    users.unlink()
    users.write_text("user shop of an older version\n")
    assert first_run(tmp_path) == made


def test_grafana_finds_what_is_provisioned(services: Any) -> None:
    inside = {target: source for source, target, *_ in mounts(services["grafana"])}
    (provider,) = document("grafana/provisioning/dashboards/headgate.yaml")["providers"]
    assert (DEPLOY / inside[provider["options"]["path"]] / "headgate.json").exists()
    home = Path(services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert (DEPLOY / inside[str(home.parent)] / home.name).exists()
    (source,) = document("grafana/provisioning/datasources/prometheus.yaml")["datasources"]
    host, _, port = source["url"].removeprefix("http://").partition(":")
    assert services[host]["ports"][0].endswith(f":{port}")
