"""The wheel holds what a service needs, and works where there is no checkout."""

import json
import os
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]

LOAD_SCRIPTS = """
import json
import headgate, headgate_coordinator, headgate_pipeline
from headgate.redis.scripts import lua_root

root = lua_root()
found = [f"{folder}{entry.name}" for folder, at in (("", root), ("lib/", root / "lib"))
         for entry in at.iterdir() if entry.name.endswith(".lua")]
packages = [headgate, headgate_coordinator, headgate_pipeline]
print(json.dumps({"files": [package.__file__ for package in packages], "version": headgate.__version__,
                  "root": str(root), "scripts": sorted(found)}))
"""


def run(*command: str | Path, cwd: Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def scripts_in_repository() -> list[str]:
    lua = REPOSITORY / "lua"
    return sorted(str(path.relative_to(lua)) for path in [*lua.glob("*.lua"), *lua.glob("lib/*.lua")])


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built without network from the build backend of the `dev` extra."""
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, REPOSITORY, cwd=out)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_every_script_of_the_repository_is_in_the_wheel(names: set[str]) -> None:
    packed = sorted(name.removeprefix("headgate/redis/lua/") for name in names if name.endswith(".lua"))
    assert packed == scripts_in_repository()
    assert packed


def test_every_file_of_the_live_page_is_in_the_wheel(names: set[str]) -> None:
    root = REPOSITORY / "coordinator"
    files = {path.relative_to(root).as_posix() for path in root.glob("headgate_coordinator/admin/page/*")}
    assert files
    assert files <= names


@pytest.mark.parametrize("package", ["headgate", "headgate_coordinator", "headgate_pipeline"])
def test_every_package_is_there_and_says_that_it_is_typed(names: set[str], package: str) -> None:
    assert {f"{package}/__init__.py", f"{package}/py.typed"} <= names


def test_nothing_but_our_packages_reaches_site_packages(names: set[str]) -> None:
    roots = {name.split("/")[0] for name in names}
    (metadata,) = (root for root in roots if root.endswith(".dist-info"))
    assert roots - {metadata} == {"headgate", "headgate_coordinator", "headgate_pipeline"}


def test_command_license_and_dependencies_are_declared(wheel: Path, names: set[str]) -> None:
    info = next(name.split("/")[0] for name in names if ".dist-info/" in name)
    with zipfile.ZipFile(wheel) as archive:
        commands = archive.read(f"{info}/entry_points.txt").decode()
        metadata = archive.read(f"{info}/METADATA").decode()
        packed_license = archive.read(f"{info}/licenses/LICENSE")
    assert "headgate = headgate_coordinator.cli:main" in commands
    assert "License-Expression: Apache-2.0" in metadata
    assert packed_license == (REPOSITORY / "LICENSE").read_bytes()
    required = [line for line in metadata.splitlines() if line.startswith("Requires-Dist") and "extra ==" not in line]
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    assert len(required) == len(project["dependencies"])


@pytest.mark.soak
def test_the_installed_wheel_finds_its_scripts_without_a_checkout(wheel: Path, tmp_path: Path) -> None:
    target = tmp_path / "installed"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    pip = [sys.executable, "-m", "pip", "--isolated", "--disable-pip-version-check", "--no-cache-dir"]
    run(*pip, "install", "--quiet", "--no-deps", "--no-index", "--target", target, wheel, cwd=elsewhere)

    # -S: no .pth file is read, so an editable install of this checkout cannot answer in the wheel's place.
    # -P: the working directory is not searched. What is left is the wheel first, then its dependencies.
    search = os.pathsep.join([str(target), *dict.fromkeys(map(sysconfig.get_path, ("purelib", "platlib")))])
    environment = {"PYTHONPATH": search, "PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"}
    output = run(sys.executable, "-S", "-P", "-c", LOAD_SCRIPTS, cwd=elsewhere, env=environment)

    seen = json.loads(output)
    for file in [*seen["files"], seen["root"]]:
        assert Path(file).resolve().is_relative_to(target.resolve()), f"{file} is not the wheel's"
    assert seen["scripts"] == scripts_in_repository()
    assert f"-{seen['version']}-" in wheel.name
