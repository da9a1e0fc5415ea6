"""This module reads a destination's settings as callers give them, by name."""

from collections.abc import Mapping
from typing import Any

from headgate._util.keywords import explains
from headgate.core.foreign_words import hint
from headgate.core.levels import check_levels
from headgate.core.settings_table import (
    DEFAULT,
    DEFAULTS,
    FIELD_OF,
    KINDS,
    PATHS,
    ROWS,
    STORES,
    Settings,
    check_spool,
)
from headgate.core.spellings import MOST_POOLS
from headgate.errors import PolicyError

__all__ = [
    "DEFAULT", "DEFAULTS", "FIELD_OF", "KINDS", "MOST_POOLS", "ROWS", "STORES", "Settings", "check_levels",
    "check_spool", "settings_of",
]  # fmt: skip

_TABLES = frozenset({
    "subscription_windows", "limits", "key_limits", "shadow_limits", "shadow_key_limits", "key_weights", "fair_weights",
    "shadow", "bands", "reserve", "shed",
})  # fmt: skip
"""Settings that are tables by hand too."""
setattr(Settings, "__init__", explains("settings")(Settings.__init__))  # noqa: B010 - a method that was generated


def settings_of(values: Mapping[str, Any]) -> Settings:
    """Return settings from values by name.

    Raises:
        PolicyError: a name is unknown, or a value is a table of a policy; the error says which name is meant.
    """
    for name, value in values.items():
        if name not in ROWS:
            raise PolicyError(f"setting {name!r} is unknown; {hint(name, 'settings', ROWS)}")
        if isinstance(value, Mapping) and name not in _TABLES:
            meant = ", ".join(setting for setting, path in PATHS.items() if path[0] == name)
            raise PolicyError(f"{name}: a table is how a policy says it; by hand there are {meant}")
    return Settings(**values)
