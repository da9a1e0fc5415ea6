"""A session is the lease under which a program sends and receives, with what it opens."""
