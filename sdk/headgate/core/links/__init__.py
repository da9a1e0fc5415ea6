"""Links and channels are values here: their settings, their calls, their packets."""
