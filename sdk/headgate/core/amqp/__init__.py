"""AMQP 1.0 messages as values and bytes, without connections."""
