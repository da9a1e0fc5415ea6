"""Deadlocks that flow control causes, found from what the destinations of a namespace say of themselves."""
