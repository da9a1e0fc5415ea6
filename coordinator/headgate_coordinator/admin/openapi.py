"""The OpenAPI 3.1 document is made from the declarations of the operations."""

import re
from collections.abc import Iterable
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from headgate import __version__
from headgate_coordinator.admin.operations import PREFIX, Operation
from headgate_coordinator.admin.problems import MEDIA_TYPE, ProblemDocument
from headgate_coordinator.admin.processes import Live, Ready

_REFERENCES: Final = "#/components/schemas/{model}"
POLICY_TYPES: Final = ("application/toml", "application/json")
_FAILURES: Final = {
    "400": "a name, a parameter or a body that cannot be used",
    "401": "the token is missing or wrong",
    "403": "a page of another site asked for a change, or the caller is not allowed to make it",
    "404": "there is no such destination, or no such link",
    "409": "it contradicts what is in force, the same request is already being answered, or a message is not available",
    "410": "the hold is over",
    "413": "the body is too large",
    "415": "the body is of a type that is not accepted",
    "422": "a policy document with errors, all of them in `problems`; or more than is ever admitted",
    "429": "not admitted now, or not in time; with `Retry-After` where that is known",
    "502": "Redis refuses",
    "503": "Redis does not answer",
}


def document(
    operations: Iterable[Operation], *, token: bool, open_metrics: bool, rate_limits: bool = False
) -> dict[str, Any]:
    """Return the document.

    Args:
        operations: of the API.
        token: whether requests must bear one.
        open_metrics: whether ``/metrics`` needs none all the same.
        rate_limits: whether ``/json`` answers what proxies ask.
    """
    operations = tuple(operations)
    models: set[type[BaseModel]] = {ProblemDocument, Live, Ready}
    for operation in operations:
        models.update(operation.answers)
        if isinstance(operation.body, type):
            models.add(operation.body)
    modes = [(model, "serialization") for model in sorted(models, key=lambda model: model.__name__)]
    _, schemas = models_json_schema(modes, ref_template=_REFERENCES)  # type: ignore[arg-type]  # a literal, in a list
    paths: dict[str, dict[str, Any]] = {
        "/live": {"get": _probe("Say that the process answers", {"200": Live})},
        "/ready": {"get": _probe("Say whether messages can be admitted", {"200": Ready, "503": Ready})},
        "/metrics": {
            "get": _plain("Return metrics for Prometheus", "text/plain", "Metrics of this node and of its namespace.")
            | ({"security": []} if open_metrics else {})
        },
        f"{PREFIX}/openapi.json": {"get": _plain("Return this document", "application/json", "An OpenAPI document.")},
    }
    if rate_limits:
        paths["/json"] = {"post": _rate_limits()}
    for operation in operations:
        paths.setdefault(operation.prefix + operation.path, {})[operation.method.lower()] = _operation(operation)
    entry: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "Headgate admin", "version": __version__, "license": {"name": "Apache-2.0"}},
        "paths": paths,
        "components": {
            "schemas": schemas.get("$defs", {}),
            "responses": {
                status: {"description": why, "content": {MEDIA_TYPE: {"schema": _ref("ProblemDocument")}}}
                for status, why in _FAILURES.items()
            },
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "user": {"type": "http", "scheme": "basic"},
            },
        },
    }
    return entry | ({"security": [{"token": []}]} if token else {})


def _ref(name: str) -> dict[str, str]:
    return {"$ref": _REFERENCES.format(model=name)}


def _probe(summary: str, answers: dict[str, type[BaseModel]]) -> dict[str, Any]:
    return {
        "summary": summary,
        "operationId": _name("GET", summary),
        "security": [],
        "responses": {
            status: {"description": _first(model), "content": {"application/json": {"schema": _ref(model.__name__)}}}
            for status, model in answers.items()
        },
    }


def _first(model: type[BaseModel]) -> str:
    """Return what an answer is: the first line of its model's docstring."""
    return (model.__doc__ or "").strip().partition("\n")[0]


def _plain(summary: str, media_type: str, answer: str) -> dict[str, Any]:
    response = {"description": answer, "content": {media_type: {}}}
    return {"summary": summary, "operationId": _name("GET", summary), "responses": {"200": response}}


def _rate_limits() -> dict[str, Any]:
    """Describe requests of Envoy's protocol, whose messages its own documents describe."""
    summary, content = "Ask as a proxy does", {"application/json": {"schema": {"type": "object"}}}
    answers = {"200": "A RateLimitResponse: admitted", "429": "A RateLimitResponse: refused"}
    return {
        "summary": summary,
        "operationId": _name("POST", summary),
        "requestBody": {"required": True, "content": content, "description": "A RateLimitRequest in JSON."},
        "responses": {status: {"description": why, "content": content} for status, why in answers.items()}
        | {status: {"$ref": f"#/components/responses/{status}"} for status in ("400", "401", "503")},
    }


def _operation(operation: Operation) -> dict[str, Any]:
    answers = [_ref(model.__name__) for model in operation.answers]
    schema = answers[0] if len(answers) == 1 else {"oneOf": answers}
    described = " Or: ".join(_first(model) for model in operation.answers)
    failures = dict.fromkeys(_FAILURES)
    if "{name}" not in operation.prefix + operation.path:
        del failures["404"]
    if operation.body is None:
        del failures["413"], failures["415"]
    if operation.body != "policy" and operation.right is None:
        del failures["422"]
    if operation.prefix == PREFIX:
        del failures["410"]
    if not operation.waits:
        del failures["429"]
    entry: dict[str, Any] = {
        "summary": operation.summary,
        "operationId": _name(operation.method, operation.prefix.removeprefix(PREFIX) + operation.path),
        "parameters": list(_parameters(operation)),
        "responses": {
            "200": {"description": described, "content": {"application/json": {"schema": schema}}},
            **{status: {"$ref": f"#/components/responses/{status}"} for status in failures},
        },
    }
    if operation.right is not None:
        entry["security"] = [{"user": []}, {"token": []}]
    if operation.body == "policy":
        entry["requestBody"] = {"required": True, "content": {kind: {} for kind in POLICY_TYPES}}
    elif operation.body is not None:
        entry["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": _ref(operation.body.__name__)}},
        }
    return entry


def _parameters(operation: Operation) -> Iterable[dict[str, Any]]:
    if "{name}" in operation.prefix + operation.path:
        what = "a link: its bridge's or route's name, the name that it is known by, or its id"
        what = what if operation.path.startswith("/links") else "a destination"
        what = what if operation.prefix == PREFIX else "a limiter"
        yield {
            "name": "name",
            "in": "path",
            "required": True,
            "description": f"{what}, percent-encoded; a slash of its name is %2F",
            "schema": {"type": "string"},
        }
    for name, schema in operation.query.model_json_schema().get("properties", {}).items():
        description = schema.pop("description", "")
        schema.pop("title", None)
        yield {"name": name, "in": "query", "required": False, "description": description, "schema": schema}
    if operation.waits:
        what = "of a user's own choice: asking for the same again with it returns the earlier hold, while that is held"
        yield {
            "name": "Idempotency-Key",
            "in": "header",
            "required": False,
            "description": what,
            "schema": {"type": "string", "maxLength": 255},
        }


def _name(method: str, text: str) -> str:
    words = re.findall(r"[a-z]+", text.lower())
    return method.lower() + "".join(word.capitalize() for word in words)
