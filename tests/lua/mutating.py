"""A pytest plugin that judges mutants, each in a process forked off one that has collected the tests.

Each child is pytest from there on, and ends as pytest ends. ``HEADGATE_MUTANTS`` names a JSON file of rows
``[script, old, new, test]``; the exit codes are written beside it. A row of nulls runs all tests on sound scripts.
"""

import json
import os
from pathlib import Path

import pytest

from headgate.redis import scripts


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    rows = Path(os.environ["HEADGATE_MUTANTS"])
    codes: list[int] = []
    for file, old, new, test in json.loads(rows.read_text(encoding="utf-8")):
        script = session.config.rootpath / "lua" / f"{file or 'publish'}.lua"
        sound = script.read_text(encoding="utf-8")
        if file:
            script.write_text(sound.replace(old, new), encoding="utf-8")
        if (child := os.fork()) == 0:
            scripts.script.cache_clear()
            session.items[:] = [item for item in session.items if test in {None, item.name.partition("[")[0]}]
            return None
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        script.write_text(sound, encoding="utf-8")
        if codes[0]:
            break
    rows.with_suffix(".codes").write_text(json.dumps(codes), encoding="utf-8")
    return True
