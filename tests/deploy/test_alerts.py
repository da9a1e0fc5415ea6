"""Each alert fires at what it is about, and not at what is like it, as promtool sees it, where that is at hand."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.files import DEPLOY, document
from tests.deploy.test_prometheus import PANELS

CASES: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "alerts.yml").read_text(encoding="utf-8"))
RULES = {rule["alert"]: rule for group in document("prometheus/alerts.yml")["groups"] for rule in group["rules"]}
ALERTS = DEPLOY / "prometheus" / "alerts.yml"


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


def promtool(what: str, file: Path, content: Any) -> "subprocess.CompletedProcess[str]":
    """Have promtool look at a file of this content; the test is skipped where there is none."""
    if (command := shutil.which("promtool")) is None:
        pytest.skip("there is no promtool (Debian: the package prometheus)")
    file.write_text(yaml.safe_dump(content))
    return subprocess.run([command, what, "rules", str(file)], capture_output=True, text=True, check=False)


def run(folder: Path, tests: list[dict[str, Any]]) -> "subprocess.CompletedProcess[str]":
    content = {"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": tests}
    return promtool("test", folder / "tests.yml", content)


def test_every_alert_has_a_case() -> None:
    assert list(CASES) == list(RULES)


def test_an_alert_fires_at_what_it_is_about_and_nowhere_else(tmp_path: Path) -> None:
    tests = []
    for name, case in CASES.items():
        at = minutes(case["at"]) if "at" in case else minutes(RULES[name].get("for", "0s")) + 1
        tests += [of_promtool(name, case, at, quiet=False), of_promtool(name, case, at, quiet=True)]
    tried = run(tmp_path, tests)
    assert tried.returncode == 0, tried.stdout + tried.stderr


def test_what_panels_ask_for_is_promql(tmp_path: Path) -> None:
    asked = [target["expr"] for panel in PANELS for target in panel["targets"]]
    rules = [{"record": f"panel:{at}", "expr": one.replace("$__rate_interval", "1m")} for at, one in enumerate(asked)]
    looked = promtool("check", tmp_path / "rules.yml", {"groups": [{"name": "panels", "rules": rules}]})
    assert looked.returncode == 0, looked.stderr


def test_a_case_that_does_not_fit_its_alert_is_told(tmp_path: Path) -> None:
    case = CASES["HeadgateStopped"]
    swapped = {**case, "series": case["quiet"], "quiet": case["series"]}
    for quiet in (False, True):
        assert run(tmp_path, [of_promtool("HeadgateStopped", swapped, 61, quiet=quiet)]).returncode == 1
