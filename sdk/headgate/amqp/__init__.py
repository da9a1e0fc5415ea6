"""A node speaks AMQP 1.0 with its clients (extra ``amqp``). Only :mod:`headgate.amqp.proton` imports the C library."""
