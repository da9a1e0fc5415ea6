"""`headgate user ...` and `headgate acl`: what they print, and how they exit."""

import asyncio
import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import headgate
from headgate.errors import InvalidName, InvalidValue, PolicyError
from headgate_coordinator.cli.commands import command_line
from headgate_coordinator.security.acl import acl_line
from headgate_coordinator.security.file import read_users
from headgate_coordinator.security.passwords import fits
from headgate_coordinator.security.store import UserStore

Call = Callable[..., Result]


def invoke(*arguments: object, stdin: str = "") -> Result:
    return CliRunner().invoke(command_line(), [*map(str, arguments)], input=stdin)


@pytest.fixture(params=["redis", "file"])
def user(request: pytest.FixtureRequest, redis_url: str, cleanup_namespace: str, tmp_path: Path) -> Call:
    """Calls `headgate user`, on Redis and on a file."""
    where: tuple[object, ...] = ("--redis", redis_url, "--namespace", cleanup_namespace)
    if request.param == "file":
        where = ("--file", tmp_path / "users.toml")

    def call(command: str, *arguments: object, stdin: str = "") -> Result:
        if request.param == "file" and command != "add":
            return invoke("user", command, *where, *arguments, stdin=stdin)
        return invoke("user", command, *arguments, *where, stdin=stdin)

    return call


@pytest.mark.one_server
def test_a_user_from_the_first_grant_to_the_end(user: Call) -> None:
    done = user("add", "ann", "--grant", "produce,consume:orders.#", "--password-stdin", stdin="secret\n")
    assert (done.exit_code, done.stdout) == (0, "user ann may produce,consume:orders.#\n")
    assert user("grant", "ann", "browse:orders.#", "manage:emails").stdout == (
        "user ann may produce,consume,browse:orders.#, manage:emails\n"
    )
    assert user("revoke", "ann", "produce,browse:orders.#").stdout == "user ann may manage:emails, consume:orders.#\n"
    done = user("list", "--json")
    assert json.loads(done.stdout) == {
        "ann": {"grants": [{"actions": ["manage"], "match": "emails"}, {"actions": ["consume"], "match": "orders.#"}]}
    }
    assert "scrypt" not in user("list").stdout
    assert "manage:emails" in user("list").stdout
    done = user("check", "ann", "consume", "orders.eu")
    assert (done.exit_code, done.stdout) == (0, "ann may consume orders.eu: by the grant consume:orders.#\n")
    done = user("check", "ann", "produce", "orders.eu", "--json")
    assert done.exit_code == 1
    assert json.loads(done.stdout)["allowed"] is False
    assert (
        user("remove", "ann").stdout == "user ann is removed; no user is left: nodes that start now let everyone in\n"
    )
    assert user("check", "ann", "manage", "#").exit_code == 0


@pytest.mark.one_server
def test_what_cannot_be_done_changes_nothing(user: Call) -> None:
    user("add", "ann", "--grant", "produce:orders", "--password-stdin", stdin="secret\n")
    before = user("list", "--json").stdout
    for arguments, error, text in (
        (("add", "a b"), InvalidName, "use 1 to 80"),
        (("add", "bob", "--grant", "fly:orders", "--password-stdin"), InvalidValue, "the actions are produce"),
        (("add", "bob", "--grant", "produce", "--password-stdin"), InvalidValue, "actions and a pattern"),
        (("add", "bob", "--grant", "produce:a..b", "--password-stdin"), PolicyError, "empty word"),
        (("add", "bob", "--password-stdin"), InvalidValue, "empty"),
        (("add", "bob"), InvalidValue, "--password-stdin"),
        (("grant", "bob", "produce:a"), InvalidName, "no user 'bob'; there are ann"),
        (("remove", "bob"), InvalidName, "no user 'bob'"),
        (("revoke", "ann", "produce:a", "consume:orders"), InvalidValue, "no grant produce:a; they may produce:orders"),
    ):
        done = user(*arguments)
        assert isinstance(done.exception, error), arguments
        assert text in str(done.exception)
    assert user("list", "--json").stdout == before


@pytest.mark.one_server
def test_the_password_is_the_first_line_and_only_its_hash_is_kept(redis_url: str, cleanup_namespace: str) -> None:
    where = ("--redis", redis_url, "--namespace", cleanup_namespace)
    invoke("user", "add", "ann", "--password-stdin", *where, stdin=" two words \nmore\n")

    async def stored() -> str | None:
        async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
            return (await UserStore(client.store.server, cleanup_namespace).read()).users["ann"].password_hash

    told = asyncio.run(stored())
    assert told is not None
    assert fits(" two words ", told)


def test_anonymous_is_asked_for_no_password(tmp_path: Path) -> None:
    file = tmp_path / "users.toml"
    done = invoke("user", "add", "anonymous", "--grant", "consume:news.#", "--file", file)
    assert done.exit_code == 0
    assert read_users(file)["anonymous"].password_hash is None


class TestAcl:
    def test_one_role_is_one_line_with_the_hash_of_its_password(self) -> None:
        done = invoke(
            "acl", "--role", "sdk", "--namespace", "shop", "--user", "billing", "--password-stdin", stdin="pw\n"
        )
        assert (done.exit_code, done.stderr) == (0, "")
        assert done.stdout == acl_line("sdk", "shop", user="billing", password="pw") + "\n"
        assert f"user billing on #{hashlib.sha256(b'pw').hexdigest()} resetchannels " in done.stdout

    def test_all_roles_are_off_without_passwords(self) -> None:
        done = invoke("acl", "--namespace", "shop")
        assert [line.split()[:3] for line in done.stdout.splitlines()] == [
            ["user", f"hg-shop-{role}", "off"] for role in ("node", "operator", "metrics", "sdk")
        ]
        assert done.stderr == "headgate: without --password-stdin the users are off\n"

    @pytest.mark.parametrize(
        ("arguments", "text"),
        [
            (("--role", "root"), "use one of node, operator, metrics, sdk"),
            (("--user", "ann"), "give --role too"),
            (("--password-stdin",), r"0 line\(s\) for 4 user\(s\)"),
        ],
    )
    def test_what_cannot_be_meant_is_refused(self, arguments: tuple[str, ...], text: str) -> None:
        with pytest.raises(InvalidValue, match=text):
            raise invoke("acl", *arguments).exception or AssertionError
