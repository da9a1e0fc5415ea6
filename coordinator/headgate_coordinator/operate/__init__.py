"""Looks at a namespace from a terminal: its status, its audit, and the live table of its destinations."""
