"""Stores reach what is kept in Redis beside destinations, each with its calls."""
