"""What the files of `deploy/` are compared with: the command line, the metrics, the admin routes, themselves."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, cast

import typer
import yaml
from typer.core import TyperCommand, TyperGroup, TyperOption

from headgate_coordinator.admin.metrics import METRICS
from headgate_coordinator.cli.commands import command_line
from headgate_coordinator.cli.node import READ_TOKEN, TOKEN

REPOSITORY: Final = Path(__file__).resolve().parents[2]
DEPLOY: Final = REPOSITORY / "deploy"


def read(name: str) -> str:
    return (DEPLOY / name).read_text(encoding="utf-8")


def documents(name: str) -> list[Any]:
    """Return the documents of a YAML file."""
    return list(yaml.safe_load_all(read(name)))


def document(name: str) -> Any:
    (found,) = documents(name)
    return found


def command(name: str) -> TyperCommand:
    """Return a command of `headgate`."""
    return cast(TyperCommand, cast(TyperGroup, typer.main.get_command(command_line())).commands[name])


def node_options() -> list[TyperOption]:
    return [option for option in command("node").params if isinstance(option, TyperOption)]


def node_environment() -> dict[str, str]:
    """Return the variables that `headgate node` reads, with what holds without them."""
    found = {
        str(option.envvar): "" if option.default is None else str(option.default)
        for option in node_options()
        if option.envvar
    }
    return {**found, TOKEN: "", READ_TOKEN: ""}


def assert_runs(arguments: list[str]) -> dict[str, Any]:
    """Return the values of a command line of ours; it fails where the command would refuse it."""
    return command(arguments[0]).make_context(arguments[0], arguments[1:]).params


def ports() -> tuple[int, int]:
    """Return the ports of AMQP and of admin HTTP that a node takes when it is told nothing."""
    known = node_environment()
    return int(known["HEADGATE_PORT"]), int(known["HEADGATE_ADMIN_PORT"])


_WORDS: Final = re.compile(r"\bheadgate_\w+")
_LABELS: Final = re.compile(r"(\w+)\s*(?:=~|!~|!=|=(?!=))\s*\"")
_GROUPS: Final = re.compile(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)")
_OF_SCRAPES: Final = {"instance", "job"}


def unknown_in(expression: str) -> set[str]:
    """Return the metrics and labels of an expression of PromQL that no node exports."""
    exported = {declared.exposed: set(declared.labels) for declared in METRICS if declared.type != "histogram"}
    for declared in METRICS:
        if declared.type == "histogram":
            exported |= {f"{declared.name}_{part}": {*declared.labels, "le"} for part in ("bucket", "count", "sum")}
    metrics = set(_WORDS.findall(expression))
    labels = set(_LABELS.findall(expression))
    labels |= {label.strip() for group in _GROUPS.findall(expression) for label in group.split(",")}
    known = _OF_SCRAPES.union(*(exported.get(name, set()) for name in metrics))
    return (metrics - set(exported)) | (labels - known)


def is_balanced(expression: str) -> bool:
    """Whether each bracket of an expression has its other half; what is in quotes does not count."""
    pairs, stack = {")": "(", "]": "[", "}": "{"}, []
    for sign in re.sub(r'"[^"]*"', "", expression):
        if sign in pairs.values():
            stack.append(sign)
        elif sign in pairs and (not stack or stack.pop() != pairs[sign]):
            return False
    return not stack


def walk(value: Any) -> Iterator[dict[str, Any]]:
    """Yield each mapping in a document."""
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from walk(inner)
