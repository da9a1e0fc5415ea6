"""Addresses: patterns of names, an index of them, and the options a URL may carry."""
