"""The command `headgate node` serves AMQP 1.0 clients, as its options say."""

import functools
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import headgate
from headgate_coordinator.cli.options import (
    CLAIM,
    Json,
    Namespace,
    Redis,
    SiteHosts,
    SiteSecrets,
    StoreRoots,
    TokenAudience,
    TokenClaim,
    TokenIssuer,
    TokenKeys,
    connect,
    run,
    time_option,
    tokens_of,
)
from headgate_coordinator.logs import begin_logging

if TYPE_CHECKING:  # they take long to import, and most commands need none
    from headgate_coordinator.security import Users
    from headgate_coordinator.security.tokens import TokenVerifier

CREDIT = 100
LOW_CREDIT = 30
MOST_WORKERS = 64
READ_TOKEN = "HEADGATE_ADMIN_READ_TOKEN"  # noqa: S105 -- likewise
TOKEN = "HEADGATE_ADMIN_TOKEN"  # noqa: S105 -- the variable's name; a token among the options would be seen by all users


def node(
    host: Annotated[
        str, typer.Option(envvar="HEADGATE_HOST", help="Address to listen at; 0.0.0.0 is all of them.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(envvar="HEADGATE_PORT", min=0, max=65535, help="Port for AMQP; 0 picks a free one.")
    ] = 5672,
    name: Annotated[str, typer.Option(envvar="HEADGATE_NODE", help="Name of the node, as operators see it.")] = "",
    public: Annotated[
        str,
        typer.Option(envvar="HEADGATE_PUBLIC", metavar="HOST:PORT", help="Address at which clients reach the node."),
    ] = "",
    certificate: Annotated[
        Path | None,
        typer.Option(
            "--tls-cert",
            envvar="HEADGATE_TLS_CERT",
            exists=True,
            dir_okay=False,
            help="File with the chain of certificates.",
        ),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(
            "--tls-key", envvar="HEADGATE_TLS_KEY", exists=True, dir_okay=False, help="File with its private key."
        ),
    ] = None,
    client_ca: Annotated[
        Path | None,
        typer.Option(
            envvar="HEADGATE_CLIENT_CA",
            exists=True,
            dir_okay=False,
            metavar="FILE",
            help="Authorities whose certificates sign in the user of their common name (EXTERNAL).",
        ),
    ] = None,
    plain_without_tls: Annotated[
        bool, typer.Option("--plain-without-tls", help="Accept passwords and tokens over connections without TLS.")
    ] = False,
    credit: Annotated[
        int, typer.Option(min=1, max=100_000, help="Most messages that a sending client may have under way.")
    ] = CREDIT,
    low_credit: Annotated[
        int, typer.Option(min=0, help="Credit left at which a sending client gets more.")
    ] = LOW_CREDIT,
    connections: Annotated[int, typer.Option(min=1, help="Most connections at a time.")] = 10_000,
    drain: Annotated[float, time_option("Time for work under way when the node is stopped.")] = 10.0,
    ttl: Annotated[
        float, time_option("Time after which others get what this node held, should it die.", least=1)
    ] = 5.0,
    handshake: Annotated[float, time_option("Time for a client to open its connection.", least=0.1)] = 10.0,
    idle: Annotated[float, time_option("Time after which a silent client is cut off.", least=0.5)] = 60.0,
    slow_reader: Annotated[
        float, time_option("Time after which a client that does not read is cut off.", least=0.1)
    ] = 60.0,
    sessions: Annotated[int, typer.Option(min=1, max=65_536, help="Most sessions of one connection.")] = 64,
    links: Annotated[int, typer.Option(min=1, help="Most links of one connection.")] = 1024,
    max_message: Annotated[
        int, typer.Option(min=1, max=128 << 20, metavar="BYTES", help="Size of the largest message, in bytes.")
    ] = 16 << 20,
    held: Annotated[
        int, typer.Option(min=1, metavar="BYTES", help="Most bytes that one connection may have waiting to be stored.")
    ] = 64 << 20,
    forwarding: Annotated[
        bool, typer.Option("--forwarding/--no-forwarding", help="Work on the policy's links.")
    ] = True,
    site_secrets: SiteSecrets = None,
    site_hosts: SiteHosts = None,
    store_roots: StoreRoots = None,
    admin_host: Annotated[
        str, typer.Option(envvar="HEADGATE_ADMIN_HOST", help="Address for admin HTTP.")
    ] = "127.0.0.1",
    admin_port: Annotated[
        int,
        typer.Option(envvar="HEADGATE_ADMIN_PORT", min=0, max=65535, help="Port for admin HTTP; 0 picks a free one."),
    ] = 8161,
    admin: Annotated[bool, typer.Option("--admin/--no-admin", help="Serve health, metrics and the live page.")] = True,
    envoy: Annotated[
        bool,
        typer.Option(
            "--envoy/--no-envoy",
            envvar="HEADGATE_ENVOY",
            help="Serve Envoy's rate limit protocol, by the policy's descriptors.",
        ),
    ] = False,
    keda: Annotated[
        bool, typer.Option("--keda/--no-keda", envvar="HEADGATE_KEDA", help="Serve KEDA as its external scaler.")
    ] = False,
    grpc_host: Annotated[
        str, typer.Option(envvar="HEADGATE_GRPC_HOST", help="Address for Envoy and KEDA.")
    ] = "127.0.0.1",
    grpc_port: Annotated[
        int,
        typer.Option(
            envvar="HEADGATE_GRPC_PORT", min=0, max=65535, help="Port for Envoy and KEDA; 0 picks a free one."
        ),
    ] = 8181,
    users: Annotated[
        Path | None,
        typer.Option(
            envvar="HEADGATE_USERS",
            metavar="FILE",
            help="File of the users that may connect; by default the users kept in Redis.",
        ),
    ] = None,
    require_users: Annotated[
        bool, typer.Option("--require-users", help="Refuse everyone while there are no users.")
    ] = False,
    token_keys: TokenKeys = None,
    token_issuer: TokenIssuer = "",
    token_audience: TokenAudience = "",
    token_claim: TokenClaim = CLAIM,
    workers: Annotated[
        int | None,
        typer.Option(
            envvar="HEADGATE_WORKERS",
            min=1,
            max=MOST_WORKERS,
            help="Number of processes that share the ports, under a supervisor; SIGHUP restarts them one by one.",
        ),
    ] = None,
    worker: Annotated[int | None, typer.Option(hidden=True)] = None,
    redis: Redis = None,
    namespace: Namespace = "default",
    as_json: Json = False,
) -> None:
    """Serve AMQP 1.0 clients, under the limits that all nodes and SDKs of the namespace share.

    It holds no state: run as many as you like. SIGTERM lets it finish what is under way, a second one ends it. One
    process is busy on one processor; with --workers there are several behind one address.
    The token of admin HTTP, and of what Envoy and KEDA ask, is read from HEADGATE_ADMIN_TOKEN; without one, both listen
    at loopback only. The bearer of HEADGATE_ADMIN_READ_TOKEN may read there, and change nothing.
    """
    if low_credit >= credit:
        raise headgate.InvalidValue(f"--low-credit {low_credit} is not below --credit {credit}")
    if key is not None and certificate is None:
        raise headgate.InvalidValue("--tls-key needs --tls-cert")
    if client_ca is not None and certificate is None:
        raise headgate.InvalidValue("--client-ca needs --tls-cert: certificates come over TLS")
    tokens = tokens_of(token_keys, token_issuer, token_audience, token_claim)
    begin_logging()
    asked = ["Envoy"] * envoy + ["KEDA"] * keda
    tell = functools.partial(_tell, asked=asked, namespace=namespace, as_json=as_json)
    if workers is not None and worker is None:
        from headgate_coordinator.workers.supervisor import ServedAddress, supervise

        wanted = ServedAddress(
            workers, name, (host, port), (admin_host, admin_port) if admin else None,
            (grpc_host, grpc_port) if asked else None, drain,
        )  # fmt: skip
        raise typer.Exit(supervise(wanted, tell, sys.argv[1:]))

    from headgate.amqp.limits import Limits
    from headgate_coordinator.node.node import Node  # the extra amqp is needed for this alone
    from headgate_coordinator.node.options import NodeOptions
    from headgate_coordinator.security.policy_reach import PolicyReach
    from headgate_coordinator.service.run import run as serve
    from headgate_coordinator.service.service import AdminOptions, RpcOptions
    from headgate_coordinator.workers.worker import Worker

    us = Worker.at(worker) if worker is not None else None
    if us is not None:
        post = us.post
        port, admin_port, grpc_port, name = post.amqp, post.admin or 0, post.grpc or 0, post.name
    shared = us is not None
    options = NodeOptions(
        host=host,
        port=port,
        shared=shared,
        name=name,
        public=public,
        certificate=certificate,
        key=key,
        client_authorities=client_ca,
        plain_without_tls=plain_without_tls,
        credit=credit,
        low_credit=low_credit,
        connections=connections,
        drain=drain,
        ttl=ttl,
        handshake=handshake,
        slow_reader=slow_reader,
        held=held,
        limits=Limits(sessions=sessions, links=links, message=max_message, idle=idle),
        forwarding=forwarding,
        reach=PolicyReach(site_secrets, tuple(site_hosts or ()), tuple(store_roots or ())),
    )
    token = os.environ.get(TOKEN)
    rpc = RpcOptions(envoy, keda, grpc_host, grpc_port, token, shared) if asked else None
    http = AdminOptions(admin_host, admin_port, token, shared, os.environ.get(READ_TOKEN)) if admin else None

    def listens(node: Node) -> None:
        scheme = "amqps" if certificate else "amqp"
        facts = {"name": node.name, "amqp": f"{scheme}://{node.address}", "admin": node.admin}
        (us.listens if us is not None else tell)(facts | ({"grpc": node.rpc} if node.rpc else {}))

    client = connect(redis, namespace)
    run(serve(client, options, _users_of(users, tokens, required=require_users), http, listens, rpc, us))


def _users_of(
    file: Path | None, tokens: "TokenVerifier | None", *, required: bool
) -> "Callable[[headgate.Client], Users]":
    from headgate_coordinator.security import Users

    def users_of(client: headgate.Client) -> Users:
        if file is not None:
            return Users.from_file(file, required=required, tokens=tokens)
        return Users.from_redis(client, required=required, tokens=tokens)

    return users_of


def _tell(facts: dict[str, Any], *, asked: list[str], namespace: str, as_json: bool) -> None:
    """Print where a node listens."""
    if as_json:
        typer.echo(json.dumps(facts))
        return
    by = f" with {facts['workers']} workers" if "workers" in facts else ""
    typer.echo(f"node {facts['name']} serves {facts['amqp']}, namespace {namespace}{by}")
    if facts["admin"]:
        typer.echo(f"its page is {facts['admin']}/")
    if "grpc" in facts:
        typer.echo(f"it answers {' and '.join(asked)} at {facts['grpc']}")
