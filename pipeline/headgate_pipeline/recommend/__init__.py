"""Limits proposed from measured demand, written as a policy document."""
