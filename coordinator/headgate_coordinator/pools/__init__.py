"""Pools over sites: the work of nodes at both ends."""
