"""AMQP 1.0 messages are values and bytes here, without connections."""
