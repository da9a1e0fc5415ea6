"""The OpenAPI document: every route is in it, and what is answered is what it says."""

import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from pydantic import BaseModel, ValidationError
from starlette.routing import Route

import headgate
from headgate.policy import loads
from headgate_coordinator.admin import create_app
from headgate_coordinator.admin.api import Api
from headgate_coordinator.admin.app import PAGE
from headgate_coordinator.admin.namespace_watch import NamespaceWatch
from headgate_coordinator.admin.operations import PREFIX
from headgate_coordinator.admin.processes import Processes
from headgate_coordinator.fleet.registry import NodeRegistry
from headgate_coordinator.fleet.waits import WaitTimes
from tests.admin.standin import StandIn, link

Http = httpx.AsyncClient


@pytest.fixture
async def api(client: headgate.Client, node: StandIn) -> AsyncIterator[Api]:
    watch = NamespaceWatch(client)
    processes = Processes(client, node, WaitTimes(10), None)
    api = Api(client, node, processes, watch)
    yield api
    await api.close()
    await watch.close()


@pytest.fixture
async def described(http: Http) -> Any:
    return (await http.get("/api/v1/openapi.json")).json()


async def test_every_route_is_in_it_and_nothing_else(client: headgate.Client, described: Any) -> None:
    served = {
        (route.path, method.lower())
        for route in create_app(client, None, token=None).routes
        if isinstance(route, Route) and route.path not in PAGE
        for method in (route.methods or set()) - {"HEAD"}
    }
    told = {(path, method) for path, methods in described["paths"].items() for method in methods}
    assert told == served


async def test_it_is_whole(described: Any) -> None:
    assert described["openapi"] == "3.1.0"
    assert described["info"]["version"] == headgate.__version__
    text = str(described)
    for kind, name in set(re.findall(r"'#/components/(\w+)/([\w-]+)'", text)):
        assert name in described["components"][kind], name
    ids = [one["operationId"] for methods in described["paths"].values() for one in methods.values()]
    assert len(ids) == len(set(ids))
    for methods in described["paths"].values():
        for one in methods.values():
            assert one["summary"]
            assert all(parameter["description"] for parameter in one.get("parameters", ()))
            told = [answer["description"] for answer in one["responses"].values() if "$ref" not in answer]
            assert told
            assert all(text.endswith(".") and text != one["summary"] for text in told), told


async def test_it_says_whether_a_token_is_needed(client: headgate.Client, open_http: Any) -> None:
    bare = (await (await open_http(client)).get("/api/v1/openapi.json")).json()
    assert "security" not in bare
    http = await open_http(client, token="t0ken", open_metrics=True)
    told = (await http.get("/api/v1/openapi.json", headers={"Authorization": "Bearer t0ken"})).json()
    assert told["security"] == [{"token": []}]
    assert told["paths"]["/metrics"]["get"]["security"] == []
    assert told["paths"]["/ready"]["get"]["security"] == []


async def test_each_answer_is_as_declared(http: Http, client: headgate.Client, node: StandIn, api: Api) -> None:
    node.links = (link(1), link(2, waiting_seconds=2.0, reason="full"))
    registry = NodeRegistry(client)
    await registry.beat(node.facts(), 1.0)
    await client.apply("orders", limit=10_000)
    await client.apply("sms", kind="bucket", rate="5/s")
    await client.apply_policy(loads('[[bridge]]\nname = "orders"\nfrom = "orders"\nto = "billing"\n'))
    bodies: dict[str, Any] = {
        f"{PREFIX}/destinations/orders/block": {"json": {"reason": "x"}},
        f"{PREFIX}/policy": {"content": b"destination = []\n", "headers": {"Content-Type": "application/toml"}},
    }
    for operation in api.operations:
        path = (PREFIX + operation.path).replace("{name}", "orders")
        answer = await http.request(operation.method, path, **bodies.get(path, {}) if operation.body else {})
        assert answer.status_code == 200, (path, answer.text)
        assert _fits(answer.json(), operation.answers), (path, answer.text)
    dry = await http.put(f"{PREFIX}/policy", params={"dry_run": "true"}, **bodies[f"{PREFIX}/policy"])
    assert _fits(dry.json(), (next(one for one in api.operations if one.body == "policy").answers[1],))
    await registry.leave(node.id)


def _fits(told: Any, answers: tuple[type[BaseModel], ...]) -> bool:
    for model in answers:
        try:
            model.model_validate(told)
        except ValidationError:
            continue
        return True
    return False
