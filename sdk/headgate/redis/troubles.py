"""Redis' errors are translated to ours: what happened, and what to do."""

from typing import Final

import redis.exceptions as rx

from headgate.errors import AccessDenied, CoordinatorUnavailable, DestinationDamaged, HeadgateError
from headgate.redis.call_line import CALL_TIMEOUT, LineTimeoutError
from headgate.redis.connection import TooFewReplicasError
from headgate.redis.probing import chain_of, reason_of
from headgate.redis.url import RedisUrl

_ANSWERS: Final = (rx.ResponseError, rx.BusyLoadingError)
STUMBLED: Final = (TypeError, ValueError, LookupError, AttributeError)
"""The ways in which redis-py stumbles over the answers of what is no Redis, as it connects."""
_DAMAGED: Final = ("NOGROUP", "WRONGTYPE", "equal or smaller than the target stream top item")
"""Redis' words where keys that belong together are not all there, or are of another type."""


def about_tls(url: RedisUrl, error: Exception) -> str:
    """Return what to add to the error of a first connection that fails as if one end alone spoke TLS."""
    if url.kind not in ("single", "cluster"):
        return ""
    scheme = "://" if url.kind == "single" else "+cluster://"
    silent = any(isinstance(one, TimeoutError | rx.TimeoutError) for one in chain_of(error))
    if url.tls and silent:  # a Redis waits for the rest of our greeting
        return f"; perhaps it speaks no TLS there: then the URL begins with redis{scheme}"
    if not url.tls and reason_of(error) in ("closed", "stranger"):
        return f"; perhaps it wants TLS there: then the URL begins with rediss{scheme}"
    return ""


def translated(url: RedisUrl, error: Exception, node: str = "", *, opening: bool = False) -> HeadgateError:
    """Return the error that is raised for one of redis-py's, of that ``node`` of a cluster.

    Args:
        url: of the deployment.
        error: of redis-py.
        node: of a cluster; empty where it is not known.
        opening: whether this is the first connection.
    """
    if isinstance(error, rx.ConnectionError) and isinstance(error.__cause__, rx.RedisError):
        error = error.__cause__  # what a server answers as redis-py logs in over a socket file comes wrapped
    tls = about_tls(url, error) if opening else ""
    if isinstance(error, rx.NoPermissionError):
        return AccessDenied(f"{url} refused: {_words(error)}; `headgate acl` prints the ACL that each role needs")
    if isinstance(error, rx.AuthenticationError | rx.AuthorizationError):
        return AccessDenied(f"{url} refused: {_words(error)}; check the user, the password and its ACL")
    if isinstance(error, TooFewReplicasError):
        text = f"{url} has fewer replicas that are up to date than min-replicas-to-write asks for"
        return CoordinatorUnavailable(f"{text}; see that they run", answered=True)
    if isinstance(error, rx.TryAgainError):
        text = f"{url} is moving a slot: its keys are served once all are at one server"
        return CoordinatorUnavailable(f"{text}; `redis-cli --cluster fix` ends a move that was left", answered=True)
    if isinstance(error, LineTimeoutError):
        text = f"{url} answers, but this process had too many calls before this one for {error.within:g} s"
        return CoordinatorUnavailable(f"{text}; make fewer at a time, or spread them over processes", answered=True)
    if isinstance(error, TimeoutError | rx.TimeoutError):
        who = f"{node} of {url}" if node else url
        return CoordinatorUnavailable(f"{who} did not answer within {CALL_TIMEOUT:g} s{tls}")
    if isinstance(error, rx.OutOfMemoryError):
        text = f"{url} is out of memory; consume, or raise its maxmemory"
        return CoordinatorUnavailable(text, answered=True)
    if isinstance(error, rx.ResponseError) and any(mark in str(error) for mark in _DAMAGED):
        return DestinationDamaged(
            f"{url} lacks keys of the destination ({error}): they were evicted, or changed by hand; see that "
            "its maxmemory-policy is noeviction, and then remove the destination",
            answered=True,
        )
    if isinstance(error, STUMBLED):
        return CoordinatorUnavailable(f"{url} does not answer as Redis does: {error}")
    return CoordinatorUnavailable(f"{url} cannot be used: {_words(error)}{tls}", answered=isinstance(error, _ANSWERS))


def _words(error: Exception) -> str:
    return str(error).rstrip(".")
