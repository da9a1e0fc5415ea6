"""AMQP 1.0 for nodes and their clients (extra ``amqp``). Only :mod:`headgate.amqp.proton` imports the C library."""
