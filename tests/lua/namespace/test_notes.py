"""Short notes of a namespace: read with their age, over when they are not written again, and then taken out."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import redis.exceptions as rx

from headgate.errors import AccessDenied
from headgate.redis.keys import notes_key
from headgate.redis.server import Server
from headgate.redis.stores.notes import KEEP_MS, PAGE, AnnouncedTies, NoteStore, Tie
from headgate.redis.url import parse_url
from tests.support.rewriting import RewritingServer, watched

TIE = Tie("orders/eu", "ann~00000000.1", "shipments", "12.5", 400, 29_600)


@dataclass
class Board:
    """The notes of one namespace."""

    server: Server
    store: NoteStore
    key: bytes

    async def kept(self) -> dict[bytes, bytes]:
        flat = await self.server.command(self.key, "HGETALL", self.key)
        return dict(zip(flat[::2], flat[1::2], strict=True))

    async def age(self, name: str, ms: int) -> None:
        """Make a note so much older."""
        seen, _, text = (await self.kept())[name.encode()].partition(b" ")
        older = int(seen.removeprefix(b"seen=")) - ms
        await self.server.command(self.key, "HSET", self.key, name, b"seen=%d %s" % (older, text))


@pytest.fixture
async def board(redis_url: str, cleanup_namespace: str) -> AsyncIterator[Board]:
    server = Server(parse_url(redis_url))
    await server.open()
    yield Board(server, NoteStore(server, cleanup_namespace), notes_key(cleanup_namespace, "waits"))
    await server.close()


async def test_what_is_written_is_read_with_its_age(board: Board) -> None:
    await board.store.write("waits", {"a": "one thing", "b": "another"})
    found = await board.store.read("waits")
    assert {name: text for name, (text, _) in found.items()} == {"a": "one thing", "b": "another"}
    await board.age("a", 1000)
    assert (await board.store.read("waits"))["a"][1] >= 1000
    await board.store.write("waits", {"a": "new", "b": ""})
    assert list(await board.store.read("waits")) == ["a"]
    assert await board.store.read("deadlocks") == {}


async def test_a_note_that_is_not_written_again_is_over_and_taken_out(board: Board) -> None:
    await board.store.write("waits", {"old": "x", "of a clock that was set back": "x", "new": "x"})
    await board.age("old", KEEP_MS["waits"] + 1000)
    await board.age("of a clock that was set back", -KEEP_MS["waits"] - 1000)
    assert list(await board.store.read("waits")) == ["new"]
    await board.store.write("waits", {"new": "y"})
    assert list(await board.kept()) == [b"new"]
    assert 0 < await board.server.command(board.key, "PTTL", board.key) <= KEEP_MS["waits"]


async def test_more_notes_than_one_call_takes(board: Board) -> None:
    await board.store.write("waits", {str(number): "x" for number in range(PAGE + 2)})
    assert len(await board.kept()) == PAGE + 2


async def test_a_tie_is_read_as_it_was_told_and_older(board: Board) -> None:
    await board.store.write("waits", {TIE.name: TIE.text, "of": "another version"})
    await board.age(TIE.name, 1000)
    (found,) = await board.store.ties()
    assert (found.destination, found.consumer, found.at, found.wait, found.session) == (
        "orders/eu", "ann~00000000.1", "shipments", "12.5", "ann~00000000",
    )  # fmt: skip
    assert found.waited_ms >= 1400
    assert found.left_ms is not None
    assert found.left_ms <= 28_600


async def test_ties_are_written_when_they_change_and_once_a_second(board: Board) -> None:
    told, server = AnnouncedTies(board.store), board.server

    async def writes(now: float, *ties: Tie) -> bool:
        before = server.calls
        await told.tell(ties, now)
        return server.calls > before

    assert not await writes(0.0)
    assert await writes(0.1, TIE)
    assert not await writes(0.9, TIE)
    assert await writes(1.2, TIE)
    other = Tie("orders/eu", "ann~00000000.2", "shipments", "12.5")
    assert await writes(1.3, other)
    assert [tie.consumer for tie in await board.store.ties()] == [other.consumer]
    assert await writes(1.4)
    assert await board.store.ties() == []


async def test_who_may_not_read_them_is_denied(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: it is told as a Redis that is away, with advice on its URL."""

    async def refuse(*_: object) -> list[object]:
        return [rx.NoPermissionError("this user has no permissions to run the 'time' command"), []]

    monkeypatch.setattr(board.server, "burst", refuse)
    with pytest.raises(AccessDenied, match=r"no permissions to run the 'time' command; `headgate acl`"):
        await board.store.read("deadlocks")


async def test_notes_keep_to_their_key(cluster_url: str, namespace: str) -> None:
    server = RewritingServer(cluster_url, watched)
    await server.open()
    store, key = NoteStore(server, namespace), notes_key(namespace, "waits")
    await store.write("waits", {TIE.name: TIE.text})
    await store.write("waits", {TIE.name: ""})
    names = await server.command(key, "LRANGE", key + b":trace", 0, -1)
    assert {b"HSET", b"HDEL", b"PEXPIRE"} <= set(names)
    await server.command(key, "UNLINK", key, key + b":trace")
    await server.close()
