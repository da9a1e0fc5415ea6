"""A node runs as a process: with everything that runs in it, its sweeps, and `headgate up`."""
