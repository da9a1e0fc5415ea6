"""Broker nodes: what they are seen as from outside, and where they are registered."""
