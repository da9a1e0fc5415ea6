"""Two clients of one namespace: two programs, as far as Redis can tell."""

from tests.sdk.conftest import client, other

__all__ = ["client", "other"]
