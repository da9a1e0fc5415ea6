"""Measurements of ledgers: flow, waits and stalls, by window and by day."""
