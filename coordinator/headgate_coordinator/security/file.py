"""A TOML file holds users: it is read with the line of each error, and written whole."""

import contextlib
import os
import tempfile
from pathlib import Path

from pydantic import ValidationError

from headgate.policy.line_numbers import Path as Place
from headgate.policy.problems import BadDocument, Problem
from headgate.policy.read import text_of, toml
from headgate_coordinator.security.document import User, Users, UsersDocument

NO_USERS = "user = []"


def read_users(file: Path) -> Users:
    """Return the users in a file.

    Raises:
        BadDocument: everything that is wrong with it, or that it cannot be read; no value is repeated.
    """
    try:
        text = text_of(file)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else f"not UTF-8 at byte {error.start}"
        raise BadDocument([Problem(str(file), "", f"cannot be read: {why}; give a TOML file of users")]) from None
    return parse_users(text, file.name)


def parse_users(text: str, name: str = "users.toml") -> Users:
    """Return the users that a text says.

    Raises:
        BadDocument: everything that is wrong with it.
    """
    data, source = toml(text.removeprefix("\ufeff"), name)
    if not data:  # a file that was cut short must not let everybody in
        raise BadDocument([Problem(f"{name}:1", "", f"is empty; where there are no users, write {NO_USERS}")])
    try:
        document = UsersDocument.model_validate(data)
    except ValidationError as error:
        raise BadDocument(
            source.problem(one["loc"], _say(one["type"], one["msg"]))
            for one in error.errors(include_url=False, include_input=False)
        ) from None
    users: dict[str, User] = {}
    for position, user in enumerate(document.user):
        if user.name in users:
            where: Place = ("user", position, "name")
            raise BadDocument([source.problem(where, f"{user.name!r} is there already; keep one")])
        users[user.name] = User.model_validate(user.model_dump(exclude={"name"}))
    return users


def _say(kind: str, text: str) -> str:
    if kind == "extra_forbidden":
        return (
            "unknown key; a user has name, password_hash, grants (actions, match), max_connections and max_destinations"
        )
    if kind == "missing":
        return "is missing; give it"
    return text.removeprefix("Value error, ")


def write_users(file: Path, users: Users) -> None:
    """Write a file whole or not at all; a new one only its owner may read.

    Raises:
        BadDocument: it cannot be written.
    """
    from headgate_coordinator.security.edited_file import with_users  # which takes long to import, and few write

    try:
        mode = file.stat().st_mode & 0o777 if file.exists() else 0o600
        text = with_users(file, users)
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=file.parent, delete=False) as fresh:
            fresh.write(text)
            fresh.flush()
            os.fsync(fresh.fileno())
        try:
            Path(fresh.name).chmod(mode)
            Path(fresh.name).replace(file)
        except OSError:
            with contextlib.suppress(OSError):
                Path(fresh.name).unlink()
            raise
    except OSError as error:
        raise BadDocument([Problem(str(file), "", f"cannot be written: {error.strerror}")]) from None
