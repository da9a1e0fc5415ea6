"""A file system for fsspec that fails, hangs and damages on command: `faulty://<name>/...`, in memory.

Each name is a storage of its own, with faults of its own: take it with :func:`storage`.
"""

import threading
from collections.abc import Callable
from typing import Any, ClassVar

import fsspec
from fsspec.implementations.memory import MemoryFileSystem

from headgate.spool.stores import MARKER


class Faults:
    """What befalls the operations of one storage: `write`, `read`, `delete`, `list`."""

    def __init__(self) -> None:
        self.errors: dict[str, Exception] = {}
        self.calls: dict[str, int] = {}
        self.under_way = 0
        self._passes = threading.Event()
        self._passes.set()
        self._holds: set[str] = set()

    def fail(self, *verbs: str, error: Exception) -> None:
        """Raise that at once, from now on."""
        self.errors |= dict.fromkeys(verbs, error)

    def hang(self, *verbs: str) -> None:
        """Let these begin, and not end before :meth:`heal`."""
        self._passes.clear()
        self._holds |= set(verbs)

    def heal(self) -> None:
        """Work again, what hangs included."""
        self.errors.clear()
        self._holds.clear()
        self._passes.set()

    def meet(self, verb: str) -> None:
        self.calls[verb] = self.calls.get(verb, 0) + 1
        if verb in self._holds:
            self.under_way += 1
            self._passes.wait()
            self.under_way -= 1
        if verb in self.errors:
            raise self.errors[verb]


class FaultyFileSystem(MemoryFileSystem):  # type: ignore[misc]  # fsspec has no types
    """Memory, behind faults."""

    protocol = "faulty"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    faults: ClassVar[dict[str, Faults]] = {}

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.replace("faulty://", "memory://")))

    def _meet(self, verb: str, path: str) -> None:
        self.faults.setdefault(self._strip_protocol(path).split("/")[1], Faults()).meet(verb)

    def open(self, path: str, mode: str = "rb", **arguments: Any) -> Any:
        if "w" in mode:
            self._meet("write", path)
        return super().open(path, mode, **arguments)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **arguments: Any) -> Any:
        self._meet("read", path)
        return super().cat_file(path, start, end, **arguments)

    def rm_file(self, path: str) -> None:
        self._meet("delete", path)
        super().rm_file(path)

    def find(self, path: str, *arguments: Any, **options: Any) -> Any:
        self._meet("list", path)
        return super().find(path, *arguments, **options)


fsspec.register_implementation("faulty", FaultyFileSystem, clobber=True)


class FaultyStorage:
    """One storage."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.url = f"faulty://{name}"
        self.faults = FaultyFileSystem.faults.setdefault(name, Faults())

    def objects(self) -> list[str]:
        """Return the paths of all segments that there are."""
        return sorted(path for path in self._all() if not path.endswith(f"/{MARKER}"))

    def _all(self) -> list[str]:
        return [path for path in FaultyFileSystem.store if path.startswith(f"/{self.name}/")]

    def change(self, path: str, how: Callable[[bytes], bytes | None]) -> None:
        """Let what is stored be something else; None: nothing."""
        file = FaultyFileSystem.store[path]
        data = how(file.getvalue())
        if data is None:
            del FaultyFileSystem.store[path]
        else:
            file.seek(0)
            file.truncate()
            file.write(data)
            file.seek(0)

    def unmount(self) -> dict[str, Any]:
        """Let there be nothing, and return what there was."""
        return {path: FaultyFileSystem.store.pop(path) for path in self._all()}

    def mount(self, kept: dict[str, Any]) -> None:
        """Let there be again what was."""
        FaultyFileSystem.store.update(kept)

    def close(self) -> None:
        self.faults.heal()
        for path in self._all():
            del FaultyFileSystem.store[path]
        FaultyFileSystem.faults.pop(self.name, None)
