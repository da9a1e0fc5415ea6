"""The arithmetic of flow control is done here: no I/O, no clock, no waiting. The caller passes the time."""
