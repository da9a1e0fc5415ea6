"""The manifests: what selects, finds; what is named, exists; what is probed, answers."""

from typing import Any

import pytest
from starlette.routing import Route

import headgate
from headgate.redis.url import parse_url
from headgate_coordinator.admin import create_app
from tests.deploy.files import DEPLOY, assert_runs, document, documents, node_environment, ports, read, walk

FILES = sorted(path.name for path in (DEPLOY / "kubernetes").glob("*.yaml") if path.name != "kustomization.yaml")
API = {
    "Namespace": "v1",
    "ConfigMap": "v1",
    "Service": "v1",
    "Deployment": "apps/v1",
    "PodDisruptionBudget": "policy/v1",
    "NetworkPolicy": "networking.k8s.io/v1",
    "HorizontalPodAutoscaler": "autoscaling/v2",
    "ServiceMonitor": "monitoring.coreos.com/v1",
}


def objects() -> list[Any]:
    return [found for name in FILES for found in documents(f"kubernetes/{name}")]


def one(kind: str, name: str = "") -> Any:
    (found,) = (told for told in objects() if told["kind"] == kind and name in ("", told["metadata"]["name"]))
    return found


@pytest.fixture(scope="module")
def deployment() -> Any:
    return one("Deployment")


@pytest.fixture(scope="module")
def pod(deployment: Any) -> Any:
    return deployment["spec"]["template"]


@pytest.fixture(scope="module")
def node(pod: Any) -> Any:
    (found,) = pod["spec"]["containers"]
    return found


@pytest.mark.parametrize("told", objects(), ids=lambda told: f"{told['kind']} {told['metadata']['name']}")
def test_an_object_says_what_it_is(told: Any) -> None:
    assert told["apiVersion"] == API[told["kind"]]
    assert told["metadata"]["labels"]["app.kubernetes.io/part-of"] == "headgate"
    if told["kind"] != "Namespace":
        assert told["metadata"]["namespace"] == one("Namespace")["metadata"]["name"]


def test_there_is_no_secret_among_them() -> None:
    assert set(API) == {told["kind"] for told in objects()}


def test_kustomize_takes_every_file_or_says_that_it_is_optional() -> None:
    listed = document("kubernetes/kustomization.yaml")
    assert set(listed["resources"]) < set(FILES)
    for name in set(FILES) - set(listed["resources"]):
        assert f"# - {name}" in read("kubernetes/kustomization.yaml")
        assert read(f"kubernetes/{name}").startswith("# Optional")


