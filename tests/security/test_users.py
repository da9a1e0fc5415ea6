"""Users as a node follows them, from a file and from Redis; and the check of their passwords."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

import headgate
from headgate.errors import InvalidValue, PolicyError
from headgate.policy.problems import BadDocument
from headgate.redis.keys import users_key
from headgate_coordinator.security import users as module
from headgate_coordinator.security.document import NamedUser, User, parse_grant
from headgate_coordinator.security.edited_file import with_users
from headgate_coordinator.security.file import parse_users, read_users, write_users
from headgate_coordinator.security.grants import Action
from headgate_coordinator.security.password_queue import AT_A_TIME
from headgate_coordinator.security.passwords import check_form, fits, hashed
from headgate_coordinator.security.store import UserStore
from headgate_coordinator.security.users import Users
from tests.support.waiting import wait_until

HASH = "scrypt$16384$8$1$AAAAAAAAAAAAAAAAAAAAAA==$aLJr313a4S4tKM+skUSPwmGcnRd98oRU1CnCPv6T4/Q="
OTHER = "scrypt$16384$8$1$AAAAAAAAAAAAAAAAAAAAAA==$Mzx4KiY24aN3L7uoRQseRlu/FE3nTXb1avd7k1I5q20="
"""Of the passwords `secret` and `other`."""


def user(*grants: str, password_hash: str | None = HASH, **more: Any) -> User:
    return User(password_hash=password_hash, grants=[parse_grant(text) for text in grants], **more)


@pytest.fixture
async def client(redis_url: str, cleanup_namespace: str) -> AsyncIterator[headgate.Client]:
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
        yield client


@pytest.fixture
def store(client: headgate.Client) -> UserStore:
    return UserStore(client.store.server, client.namespace)


@pytest.fixture
async def users(client: headgate.Client) -> AsyncIterator[Users]:
    users = Users.from_redis(client)
    await users.start()
    yield users
    await users.close()


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Passwords that scrypt had to look at."""
    seen: list[str] = []

    def counted(password: str, text: str) -> bool:
        seen.append(password)
        return fits(password, text)

    monkeypatch.setattr(module, "fits", counted)
    return seen


class TestPasswords:
    def test_only_the_right_one_fits_and_no_two_hashes_are_alike(self) -> None:
        assert fits("secret", HASH)
        assert not fits("secret ", HASH)
        assert hashed("secret") != HASH
        assert HASH.startswith("scrypt$16384$8$1$")

    @pytest.mark.parametrize(
        "text",
        ["hunter2", "", "scrypt$2$8$1$a$b", HASH.replace("16384", "1024"), HASH.replace("16384", "16385"),
         HASH.replace("16384", str(1 << 30)), HASH.replace("scrypt", "argon2"), "scrypt$16384$8$1$YQ==$YQ=="],
    )  # fmt: skip
    def test_what_is_no_hash_is_refused_and_not_repeated(self, text: str) -> None:
        with pytest.raises(InvalidValue, match="write scrypt") as refused:
            check_form(text)
        assert not text or text not in str(refused.value)

    @pytest.mark.parametrize("password", ["", "x" * 1025])
    def test_a_password_has_bounds(self, password: str) -> None:
        with pytest.raises(InvalidValue, match="1 to 1024 bytes"):
            hashed(password)


