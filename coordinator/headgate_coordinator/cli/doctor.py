"""The command `headgate doctor` examines a Redis, its Sentinels or its cluster."""

import logging
import textwrap
from collections import Counter
from typing import Annotated

import typer

import headgate
from headgate.core.durability import Durability
from headgate.redis.keys import check_namespace
from headgate_coordinator.cli.options import Json, Namespace, Redis, print_json, run
from headgate_coordinator.doctor.checks import check
from headgate_coordinator.doctor.collect import collect
from headgate_coordinator.doctor.deployment import Deployment
from headgate_coordinator.doctor.findings import STATUSES, Finding, worst
from headgate_coordinator.doctor.namespace import check_namespace_facts, look_at
from headgate_coordinator.doctor.redis_permissions import RolePermissions
from headgate_coordinator.security.acl import ROLES, Role

WIDTH = 110


def doctor(
    durability: Annotated[
        str,
        typer.Option(
            metavar="LEVEL",
            help="Durability to check for: memory, fsync or replicas:N; by default what the policy in force asks for.",
        ),
    ] = "",
    role: Annotated[str, typer.Option(metavar="ROLE", help=f"Role to check: {', '.join(ROLES)}.")] = "",
    user: Annotated[
        str, typer.Option(metavar="NAME", help="Redis user whose permissions are checked; by default the URL's user.")
    ] = "",
    redis: Redis = None,
    namespace: Namespace = "default",
    as_json: Json = False,
) -> None:
    """Examine a Redis, its Sentinels or its cluster: what is wrong for Headgate, why it matters, and what to do.

    No data and no setting is changed. Exits with 0 when all is well, 1 with warnings, 2 with problems.
    """
    if not redis:
        raise headgate.InvalidValue("which Redis? give --redis URL or set HEADGATE_URL; `headgate up` starts one")
    given = Durability.parse(durability, "--durability") if durability else None
    rights = RolePermissions(check_namespace(namespace), _roles(role), user)
    deployment = run(collect(redis, namespace, rights))
    wanted = deployment.asked if given is None else given
    findings = check(deployment, wanted)
    if deployment.masters:
        logging.getLogger("headgate").setLevel(logging.ERROR)  # a finding says it
        facts = run(look_at(headgate.connect(redis, namespace=namespace)))
        findings += check_namespace_facts(facts, deployment)
    status = worst(findings)
    if as_json:
        print_json({
            "url": deployment.url, "kind": deployment.kind, "durability": wanted.text, "status": status,
            "checks": [one.as_dict() for one in findings],
        })  # fmt: skip
    else:
        typer.echo(rendered(deployment, findings))
    raise typer.Exit(STATUSES.index(status))


def _roles(role: str) -> tuple[Role, ...]:
    chosen = tuple(one for one in ROLES if role in ("", one))
    if not chosen:
        raise headgate.InvalidValue(f"--role {role[:40]!r}: use one of {', '.join(ROLES)}")
    return chosen


def rendered(deployment: Deployment, findings: list[Finding]) -> str:
    """Return the findings as people read them, in the order of the checks; a summary ends them."""
    lines = [f"{deployment.url} ({deployment.kind})"]
    servers = {*(one.place for one in deployment.servers), *(one.place for one in deployment.sentinels)}
    everywhere = [{server.place for server in deployment.reached}, {one.place for one in deployment.sentinels}]
    for one in findings:
        is_clear = (len(servers) == 1 and servers.issuperset(one.places)) or set(one.places) in everywhere
        where = "" if is_clear or not one.places else f" [{', '.join(one.places)}]"
        lines += _hanging(f"{one.status:<8} {one.check:<12} ", one.found + where)
        lines += _hanging(" " * 22 + "why: ", one.why) if one.why else []
        lines += _hanging(" " * 22 + "do:  ", one.advice) if one.advice else []
    count = Counter(one.status for one in findings)
    lines.append(", ".join(f"{count[status]} {_plural(status, count[status])}" for status in reversed(STATUSES)))
    return "\n".join(lines)


def _plural(status: str, count: int) -> str:
    return status if status == "ok" or count == 1 else f"{status}s"


def _hanging(first: str, text: str) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=first, subsequent_indent=" " * len(first), break_on_hyphens=False,
        break_long_words=False,
    )  # fmt: skip
