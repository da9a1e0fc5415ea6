"""Sessions: the lease under which a program sends and receives, and what it opens."""
