"""A segment counts as written once its bytes and its name are on the disk, which happens at the same time."""

import asyncio
import os
import stat
import threading
from pathlib import Path

import pytest

from headgate.errors import SpoolUnavailable
from headgate.spool.storage import THREADS, Storage
from tests.sdk.observing import GUARD
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server


class Flushes:
    """Flushes of files and of folders, each of which may be held or fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun: list[str] = []
        self.passes = {"file": threading.Event(), "folder": threading.Event()}
        self.fails = ""
        self._flush = os.fsync
        monkeypatch.setattr(os, "fsync", self)

    def __call__(self, descriptor: int) -> None:
        what = "folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        self.begun.append(what)
        self.passes[what].wait(GUARD)
        if self.fails == what:
            raise OSError("the disk is gone")
        self._flush(descriptor)


@pytest.fixture
async def storage(tmp_path: Path) -> Storage:
    storage = Storage(tmp_path.as_uri(), marker="n/.headgate")
    await storage.mark()
    return storage


@pytest.mark.parametrize("late", ["file", "folder"])
async def test_a_segment_is_written_once_it_and_its_name_are_flushed(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, late: str
) -> None:
    """Mutants: nobody waits for the folder; the folder is flushed after the file; the file is not flushed."""
    flushes = Flushes(monkeypatch)
    writing = asyncio.ensure_future(storage.write("n/orders/1", b"one"))
    await wait_until(lambda: set(flushes.begun) == {"file", "folder"})  # neither waits for the other
    flushes.passes["file" if late == "folder" else "folder"].set()
    await asyncio.sleep(0.05)
    assert not writing.done()
    flushes.passes[late].set()
    async with asyncio.timeout(GUARD):
        await writing
    assert await storage.read("n/orders/1", 0, 9) == b"one"
    storage.close()


@pytest.mark.parametrize("lost", ["file", "folder"])
async def test_a_segment_that_is_not_flushed_is_not_written(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """Mutant: nobody hears of it when the folder could not be flushed."""
    flushes = Flushes(monkeypatch)
    flushes.fails = lost
    for event in flushes.passes.values():
        event.set()
    with pytest.raises(SpoolUnavailable, match="the disk is gone"):
        await storage.write("n/orders/1", b"one")
    storage.close()


async def test_many_segments_at_once_do_not_wait_for_each_other(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutant: folders are flushed by the threads that write, all of which may be waiting for that."""
    flushes = Flushes(monkeypatch)
    writing = [asyncio.ensure_future(storage.write(f"n/orders/{n}", b"%d" % n)) for n in range(2 * THREADS)]
    await wait_until(lambda: flushes.begun.count("file") >= THREADS)
    for event in flushes.passes.values():
        event.set()
    async with asyncio.timeout(GUARD):
        await asyncio.gather(*writing)
    assert len(await storage.listing("n/orders")) == 2 * THREADS
    storage.close()
