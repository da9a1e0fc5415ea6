"""Files import each other in one direction: no circles, imports for types included."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.packaging.trees import trees

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGES = {
    "headgate": REPOSITORY / "sdk",
    "headgate_coordinator": REPOSITORY / "coordinator",
    "headgate_pipeline": REPOSITORY / "pipeline",
}
# A machine cut along the protocol: a connection has links, and each link writes into its connection.
OF_ONE_MACHINE = {
    frozenset(
        f"headgate.amqp.{name}"
        for name in ("engine", "handler", "intake", "link", "link_closing", "rereading", "streaming", "windows")
    ),
}


@cache
def files() -> dict[str, ast.Module]:
    found = {}
    for package, root in PACKAGES.items():
        for path, tree in trees(root).items():
            parts = path.relative_to(root).with_suffix("").parts
            if parts[0] == package:
                found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = tree
    return found


def named(module: str, tree: ast.Module) -> Iterator[str]:
    """Every name that a file imports anywhere: for types, in a function."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} imports relatively"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imports(module: str) -> set[str]:
    found = set()
    for name in named(module, files()[module]):
        while name and name not in files():
            name = name.rpartition(".")[0]  # noqa: PLW2901 -- of a class its file, of that its package
        found.add(name)
    return found - {module, ""}


def circles(graph: dict[str, set[str]]) -> set[frozenset[str]]:
    """The strongly connected parts of more than one (Tarjan's)."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = set()

    def visit(node: str) -> None:
        number[node] = low[node] = len(number)
        stack.append(node)
        for other in graph[node]:
            if other not in number:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], number[other])
        if low[node] == number[node]:
            part = frozenset(stack[stack.index(node) :])
            del stack[stack.index(node) :]
            if len(part) > 1:
                found.add(part)

    for node in graph:
        if node not in number:
            visit(node)
    return found


def test_no_files_import_each_other_in_a_circle() -> None:
    assert circles({module: imports(module) for module in files()}) == OF_ONE_MACHINE


@pytest.mark.parametrize(
    ("graph", "found"),
    [
        ({"a": {"b"}, "b": {"c"}, "c": set()}, set()),
        ({"a": {"b"}, "b": {"c"}, "c": {"b"}}, {frozenset("bc")}),
        ({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}, {frozenset("abc")}),
    ],
)
def test_circles_are_found(graph: dict[str, set[str]], found: set[frozenset[str]]) -> None:
    assert circles(graph) == found
