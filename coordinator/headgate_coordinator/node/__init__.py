"""A broker node serves AMQP 1.0 to any client, under the limits that the whole cluster shares. It holds no state."""
