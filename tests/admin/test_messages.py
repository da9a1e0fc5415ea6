"""Single messages over admin HTTP: looked at, moved and deleted, by whoever may do that at those destinations."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx
import pytest

import headgate
from headgate import Browsed
from headgate_coordinator.admin.messages import BrowsedMessage
from headgate_coordinator.security import Users
from headgate_coordinator.security.document import User, parse_grant
from headgate_coordinator.security.file import write_users
from headgate_coordinator.security.passwords import hashed
from tests.admin.test_doors import basic

pytestmark = pytest.mark.one_server
OpenHttp = Callable[..., Awaitable[httpx.AsyncClient]]
ORDERS = "/api/v1/destinations/orders/messages"


async def filled(client: headgate.Client, *bodies: bytes | str) -> list[str]:
    for name in ("orders", "other"):
        await client.apply(name, limit="1MiB")
    async with client.session() as session:
        producer = await session.producer("orders")
        return [(await producer.send(body, headers={"k": "<b>"})).id for body in bodies]


async def test_messages_are_shown_a_piece_at_a_time(http: httpx.AsyncClient, client: headgate.Client) -> None:
    """Mutants: bytes that are no text break the answer; a long body is shown whole."""
    ids = await filled(client, b"one", "zwölf\x1b[2J", b"\xff\xfe", b"x" * 5000)
    answer = (await http.get(ORDERS, params={"limit": 3})).json()
    assert [one["id"] for one in answer["messages"]] == ids[:3]
    assert [one["text"] for one in answer["messages"]] == ["one", "zwölf\\x1b[2J", None]
    assert answer["messages"][0]["headers"] == {"k": "<b>"}
    assert answer["more"]
    answer = (await http.get(ORDERS, params={"after": ids[2]})).json()
    assert (len(answer["messages"]), answer["more"]) == (1, False)
    assert len(answer["messages"][0]["text"]) < 600
    assert (await http.get("/api/v1/destinations/none/messages")).status_code == 404
    for wrong in ({"limit": 101}, {"limit": 0}, {"after": "x"}, {"before": "1-1"}):
        assert (await http.get(ORDERS, params=wrong)).status_code == 400, wrong


def test_a_message_of_very_many_values_is_not_read_to_be_shown() -> None:
    """Ten of them kept the node's loop for a second, each time that somebody looked. Mutant: all of it is read."""
    for count, why in ((4096, ""), (10_000, "more than 4096 values")):
        stored = b"\0\x53\x77\xd0" + (count + 4).to_bytes(4) + count.to_bytes(4) + b"\x40" * count
        assert why in BrowsedMessage.of(Browsed("1-9", stored, None)).trouble
        assert bool(why) == bool(BrowsedMessage.of(Browsed("1-9", stored, None)).trouble)


async def test_one_is_moved_and_one_deleted(http: httpx.AsyncClient, client: headgate.Client) -> None:
    first, second, third = await filled(client, b"one", b"two", b"three")
    answer = await http.post(f"{ORDERS}/move", json={"id": first, "to": "other"})
    assert (answer.status_code, answer.json()) == (200, {"destination": "orders", "id": first, "to": "other"})
    answer = await http.post(f"{ORDERS}/delete", json={"id": second})
    assert (answer.status_code, answer.json()) == (200, {"destination": "orders", "id": second})
    assert [one.id async for one in client.browse("orders")] == [third]
    assert [one.body async for one in client.browse("other")] == [b"one"]
    gone = await http.post(f"{ORDERS}/delete", json={"id": second})
    assert (gone.status_code, gone.json()["why"]) == (409, "gone")
    for body in ({}, {"id": "x"}, {"id": third, "to": "other", "more": 1}, {"id": third, "to": ""}):
        assert (await http.post(f"{ORDERS}/move", json=body)).status_code == 400, body
    assert (await http.post(f"{ORDERS}/move", json={"id": third, "to": "none"})).status_code == 404
    assert (await http.post(f"{ORDERS}/move", json={"id": third, "to": "orders"})).status_code == 400


GRANTED = {
    "looks": ("browse:orders",),
    "manages": ("manage:orders",),
    "sends": ("manage:orders", "produce:other"),
    "elsewhere": ("browse,manage,produce:other",),
}


async def test_each_needs_its_rights_at_source_and_target(
    client: headgate.Client, open_http: OpenHttp, tmp_path: Path
) -> None:
    """Mutants: a right at the target is not asked for; one at any destination does; the whole namespace is needed."""
    ids = await filled(client, b"one", b"two")
    secret, file = hashed("secret"), tmp_path / "users.toml"
    made = {name: User(password_hash=secret, grants=[*map(parse_grant, told)]) for name, told in GRANTED.items()}
    write_users(file, made)
    users = Users.from_file(file)
    await users.start()
    try:
        http = await open_http(client, token="s3cret", read_token="look", users=users)
        reader = {"Authorization": "Bearer look"}
        for who, expected in (
            (basic("looks"), (200, 403, 403)),
            (basic("manages"), (403, 403, 200)),
            (basic("elsewhere"), (403, 403, 403)),
            (reader, (200, 403, 403)),
            ({}, (401, 401, 401)),
        ):
            found = (
                (await http.get(ORDERS, headers=who)).status_code,
                (await http.post(f"{ORDERS}/move", headers=who, json={"id": ids[1], "to": "other"})).status_code,
                (await http.post(f"{ORDERS}/delete", headers=who, json={"id": ids[0]})).status_code,
            )
            assert found == expected, (who, found)
        moved = await http.post(f"{ORDERS}/move", headers=basic("sends"), json={"id": ids[1], "to": "other"})
        assert moved.status_code == 200
        denied = await http.get("/api/v1/destinations/other", headers=basic("looks"))
        assert denied.status_code == 403, "all else is for who may look at the whole namespace"
        refused = await http.get("/api/v1/destinations/orders%2Fmessages", headers=basic("looks"))
        assert refused.status_code == 403, "a slash of a name is part of the name"
    finally:
        await users.close()


async def test_messages_of_slices_are_shown_page_by_page_moved_and_deleted(
    http: httpx.AsyncClient, client: headgate.Client
) -> None:
    """Mutant: an id that says a slice is none."""
    for name in ("orders", "other"):
        await client.apply(name, limit="1MiB", slices=2)
    async with client.session() as a, client.session() as b:
        for session in (a, b):
            await (await session.producer("orders")).send(b"one")
    (first,) = (await http.get(ORDERS, params={"limit": 1})).json()["messages"]
    answer = (await http.get(ORDERS, params={"limit": 5, "after": first["id"]})).json()
    second = answer["messages"][0]["id"]
    assert (second[:2], len(answer["messages"])) == ("1:", 1)
    answer = (await http.get(ORDERS, params={"after": second})).json()
    assert (answer["messages"], answer["more"]) == ([], False)
    assert (await http.post(f"{ORDERS}/move", json={"id": second, "to": "other"})).status_code == 200
    assert (await http.post(f"{ORDERS}/delete", json={"id": first["id"]})).status_code == 200
    assert (await http.post(f"{ORDERS}/delete", json={"id": second})).json()["why"] == "gone"
    slice_ = ORDERS.replace("orders", "orders%231")
    for answer in (await http.get(slice_), await http.post(slice_.replace("messages", "purge"))):
        assert (answer.status_code, "stands for a slice; name 'orders'" in answer.text) == (400, True)
    for wrong in ("other#1", "orders#1"):
        assert (await http.post(f"{ORDERS}/move", json={"id": second, "to": wrong})).status_code == 400
    assert [one.body async for one in client.browse("other")] == [b"one"]