class TestFile:
    def test_what_is_written_is_read(self, tmp_path: Path) -> None:
        told = {"ann": user("produce,consume:orders.#", max_connections=3), "anonymous": user(password_hash=None)}
        write_users(tmp_path / "users.toml", told)
        assert read_users(tmp_path / "users.toml") == told
        assert (tmp_path / "users.toml").stat().st_mode & 0o777 == 0o600
        assert with_users(tmp_path / "nowhere.toml", {}) == "user = []\n"
        assert [path.name for path in tmp_path.iterdir()] == ["users.toml"]

    def test_comments_and_users_that_do_not_change_stay_as_they_are_written(self, tmp_path: Path) -> None:
        """Mutants: the file made anew; grants that are the same written again."""
        file = tmp_path / "users.toml"
        ann = f"""# Who may do what.

[[user]]  # she runs the shop
name = "ann"
password_hash = "{HASH}"
grants = [
  {{ actions = ["produce"], match = "orders.#" }},  # all of them
]
"""
        file.write_text(f'{ann}\n[[user]]\nname = "bob"\npassword_hash = "{HASH}"\n', encoding="utf-8")
        write_users(file, {**read_users(file), "carl": user("consume:orders.#", max_connections=3)})
        assert file.read_text(encoding="utf-8").startswith(ann)
        assert list(read_users(file)) == ["ann", "bob", "carl"]
        kept = {name: one for name, one in read_users(file).items() if name != "bob"}
        write_users(file, kept)
        assert file.read_text(encoding="utf-8").startswith(ann)
        assert read_users(file) == kept
        write_users(file, {"ann": user("consume:orders.#")})
        text = file.read_text(encoding="utf-8")
        assert text.startswith("# Who may do what.\n\n[[user]]  # she runs the shop\n")
        assert read_users(file) == {"ann": user("consume:orders.#")}
        write_users(file, {})
        assert file.read_text(encoding="utf-8").startswith("# Who may do what.")
        assert read_users(file) == {}

    @pytest.mark.parametrize(
        ("text", "errors"),
        [
            ("", ["u.toml:1: is empty"]),
            ("user = 5", ["u.toml:1: user:"]),
            ("[[user]", ["u.toml:1: "]),
            (f'[[user]]\nname = "anonymous"\npassword_hash = "{HASH}"', ["u.toml:1: user[1]: 'anonymous' is for"]),
            ('[[user]]\nname = "a"\npassword_hash = "hunter2"\nrole = 1',
             ["u.toml:3: user[1].password_hash: not a password hash", "u.toml:4: user[1].role: unknown key"]),
            ("""[[user]]
name = "anonymous"
grants = [
{ actions = ["fly"], match = "a" },
{ actions = [], match = "a..b" }]""",
             ["u.toml:4: user[1].grants[1].actions[1]:", "u.toml:5: user[1].grants[2].actions:",
              "u.toml:5: user[1].grants[2].match: pattern 'a..b' has an empty word"]),
            ('[[user]]\nname = "anonymous"\nmax_connections = 0', ["u.toml:3: user[1].max_connections:"]),
            ('[[user]]\nname = "anonymous"\n[[user]]\nname = "anonymous"',
             ["u.toml:4: user[2].name: 'anonymous' is there"]),
        ],
    )  # fmt: skip
    def test_errors_name_their_place_and_no_secret(self, text: str, errors: list[str]) -> None:
        with pytest.raises(BadDocument) as bad:
            parse_users(text, "u.toml")
        told = [str(problem) for problem in bad.value.problems]
        assert len(told) == len(errors)
        assert all(line.startswith(start) for line, start in zip(told, errors, strict=True)), told
        assert "hunter2" not in str(bad.value)

    def test_a_hash_is_not_shown(self) -> None:
        assert HASH not in repr(user())
        assert HASH not in repr(NamedUser(name="ann", password_hash=HASH))

    async def test_a_change_is_followed_and_a_broken_file_is_not(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        file = tmp_path / "users.toml"
        write_users(file, {"ann": user("produce:orders")})
        users = Users.from_file(file)
        await users.start()
        try:
            ann = await users.authenticate("ann", "secret")
            assert ann is not None
            assert users.anonymous() is None
            write_users(file, {"ann": user("consume:orders")})
            await wait_until(lambda: ann.may(Action.CONSUME, "orders"))
            assert not ann.may(Action.PRODUCE, "orders")
            with caplog.at_level(logging.WARNING, "headgate"):
                file.write_text("[[user]]\nname = 5\npassword_hash = 'hunter2'")
                await wait_until(lambda: caplog.records)
                file.unlink()
                await wait_until(lambda: len(caplog.records) == 2)
            assert "users.toml:2" in caplog.messages[0]
            assert "cannot be read" in caplog.messages[1]
            assert "hunter2" not in caplog.text
            assert ann.may(Action.CONSUME, "orders"), "the last that could be read holds"
            write_users(file, {"bob": user("consume:orders")})
            await wait_until(lambda: not ann.valid)
        finally:
            await users.close()

    async def test_a_broken_file_does_not_start(self, tmp_path: Path) -> None:
        users = Users.from_file(tmp_path / "none.toml")
        with pytest.raises(BadDocument, match="cannot be read"):
            await users.start()
        await users.close()


@pytest.mark.one_server
class TestRedis:
    async def test_without_users_everybody_may_everything_until_there_is_one(
        self, users: Users, store: UserStore
    ) -> None:
        nobody = users.anonymous()
        assert nobody is not None
        assert nobody.name == "anonymous"
        assert nobody.may(Action.MANAGE, "#")
        await store.change(lambda known: known.update(ann=user("produce:orders")))
        await wait_until(lambda: users.anonymous() is None)
        assert not nobody.valid
        assert not nobody.may(Action.PRODUCE, "orders")
        await store.change(lambda known: known.update(anonymous=user("browse:#", password_hash=None)))
        seen = await wait_until(users.anonymous)
        assert seen is not None
        assert seen.may(Action.BROWSE, "orders")
        assert not seen.may(Action.PRODUCE, "orders")
        assert await users.authenticate("anonymous", "") is None

    async def test_where_users_are_required_nobody_is_let_in_without(self, client: headgate.Client) -> None:
        users = Users.from_redis(client, required=True)
        await users.start()
        assert users.anonymous() is None
        await users.close()

    async def test_grants_change_under_who_is_connected(self, users: Users, store: UserStore) -> None:
        await store.change(lambda known: known.update(ann=user("produce:orders")))
        ann = await wait_until(lambda: users.authenticate("ann", "secret"))
        assert ann is not None
        assert ann.may(Action.PRODUCE, "orders")
        await store.change(lambda known: known.update(ann=user("consume:orders", max_connections=2)))
        await wait_until(lambda: ann.may(Action.CONSUME, "orders"))
        assert (ann.may(Action.PRODUCE, "orders"), ann.max_connections) == (False, 2)
        await store.change(lambda known: known.update(ann=user("consume:orders", password_hash=OTHER)))
        await wait_until(lambda: not ann.valid)
        assert await users.authenticate("ann", "secret") is None
        again = await users.authenticate("ann", "other")
        assert again is not None
        heard: list[bool] = []
        users.on_change(lambda: heard.append(again.valid))
        await store.change(lambda known: known.clear())
        await wait_until(lambda: heard)
        assert heard == [False], "once all follow"
        assert (users.anonymous(), users.is_open) == (None, False), "who takes the last one away lets nobody in"

    async def test_a_change_is_found_without_a_word(self, users: Users, store: UserStore) -> None:
        users._source._hear = lambda words: None  # type: ignore[attr-defined]
        await store.change(lambda known: known.update(ann=user()))
        await wait_until(lambda: users.anonymous() is None)

    async def test_users_that_redis_lost_are_put_back(
        self, users: Users, store: UserStore, client: headgate.Client
    ) -> None:
        await store.change(lambda known: known.update(ann=user("produce:orders")))
        await wait_until(lambda: users.anonymous() is None)
        key = users_key(client.namespace)
        await client.store.server.command(key.encode(), "DEL", key)
        await wait_until(store.version)
        assert (await store.read()).users == {"ann": user("produce:orders")}
        assert users.anonymous() is None

    async def test_what_cannot_be_read_keeps_the_last_and_stops_a_start(
        self, users: Users, store: UserStore, client: headgate.Client, caplog: pytest.LogCaptureFixture
    ) -> None:
        await store.change(lambda known: known.update(ann=user("produce:orders")))
        await wait_until(lambda: users.anonymous() is None)
        with caplog.at_level(logging.WARNING, "headgate"):
            await store._switch({"anonymous": user()}, "next", await store.version())
            await wait_until(lambda: caplog.records)
        assert "user 'anonymous' in Redis cannot be read" in caplog.text
        assert await users.authenticate("ann", "secret") is not None
        late = Users.from_redis(client)
        with pytest.raises(PolicyError, match="anonymous"):
            await late.start()
        await late.close()

    async def test_a_hash_that_was_written_by_hand_stops_nothing(
        self, users: Users, store: UserStore, client: headgate.Client, caplog: pytest.LogCaptureFixture
    ) -> None:
        key = users_key(client.namespace)
        with caplog.at_level(logging.WARNING, "headgate"):
            await client.store.server.command(key.encode(), "HSET", key, "!version", "seven")
            await wait_until(lambda: caplog.records)
        await client.store.server.command(key.encode(), "DEL", key)
        await store.change(lambda known: known.update(ann=user()))
        await wait_until(lambda: users.anonymous() is None)

    async def test_changes_at_the_same_time_are_all_made(self, store: UserStore) -> None:
        def adding(name: str) -> Callable[[dict[str, User]], None]:
            return lambda known: known.update({name: user()})

        await asyncio.gather(*(store.change(adding(f"u{n}")) for n in range(8)))
        stored = await store.read()
        assert sorted(stored.users) == [f"u{n}" for n in range(8)]


@pytest.mark.one_server
class TestAuthenticate:
    @pytest.fixture(autouse=True)
    async def ann(self, store: UserStore, users: Users, checks: list[str]) -> None:
        await store.change(lambda known: known.update(ann=user("produce:orders")))
        await wait_until(lambda: users.anonymous() is None)

    async def test_wrong_and_unknown_cost_the_same_and_are_refused(self, users: Users, checks: list[str]) -> None:
        assert await users.authenticate("ann", "wrong") is None
        assert await users.authenticate("eve", "wrong") is None
        assert await users.authenticate("", "") is None
        assert checks == ["wrong"]
        assert await users.authenticate("ann", "wrong") is None
        assert len(checks) == 2, "wrong ones are not remembered"
        assert await users.authenticate("ann", "secret") is not None
        assert await users.authenticate("ann", "wrong") is None
        assert len(checks) == 3, "but once the right one is known, all others are wrong"

    async def test_unknown_users_take_as_long_as_a_wrong_password(self, users: Users) -> None:
        """Mutant: who is not known is refused at once."""

        async def seconds(name: str, password: str) -> float:
            began = time.perf_counter()
            for n in range(8):
                assert await users.authenticate(name, f"{password}{n}") is None
            return time.perf_counter() - began

        async def alike() -> bool:  # a busy machine may slow one of them
            wrong, unknown = await seconds("ann", "wrong"), await seconds("eve", "wrong")
            await users.authenticate("ann", "secret")
            return max(wrong, unknown, known := await seconds("ann", "wrong")) < 3 * min(wrong, unknown, known)

        await wait_until(alike, timeout=60)

    async def test_how_long_a_check_takes_the_first_unknown_user_finds_out(
        self, client: headgate.Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Mutants: a process hashes a password as it starts; nobody does, and the first user waits for nothing."""
        hashes: list[str] = []
        monkeypatch.setattr(module, "hashed", lambda password: hashes.append(hashed(password)))
        users = Users.from_redis(client)
        await users.start()
        assert not hashes
        for name in ("eve", "eve", "mallory"):
            assert await users.authenticate(name, "wrong") is None
        await users.close()
        assert len(hashes) == 1

    async def test_who_comes_back_is_not_checked_again(self, users: Users, store: UserStore, checks: list[str]) -> None:
        first = await users.authenticate("ann", "secret")
        assert await users.authenticate("ann", "secret") is first is not None
        assert checks == ["secret"]
        await store.change(lambda known: known.update(bob=user()))
        await wait_until(lambda: users.authenticate("bob", "secret"))
        assert await users.authenticate("ann", "secret") is first
        assert checks.count("secret") <= 3, "another user's change costs ann nothing"

    async def test_many_at_once_are_checked_once(self, users: Users, checks: list[str]) -> None:
        found = await asyncio.gather(*(users.authenticate("ann", "secret") for _ in range(100)))
        assert len({id(identity) for identity in found}) == 1
        assert found[0] is not None
        assert checks == ["secret"]

    async def test_one_that_gives_up_does_not_take_the_others_with_it(self, users: Users) -> None:
        first = asyncio.create_task(users.authenticate("ann", "secret"))
        second = asyncio.create_task(users.authenticate("ann", "secret"))
        await asyncio.sleep(0)
        first.cancel()
        assert await second is not None

    async def test_only_a_few_are_checked_at_a_time(self, users: Users, monkeypatch: pytest.MonkeyPatch) -> None:
        running: list[int] = [0, 0]

        def slow(password: str, text: str) -> bool:
            running[0] += 1
            running[1] = max(running)
            found = fits(password, text)
            running[0] -= 1
            return found

        monkeypatch.setattr(module, "fits", slow)
        await asyncio.gather(*(users.authenticate("ann", f"wrong {n}") for n in range(8)))
        assert running[1] <= AT_A_TIME

    async def test_passwords_are_neither_logged_nor_kept(self, users: Users, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.DEBUG):
            await users.authenticate("ann", "secret")
            await users.authenticate("ann", "hunter2")
        assert "secret" not in caplog.text
        assert "hunter2" not in caplog.text
        assert b"secret" not in b"".join(users._right.values())
