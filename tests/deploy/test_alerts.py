"""Each alert fires at what it is about, and not at what is like it, as promtool sees it, where that is at hand."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.files import document
from tests.deploy.test_prometheus import PANELS

CASES: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "alerts.yml").read_text(encoding="utf-8"))
RULES = {rule["alert"]: rule for group in document("prometheus/alerts.yml")["groups"] for rule in group["rules"]}


def minutes(span: str) -> float:
    return float(span[:-1]) * {"s": 1 / 60, "m": 1, "h": 60}[span[-1]]


def of_promtool(name: str, case: dict[str, Any], at: float, *, quiet: bool) -> dict[str, Any]:
    """Return the test of an alert for promtool; where its description is a template, the case has the words."""
    rule = RULES[name]
    said = {**rule["annotations"], "summary": case["summary"]}
    said["description"] = case.get("description", said["description"])
    fired = [{"exp_labels": {**case["labels"], **rule["labels"]}, "exp_annotations": said}]
    return {
        "name": f"{name}{', quiet' if quiet else ''}",
        "interval": "1m",
        "input_series": [
            {"series": series, "values": values} for series, values in case["quiet" if quiet else "series"].items()
        ],
        "alert_rule_test": [
            {"eval_time": f"{round(at * 60)}s", "alertname": name, "exp_alerts": [] if quiet else fired}
        ],
    }


def promtool(what: str, *files: Path) -> "subprocess.CompletedProcess[str]":
    """Have promtool look at files; the test is skipped where there is none."""
    if (command := shutil.which("promtool")) is None:
        pytest.skip("there is no promtool (Debian: the package prometheus)")
    return subprocess.run([command, what, "rules", *map(str, files)], capture_output=True, text=True, check=False)


def written(folder: Path, name: str, tests: list[dict[str, Any]]) -> Path:
    """Return a file with the tests of an alert. It has that rule alone: each test works out all rules, every minute."""
    rules, file = folder / f"{name}.rules.yml", folder / f"{name}.yml"
    rules.write_text(yaml.safe_dump({"groups": [{"name": name, "rules": [RULES[name]]}]}))
    file.write_text(yaml.safe_dump({"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": tests}))
    return file


def test_every_alert_has_a_case() -> None:
    assert list(CASES) == list(RULES)


def test_an_alert_fires_at_what_it_is_about_and_nowhere_else(tmp_path: Path) -> None:
    files = []
    for name, case in CASES.items():
        at = minutes(case["at"]) if "at" in case else minutes(RULES[name].get("for", "0s")) + 1
        files.append(written(tmp_path, name, [of_promtool(name, case, at, quiet=quiet) for quiet in (False, True)]))
    tried = promtool("test", *files)
    assert tried.returncode == 0, tried.stdout + tried.stderr


def test_what_panels_ask_for_is_promql(tmp_path: Path) -> None:
    asked = [target["expr"] for panel in PANELS for target in panel["targets"]]
    rules = [{"record": f"panel:{at}", "expr": one.replace("$__rate_interval", "1m")} for at, one in enumerate(asked)]
    (file := tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    looked = promtool("check", file)
    assert looked.returncode == 0, looked.stderr


def test_a_case_that_does_not_fit_its_alert_is_told(tmp_path: Path) -> None:
    case = CASES["HeadgateStopped"]
    swapped = {**case, "series": case["quiet"], "quiet": case["series"]}
    for quiet in (False, True):
        file = written(tmp_path, "HeadgateStopped", [of_promtool("HeadgateStopped", swapped, 61, quiet=quiet)])
        assert promtool("test", file).returncode == 1
