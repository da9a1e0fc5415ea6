"""The Dockerfile, as far as this can be seen without Docker."""

import json
import re
import tomllib
from fnmatch import fnmatch

from tests.deploy.files import REPOSITORY, assert_runs, ports, read


def instructions() -> list[tuple[str, str]]:
    lines = [line for line in read("Dockerfile").splitlines() if not line.lstrip().startswith("#")]
    text = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in text.splitlines() if line)]


def final_stage() -> list[tuple[str, str]]:
    found = instructions()
    last = max(number for number, (word, _) in enumerate(found) if word == "FROM")
    return found[last:]


def only(word: str) -> str:
    (found,) = (rest for name, rest in final_stage() if name == word)
    return found


def copied() -> list[str]:
    """Return what is copied from the checkout."""
    return [
        source
        for word, rest in instructions()
        if word == "COPY" and not rest.startswith("--from")
        for source in rest.split()[:-1]
    ]


def test_what_it_copies_is_there() -> None:
    assert copied()
    assert [source for source in copied() if not (REPOSITORY / source).exists()] == []


def test_it_copies_all_that_the_wheel_is_built_from() -> None:
    build = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    wheel = build["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {path.split("/")[0] for path in (*wheel["packages"], *wheel["force-include"])}
    project = build["project"]
    assert needed | {"pyproject.toml", project["readme"], *project["license-files"]} == set(copied())


def test_nothing_else_reaches_the_builder() -> None:
    lines = [line for line in read("Dockerfile.dockerignore").splitlines() if line and not line.startswith("#")]
    assert lines[0] == "*"
    assert {line.removeprefix("!") for line in lines if line.startswith("!")} == set(copied())


def test_a_compiler_is_in_the_first_stage_only() -> None:
    images = [rest.split()[0] for word, rest in instructions() if word == "FROM"]
    assert [fnmatch(image, "python:*-slim-*") for image in images] == [False, True]
    assert {image.replace("-slim", "") for image in images} == {images[0]}
    assert ("COPY", "--from=build /wheels /wheels") in final_stage()


def test_it_runs_our_command_and_not_as_root() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    entry, arguments = json.loads(only("ENTRYPOINT")), json.loads(only("CMD"))
    assert entry[0] in project["scripts"]
    assert assert_runs([*entry[1:], *arguments])["port"] == ports()[0]
    user, group = only("USER").split(":")
    assert int(user) > 0
    assert int(group) > 0
    assert only("STOPSIGNAL") == "SIGTERM"


def test_its_health_is_that_of_the_event_loop_and_not_that_of_redis() -> None:
    check = only("HEALTHCHECK")
    program = json.loads(check[check.index("CMD") + 4 :])
    assert program[:2] == ["python", "-c"]
    compile(program[2], "HEALTHCHECK", "exec")
    assert f"'{ports()[1]}'" in program[2]
    assert "/live" in program[2]


def test_it_exposes_the_ports_of_a_node() -> None:
    assert tuple(map(int, only("EXPOSE").split())) == ports()


def test_no_secret_is_baked_in() -> None:
    for word, rest in instructions():
        assert not (word in ("ENV", "ARG") and re.search(r"TOKEN|PASSWORD|SECRET|URL", rest)), rest
