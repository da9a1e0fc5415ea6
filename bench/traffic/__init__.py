"""Clients, servers and load for the parts that measure nodes and their peers."""
