"""Nodes that the kit runs against, set up as it asks for."""

from tests.amqp.conftest import start_node
from tests.sdk.conftest import client

__all__ = ["client", "start_node"]
