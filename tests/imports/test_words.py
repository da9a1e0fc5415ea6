"""The words of importers say what there is: commands and options that they name exist."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main

from headgate_coordinator.cli.commands import command_line
from headgate_coordinator.imports.words import words
from tests.docs.imports_page import PRODUCTS


def commands(of: Any) -> Iterator[Any]:
    yield of
    for command in getattr(of, "commands", {}).values():
        yield from commands(command)


@pytest.mark.parametrize("product", PRODUCTS)
def test_commands_and_options_that_are_named_exist(product: str) -> None:
    every = list(commands(typer.main.get_command(command_line())))
    options = {option for command in every for parameter in command.params for option in parameter.opts}
    names = {command.name for command in every}
    for group in words(product).values():
        for word in group.values():
            text = f"{word.ours} {word.differs}"
            assert set(re.findall(r"--[a-z][-a-z]*", text)) <= options, word
            assert set(re.findall(r"\bheadgate ([a-z]+)", text)) <= names, word
