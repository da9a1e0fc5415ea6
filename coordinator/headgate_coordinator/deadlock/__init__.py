"""A detector finds deadlocks that flow control causes, from what the destinations of a namespace say of themselves."""
