"""The clients of the SDK's tests: two of one namespace, as two hosts would have them; and nodes, with their clients."""

from tests.amqp.conftest import node, rhea, rhea_there, start_node
from tests.pipeline.conftest import spark
from tests.sdk.conftest import client, other

__all__ = ["client", "node", "other", "rhea", "rhea_there", "spark", "start_node"]
