"""The arithmetic of flow control: no I/O, no clock, no waiting. The caller passes the time."""
