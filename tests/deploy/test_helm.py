"""The chart, linted and rendered with helm: as it stands it is the manifests, and what is switched on fits together."""

import copy
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

import headgate
from tests.deploy.files import DEPLOY, REPOSITORY, assert_runs, documents, node_environment, node_options, walk

CHART = DEPLOY / "helm"
BUILT = REPOSITORY / ".venv" / "helm" / "helm"
HELM = shutil.which("helm") or (str(BUILT) if BUILT.exists() else None)
needs_helm = pytest.mark.skipif(HELM is None, reason="there is no helm, and no Go to build it with")
ALL = {
    "keda": {"enabled": True},
    "envoy": {"enabled": True},
    "serviceMonitor": {"enabled": True},
    "autoscaling": {"enabled": True},
    "secret": {"create": True, "redisPassword": "pa ss", "adminToken": "to:ken"},
    "redis": {"url": "redis+sentinel://hg@one:26379,two:26379/shop/0?service=x", "ports": [26379, 6379]},
    "settings": {"HEADGATE_STORE_ROOTS": "/spool", "HEADGATE_USERS": 7},
    "arguments": ["--connections", "500"],
    "image": {"repository": "registry.example/headgate", "tag": "1", "pullPolicy": "Always", "pullSecrets": ["pull"]},
    "service": {"type": "LoadBalancer", "annotations": {"example/idle": "60"}},
    "podAnnotations": {"example/a": "b"},
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "only", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "priorityClassName": "high",
}
BARE = {
    "tls": {"enabled": False},
    "networkPolicy": {"enabled": False},
    "podDisruptionBudget": {"enabled": False},
    "requireUsers": False,
}


TAKEN = {"HEADGATE_ADMIN_TOKEN", "HEADGATE_URL", "HEADGATE_NODE", "HEADGATE_KEDA"}
"""Some of the settings that the chart has values or objects for."""


