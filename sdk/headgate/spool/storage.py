"""Shared storage keeps segments: any file system that fsspec knows, by URL, with a bound on how long it may take."""

import asyncio
import errno
import io
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from headgate.errors import InvalidValue, PolicyError, SpoolUnavailable

T = TypeVar("T")
PATIENCE: Final = 10.0
"""Seconds after which an operation is given up."""
SCHEMES: Final = frozenset({
    "file", "local", "memory", "s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oss", "oci", "hdfs", "webhdfs",
    "sftp", "ssh", "smb", "ftp", "webdav",
})  # fmt: skip
"""File systems that keep what is written; fsspec knows others, which only read, or wrap another."""
LOCAL: Final = ("file", "local")
"""Those that are directories of this machine."""
THREADS: Final = 8
"""Operations under way at a time: file systems block."""


class Storage:
    """A storage is one root folder, or bucket, of segments.

    Args:
        url: as fsspec reads it: ``file:///var/spool/headgate``, ``s3://bucket/prefix``, ``memory://name``; what it
            takes to get in (keys, tokens) comes from the environment, as each file system has it.
        marker: path of an object that is there as long as the storage is the one that it was: a directory where it is
            not mounted has none.
        patience: seconds that one operation may take.

    Raises:
        InvalidValue: the URL cannot be used; the text says what is missing.
    """

    def __init__(self, url: str, *, marker: str, patience: float = PATIENCE) -> None:
        try:
            import fsspec
        except ModuleNotFoundError:
            raise InvalidValue("a spool store takes fsspec: pip install 'headgate[spool]'") from None
        try:
            fs, root = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise InvalidValue(f"spool store at {shown(url)}: {error}") from None
        self.url = shown(url)
        self._fs: Any = fs
        self._root = str(root).rstrip("/")
        self._open: Any = open if url.partition("://")[0] in LOCAL else fs.open
        """A file of this machine needs nothing that stands between, which takes a fifth of what the disk does."""
        self._marker = marker
        self._patience = patience
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="headgate spool")
        self._names = ThreadPoolExecutor(THREADS, thread_name_prefix="headgate spool names")
        """Of their own, for who flushes a segment waits for its name."""
        self._folders: set[str] = set()
        self._lock = threading.Lock()
        self._writing: set[str] = set()
        self._unwanted: set[str] = set()
        """Of those that are being written: they were deleted meanwhile, and are to go once they are there."""
        self.operations = 0
        """Operations asked for so far: writes, reads, deletions, listings."""

    def __repr__(self) -> str:
        return f"Storage({self.url!r})"

    async def mark(self) -> None:
        """Put the marker in place: from now on this is the storage.

        Raises:
            SpoolUnavailable: it could not be written.
        """
        await self._run("write", self._marker, self._mark)

    async def write(self, path: str, data: bytes) -> None:
        """Write an object, and return once it is flushed to where it stays.

        Raises:
            SpoolUnavailable: it could not be written, or is not known to be.
        """
        await self._run("write", path, lambda: self._write_wanted(path, data))

    async def read(self, path: str, start: int, end: int) -> bytes:
        """Return the bytes of an object from ``start`` to before ``end``, or to its end.

        Raises:
            FileNotFoundError: there is no such object.
            SpoolUnavailable: it could not be read.
        """
        return await self._run("read", path, lambda: self._read(path, start, end))

    async def delete(self, paths: Sequence[str]) -> None:
        """Delete objects; those that are not there are no error.

        Raises:
            SpoolUnavailable: one of them is still there, or may be.
        """
        if paths:
            await self._run("delete", paths[0], lambda: self._delete(paths))

    async def listing(self, folder: str) -> dict[str, int]:
        """Return every object in a folder and what is below it, with its bytes.

        Raises:
            SpoolUnavailable: it could not be read.
        """
        return await self._run("list", folder, lambda: self._list(folder))

    def close(self) -> None:
        """Wait for nothing: operations under way end by themselves."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._names.shutdown(wait=False)

    def _at(self, path: str) -> str:
        return f"{self._root}/{path}"

    def _write_wanted(self, path: str, data: bytes) -> None:
        with self._lock:
            self._writing.add(path)
        try:
            self._write(path, data)
        finally:
            with self._lock:
                self._writing.discard(path)
                unwanted = path in self._unwanted
                self._unwanted.discard(path)
            if unwanted:  # nobody waited for so long
                self._delete([path])

    def _write(self, path: str, data: bytes) -> None:
        at = self._at(path)
        folder = at.rpartition("/")[0]
        if folder not in self._folders:
            self._see_marker()
            self._fs.makedirs(folder, exist_ok=True)
            self._folders.add(folder)
        with self._open(at, "wb") as file:
            descriptor = _descriptor(file)
            if descriptor is None:
                file.write(data)
                return
            named = self._names.submit(_flush_folder, folder)  # both at once: the disk takes them in one go
            file.write(data)
            file.flush()
            os.fsync(descriptor)
            named.result()

    def _read(self, path: str, start: int, end: int) -> bytes:
        try:
            return bytes(self._fs.cat_file(self._at(path), start=start, end=end))
        except FileNotFoundError:
            self._see_marker()  # without it nothing is lost, but the storage is not there
            raise
        except OSError as error:
            if _is_no_path(error):
                raise FileNotFoundError(path) from None
            if self._fs.size(self._at(path)) <= start:  # some refuse to read behind the end
                return b""
            raise

    def _mark(self) -> None:
        at = self._at(self._marker)
        self._fs.makedirs(at.rpartition("/")[0], exist_ok=True)
        with self._fs.open(at, "wb") as file:
            file.write(b"Segments of spooled messages are below; without this file nothing is written here.\n")

    def _see_marker(self) -> None:
        self._fs.invalidate_cache()
        if not self._fs.exists(self._at(self._marker)):
            raise OSError(
                f"it has no {self._marker}, so it is not where segments were kept so far; mount that, or make "
                f"this file where they are now"
            )

    def _delete(self, paths: Sequence[str]) -> None:
        with self._lock:
            self._unwanted.update(self._writing.intersection(paths))
        for path in paths:
            try:
                self._fs.rm_file(self._at(path))
            except OSError as error:
                if not _is_no_path(error):
                    raise

    def _list(self, folder: str) -> dict[str, int]:
        self._fs.invalidate_cache()
        try:
            found = self._fs.find(self._at(folder), detail=True)
        except FileNotFoundError:
            return {}
        start = len(self._root.lstrip("/")) + 1
        listed = {name.lstrip("/")[start:]: int(info["size"]) for name, info in found.items()}
        listed.pop(self._marker, None)
        return listed

    async def _run(self, verb: str, path: str, work: Callable[[], T]) -> T:
        self.operations += 1
        try:
            async with asyncio.timeout(self._patience):
                return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except FileNotFoundError:
            if verb == "read":
                raise
            self._folders.clear()  # somebody took the folder away: make it again
            raise SpoolUnavailable(self.url, verb, path, "the folder is gone") from None
        except TimeoutError:
            raise SpoolUnavailable(self.url, verb, path, f"no answer within {self._patience:g} s") from None
        except Exception as error:
            raise SpoolUnavailable(self.url, verb, path, str(error) or repr(error)) from error


def _is_no_path(error: OSError) -> bool:
    """Return whether nothing is there, or can be: a part of the path is too long, or is a file."""
    return isinstance(error, FileNotFoundError | NotADirectoryError) or error.errno == errno.ENAMETOOLONG


def _descriptor(file: Any) -> int | None:
    """Return that of a file of this machine, or of a network, which counts once it is on the disk; else None."""
    try:
        return int(file.fileno())
    except (AttributeError, io.UnsupportedOperation):
        return None


def _flush_folder(folder: str) -> None:
    """See that the name of a new file is on the disk as well."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_url(url: object) -> None:
    """See that segments can be kept under a URL, and that it holds no secrets: a policy is shown to all.

    Raises:
        PolicyError: it cannot be used; the text says what to write.
    """
    scheme, separator, rest = url.partition("://") if isinstance(url, str) else ("", "", "")
    if not separator or not rest:
        raise PolicyError(
            "it is not a URL; use one like 'file:///var/spool/headgate' or 's3://bucket/prefix'", setting="url"
        )
    first = rest.partition("/")[0]
    if "@" in first or (":" in first and "@" in rest):  # a password that is not encoded may hold a slash
        raise PolicyError(
            "it holds a user or a password; leave them to the environment of those who use it", setting="url"
        )
    if "?" in rest:
        raise PolicyError("it has options after '?'; leave them to the environment of those who use it", setting="url")
    if scheme not in SCHEMES and not _registered(scheme):
        raise PolicyError(
            f"nothing can be kept at {scheme}://; use file:///var/spool/headgate, s3://bucket/prefix or another "
            f"of {', '.join(sorted(SCHEMES))}",
            setting="url",
        )
    if scheme in LOCAL and not rest.startswith("/"):
        raise PolicyError(f"{url!r} is relative to where each process runs; write {scheme}:///{rest}", setting="url")


def _registered(scheme: str) -> bool:
    """Return whether a program has registered a file system of its own with fsspec."""
    try:
        import fsspec
    except ModuleNotFoundError:
        return False
    return scheme in fsspec.registry


def shown(url: str) -> str:
    """Return a URL without what it takes to get in: user, password, and options after ``?``."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return url
    rest = rest.partition("?")[0]
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"
