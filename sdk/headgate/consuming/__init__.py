"""Consumers have windows, deliveries, settlement, dead letters, and looks at stored messages."""
