"""Nodes that the kit runs against, set up as it asks for."""

from tests.amqp.conftest import node, start_node
from tests.sdk.conftest import client

__all__ = ["client", "node", "start_node"]
