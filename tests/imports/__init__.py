"""Configurations of other brokers become policies."""
