"""Workers of a node: the machine, the line, ports, and processes that are killed, restarted and asked."""
