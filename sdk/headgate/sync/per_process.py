"""Sessions of worker processes: one a process, opened when it is first used, and anew after a fork."""

import atexit
import os
import threading
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from headgate.sync.client import Bucket, Client, Session, connect
from headgate.sync.gate import Gate
from headgate.sync.limiter import Limiter

T = TypeVar("T")


class _Opened:
    """`_Opened` keeps the sessions of this process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.sessions: dict[PerProcess, tuple[Client, Session]] = {}
        self.things: dict[tuple[PerProcess, str, str], Any] = {}

    def begin_anew(self) -> None:
        """Forget what belongs to the process that this one was forked of."""
        self.__init__()  # type: ignore[misc]  # a lock that was held at the fork is never released here

    def close(self) -> None:
        """Give back what is held, at the end of the process."""
        for client, session in self.sessions.values():
            session.close()
            client.close()
        self.sessions.clear()


_opened: Final = _Opened()
os.register_at_fork(after_in_child=_opened.begin_anew)
atexit.register(_opened.close)


@dataclass(frozen=True)
class PerProcess:
    """`PerProcess` opens limiters, gates and buckets in workers that are forked, or get their work pickled.

    It may be made anywhere.

    Attributes:
        url: of the Redis; as :func:`headgate.connect` takes it.
        namespace: the tenant.
        name: of the sessions, for operators.
        ttl: seconds after which others have what was held, if a process dies.
    """

    url: str = field(repr=False)
    namespace: str = "default"
    name: str | None = None
    ttl: float | str = 10.0

    def limiter(self, name: str) -> "Opener[Limiter]":
        """Return a function that returns this process's limiter of that name; errors as :meth:`Session.limiter`."""
        return Opener[Limiter](self, "limiter", name)

    def gate(self, name: str) -> "Opener[Gate]":
        """Return a function that returns this process's gate of that name; errors as :meth:`Session.gate`."""
        return Opener[Gate](self, "gate", name)

    def bucket(self, name: str) -> "Opener[Bucket]":
        """Return a function that returns this process's bucket of that name; errors as :meth:`Session.bucket`."""
        return Opener[Bucket](self, "bucket", name)

    def session(self) -> Session:
        """Return this process's session; errors as :func:`connect`."""
        with _opened.lock:
            if self not in _opened.sessions:
                client = connect(self.url, namespace=self.namespace)
                try:
                    _opened.sessions[self] = client, client.session(self.name, ttl=self.ttl)
                except BaseException:
                    client.close()
                    raise
            return _opened.sessions[self][1]


@dataclass(frozen=True)
class Opener(Generic[T]):
    """An opener is a picklable function that returns a limiter, gate or bucket of the process that calls it."""

    of: PerProcess
    kind: str
    name: str

    def __call__(self) -> T:
        """Return it, opened with the first call; errors are those of :func:`connect` and of :class:`Session`."""
        at = (self.of, self.kind, self.name)
        if at not in _opened.things:
            _opened.things[at] = getattr(self.of.session(), self.kind)(self.name)
        thing: T = _opened.things[at]
        return thing
