"""Broker nodes: AMQP 1.0 for any client, under the limits that the whole cluster shares. A node holds no state."""
