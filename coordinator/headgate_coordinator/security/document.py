"""Users as they are written: a document in TOML, or one JSON text a user in Redis."""

import re
from collections.abc import Mapping
from typing import Any, Final

from pydantic import ConfigDict, Field, field_validator, model_validator

from headgate.core.addresses.pattern import WILDCARDS, Pattern
from headgate.core.names import encode_name
from headgate.errors import InvalidName, InvalidValue
from headgate.policy.tables import Table
from headgate_coordinator.security.grants import Action, Grant
from headgate_coordinator.security.passwords import check_form

ANONYMOUS: Final = "anonymous"
"""The user of clients without a name."""
_NAME: Final = re.compile(r"[A-Za-z0-9._@+-]{1,80}\Z", re.ASCII)


def check_user(name: str) -> str:
    """Return the name as it is.

    Raises:
        InvalidName: not 1 to 80 of A-Z, a-z, 0-9, '.', '_', '@', '+' and '-'.
    """
    if not isinstance(name, str) or not _NAME.match(name):
        raise InvalidName(f"user {name!r:.100}: use 1 to 80 of A-Z, a-z, 0-9, '.', '_', '@', '+' and '-'")
    return name


class GrantTable(Table):
    """A grant permits some actions on the destinations that a pattern matches."""

    actions: list[Action] = Field(min_length=1)
    match: str

    @field_validator("match")
    @classmethod
    def _is_pattern(cls, match: str) -> str:
        Pattern.parse(match)
        encode_name(re.sub(f"[{WILDCARDS}]", "x", match))
        return match

    def grant(self) -> Grant:
        """Return it for the check of permissions."""
        return Grant(frozenset(self.actions), self.match)


class User(Table):
    """A user holds what is stored beside the name."""

    password_hash: str | None = Field(default=None, repr=False)
    grants: list[GrantTable] = Field(default_factory=list)
    max_connections: int | None = Field(default=None, ge=1, strict=True)
    max_destinations: int | None = Field(default=None, ge=0, le=100_000, strict=True)

    @field_validator("password_hash")
    @classmethod
    def _is_hash(cls, text: str | None) -> str | None:
        return None if text is None else check_form(text)


class NamedUser(User):
    """A named user is a user with its name, as in a file."""

    model_config = ConfigDict(hide_input_in_errors=True)
    name: str

    @field_validator("name")
    @classmethod
    def _is_name(cls, name: str) -> str:
        return check_user(name)

    @model_validator(mode="after")
    def _anonymous_has_no_password(self) -> "NamedUser":
        check_password(self.name, self)
        return self


class UsersDocument(Table):
    """A users document holds all users of a namespace."""

    user: list[NamedUser] = Field(default_factory=list)


Users = Mapping[str, User]
"""By name."""


def check_password(name: str, user: User) -> None:
    """Check that anonymous has no password; others without one sign in by a certificate or a token.

    Raises:
        InvalidValue: otherwise.
    """
    if name == ANONYMOUS and user.password_hash is not None:
        raise InvalidValue(f"{ANONYMOUS!r} is for clients that give no password; remove its password_hash")


def parse_grant(text: str) -> GrantTable:
    """Return the grant that a text such as ``produce,consume:orders.#`` says.

    Raises:
        InvalidValue, InvalidName, PolicyError: an unknown action, or a pattern that cannot be read.
    """
    actions, colon, match = text.partition(":")
    known = [action.value for action in Action]
    named = actions.split(",")
    if not colon or any(action not in known for action in named):
        raise InvalidValue(f"grant {text!r}: write actions and a pattern, e.g. produce,consume:orders.#; the actions "
                           f"are {', '.join(known)}")  # fmt: skip
    Pattern.parse(match)
    encode_name(re.sub(f"[{WILDCARDS}]", "x", match))
    return GrantTable(actions=[Action(action) for action in dict.fromkeys(named)], match=match)


def as_dict(user: User) -> dict[str, Any]:
    """Return what may be shown of a user: all but the hash."""
    return user.model_dump(mode="json", include={"grants", "max_connections", "max_destinations"}, exclude_none=True)
