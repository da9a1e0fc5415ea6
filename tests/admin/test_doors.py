"""Every route of admin HTTP against everybody who may knock: what is allowed is listed, all else is refused unread."""

from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Final

import httpx
import pytest

import headgate
from headgate_coordinator.admin import create_app
from headgate_coordinator.admin.app import PAGE
from headgate_coordinator.admin.guard import OF_ONE
from headgate_coordinator.admin.requests import LARGEST_BODY, LARGEST_POLICY
from headgate_coordinator.security import Users
from headgate_coordinator.security.document import User, parse_grant
from headgate_coordinator.security.file import write_users
from headgate_coordinator.security.passwords import hashed
from headgate_coordinator.security.store import UserStore

Http = httpx.AsyncClient
OpenHttp = Callable[..., Awaitable[Http]]
TOKEN: Final = "correct-horse"
METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
OPEN: Final = frozenset({"/live", "/ready", *PAGE})
"""All that a stranger is answered; whoever adds to it says why in docs/security.md."""
CHANGES: Final = frozenset(METHODS) - {"GET", "HEAD", "OPTIONS"}
PIECE: Final = 1 << 16


def basic(user: str) -> dict[str, str]:
    return {"Authorization": "Basic " + b64encode(f"{user}:secret".encode()).decode()}


KNOCKING: Final = {
    "a stranger": {},
    "one who guesses": {"Authorization": "Bearer correct-house"},
    "one who has the token in another place": {"Cookie": f"token={TOKEN}", "X-Token": TOKEN},
    "a user of nodes without grants": basic("nobody"),
    "a user of nodes with narrow grants": basic("narrow"),
    "a manager of all, who is a user of nodes": basic("manager"),
}


@pytest.fixture
async def guarded(client: headgate.Client, open_http: OpenHttp) -> Http:
    return await open_http(client, token=TOKEN)


async def routes(http: Http) -> list[str]:
    """All paths, with a name where they take one, and some where there is nothing."""
    told = (await http.get("/api/v1/openapi.json", headers={"Authorization": f"Bearer {TOKEN}"})).json()
    paths = {path.replace("{name}", "orders") for path in told["paths"]}
    assert not [path for path in paths if "{" in path], "a new parameter needs a value here"
    assert len(paths) > 10
    return sorted({*paths, *PAGE, "/nothing", "/api/v1/nothing", "/api/v1/%2e%2e/live", "/live/", "/live%2fx"})


class Body:
    """A body far beyond every bound, that counts how much of it was read."""

    def __init__(self) -> None:
        self.read = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while self.read < 8 * LARGEST_POLICY:
            self.read += PIECE
            yield b" " * PIECE


async def test_who_bears_no_token_is_refused_at_every_route_and_nothing_of_it_is_read(
    guarded: Http, client: headgate.Client
) -> None:
    """Mutants: a route outside the guard; paths compared by their beginning; methods that are let through."""
    users = {"nobody": (), "narrow": ("consume:orders",), "manager": ("manage,browse:#",)}
    secret = hashed("secret")
    made = {name: User(password_hash=secret, grants=[*map(parse_grant, told)]) for name, told in users.items()}
    await UserStore(client.store.server, client.namespace).change(lambda there: there.update(made))
    for path in await routes(guarded):
        for method in METHODS:
            for who, headers in KNOCKING.items():
                body = Body()
                content = body if method in CHANGES else None
                answer = await guarded.request(method, path, headers=headers, content=content)
                where = f"{who}: {method} {path}: {answer.status_code}"
                if path in OPEN:
                    assert answer.status_code in ((200,) if method in ("GET", "HEAD") else (405,)), where
                else:
                    assert answer.status_code == 401, where
                assert body.read <= PIECE, where


READ_TOKEN: Final = "battery-staple"
ROLES: Final[dict[str, tuple[dict[str, str], int, int]]] = {
    "the token": ({"Authorization": f"Bearer {TOKEN}"}, 0, 0),
    "the token that only reads": ({"Authorization": f"Bearer {READ_TOKEN}"}, 0, 403),
    "a user who may browse all": (basic("reader"), 0, 403),
    "a user who may manage all": (basic("manager"), 403, 0),
    "a user who may both": (basic("both"), 0, 0),
    "a user who may all that has a name": (basic("spelled"), 0, 403),
    "a user who may much, and not all": (basic("narrow"), 403, 403),
    "a user without grants": (basic("nobody"), 403, 403),
    "a wrong password": (basic("both") | {"Authorization": "Basic Ym90aDp3cm9uZw=="}, 401, 401),
    "nobody, where anonymous may all": ({}, 401, 401),
}
"""By who it is: the headers, and what reading and changing is answered with; 0: it is let in."""
AT_ORDERS: Final = ("a user who may much, and not all", "a user who may all that has a name")
"""They may browse and manage at `orders`; single messages take no more."""
GRANTED: Final = {
    "reader": ("browse:#",),
    "manager": ("manage:#",),
    "both": ("browse,manage:#",),
    "spelled": ("browse,manage:*.#",),
    "narrow": ("browse,manage:orders.#", "produce,consume:#"),
    "nobody": (),
}


