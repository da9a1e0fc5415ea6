"""Ledgers are measured here: flow, waits and stalls, by window and by day."""
