"""The tests are collected once, by the process that those are forked off which run them; each makes them its own.

To collect them takes each two seconds, and there are ten.
"""

import functools
from pathlib import Path
from typing import Final

import pytest


class Collecting:
    """A plugin of the process that collects, and runs nothing."""

    def __init__(self) -> None:
        self.session: pytest.Session | None = None
        self.items: list[pytest.Item] = []
        self.reports: list[pytest.CollectReport] = []
        """Of what could not be collected, or is skipped as a whole."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, session: pytest.Session, items: list[pytest.Item]) -> None:
        """Keep all that there are: which of them to run, and when, each of the others finds out by its own options."""
        self.session, self.items = session, [*items]
        items.clear()

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if not report.passed:
            self.reports.append(report)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self) -> bool:
        return True


COLLECTED: Final = Collecting()


class Adopting:
    """A plugin of a process that runs tests: all is as if they were collected there."""

    def __init__(self, collected: Collecting) -> None:
        self._collected = collected

    def pytest_collection(self, session: pytest.Session) -> bool | None:
        if self._collected.session is None:
            return None  # what was asked for is not there, which whoever looks for it will say
        config, items = session.config, self._collected.items
        vars(session._fixturemanager).update(vars(self._collected.session._fixturemanager) | {"config": config})
        for node in {node: None for item in items for node in item.listchain()}:
            node.config, node.session = config, session
            if isinstance(node, pytest.Module):
                config.pluginmanager.consider_module(node.obj)  # it may ask for plugins

        @functools.cache
        def is_left_out(path: Path) -> bool:
            return bool(config.hook.pytest_ignore_collect(collection_path=path, config=config))

        session.items = [item for item in items if not any(map(is_left_out, (item.path, *item.path.parents)))]
        for report in self._collected.reports:
            config.hook.pytest_collectreport(report=report)
        config.hook.pytest_collection_modifyitems(session=session, config=config, items=session.items)
        config.hook.pytest_collection_finish(session=session)
        session.testscollected = len(session.items)
        return True
