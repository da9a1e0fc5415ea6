"""Classes are composed: none is sawn into files by inheritance, and none opens another's private doors unexplained."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.packaging.trees import trees

REPOSITORY = Path(__file__).resolve().parents[2]
ROOTS = ("sdk", "coordinator", "pipeline")
Name = tuple[str, str]
"""Module and class."""

# base -> why its only subclass lives beside it.
BESIDE_BY_EXCEPTION = {
    ("headgate.client", "Client"): "users' tests have a client on a Redis that is none, and is one in all else",
}


def modules() -> Iterator[tuple[str, ast.Module]]:
    for root in ROOTS:
        for path, tree in trees(REPOSITORY / root).items():
            yield ".".join(path.relative_to(REPOSITORY / root).with_suffix("").parts), tree


def bases() -> dict[Name, list[Name]]:
    """Return the classes of the project, and what they are made from."""
    found: dict[Name, list[Name]] = {}
    for module, tree in modules():
        nodes = list(ast.walk(tree))
        known = {
            alias.asname or alias.name: (node.module, alias.name)
            for node in nodes
            if isinstance(node, ast.ImportFrom) and node.module
            for alias in node.names
        }
        classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
        known |= {node.name: (module, node.name) for node in classes}
        for node in classes:
            named = (base.value if isinstance(base, ast.Subscript) else base for base in node.bases)
            found[module, node.name] = [
                known[base.id] for base in named if isinstance(base, ast.Name) and base.id in known
            ]
    return found


def room(module: str) -> str:
    return module.rpartition(".")[0]


def test_no_class_is_sawn_into_files_by_inheritance() -> None:
    """A class with one subclass, in the file beside it, is one class."""
    every = bases()
    subclasses = defaultdict(list)
    for one, made_from in every.items():
        for base in made_from:
            subclasses[base].append(one)
    sawn = {
        base: only[0]
        for base, only in subclasses.items()
        if base in every and len(only) == 1 and room(only[0][0]) == room(base[0]) and only[0][0] != base[0]
    }
    assert {base: one for base, one in sawn.items() if base not in BESIDE_BY_EXCEPTION} == {}


def test_who_looks_into_another_class_says_why() -> None:
    silent = [
        f"{path.relative_to(REPOSITORY)}:{number}"
        for root in ROOTS
        for path in (REPOSITORY / root).rglob("*.py")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(r"noqa: [\w, ]*\bSLF001\b\W*$", line)
    ]
    assert silent == []