def test_what_selects_pods_selects_the_nodes(pod: Any) -> None:
    labels = pod["metadata"]["labels"]
    selectors = [
        one("Deployment")["spec"]["selector"]["matchLabels"],
        one("PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        one("NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
        *(told["spec"]["selector"] for told in objects() if told["kind"] == "Service"),
        *(told["labelSelector"]["matchLabels"] for told in pod["spec"]["topologySpreadConstraints"]),
    ]
    assert len(selectors) == 7
    for selector in selectors:
        assert selector
        assert selector.items() <= labels.items()


def test_prometheus_finds_each_node_once() -> None:
    wanted = one("ServiceMonitor")["spec"]["selector"]["matchLabels"]
    services = [told for told in objects() if told["kind"] == "Service"]
    found = [told for told in services if wanted.items() <= told["metadata"]["labels"].items()]
    assert [told["metadata"]["name"] for told in found] == ["headgate-nodes"]
    (endpoint,) = one("ServiceMonitor")["spec"]["endpoints"]
    assert endpoint["port"] in {port["name"] for port in found[0]["spec"]["ports"]}
    assert found[0]["metadata"]["labels"][one("ServiceMonitor")["spec"]["jobLabel"]] == "headgate"


def test_ports_are_those_of_the_settings(node: Any) -> None:
    settings = one("ConfigMap")["data"]
    named = {port["name"]: port["containerPort"] for port in node["ports"]}
    assert named == {"amqps": int(settings["HEADGATE_PORT"]), "admin": ports()[1]}
    assert int(settings["HEADGATE_ADMIN_PORT"]) == ports()[1]
    for told in objects():
        if told["kind"] == "Service":
            for port in told["spec"]["ports"]:
                assert named[port["targetPort"]] == port["port"]
    rules = one("NetworkPolicy")["spec"]["ingress"]
    assert {port["port"] for rule in rules for port in rule["ports"]} == set(named)


def test_the_network_lets_nodes_reach_their_redis() -> None:
    url = parse_url(one("ConfigMap")["data"]["HEADGATE_URL"].partition("?")[0])
    assert url.password is None
    open_ports = {port["port"] for rule in one("NetworkPolicy")["spec"]["egress"] for port in rule["ports"]}
    assert {port for _, port in url.hosts} <= open_ports
    assert 53 in open_ports


async def test_probes_ask_for_what_the_admin_application_has(node: Any, redis_url: str, namespace: str) -> None:
    async with headgate.connect(redis_url, namespace=namespace) as client:
        routes = {route.path for route in create_app(client, None, token=None).routes if isinstance(route, Route)}
    probes = {kind: node[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")}
    assert {probe["path"] for probe in probes.values()} <= routes
    assert {probe["port"] for probe in probes.values()} == {"admin"}
    assert probes["liveness"]["path"] == "/live"
    assert probes["readiness"]["path"] == "/ready"
    assert one("ServiceMonitor")["spec"]["endpoints"][0]["path"] in routes


def test_a_node_has_longer_to_end_than_it_takes_to_drain(node: Any, pod: Any) -> None:
    drain = assert_runs(node["args"])["drain"]
    wait = int(node["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod["spec"]["terminationGracePeriodSeconds"] >= wait + drain + 10


def test_settings_are_those_that_the_command_reads(node: Any, pod: Any) -> None:
    own = {told["name"]: told for told in node["env"]}
    used = {*one("ConfigMap")["data"], *own} - {"POD_IP"}
    assert used <= set(node_environment())
    assert all(isinstance(value, str) for value in one("ConfigMap")["data"].values())
    assert own["HEADGATE_PUBLIC"]["value"].endswith(f":{one('ConfigMap')['data']['HEADGATE_PORT']}")
    assert node["envFrom"] == [{"configMapRef": {"name": one("ConfigMap")["metadata"]["name"]}}]
    # Kubernetes' own variable for the Service `headgate` has the name of one of ours.
    assert "HEADGATE_PORT" in node_environment()
    assert pod["spec"]["enableServiceLinks"] is False


def test_files_that_settings_name_are_mounted(node: Any, pod: Any) -> None:
    settings = one("ConfigMap")["data"]
    files = {settings["HEADGATE_TLS_CERT"], settings["HEADGATE_TLS_KEY"]}
    files.add(settings["HEADGATE_URL"].partition("password_file=")[2])
    places = {mount["mountPath"]: mount["name"] for mount in node["volumeMounts"]}
    for file in files:
        folder, _, name = file.rpartition("/")
        (volume,) = (told for told in pod["spec"]["volumes"] if told["name"] == places[folder])
        items = volume["secret"].get("items")
        assert name in ({item["path"] for item in items} if items else {"tls.crt", "tls.key"})


def test_a_node_has_the_least_rights(node: Any, pod: Any) -> None:
    assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
    assert f"USER {pod['spec']['securityContext']['runAsUser']}:" in read("Dockerfile")
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert node["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"cpu", "memory"} <= set(node["resources"]["requests"])
    assert "memory" in node["resources"]["limits"]


def test_a_rollout_never_has_fewer_nodes(deployment: Any) -> None:
    assert deployment["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert one("PodDisruptionBudget")["spec"]["maxUnavailable"] < deployment["spec"]["replicas"]
    scale = one("HorizontalPodAutoscaler")["spec"]
    assert scale["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    assert scale["minReplicas"] >= deployment["spec"]["replicas"]


def test_tokens_and_passwords_are_references(node: Any) -> None:
    for mapping in walk(objects()):
        if mapping.get("name") == "HEADGATE_ADMIN_TOKEN":
            assert mapping["valueFrom"]["secretKeyRef"]["key"] == "admin_token"
            assert "value" not in mapping
    assert "TOKEN" not in " ".join(one("ConfigMap")["data"])