def helm(*arguments: str, values: Any = None) -> subprocess.CompletedProcess[str]:
    assert HELM
    given = ["--values=-"] if values is not None else []
    return subprocess.run(
        [HELM, *arguments, str(CHART), "--kube-version=1.31", *given], input=yaml.safe_dump(values or {}),
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def rendered(values: Any = None, release: str = "headgate") -> list[Any]:
    done = helm("template", "--namespace=headgate", release, values=values)
    assert done.returncode == 0, done.stderr
    return [found for found in yaml.safe_load_all(done.stdout) if found]


def one(objects: list[Any], kind: str, name: str) -> Any:
    (found,) = (each for each in objects if (each["kind"], each["metadata"]["name"]) == (kind, name))
    return found


@needs_helm
def test_the_chart_has_no_fault_that_helm_knows() -> None:
    for values in ({}, ALL, BARE):
        done = helm("lint", "--strict", values=values)
        assert done.returncode == 0, done.stdout


@needs_helm
def test_kubernetes_takes_what_is_rendered() -> None:
    """By the schemas of an old and of a new version, without unknown fields; but not what an operator brings."""
    schemas = pytest.importorskip("kubernetes_validate")
    for values in ({}, ALL, BARE):
        for each in rendered(values, "prod"):
            if each["kind"] != "ServiceMonitor":
                for version in ("1.28", "1.34"):
                    schemas.validate(each, version, strict=True)


@needs_helm
def test_as_it_stands_it_is_the_manifests() -> None:
    """Mutant: any line of either side."""
    files = ("configmap", "deployment", "service", "poddisruptionbudget", "networkpolicy", "servicemonitor")
    known = [found for name in files for found in documents(f"kubernetes/{name}.yaml")]
    scale = documents("kubernetes/horizontalpodautoscaler.yaml")
    assert _bare(rendered({"serviceMonitor": {"enabled": True}})) == _bare(known)
    scaled = [each for each in rendered({"autoscaling": {"enabled": True}}) if each["kind"] == scale[0]["kind"]]
    assert _bare(scaled) == _bare(scale)


def _bare(objects: list[Any]) -> dict[tuple[str, str], Any]:
    """Return objects by kind and name, without the labels and notes that only one of the two has."""
    objects = copy.deepcopy(objects)
    for mapping in walk(objects):
        for labels in (mapping.get("labels"), mapping.get("matchLabels"), mapping.get("selector"), mapping):
            for name in ("app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "helm.sh/chart"):
                if labels:
                    labels.pop(name, None)
        if "annotations" in mapping:
            assert list(mapping.pop("annotations")) == ["checksum/settings"]
        if mapping.get("image") == "headgate":  # kustomization.yaml has its tag
            mapping["image"] = "headgate:latest"
    return {(each["kind"], each["metadata"]["name"]): each for each in objects}


@needs_helm
def test_all_that_is_switched_on_fits_together() -> None:
    objects = rendered(ALL, "prod")
    deployment = one(objects, "Deployment", "prod-node")
    assert "replicas" not in deployment["spec"]
    pod = deployment["spec"]["template"]
    (node,) = pod["spec"]["containers"]
    names = {(each["kind"], each["metadata"]["name"]) for each in objects}
    for volume in pod["spec"]["volumes"]:
        if "secret" in volume and volume["name"] != "tls":
            assert ("Secret", volume["secret"]["secretName"]) in names
        if "configMap" in volume:
            assert ("ConfigMap", volume["configMap"]["name"]) in names
    assert {mount["name"] for mount in node["volumeMounts"]} == {volume["name"] for volume in pod["spec"]["volumes"]}
    ports = {port["name"]: port["containerPort"] for port in node["ports"]}
    for each in objects:
        if each["kind"] == "Service":
            assert each["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
            for port in each["spec"]["ports"]:
                assert ports[port["targetPort"]] == port["port"]
    policy = one(objects, "NetworkPolicy", "prod-node")["spec"]
    assert {port["port"] for rule in policy["ingress"] for port in rule["ports"]} == set(ports)
    assert {26379, 6379} <= {port["port"] for rule in policy["egress"] for port in rule["ports"]}
    settings = one(objects, "ConfigMap", "prod-node")["data"]
    assert set(settings) <= set(node_environment())
    assert settings["HEADGATE_URL"].endswith("/shop/0?service=x&password_file=/run/headgate/redis_password")
    assert settings["HEADGATE_USERS"] == "7"
    assert int(settings["HEADGATE_GRPC_PORT"]) == ports["grpc"]
    assert settings["HEADGATE_ENVOY"] == "true"
    assert assert_runs(node["args"])["connections"] == 500
    wait = int(node["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod["spec"]["terminationGracePeriodSeconds"] >= wait + int(node["args"][2]) + 10
    for each in objects:
        assert each["kind"] == "Secret" or not {"pa ss", "to:ken"} & {str(v) for m in walk(each) for v in m.values()}


@needs_helm
def test_a_change_of_settings_or_of_a_secret_restarts_nodes() -> None:
    def notes(values: Any) -> Any:
        return one(rendered(values), "Deployment", "headgate-node")["spec"]["template"]["metadata"]["annotations"]

    assert notes({}) == notes({})
    assert notes({}) != notes({"namespace": "other"})
    made = {"create": True, "redisPassword": "a", "adminToken": "b"}
    assert notes({"secret": made}) != notes({"secret": made | {"adminToken": "c"}})


@needs_helm
def test_wrong_values_are_refused_by_name() -> None:
    """Helm names all that it refuses at once, each by its place; what has the same place is another chart."""
    wrong = {
        "replica": 3,
        "replicas": 0,
        "redis": {"url": "redis://user:secret@redis/0"},
        "settings": {"PATH": "/", "HEADGATE_USER": "/users", **dict.fromkeys(TAKEN, "x")},
        "arguments": ["--port=1", 7],
        "drain": 4000,
        "namespace": "a*",
        "image": {"repository": "headgate latest", "tag": ":1", "pullSecrets": [{"name": "x"}]},
        "secret": {"name": "Not_A_Name"},
        "tls": {"secret": "a/b"},
        "keda": {"namespace": ""},
        "networkPolicy": {"monitoringNamespace": "A"},
        "service": {"annotations": {"example/idle": 60}},
        "podAnnotations": {"a b": "c"},
        "nodeSelector": {"disk": True},
        "tolerations": [{"operator": "Is"}],
        "affinity": {"node": {}},
        "priorityClassName": "High",
        "resources": {"requests": {"cpu": "half"}, "cpu": 1},
        "envoy": {"rules": "x"},
    }
    places = (
        "replicas", "redis/url", "arguments/0", "arguments/1", "drain", "namespace", "image/repository", "image/tag",
        "image/pullSecrets/0", "secret/name", "tls/secret", "keda/namespace", "networkPolicy/monitoringNamespace",
        "service/annotations/example~1idle", "nodeSelector/disk", "tolerations/0/operator", "priorityClassName",
        "resources/requests/cpu",
    )  # fmt: skip
    names = ("replica", "PATH", "HEADGATE_USER", *TAKEN, "a b", "node", "cpu", "rules")
    others = {
        "redis": {"url": "http://redis:6379"},
        "tolerations": {"key": "a"},
        "secret": {"create": True, "redisPassword": "x"},
    }
    for values, refused in (
        (wrong, (*(f"at '/{place}':" for place in places), *(f" '{name}'" for name in names))),
        (others, ("at '/redis/url':", "at '/tolerations':", "at '/secret/adminToken':")),
    ):
        done = helm("template", "headgate", values=values)
        assert done.returncode != 0
        assert [place for place in refused if place not in done.stderr] == []


def test_the_chart_is_of_this_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["version"] == chart["appVersion"] == headgate.__version__


def test_values_are_those_of_the_schema() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    schema = yaml.safe_load((CHART / "values.schema.json").read_text(encoding="utf-8"))["properties"]
    assert set(schema) == {*values, "global"}
    used = "".join(path.read_text(encoding="utf-8") for path in sorted(Path(CHART / "templates").iterdir()))
    shown = {name for name in re.findall(r"\bHEADGATE_[A-Z_]+", used) if name != "HEADGATE_"}
    named, of_sites = schema["settings"]["propertyNames"]["anyOf"]
    rest = {name for name in node_environment() if name not in shown and not re.match(of_sites["pattern"], name)}
    assert set(named["enum"]) == rest
    own = re.findall(r"[a-z-]+", schema["arguments"]["items"]["not"]["pattern"].strip("^-"))
    of_settings = {option.opts[0][2:] for option in node_options() if str(option.envvar) in shown}
    assert {word for word in own if word != "-"} >= of_settings, "what the chart sets, no argument may say otherwise"
    assert {name for name in values if f".Values.{name}" not in used} == set()
