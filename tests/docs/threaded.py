"""Turns programs of a page into those of `headgate.sync`, with threads in place of tasks."""

import ast
import contextlib
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import headgate


class _Threaded(ast.NodeTransformer):
    def visit_Await(self, node: ast.Await) -> ast.expr:
        value: ast.expr = self.visit(node.value)
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "admit":
            return ast.Call(ast.Attribute(value, "wait"), [], [])  # a hold outside of a block
        return value

    def visit_AsyncWith(self, node: ast.AsyncWith) -> ast.With:
        self.generic_visit(node)
        return ast.With(node.items, node.body, lineno=node.lineno)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.FunctionDef:
        self.generic_visit(node)
        return ast.FunctionDef(node.name, node.args, node.body, node.decorator_list, lineno=node.lineno)

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "create_task":
            nothing = ast.arguments([], [], None, [], [], None, [])
            node.args = [ast.Lambda(nothing, node.args[0])]
        return node

    def visit_Import(self, node: ast.Import) -> ast.Import | None:
        return None if node.names[0].name == "asyncio" else node


class _Task(threading.Thread):
    def __init__(self, work: Callable[[], object]) -> None:
        super().__init__()
        self._work = work
        self.start()

    def run(self) -> None:
        with contextlib.suppress(headgate.Closed):
            self._work()

    def cancel(self) -> None:
        """Do nothing: a thread ends once what it waits for is free, or closed."""


def _gather(*tasks: _Task) -> None:
    for task in tasks:
        task.join()


ASYNCIO = SimpleNamespace(create_task=_Task, gather=_gather, sleep=time.sleep)
"""Stands for what the programs use of asyncio."""


def threaded(source: str, page: str) -> Any:
    """Return a program as one for threads."""
    return compile(ast.unparse(ast.fix_missing_locations(_Threaded().visit(ast.parse(source)))), page, "exec")
