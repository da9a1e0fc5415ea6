"""Clients of the SDK's tests, and nodes, for what is imported and applied."""

from tests.amqp.conftest import start_node
from tests.sdk.conftest import client

__all__ = ["client", "start_node"]
