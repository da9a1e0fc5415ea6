"""Modules for a library of somebody else say how to get it, where it is not installed."""

import importlib
import sys
import tomllib
from pathlib import Path

import pytest

from headgate._util.extras import extra

EXTRAS = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["optional-dependencies"]


@pytest.mark.parametrize(
    "module",
    ["http.httpx", "http.requests", "http.aiohttp", "http.fastapi", "jobs.celery", "jobs.dramatiq", "jobs.taskiq",
     "llm.langchain", "llm.litellm"],
)  # fmt: skip
def test_a_door_without_its_library_names_its_extra(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = module.rpartition(".")[2]
    library = {"langchain": "langchain_core"}.get(name, name)
    for known in [one for one in sys.modules if one.partition(".")[0] == library] + [library]:
        monkeypatch.setitem(sys.modules, known, None)
    monkeypatch.delitem(sys.modules, f"headgate.{module}", raising=False)
    with pytest.raises(ModuleNotFoundError, match=rf"{library}\S* is not installed.*pip install 'headgate\[{name}\]'"):
        importlib.import_module(f"headgate.{module}")
    assert name in EXTRAS


def test_a_library_that_lacks_something_itself_says_so_itself() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'no_such_part'$"), extra("httpx"):
        importlib.import_module("no_such_part")
