"""A terminal shows a namespace: its status, its audit, and the live table of its destinations."""
