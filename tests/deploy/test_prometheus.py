"""Scraping, alerts and the dashboard: every metric, label, reason and runbook that they name exists."""

import json
import re
from typing import Any

import pytest

import headgate.errors
from headgate_coordinator.admin.metrics import METRICS
from tests.deploy.files import (
    DEPLOY,
    REPOSITORY,
    document,
    is_balanced,
    ports,
    read,
    unknown_in,
    walk,
)
from tests.support.extent import each

RULES = [rule for group in document("prometheus/alerts.yml")["groups"] for rule in group["rules"]]
DASHBOARD = json.loads(read("grafana/dashboards/headgate.json"))
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
by_name = each("rule", RULES)
by_title = each("panel", PANELS)


def anchors(name: str) -> set[str]:
    """Return the anchors of a document's headings, as forges make them."""
    headings = re.findall(r"^#+ (.+)$", (REPOSITORY / name).read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_each_node_of_compose_is_scraped_with_the_token() -> None:
    scraped = document("prometheus/prometheus.yml")
    (job,) = scraped["scrape_configs"]
    assert [(DEPLOY / "prometheus" / name).exists() for name in scraped["rule_files"]] == [True]
    services = document("compose.yaml")["services"]
    nodes = [name for name, service in services.items() if "HEADGATE_NODE" in service.get("environment", {})]
    assert job["static_configs"][0]["targets"] == [f"{name}:{ports()[1]}" for name in nodes]
    folder, _, file = job["authorization"]["credentials_file"].rpartition("/")
    assert f"scrape:{folder}:ro" in services["prometheus"]["volumes"]
    assert f'"$scrape/{file}"' in read("first-run.sh")


def test_alerts_name_the_job_that_scrapes() -> None:
    (job,) = document("prometheus/prometheus.yml")["scrape_configs"]
    named = set(re.findall(r'job="(\w+)"', read("prometheus/alerts.yml")))
    assert named == {job["job_name"]}


def test_no_two_alerts_have_one_name() -> None:
    assert len({rule["alert"] for rule in RULES}) == len(RULES)


@by_name
def test_an_alert_is_whole(rule: Any) -> None:
    assert set(rule) - {"for"} == {"alert", "expr", "labels", "annotations"}
    assert re.fullmatch(r"Headgate[A-Z]\w+", rule["alert"])
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert set(rule["annotations"]) == {"summary", "description", "runbook"}
    assert re.fullmatch(r"\d+[smh]", rule.get("for", "0s"))


@by_name
def test_an_alert_asks_for_what_is_exported(rule: Any) -> None:
    assert is_balanced(rule["expr"])
    assert unknown_in(rule["expr"]) == set()


@by_name
def test_an_alert_speaks_of_labels_that_its_result_has(rule: Any) -> None:
    used = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
    kept = {word.strip() for group in re.findall(r"by\s*\(([^)]*)\)", rule["expr"]) for word in group.split(",")}
    aggregated = bool(re.search(r"\b(sum|max|min)\b", rule["expr"]))
    assert used <= (kept if aggregated else {"instance"})


@by_name
def test_an_alert_has_its_section_in_the_runbook(rule: Any) -> None:
    page, _, anchor = rule["annotations"]["runbook"].partition("#")
    assert anchor == rule["alert"].lower()
    assert anchor in anchors(page)


def test_the_runbook_has_no_section_for_an_alert_that_is_gone() -> None:
    headings = re.findall(r"^### (.+)$", (REPOSITORY / "docs/runbook.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert headings == [rule["alert"] for rule in RULES]


def test_links_of_the_runbook_lead_to_headings() -> None:
    for page in ("docs/runbook.md", "docs/deploy.md"):
        text = (REPOSITORY / page).read_text(encoding="utf-8")
        for target, anchor in re.findall(r"\]\(([\w.]*)#([\w-]+)\)", text):
            assert anchor in anchors(f"docs/{target}" if target else page)


def test_reasons_that_alerts_name_are_reasons_of_the_node() -> None:
    folder = REPOSITORY / "coordinator" / "headgate_coordinator" / "node"
    source = "\n".join(path.read_text(encoding="utf-8") for path in folder.rglob("*.py"))
    counted = {
        word for call in re.findall(r"counters\.refused\((.*)\)", source) for word in re.findall(r'"(.+?)"', call)
    }
    named = {
        word
        for text in re.findall(r'reason(?:=~|!~|!=|=)"([^"]+)"', read("prometheus/alerts.yml"))
        for word in text.split("|")
    }
    assert named
    assert named <= counted
    runbook = (REPOSITORY / "docs/runbook.md").read_text(encoding="utf-8")
    (section,) = re.findall(r"^### HeadgateRefusals\n(.*?)^###", runbook, re.MULTILINE | re.DOTALL)
    explained = set(re.findall(r"`([a-z-]+)`", section))
    assert counted - named <= explained
    for error in re.findall(r"`([A-Z]\w+)`", section):
        assert issubclass(getattr(headgate.errors, error), headgate.HeadgateError)


@pytest.mark.parametrize("wrong", ["headgate_nothing", 'headgate_node_messages_total{colour="in"}',
                                   "sum by (colour) (headgate_node_links)", "headgate_node_messages"])  # fmt: skip
def test_what_is_not_exported_is_noticed(wrong: str) -> None:
    assert unknown_in(wrong)


def test_brackets_without_their_other_half_are_noticed() -> None:
    assert is_balanced('sum(a{b="("}[5m])')
    assert not is_balanced("sum(a[5m)]")
    assert not is_balanced("sum(a")


def test_the_dashboard_can_be_provisioned_anywhere() -> None:
    assert DASHBOARD["id"] is None
    assert DASHBOARD["uid"] == "headgate"
    sources = [mapping["datasource"] for mapping in walk(DASHBOARD) if isinstance(mapping.get("datasource"), dict)]
    assert sources
    assert {source["uid"] for source in sources} == {"${datasource}"}
    assert all("id" not in panel for panel in DASHBOARD["panels"])


@by_title
def test_a_panel_says_what_it_shows(panel: Any) -> None:
    assert panel["title"]
    assert panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"]


@by_title
def test_a_panel_asks_for_what_is_exported(panel: Any) -> None:
    assert panel["targets"]
    for target in panel["targets"]:
        assert is_balanced(target["expr"])
        assert unknown_in(target["expr"]) == set()
        assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= {
            "instance",
            "direction",
            "action",
            "reason",
            "destination",
            "kind",
            "outcome",
            "limit",
            "band",
            "store",
            "pool",
            "site",
            "source",
            "target",
            "namespace",
            "version",
        }


UNSHOWN = {
    "headgate_node_info",  # a node is its instance there
    "headgate_leased_messages", "headgate_dropped_bytes_total",  # twins of what is shown
    "headgate_peak_bytes",  # of all time, and no figure of a moment
}  # fmt: skip


def test_every_metric_is_on_the_dashboard_or_has_an_alert() -> None:
    asked = json.dumps(DASHBOARD) + read("prometheus/alerts.yml")
    shown = set(re.findall(r"\bheadgate_\w+", re.sub(r"_(bucket|sum)\b", "_count", asked)))
    exported = {f"{one.name}_count" if one.type == "histogram" else one.exposed for one in METRICS}
    assert exported - shown == UNSHOWN


def test_panels_use_the_variables_that_there_are() -> None:
    variables = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(DASHBOARD))) - {"__rate_interval", "__all"}
    assert used == variables
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            assert unknown_in(variable["definition"]) == set()


def test_panels_lie_beside_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert max(x for x, _ in cells) < 24
        assert not cells & taken, panel["title"]
        taken |= cells


def test_the_dashboard_shows_most_of_what_is_exported() -> None:
    shown = set(re.findall(r"headgate_\w+", json.dumps(DASHBOARD))) | set(
        re.findall(r"headgate_\w+", read("prometheus/alerts.yml"))
    )
    shown |= {name.removesuffix("_bucket") for name in shown}
    exported = {declared.exposed for declared in METRICS}
    assert exported - shown == {
        "headgate_leased_messages", "headgate_peak_bytes", "headgate_dropped_bytes_total", "headgate_node_info",
    }  # fmt: skip
