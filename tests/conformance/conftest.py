"""The clients of the SDK's tests: two of one namespace, as two hosts would have them."""

from tests.sdk.conftest import client, other

__all__ = ["client", "other"]
