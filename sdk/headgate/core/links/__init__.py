"""Links and channels as values: their settings, their calls, their packets."""
