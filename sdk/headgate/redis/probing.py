"""A probe asks one server, or one Sentinel, plain questions: for who examines a deployment and does not use it."""

import asyncio
import socket
import ssl
from dataclasses import dataclass
from typing import Any, Final, Literal, Self

import redis.exceptions as rx
from redis.asyncio.connection import Connection

from headgate.errors import CoordinatorUnavailable, InvalidValue
from headgate.redis.connection_options import FileConnection, SecureConnection, connection_options, sentinel_options
from headgate.redis.url import FORMS, RedisUrl, parse_url

ANSWER_WITHIN: Final = 3.0
"""Seconds that a server may take to let us in, or to answer."""
_FAILED: Final = (rx.RedisError, OSError, TimeoutError)
_MOST: Final = 200
"""Characters of an error that are repeated."""


@dataclass(frozen=True, slots=True)
class ProbeRefusal:
    """The reason why a question has no answer.

    Attributes:
        text: in the server's words.
        forbidden: whether the user may not ask this; otherwise the server does not know it, or did not answer.
    """

    text: str
    forbidden: bool = False


Reason = Literal["login", "rights", "certificate", "file", "name", "closed", "stranger", "silent"]
"""Reasons for being kept out: credentials, rights, TLS, a file, the host's name, a hang-up, another server, silence."""
_REASONS: Final[tuple[tuple[tuple[type[BaseException], ...], Reason], ...]] = (
    ((rx.NoPermissionError,), "rights"),
    ((rx.AuthenticationError, rx.AuthorizationError), "login"),
    ((ssl.SSLError,), "certificate"),
    ((FileNotFoundError, IsADirectoryError, PermissionError), "file"),
    ((socket.gaierror,), "name"),
    ((rx.InvalidResponse,), "stranger"),
    ((ConnectionResetError, BrokenPipeError, EOFError), "closed"),
)


class ConnectRefused(CoordinatorUnavailable):
    """This error says that a server could not be connected to; the text is in its words, or the system's.

    Attributes:
        reason: what kept us out.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error)[:_MOST] or f"no answer within {ANSWER_WITHIN:g} s")
        self.reason = reason_of(error)


async def _let_in(connection: Any) -> None:
    """See that a server wants no password that we did not give; that it refuses a PING otherwise means nothing.

    Raises:
        AuthenticationError: it wants one.
    """
    await connection.send_command("PING")
    try:
        await connection.read_response()
    except rx.AuthenticationError:
        raise rx.AuthenticationError("it asks for a user or a password, and the URL gives none") from None
    except (rx.ResponseError, rx.BusyLoadingError):
        return


def chain_of(error: BaseException) -> list[BaseException]:
    """Return an error and those below it: redis-py raises its own while it handles the system's, or one of its own."""
    chain = [error]
    while below := chain[-1].__cause__ or chain[-1].__context__:
        chain.append(below)
    return chain


def reason_of(error: BaseException) -> Reason:
    """Return what kept us out, by the sort of error."""
    chain = chain_of(error)
    for kinds, reason in _REASONS:
        if any(isinstance(one, kinds) for one in chain):
            return reason
    alone = isinstance(error, rx.ConnectionError) and len(chain) == 1  # the system had no part in it
    return "closed" if alone else "silent"


def target(url: str) -> RedisUrl:
    """Return the parts of a URL that leads to a Redis, not to a node.

    Raises:
        InvalidValue: it is none; the error repeats no password.
    """
    if isinstance(url, str) and url.startswith(("amqp://", "amqps://")):
        raise InvalidValue(f"that is the URL of a node; give the URL of its Redis: {FORMS}")
    return parse_url(url)


class Probe:
    """A probe has one connection to one server; its questions never raise, and end within :data:`ANSWER_WITHIN`."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._broken: ProbeRefusal | None = None

    @classmethod
    async def open(cls, url: RedisUrl, place: tuple[str, int] | None = None, *, sentinel: bool = False) -> Self:
        """Connect to one server of a deployment.

        Args:
            url: names the user, the password and the certificates.
            place: host and port; None for the socket that the URL names.
            sentinel: whether a Sentinel is there.

        Raises:
            NotLetIn: it does not let us in.
        """
        options = sentinel_options(url) if sentinel else connection_options(url)
        options["socket_timeout"] = options["socket_connect_timeout"] = None  # ours is around each question
        tls = options.pop("ssl", url.tls)
        connection: Any
        if place is None:
            connection = FileConnection(path=url.path, db=url.db, **options)
        else:
            kind = SecureConnection if tls else Connection
            connection = kind(host=place[0], port=place[1], db=0 if sentinel else url.db, **options)
        try:
            async with asyncio.timeout(ANSWER_WITHIN):
                await connection.connect()
                await _let_in(connection)
        except BaseException as error:
            await connection.disconnect(nowait=True)
            if isinstance(error, _FAILED):
                raise ConnectRefused(error) from None
            raise
        return cls(connection)

    async def ask(self, *words: Any) -> Any:
        """Return the answer to a command as the server sent it, or a :class:`ProbeRefusal`."""
        if self._broken is not None:
            return self._broken
        try:
            async with asyncio.timeout(ANSWER_WITHIN):
                await self._connection.send_command(*words)
                return await self._connection.read_response()
        except rx.NoPermissionError as error:
            return ProbeRefusal(str(error)[:_MOST], forbidden=True)
        except rx.ResponseError as error:
            return ProbeRefusal(str(error)[:_MOST])
        except _FAILED as error:
            self._broken = ProbeRefusal(str(error)[:_MOST] or f"no answer within {ANSWER_WITHIN:g} s")
            await self.close()
            return self._broken

    async def close(self) -> None:
        """Close the connection."""
        await self._connection.disconnect(nowait=True)
