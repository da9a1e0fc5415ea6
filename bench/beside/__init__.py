"""Parts that measure others beside us."""
