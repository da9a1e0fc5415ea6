"""Shared options are declared here, and so is how a command connects, runs and prints."""

import asyncio
import json
import re
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer
from typer.core import TyperGroup

import headgate
from headgate.core.foreign_words import foreign, hint
from headgate.figures import plain
from headgate.units import parse_duration
from headgate_coordinator.cli.exits import INTERRUPTED

if TYPE_CHECKING:  # it takes long to import, and most commands need none
    from headgate_coordinator.security.tokens import TokenVerifier

T = TypeVar("T")
CLAIM: Final = "sub"
"""The claim of a token that says whose it is, unless another is named."""
USAGE_ERROR: Final[type[Exception]] = next(one for one in typer.BadParameter.__mro__ if one.__name__ == "UsageError")

Redis = Annotated[
    str | None, typer.Option(metavar="URL", envvar="HEADGATE_URL", help="URL of Redis, e.g. redis://localhost.")
]
Namespace = Annotated[
    str, typer.Option(metavar="NAME", envvar="HEADGATE_NAMESPACE", help="Namespace of the destinations.")
]


def _seconds(text: object) -> float:
    try:
        return parse_duration(f"{text}s" if re.fullmatch(r"[0-9.]+", str(text)) else str(text), "a time")
    except headgate.InvalidValue as error:
        raise typer.BadParameter(error.problem) from None


def time_option(text: str, *, least: float = 0.0, most: float = float("inf")) -> Any:
    """Return an option that is a time within bounds in seconds: seconds, or a text with a unit such as ``500ms``."""

    def within(value: float) -> float:
        if not least <= value <= most:
            raise typer.BadParameter(
                f"{plain(value)} s; use {plain(least)} s" + (f" to {plain(most)} s" if most < 1e9 else " or more")
            )
        return value

    return typer.Option(parser=_seconds, callback=within, metavar="TIME", help=f"{text} Seconds, or e.g. 500ms.")


SiteSecrets = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        envvar="HEADGATE_SECRETS",
        file_okay=False,
        exists=True,
        help="Folder whose files a policy's sites may name.",
    ),
]
SiteHosts = Annotated[
    list[str] | None,
    typer.Option(
        "--site-host",
        metavar="HOST[:PORT]",
        envvar="HEADGATE_SITE_HOSTS",
        help="Host that URLs in a policy may lead to; may be given several times.",
    ),
]
StoreRoots = Annotated[
    list[str] | None,
    typer.Option(
        "--store-root",
        metavar="URL",
        envvar="HEADGATE_STORE_ROOTS",
        help="Folder or URL under which a policy's spool stores may be; may be given several times.",
    ),
]
TokenKeys = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        envvar="HEADGATE_TOKEN_KEYS",
        exists=True,
        dir_okay=False,
        help="File of public keys (a JSON Web Key Set) that verify users' tokens.",
    ),
]
TokenIssuer = Annotated[str, typer.Option(envvar="HEADGATE_TOKEN_ISSUER", help="Issuer (iss) that a token must have.")]
TokenAudience = Annotated[
    str, typer.Option(envvar="HEADGATE_TOKEN_AUDIENCE", help="Audience (aud) that a token must name.")
]
TokenClaim = Annotated[str, typer.Option(envvar="HEADGATE_TOKEN_CLAIM", help="Claim that names the token's user.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


def tokens_of(keys: Path | None, issuer: str, audience: str, claim: str) -> "TokenVerifier | None":
    """Return the check of tokens that the options ask for; None where they name no keys.

    Raises:
        InvalidValue: they do not go together, or the library for it is not there.
    """
    if len({keys is None, not issuer, not audience}) > 1:
        raise headgate.InvalidValue("--token-keys, --token-issuer and --token-audience are given together")
    if keys is None:
        return None
    from headgate_coordinator.security.tokens import TokenOptions, TokenVerifier

    return TokenVerifier(TokenOptions(keys, issuer, audience, claim))


class Commands(TyperGroup):
    """`Commands` is the command line; its error about an unknown option of another broker names our word."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except USAGE_ERROR as error:
            option = str(getattr(error, "option_name", "")).lstrip("-")
            if option in ("url", "redis-url") and _takes_redis(error):
                error.message = f"{error.message}; --redis URL says where Redis is"  # type: ignore[attr-defined]
            elif option and foreign(option):
                error.message = f"{error.message}; {hint(option, 'command')}"  # type: ignore[attr-defined]
            raise


def _takes_redis(error: Any) -> bool:
    return any("--redis" in one.opts for one in error.ctx.command.params) if error.ctx else False


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's work until it ends, or until Ctrl-C."""
    try:
        return asyncio.run(work)
    except (KeyboardInterrupt, asyncio.CancelledError):
        typer.echo("headgate: interrupted", err=True)
        raise typer.Exit(INTERRUPTED) from None


def connect(url: str | None, namespace: str) -> headgate.Client:
    """Return a client of the Redis that the options name.

    Raises:
        InvalidValue: they name none.
    """
    if not url:  # a private Redis of our own would have nothing in it to look at
        raise headgate.InvalidValue("which Redis? give --redis URL or set HEADGATE_URL; `headgate up` starts one")
    return headgate.connect(url, namespace=namespace)


def run_with(url: str | None, namespace: str, work: Callable[[headgate.Client], Coroutine[Any, Any, T]]) -> T:
    """Run a command's work with a client of the Redis that the options name; errors as :func:`connect`."""

    async def connected() -> T:
        async with connect(url, namespace) as client:
            return await work(client)

    return run(connected())


def print_json(value: object) -> None:
    """Print something as JSON."""
    typer.echo(json.dumps(value, indent=2))
