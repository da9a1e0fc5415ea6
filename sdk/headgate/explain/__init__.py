"""An explanation says why somebody waits, for whom, and how long it may take."""
