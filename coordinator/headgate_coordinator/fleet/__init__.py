"""The fleet is the nodes of a namespace, as they know each other: the registry, their facts, their reply queues."""
