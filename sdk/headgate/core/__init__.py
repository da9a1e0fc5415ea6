"""The arithmetic of flow control: no I/O, no clock, no waiting. Whoever calls says what time it is."""
