"""Pools may span sites: nodes at both ends do the work."""
