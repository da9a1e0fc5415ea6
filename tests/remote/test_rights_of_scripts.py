"""Every script by every kind of user through the gateway, and every pattern that is not the whole namespace."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from headgate import AccessDenied, InvalidValue
from headgate.amqp.remote import NodeBackend
from headgate.core.policy import Policy, Rule
from headgate.redis.keys import Address, PoolAddress, index_keys, notes_key, policy_key, session_prefix
from headgate.redis.scripts import Script, script, script_names
from headgate.redis.stores.notes import KEEP_MS, Tie
from headgate_coordinator.node.gateway.required_grants import INDEX_SCRIPTS, POOL_SCRIPTS
from headgate_coordinator.node.node import Node
from tests.remote.grants import B, C, M, P
from tests.remote.people import node_with, sdk_as
from tests.support.arguments import goods

pytestmark = pytest.mark.one_server

KINDS = {
    "nothing": {},
    "produces": {"orders": {P}},
    "consumes": {"orders": {C}},
    "browses": {"orders": {B}},
    "manages": {"orders": {M}},
    "all": {"orders": {P, C, B, M}},
    "boss": {"#": {P, C, B, M}},
}
ANYBODY = {"produces", "consumes", "browses", "manages", "all", "boss"}
SENDERS, TAKERS, MANAGERS = {"produces", "all", "boss"}, {"consumes", "all", "boss"}, {"manages", "all", "boss"}
NEVER: set[str] = set()
LINKS = ("link_commit", "link_open", "link_read")
ADMITTED: dict[str, set[str]] = {
    "acquire": SENDERS | TAKERS,
    "admit": SENDERS,
    "apply": SENDERS | TAKERS | MANAGERS,
    "attach": TAKERS,
    "detach": TAKERS,
    "discard": MANAGERS,
    "drop": SENDERS,
    "hold_off": SENDERS,
    "join": SENDERS | MANAGERS,
    "judge": TAKERS,
    "pace": TAKERS,
    "parted": SENDERS | MANAGERS,
    "pause": SENDERS,
    "pin": SENDERS | MANAGERS,
    "place": SENDERS,
    "spread": SENDERS,
    "levels": ANYBODY,
    "note": {"all", "boss"},  # of a wait between what it receives from and what it sends to
    "policy": {"boss"},
    "pool": SENDERS,
    "pool_forget": MANAGERS,
    "pool_set": {"boss"},
    "publish": SENDERS,
    "rate_lend": SENDERS,
    "rate_take": SENDERS,
    "reap": ANYBODY,
    "recount": MANAGERS,
    "remove": MANAGERS,
    "secure": SENDERS | TAKERS,
    "settle": TAKERS,
    "slice": ANYBODY,
    "snapshot": ANYBODY,
    "take": SENDERS,
    "topic": SENDERS | TAKERS | MANAGERS,
    "wildcard": TAKERS,
} | dict.fromkeys(
    [
        "free",
        "hold",
        "lease",
        *LINKS,
        "made",
        "move",
        "node",
        "pool_share",
        "pool_site",
        "resolve",
        "spent",
        "unspool",
        "users",
    ],
    NEVER,
)
"""What docs/security.md says, script by script: who may call it for `orders`."""


@pytest.fixture
async def node(redis_url: str, cleanup_namespace: str) -> AsyncIterator[Node]:
    people = {name.replace(" ", "-"): grants for name, grants in KINDS.items()}
    async with node_with(redis_url, cleanup_namespace, people) as node:
        await node.client.apply("orders", kind="queue")
        await node.client.apply("other", kind="queue")
        yield node


def words_of(op: Script, user: str, name: str) -> dict[str, Any]:
    """Arguments as an honest client of that user would make them."""
    session = f"{session_prefix(user)}s~00000000"
    said: dict[str, Any] = {argument: goods(of)[0] for argument, of in op.declared.fixed} | {
        "run_id": None, "session": session, "consumer": f"{session}.1", "number": 1, "ttl_ms": 1000,
        "subscription": "s", "window": "1/1", "after": "0", "leave": "stay", "beyond": "refuse", "segment": "-",
        "keys": "", "reserved": "no", "debt": "keep", "repair": "look", "what": "messages", "expected": 0,
        "member": name,
        "pool": "memory", "name": name, "holder": f"{session}~0000", "document": "{}", "source": "", "inc": 1,
        "present": 1,
    }  # fmt: skip
    if op.name == "snapshot":
        said["session"] = session
    if op.name == "wildcard":
        said |= {"mode": "keep", "name": f"{name} s"}
    if op.name == "note":
        said["keep_ms"] = KEEP_MS["waits"]
    if op.name == "policy":
        said["version"] = 1
    return said


def rest_of(op: Script, user: str, name: str) -> list[Any]:
    if op.name == "publish":
        return [b"\x91x"]
    if op.name == "take":
        return [1, 0]
    if op.name == "note":
        tie = Tie(name, f"{session_prefix(user)}s~00000000.1", name, "1.0")
        return [tie.name, tie.text]
    return []


def key_of(op: Script, namespace: str, name: str) -> bytes:
    if op.name in POOL_SCRIPTS:
        return PoolAddress.of(namespace, "memory").keys[0]
    if op.name in INDEX_SCRIPTS:
        return index_keys(namespace)[0]
    if op.name == "policy":
        return policy_key(namespace).encode()
    if op.name == "note":
        return notes_key(namespace, "waits")
    return Address.of(namespace, name).shared[0]


async def is_admitted(server: NodeBackend, op: Script, namespace: str, user: str, name: str) -> bool:
    said = words_of(op, user, name)
    fixed = op.arguments[:-1] if op.variadic else op.arguments
    argv = [said[argument] for argument in fixed] + rest_of(op, user, name)
    try:
        await server._ask("call", op.name, key_of(op, namespace, name), argv)
    except AccessDenied:
        return False
    except InvalidValue as error:
        pytest.fail(f"{op.name} by {user} was not asked for at all: {error}")
    return True


def test_the_table_has_every_script() -> None:
    assert set(ADMITTED) == set(script_names())


@pytest.mark.parametrize("user", KINDS)
async def test_each_kind_of_user_may_call_what_the_table_says_and_nothing_else(node: Node, user: str) -> None:
    async with sdk_as(node, user) as sdk:
        server = sdk.store.server
        assert isinstance(server, NodeBackend)
        here, elsewhere = set(), set()
        for op in map(script, script_names()):
            if op.name in ("policy", "pool_set") and user == "boss":
                continue  # they are done in the next test
            if await is_admitted(server, op, node.client.namespace, user, "other"):
                elsewhere.add(op.name)
            if await is_admitted(server, op, node.client.namespace, user, "orders"):
                here.add(op.name)
        skipped = {"policy", "pool_set"} if user == "boss" else set()
        assert here == {name for name, admitted in ADMITTED.items() if user in admitted} - skipped
        assert elsewhere == (here if user == "boss" else set())


NARROW = [
    "*", "*.*", "*.#", "*.>", ">", "*.namespace", "$headgate.*", "$headgate.namespace", "$headgate.#", "$headgate.>",
    "orders.#", "orders", "*.*.#", "*.*.>",
]  # fmt: skip


@pytest.mark.parametrize("pattern", [*NARROW, "#"])
async def test_only_manage_of_all_that_there_is_manages_the_namespace(
    redis_url: str, cleanup_namespace: str, pattern: str
) -> None:
    """Mutant: what manages the name of something manages the namespace."""
    people = {"eve": {pattern: {P, C, B, M}}, "ann": {"orders": {C}}}
    async with node_with(redis_url, cleanup_namespace, people) as node, sdk_as(node, "eve") as eve:
        await node.client.apply("orders", kind="queue")
        address, one = Address.of(node.client.namespace, "orders"), Rule("#", None, {"limit_bytes": "7"}, {})
        done = []
        for what, work in {
            "a policy": eve.apply_policy(Policy(0, [one], [], "test")),
            "a pool": eve.set_pool("memory", limit=10),
            "the end of a pool": eve.remove_pool("memory"),
            "stores": eve.stores(),
            "a store": eve.set_store("disk", "file:///spool", limit=10),
            "deadlocks": eve.deadlocks(),
            "the memory of Redis": eve.store.server.everywhere("INFO", "memory"),
            "somebody's session": eve.store.settle(address, "ann~c~00000000", "ann~c~00000000.1", ttl_ms=1000),
        }.items():
            try:
                await work
            except AccessDenied:
                continue
            done.append(what)
        assert bool(done) is (pattern == "#"), done
        assert len(done) in (0, 8)
