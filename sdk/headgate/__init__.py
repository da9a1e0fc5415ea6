"""Distributed flow control for messages: credits, byte budgets and rates held in Redis for a cluster."""

__version__ = "0.1.0"
