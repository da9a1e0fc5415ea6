"""Users are managed by `headgate user ...`, on Redis or on a file; `headgate acl` prints users for an ACL file."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from headgate.errors import InvalidName, InvalidValue
from headgate_coordinator.cli.exits import FAILED
from headgate_coordinator.cli.options import Json, Namespace, Redis, print_json, run_with
from headgate_coordinator.operate.terminal import show
from headgate_coordinator.security.acl import ROLES, acl_line, site_line
from headgate_coordinator.security.document import ANONYMOUS, GrantTable, User, Users, as_dict, check_user, parse_grant
from headgate_coordinator.security.file import read_users, write_users
from headgate_coordinator.security.grants import MOST_DESTINATIONS, Action, Identity
from headgate_coordinator.security.passwords import hashed
from headgate_coordinator.security.store import UserStore

app = typer.Typer(no_args_is_help=True, help="Manage the users of a namespace's nodes and their grants.")

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the user; 'anonymous' stands for clients that give no name.")
]
Grants = Annotated[list[str], typer.Argument(metavar="GRANT...", help="Grants, e.g. produce,consume:orders.#")]
File = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="TOML file of users, instead of Redis; rewritten as a whole, without comments."),
]
Stdin = Annotated[bool, typer.Option("--password-stdin", help="Read the password from standard input.")]
Edit = Callable[[dict[str, User]], None]


@app.command()
def add(
    name: Name,
    grant: Annotated[
        list[str] | None,
        typer.Option(metavar="GRANT", help="Grant, e.g. produce,consume:orders.#; may be given several times."),
    ] = None,
    max_connections: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Most connections of the user at a time, at one node.")
    ] = None,
    max_destinations: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=100_000,
            metavar="N",
            help=f"That the user may make where there are none; {MOST_DESTINATIONS} when left out.",
        ),
    ] = None,
    password_stdin: Stdin = False,
    no_password: Annotated[
        bool, typer.Option("--no-password", help="Let the user sign in by certificate or token only.")
    ] = False,
    file: File = None,
    redis: Redis = None,
    namespace: Namespace = "default",
) -> None:
    """Add a user, or replace one; clients that are connected with an older password are cut off."""
    check_user(name)
    if no_password and password_stdin:
        raise InvalidValue("--no-password and --password-stdin: give one of them")
    grants = [parse_grant(text) for text in grant or ()]
    password = None
    if name != ANONYMOUS and not no_password:
        password = hashed(_password(f"Password of {name}", from_stdin=password_stdin))
    user = User(
        password_hash=password, grants=grants, max_connections=max_connections, max_destinations=max_destinations
    )

    def edit(users: dict[str, User]) -> None:
        users[name] = user

    _change(edit, file, redis, namespace)
    typer.echo(
        f"user {name} may {', '.join(str(given.grant()) for given in grants) or 'nothing yet: headgate user grant'}"
    )


@app.command()
def remove(name: Name, file: File = None, redis: Redis = None, namespace: Namespace = "default") -> None:
    """Remove a user, effective at once. When none is left, running nodes stay closed, and new ones are open to all."""

    def edit(users: dict[str, User]) -> None:
        _known(users, name)
        del users[name]
        left.extend(users)

    left: list[str] = []
    _change(edit, file, redis, namespace)
    typer.echo(f"user {name} is removed" + ("" if left else "; no user is left: nodes that start now let everyone in"))


@app.command("list")
def list_users(file: File = None, redis: Redis = None, namespace: Namespace = "default", as_json: Json = False) -> None:
    """Show all users and their grants, without passwords or hashes."""
    users = _read(file, redis, namespace)
    if as_json:
        print_json({name: as_dict(user) for name, user in sorted(users.items())})
        return
    table = Table(title=f"{len(users)} user(s)", title_justify="left", box=None)
    for column in ("user", "may", "connections", "destinations"):
        table.add_column(column, overflow="fold")
    for name, user in sorted(users.items()):
        granted = "\n".join(str(grant.grant()) for grant in user.grants) or "nothing"
        made = MOST_DESTINATIONS if user.max_destinations is None else user.max_destinations
        table.add_row(name, granted, str(user.max_connections or "any"), str(made))
    show(table)


@app.command()
def grant(name: Name, grants: Grants, file: File = None, redis: Redis = None, namespace: Namespace = "default") -> None:
    """Grant a user more, effective at once."""
    parsed = [parse_grant(text) for text in grants]

    def granted(user: User) -> User:
        for more in parsed:
            user = _with(user, more.match, {*_actions(user, more.match), *more.actions})
        return user

    _amend(name, granted, file, redis, namespace)


@app.command()
def revoke(
    name: Name, grants: Grants, file: File = None, redis: Redis = None, namespace: Namespace = "default"
) -> None:
    """Take grants away from a user, by the patterns they were given with; effective at once."""
    parsed = [parse_grant(text) for text in grants]

    def left(user: User) -> User:
        for less in parsed:
            had = _actions(user, less.match)
            if missing := [action for action in less.actions if action not in had]:
                raise InvalidValue(f"user {name!r} has no grant {missing[0]}:{less.match}; they may {_may(user)}")
            user = _with(user, less.match, had - set(less.actions))
        return user

    _amend(name, left, file, redis, namespace)


@app.command()
def check(
    name: Name,
    action: Annotated[Action, typer.Argument(metavar="ACTION", help=f"One of {', '.join(Action)}.")],
    destination: Annotated[str, typer.Argument(metavar="DEST", help="A name, a pattern, or '#' for the namespace.")],
    file: File = None,
    redis: Redis = None,
    namespace: Namespace = "default",
    as_json: Json = False,
) -> None:
    """Check whether a user may do something, and by which grant. Exits with 1 if not."""
    users = _read(file, redis, namespace)
    if not users:
        reason, allowed = "there are no users, so everyone may do everything", True
    else:
        user = _known(users, name)
        found = Identity(name, [given.grant() for given in user.grants]).why(action, destination)
        allowed = found is not None
        reason = f"by the grant {found}" if found else f"no grant allows it; they may {_may(user)}"
    if as_json:
        print_json({"user": name, "action": action, "destination": destination, "allowed": allowed, "reason": reason})
    else:
        typer.echo(f"{name} may {'' if allowed else 'not '}{action} {destination}: {reason}")
    if not allowed:
        raise typer.Exit(FAILED)


def acl(
    role: Annotated[
        str | None, typer.Option(metavar="ROLE", help=f"One of {', '.join(ROLES)}; all when left out.")
    ] = None,
    user: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of the Redis user; hg-<namespace>-<role> by default.")
    ] = None,
    cluster: Annotated[
        bool, typer.Option("--cluster", help="Include the commands that clients of a cluster call.")
    ] = False,
    functions: Annotated[
        bool,
        typer.Option(
            "--functions",
            help="Include Redis functions, which cost less than scripts: for Redis 7 and users who trust each other.",
        ),
    ] = False,
    password_stdin: Annotated[
        bool,
        typer.Option(
            "--password-stdin",
            help="Read one password per line from standard input, for each printed user in this order.",
        ),
    ] = False,
    site: Annotated[
        str | None, typer.Option(metavar="SITE", help="Print the user of this site, which has a part of --pool.")
    ] = None,
    pool: Annotated[str | None, typer.Option(metavar="POOL", help="Pool that the --site has a part of.")] = None,
    namespace: Namespace = "default",
) -> None:
    """Print users for an ACL file of Redis: what each part of Headgate needs, for one namespace, and no more.

    Only hashes of passwords are printed. Without --password-stdin the users are off.
    """
    if (site is None) != (pool is None) or (site is not None and (role or user or functions)):
        raise InvalidValue("--site and --pool are given together, and without --role, --user and --functions")
    if site is not None and pool is not None:
        password = sys.stdin.readline().rstrip("\r\n") if password_stdin else None
        typer.echo(site_line(namespace, pool, site, password=password, cluster=cluster))
        if not password_stdin:
            typer.echo("headgate: without --password-stdin the user is off", err=True)
        return
    roles = ROLES if role is None else tuple(known for known in ROLES if known == role)
    if not roles:
        raise InvalidValue(f"--role {role!r}: use one of {', '.join(ROLES)}")
    if user is not None and len(roles) > 1:
        raise InvalidValue("--user names one user; give --role too")
    passwords: list[str | None] = [None] * len(roles)
    if password_stdin:
        lines = sys.stdin.read().splitlines()
        if len(lines) != len(roles):
            raise InvalidValue(f"--password-stdin: {len(lines)} line(s) for {len(roles)} user(s): {', '.join(roles)}")
        passwords = list(lines)
    lines = [
        acl_line(known, namespace, user=user, password=password, cluster=cluster, functions=functions)
        for known, password in zip(roles, passwords, strict=True)
    ]
    typer.echo("\n".join(lines))
    if not password_stdin:
        typer.echo("headgate: without --password-stdin the users are off", err=True)


def _password(prompt: str, *, from_stdin: bool) -> str:
    if from_stdin:
        return sys.stdin.readline().rstrip("\r\n")
    if not sys.stdin.isatty():
        raise InvalidValue("no password: give --password-stdin and write it there, or call it in a terminal")
    return str(typer.prompt(prompt, hide_input=True, confirmation_prompt=True))


def _known(users: Users, name: str) -> User:
    if name not in users:
        raise InvalidName(f"there is no user {check_user(name)!r}; there are {', '.join(sorted(users)) or 'none'}")
    return users[name]


def _actions(user: User, match: str) -> set[Action]:
    return {action for table in user.grants if table.match == match for action in table.actions}


def _with(user: User, match: str, actions: set[Action]) -> User:
    """Return the user with these actions on a pattern, all in one grant; without any the grant goes."""
    grants = [table for table in user.grants if table.match != match]
    if actions:
        grants.append(GrantTable(actions=[action for action in Action if action in actions], match=match))
    return user.model_copy(update={"grants": grants})


def _may(user: User) -> str:
    return ", ".join(str(table.grant()) for table in user.grants) or "nothing"


def _read(file: Path | None, redis: str | None, namespace: str) -> Users:
    if file is not None:
        return read_users(file)
    return run_with(redis, namespace, lambda client: UserStore(client.store.server, namespace).read()).users


def _amend(name: str, amended: Callable[[User], User], file: Path | None, redis: str | None, namespace: str) -> None:
    def edit(users: dict[str, User]) -> None:
        result.append(amended(_known(users, name)))
        users[name] = result[-1]

    result: list[User] = []
    _change(edit, file, redis, namespace)
    typer.echo(f"user {name} may {_may(result[-1])}")


def _change(edit: Edit, file: Path | None, redis: str | None, namespace: str) -> None:
    if file is not None:
        users = dict(read_users(file)) if file.exists() else {}
        edit(users)
        write_users(file, users)
        return
    run_with(redis, namespace, lambda client: UserStore(client.store.server, namespace).change(edit))