async def test_each_role_reads_and_changes_what_it_may_and_nothing_else(
    client: headgate.Client, open_http: OpenHttp, tmp_path: Path
) -> None:
    """Mutants: the right asked for one method alone; `anonymous` let in; a token that reads may change."""
    secret, file = hashed("secret"), tmp_path / "users.toml"
    made = {name: User(password_hash=secret, grants=[*map(parse_grant, told)]) for name, told in GRANTED.items()}
    made["anonymous"] = User(grants=[parse_grant("browse,manage:#")])
    write_users(file, made)
    users = Users.from_file(file)
    await users.start()
    try:
        http = await open_http(client, token=TOKEN, read_token=READ_TOKEN, users=users)
        paths = [path for path in await routes(http) if path not in OPEN and not path.startswith("/v1/limits")]
        for at, path in enumerate(paths):
            for method in ("GET", "PUT") if at % 2 else ("HEAD", "POST", "DELETE"):
                for who, (headers, reads, changes) in ROLES.items():
                    if who == "a wrong password" and at > 1:
                        continue  # each is checked, which takes long
                    expected = changes if method in CHANGES else reads
                    if OF_ONE.fullmatch(f"{method} {path}") and who in AT_ORDERS:
                        expected = 0
                    answer = await http.request(method, path, headers=headers)
                    where = f"{who}: {method} {path}: {answer.status_code}"
                    if expected:
                        assert answer.status_code == expected, where
                    else:
                        assert answer.status_code not in (401, 403), where
        for who, (headers, reads, changes) in ROLES.items():
            if not reads:
                overview = (await http.get("/api/v1/overview", headers=headers)).json()
                assert overview["may_change"] is (changes == 0), who
    finally:
        await users.close()


@pytest.mark.parametrize(("token", "read_token"), [(None, "x"), ("x", "x"), ("x", ""), ("x", " y"), ("x", "ü")])
async def test_a_token_that_reads_is_another_than_the_one_that_may_all(
    client: headgate.Client, token: str | None, read_token: str
) -> None:
    with pytest.raises(headgate.InvalidValue, match="token"):
        create_app(client, None, token=token, read_token=read_token)


async def test_a_page_of_another_site_changes_nothing_at_any_route(
    guarded: Http, client: headgate.Client, open_http: OpenHttp
) -> None:
    """Whether there is a token or not. Without one, a name that was led here is told nothing at all."""
    unguarded = await open_http(client, token=None)
    bearing = {"Authorization": f"Bearer {TOKEN}", "Sec-Fetch-Site": "cross-site", "Origin": "http://evil.example"}
    led = {"Host": "evil.example", "Origin": "http://evil.example", "Sec-Fetch-Site": "same-origin"}
    for path in await routes(guarded):
        for method in METHODS:
            body = Body()
            content = body if method in CHANGES else None
            if method in CHANGES:
                answer = await guarded.request(method, path, headers=bearing, content=content)
                assert answer.status_code == 403, f"with a token: {method} {path}: {answer.status_code}"
            answer = await unguarded.request(method, path, headers=led, content=content)
            assert answer.status_code == 403, f"{method} {path}: {answer.status_code}"
            assert body.read <= PIECE, f"{method} {path}"


@pytest.mark.parametrize("media_type", ["application/json", "application/toml", "text/plain"])
async def test_of_who_bears_the_token_no_route_reads_more_than_the_bound(guarded: Http, media_type: str) -> None:
    """Also where a body has no meaning. Mutants: the bound looked at after all was read; one route without it."""
    bearing = {"Authorization": f"Bearer {TOKEN}", "Content-Type": media_type}
    for path in await routes(guarded):
        for method in CHANGES:
            body = Body()
            answer = await guarded.request(method, path, headers=bearing, content=body)
            where = f"{method} {path}: {answer.status_code}"
            assert answer.status_code not in (401, 403), where
            assert answer.status_code < 500, where
            largest = LARGEST_POLICY if path.endswith("/policy") else LARGEST_BODY
            assert body.read <= largest + 2 * PIECE, where
