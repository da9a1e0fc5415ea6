"""Limits are proposed from measured demand, and written as a policy document."""
