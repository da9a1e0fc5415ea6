"""A node as a process: everything that runs in it, its sweeps, and `headgate up`."""
